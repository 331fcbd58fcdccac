/* Products of one token: who computes which rows, and what fits into shared memory. */
#include "backend/cuda/decode_product.h"

/* ---- Rows ------------------------------------------------------------------------------------ */

int32_t gpu_stage_bytes(const gpu *g, tile_kind kind)
{
    int32_t n = tile_bytes(kind);
    return g->can.bulk && n % 128 ? (n + 96 + 127) / 128 * 128 : n;
}

decode_part gpu_product_part(const gpu *g, const weight *w, const float *bias, float *out)
{
    tile_kind kind = tile_kind_of(w->type);
    return (decode_part){.tiles = w->data,
                         .bias = bias,
                         .out = out,
                         .kind = (int32_t)kind,
                         .tile_bytes = tile_bytes(kind),
                         .stage_bytes = gpu_stage_bytes(g, kind),
                         .n_rows = (int32_t)w->n_rows,
                         .n_tiles = (int32_t)((w->n_cols + tile_cols(kind) - 1) / tile_cols(kind))};
}

static int32_t units_of(const decode_part *p)
{
    return (p->n_rows + TILE_ROWS - 1) / TILE_ROWS;
}

/* What the slowest block of a part has to read. */
static uint64_t most_bytes(const decode_part *p)
{
    uint64_t units = (uint64_t)((units_of(p) + p->n_blocks - 1) / p->n_blocks);
    return units * (uint64_t)p->n_tiles * (uint64_t)p->tile_bytes;
}

int32_t gpu_product_hand_out(decode_product_any *p, int32_t n)
{
    int32_t used = p->n_parts;
    for (int32_t i = 0; i < p->n_parts; i++)
        p->parts[i].n_blocks = 1;
    while (used < n) {
        int32_t most = -1;
        for (int32_t i = 0; i < p->n_parts; i++)
            if (p->parts[i].n_blocks < units_of(&p->parts[i]) &&
                (most < 0 || most_bytes(&p->parts[i]) > most_bytes(&p->parts[most])))
                most = i;
        if (most < 0)
            break;
        p->parts[most].n_blocks++;
        used++;
    }
    for (int32_t i = 0, at = 0; i < p->n_parts; i++) {
        decode_part *part = &p->parts[i];
        part->first_block = at;
        part->each = units_of(part) / part->n_blocks;
        part->more = units_of(part) % part->n_blocks;
        at += part->n_blocks;
    }
    return used;
}

/* ---- Shared memory --------------------------------------------------------------------------- */

/* Rows of tiles that a block has at most. */
static int32_t units_of_block(const decode_product_any *p)
{
    int32_t most = 0;
    for (int32_t i = 0; i < p->n_parts; i++) {
        int32_t n = p->parts[i].each + (p->parts[i].more > 0);
        most = n > most ? n : most;
    }
    return most;
}

/* For sums of rows: of all warps, of all slots or of some at a time and then each row's. */
static uint32_t sums_bytes(const gpu *g, const decode_product_any *p)
{
    int32_t slots = units_of_block(p) * (p->mode == DECODE_GLU ? 2 : 1), most = 0;
    for (int32_t i = 0; i < p->n_parts; i++) {
        int32_t n = g->can.rounds ? DECODE_ROUND(p->parts[i].n_tiles) : slots;
        n = n < slots ? n : slots;
        most = n > most ? n : most;
    }
    int32_t rows = g->can.rounds ? slots : 0;
    return (uint32_t)((most * DECODE_WARPS + rows) * TILE_ROWS * 4);
}

uint32_t gpu_product_fixed_bytes(const gpu *g, const decode_product_any *p)
{
    bool is_made = p->x.act == GPU_ACT_ROTATED || p->x.act == GPU_ACT_FLOATS;
    uint32_t bytes = (uint32_t)gpu_act_bytes(is_made ? GPU_ACT_INT : (gpu_act)p->x.act, p->x.k);
    for (int32_t i = 0; p->made.x && i < p->n_parts; i++) { /* each part makes what it wants */
        gpu_act act = tile_kind_act((tile_kind)p->parts[i].kind);
        uint32_t n = (uint32_t)gpu_act_bytes(act, p->x.k);
        bytes = i == 0 || n > bytes ? n : bytes;
    }
    uint32_t x = (bytes + 64 + 127) / 128 * 128; /* planes are 64 bytes apart */
    return DECODE_RING_AT + x + sums_bytes(g, p) + 512;
}

uint32_t gpu_product_least_ring(const decode_product_any *p)
{
    uint32_t stage = 0;
    for (int32_t i = 0; i < p->n_parts; i++)
        if ((uint32_t)p->parts[i].stage_bytes > stage)
            stage = (uint32_t)p->parts[i].stage_bytes;
    return DECODE_WARPS * stage;
}

enum { ALONE_RING = 100 * 1024 };

uint32_t gpu_product_alone_ring(const decode_product_any *p, uint32_t room)
{
    uint32_t each = gpu_product_least_ring(p), n = ALONE_RING / each;
    n = n < 2 ? 2 : n;
    while (n > 1 && n * each > room)
        n--;
    return n * each;
}

bool gpu_product_has_room(const gpu *g, decode_product_any *p)
{
    gpu_product_hand_out(p, g->info.n_processors);
    bool is_bounded = p->mode == DECODE_RESIDUAL || (p->mode == DECODE_GLU && !g->can.rounds);
    if (is_bounded && units_of_block(p) * TILE_ROWS > DECODE_THREADS)
        return false; /* a thread finishes one row */
    return (uint64_t)gpu_product_fixed_bytes(g, p) + gpu_product_least_ring(p) <=
           (uint64_t)g->info.max_shared_bytes;
}

bool gpu_product_fits(const gpu *g, const step *s)
{
    const weight *const *w = s->a.matmul.weights;
    bool is_glu = s->op == OP_MATMUL_GLU;
    if (is_glu && !gpu_glu_is_fused(s->a.matmul.glu))
        return false;
    decode_product_any p = {.n_parts = is_glu ? 1 : s->a.matmul.n_weights,
                            .mode = is_glu                   ? DECODE_GLU
                                    : s->op == OP_MATMUL_ADD ? DECODE_RESIDUAL
                                                             : DECODE_STORE};
    for (int32_t i = 0; i < p.n_parts; i++)
        p.parts[i] = gpu_product_part(g, w[i], NULL, NULL);
    p.x = (decode_vector){
        .k = (int32_t)((w[0]->n_cols + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN),
        .act = (int32_t)tile_kind_act((tile_kind)p.parts[0].kind)};
    return gpu_product_has_room(g, &p);
}
