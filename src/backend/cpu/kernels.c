/* The kernel table and the sizes that follow from a step. */
#include "backend/cpu/kernels.h"

#include <string.h>

#include "backend/cpu/matmul_in_place.h"
#include "backend/cpu/ops.h"
#include "tensor/sparse.h"

static const char *const names[OP_COUNT] = {
#define X(id, name, what) [OP_##id] = #name,
#include "ops/ops.def"
#undef X
};

const char *op_name(op o)
{
    return names[o];
}

uint64_t act_row_bytes(act_format format, int64_t width)
{
    uint64_t n = (uint64_t)width;
    uint64_t bytes = format == ACT_F32 ? 4 * n : n + n / 32 * 4 + n / 16 * 2;
    return (bytes + 63) & ~(uint64_t)63;
}

void kernels_init(kernel_table *table, cpu_level level)
{
    memset(table, 0, sizeof *table);
    table->level = level;
    kernels_init_ref(table);
#if defined(__x86_64__)
    if (level >= CPU_AVX2 && level <= CPU_AVX512_VNNI)
        kernels_init_avx2(table);
    if (level >= CPU_AVX512 && level <= CPU_AVX512_VNNI)
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

static uint64_t matmul_step_scratch_bytes(const step *s, int64_t n_tokens)
{
    uint64_t most = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++) {
        const weight *w = s->a.matmul.weights[i];
        uint64_t bytes = matmul_scratch_bytes(w->impl, w->type, w->n_cols, n_tokens);
        most = bytes > most ? bytes : most;
    }
    return 2 * matmul_block_bytes(n_tokens) + ((most + 63) & ~(uint64_t)63);
}

uint64_t step_scratch_bytes(const step *s, int64_t n_tokens, int64_t n_context)
{
    switch (s->op) {
    case OP_MATMUL:
    case OP_MATMUL_ADD:
    case OP_MATMUL_GROUP:
    case OP_MATMUL_GLU:
        return matmul_step_scratch_bytes(s, n_tokens);
    case OP_MOE_GLU:
    case OP_MOE_DOWN:
        return moe_scratch_bytes(s, n_tokens);
    case OP_ATTEND: {
        /* Scores of one query and one row of the cache, for the plain kernel;
         * tiles for the others. */
        int32_t dim = s->a.attend.kv.head_dim;
        uint64_t plain = 4 * ((uint64_t)n_context + (uint64_t)dim) + 256;
        uint64_t tiles = attend_scratch_bytes(dim);
        return plain > tiles ? plain : tiles;
    }
    case OP_QUANTIZE:
        return s->thin ? 4 * (uint64_t)s->in[0].width : 0;
    case OP_RMS_NORM_QUANTIZE:
    case OP_ROTATE_QUANTIZE:
        return 4 * (uint64_t)s->in[0].width;
    case OP_KV_WRITE:
    case OP_ROPE_KV:
        return 4 * (uint64_t)s->a.rope.kv.head_dim + 64;
    default:
        return 0;
    }
}

uint64_t step_shared_bytes(const step *s, int64_t n_context)
{
    if (s->op != OP_ATTEND || n_context < 1)
        return 0;
    int32_t heads = s->a.attend.n_heads, dim = s->a.attend.kv.head_dim;
    uint64_t parts = (uint64_t)attend_part_of(n_context - 1) + 1;
    return attend_counter_bytes(heads) +
           4 * parts * ATTEND_SPLIT * (uint64_t)heads * (uint64_t)attend_part_floats(dim);
}

