/* The kernel table and the sizes that follow from a step. */
#include "backend/cpu/kernels.h"

#include <string.h>

#include "backend/cpu/latents_cpu.h"
#include "backend/cpu/matmul_in_place.h"
#include "backend/cpu/ops.h"
#include "backend/ref/ref.h"
#include "ops/op_info.h"

void kernels_init(kernel_table *table, cpu_level level)
{
    memset(table, 0, sizeof *table);
    table->level = level;
    kernels_init_ref(table);
#if defined(__x86_64__)
    if (level >= CPU_AVX2 && level <= CPU_AVX512_VBMI)
        kernels_init_avx2(table);
    if (level >= CPU_AVX512 && level <= CPU_AVX512_VBMI)
        kernels_init_avx512(table);
#elif defined(__aarch64__)
    if (level >= CPU_NEON)
        kernels_init_neon(table);
#endif
}

uint64_t matmul_scratch_bytes(const matmul_impl *impl, dtype type, int64_t n_cols, int64_t n_tokens)
{
    if (impl->panels)
        return matmul_in_place_bytes(impl->panels, type, n_cols) +
               matmul_scratch_bytes(impl->panels, type, n_cols, n_tokens);
    return impl->scratch_bytes ? impl->scratch_bytes(n_cols, n_tokens) : 0;
}

/* ---- Scratch, by operation ------------------------------------------------------------------- */

static uint64_t matmul_scratch(const step *s, int64_t n_tokens)
{
    uint64_t most = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++) {
        const weight *w = s->a.matmul.weights[i];
        uint64_t bytes = matmul_scratch_bytes(w->impl, w->type, w->n_cols, n_tokens);
        most = bytes > most ? bytes : most;
    }
    return 2 * matmul_block_bytes(n_tokens) + ((most + 63) & ~(uint64_t)63);
}

/* Scores of one query and one row of the cache, for the plain kernel; tiles for the others. */
static uint64_t attend_scratch(const step *s, int64_t n_context)
{
    int32_t dim = s->kv.head_dim > s->kv.v_dim ? s->kv.head_dim : s->kv.v_dim;
    uint64_t plain = 4 * ((uint64_t)n_context + (uint64_t)dim) + 256;
    uint64_t tiles = attend_scratch_bytes(dim);
    return plain > tiles ? plain : tiles;
}

static uint64_t row_scratch(const step *s)
{
    return 4 * (uint64_t)s->in[0].width;
}

static uint64_t attend_room(const step *s, int64_t n_tokens, int64_t n_context)
{
    uint64_t usual = attend_scratch(s, n_context), expanded = latent_room_bytes(s, n_tokens);
    return usual > expanded ? usual : expanded;
}

static uint64_t head_scratch(const step *s)
{
    return 4 * (uint64_t)(s->kv.head_dim > s->kv.v_dim ? s->kv.head_dim : s->kv.v_dim) + 64;
}

/* An operation that is not here does not compile: those without scratch are listed, too. */
uint64_t step_scratch_bytes(const step *s, int64_t n_tokens, int64_t n_context)
{
    switch (s->op) {
    case OP_MATMUL:
    case OP_MATMUL_ADD:
    case OP_MATMUL_GROUP:
    case OP_MATMUL_GLU:
        return matmul_scratch(s, n_tokens);
    case OP_MOE_GLU:
    case OP_MOE_DOWN:
        return moe_scratch_bytes(s, n_tokens);
    case OP_ATTEND:
        return attend_room(s, n_tokens, n_context);
    case OP_QUANTIZE:
        return s->sparsity ? row_scratch(s) : 0;
    case OP_RMS_NORM_QUANTIZE:
    case OP_ROTATE_QUANTIZE:
        return row_scratch(s);
    case OP_MATMUL_HEADS:
        return heads_scratch_bytes(s, n_tokens);
    case OP_KV_WRITE:
    case OP_ROPE_KV:
        return head_scratch(s);
    case OP_ROUTE:
        return route_scratch_bytes(s->a.moe.n_experts);
    case OP_SCAN:
        return scan_scratch_bytes(s->a.scan.head_dim, s->a.scan.n_state);
    case OP_CONV:
        return 4 * (uint64_t)s->out[0].width * (uint64_t)s->a.conv.n_taps;
    case OP_GRID_EMBED:
        return 4 * (uint64_t)s->out[0].width;
    case OP_DELTA:
        return delta_scratch_bytes(s->a.delta.k_dim, s->a.delta.v_dim);
    case OP_EMBED:
    case OP_GATHER:
    case OP_GATHER_RUN:
    case OP_GIVEN:
    case OP_ADD_GIVEN:
    case OP_SIDE_BY_SIDE:
    case OP_ROPE_TABLE:
    case OP_RMS_NORM:
    case OP_LAYER_NORM:
    case OP_DROP_SMALL:
    case OP_ADD:
    case OP_GLU:
    case OP_XIELU:
    case OP_PICK:
    case OP_TEMPERATURE:
    case OP_MIX:
    case OP_MATCH:
    case OP_CUTOFF:
    case OP_ROPE:
    case OP_SOFTCAP:
    case OP_COLLECT:
    case OP_LORA_DOWN:
    case OP_LORA_UP:
    case OP_MATMUL_JOIN:
    case OP_COUNT:
        break;
    }
    return 0;
}

uint64_t step_shared_bytes(const step *s, int64_t n_context)
{
    if (s->op != OP_ATTEND || n_context < 1)
        return 0;
    int32_t heads = s->a.attend.n_heads, dim = s->kv.v_dim;
    uint64_t parts = (uint64_t)attend_part_of(n_context - 1) + 1;
    return attend_counter_bytes(heads) +
           4 * parts * ATTEND_SPLIT * (uint64_t)heads * (uint64_t)attend_part_floats(dim);
}

int32_t matmul_same_tokens(const matmul_impl *impl)
{
    if (impl->panels)
        return matmul_same_tokens(impl->panels);
    return impl->same_tokens > 1 ? impl->same_tokens : 1;
}

int32_t step_same_tokens(const step *s)
{
    op_weight w[OP_MAX_WEIGHTS];
    int32_t least = INT32_MAX;
    int n = step_weights(s, w);
    for (int i = 0; i < n; i++) {
        int32_t same = matmul_same_tokens(w[i].w->impl);
        least = same < least ? same : least;
    }
    if (s->sparsity) /* a token that is alone skips weights */
        return 1;
    if (s->op == OP_ATTEND)
        return ATTEND_SAME;
    if (s->op == OP_DELTA)
        return DELTA_FEW - 1;
    return least;
}

int64_t attend_n_items(const step *s, const batch *b)
{
    int64_t n = 0;
    if (latents_are_expanded(&s->a.attend.latents, b))
        return s->a.attend.n_heads;
    if (b->n_tokens > ATTEND_SPLIT)
        return (int64_t)b->n_tokens * s->kv.n_heads;
    for (int32_t t = 0; t < b->n_tokens; t++) {
        int32_t first, end;
        attend_range(s, b, t, &first, &end);
        n += attend_part_of(end - 1) - attend_part_of(first) + 1;
    }
    return n * s->kv.n_heads;
}

bool matmul_packs(const matmul_impl *impl)
{
    return impl->packed_bytes || impl->packed_bytes_of;
}

uint64_t matmul_packed_bytes(const matmul_impl *impl, dtype type, const uint8_t *blocks,
                             int64_t n_rows, int64_t n_cols)
{
    return impl->packed_bytes_of ? impl->packed_bytes_of(blocks, n_rows)
                                 : impl->packed_bytes(type, n_rows, n_cols);
}