int64_t attend_n_items(const step *s, const batch *b)
{
    int64_t n = 0;
    if (b->n_tokens > ATTEND_SPLIT)
        return (int64_t)b->n_tokens * s->a.attend.kv.n_heads;
    for (int32_t t = 0; t < b->n_tokens; t++) {
        int32_t window = s->a.attend.window, last = b->positions[t];
        int32_t first = window && last + 1 > window ? last + 1 - window : 0;
        n += attend_part_of(last) - attend_part_of(first) + 1;
    }
    return n * s->a.attend.kv.n_heads;
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

static uint64_t weight_bytes(const weight *w)
{
    /* A packed sparse matrix has a table as the file's; on a GPU it has tiles. */
    if (dtype_is_sparse(w->type) && w->impl->rows)
        return sparse_packed_bytes(w->data, (w->n_rows + SPARSE_PANEL - 1) / SPARSE_PANEL);
    return matmul_packs(w->impl)
               ? matmul_packed_bytes(w->impl, w->type, w->data, w->n_rows, w->n_cols)
               : (uint64_t)w->n_rows * row_bytes(w->type, w->n_cols);
}

/* How many experts the batch has chosen, by the choices of the last run. */
static uint64_t n_chosen(const step *s, const batch *b)
{
    uint64_t n = 0;
    const weight *experts = s->op == OP_MOE_GLU ? s->a.moe.gate : s->a.moe.down;
    if (!experts->impl->rows) { /* on a GPU, where the choices cannot be seen: all different */
        int32_t most = b->n_tokens * s->a.moe.n_used;
        return (uint64_t)(most < s->a.moe.n_experts ? most : s->a.moe.n_experts);
    }
    for (int32_t e = 0; e < s->a.moe.n_experts; e++) {
        bool is_chosen = false;
        for (int32_t i = 0; i < b->n_tokens * s->a.moe.n_used && !is_chosen; i++) {
            const expert_choice *c =
                (const expert_choice *)operand_row(&s->in[1], i / s->a.moe.n_used);
            is_chosen = c[i % s->a.moe.n_used].expert == e;
        }
        n += is_chosen;
    }
    return n;
}

/* Cached positions that must be read: tokens of one sequence that lie together share them. */
static uint64_t attended_positions(const step *s, const batch *b)
{
    const int32_t *const *pages = b->pages[s->a.attend.kv.group];
    int32_t window = s->a.attend.window, n_run = 1;
    uint64_t n = 0;
    for (int32_t t = 0; t < b->n_tokens; t++, n_run++) {
        if (t + 1 < b->n_tokens && pages[t + 1] == pages[t])
            continue;
        int32_t seen = b->positions[t] + 1;
        if (window && seen > window + n_run - 1)
            seen = window + n_run - 1;
        n += (uint64_t)seen;
        n_run = 0;
    }
    return n;
}

uint64_t step_bytes(const step *s, const batch *b)
{
    uint64_t rows = (uint64_t)step_rows(s, b), bytes = 0;
    for (int i = 0; i < STEP_MAX_IN; i++)
        bytes += s->in[i].value >= 0 ? rows * s->in[i].stride : 0;
    for (int i = 0; i < STEP_MAX_OUT; i++)
        bytes += s->out[i].value >= 0 ? rows * s->out[i].stride : 0;
    switch (s->op) {
    case OP_MATMUL:
    case OP_MATMUL_ADD:
    case OP_MATMUL_GROUP:
    case OP_MATMUL_GLU:
        for (int i = 0; i < s->a.matmul.n_weights; i++)
            bytes += weight_bytes(s->a.matmul.weights[i]);
        break;
    case OP_MOE_GLU:
        bytes += n_chosen(s, b) * (weight_bytes(s->a.moe.gate) + weight_bytes(s->a.moe.up));
        break;
    case OP_MOE_DOWN:
        bytes += n_chosen(s, b) * weight_bytes(s->a.moe.down);
        break;
    case OP_EMBED:
        bytes += rows * row_bytes(s->a.embed.type, s->out[0].width);
        break;
    case OP_ATTEND: {
        const kv_layer *kv = &s->a.attend.kv;
        bytes += 2 * attended_positions(s, b) * (uint64_t)kv->n_heads * kv->row_bytes;
        break;
    }
    default:
        break;
    }
    return bytes;
}
