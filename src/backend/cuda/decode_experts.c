/* The experts of a layer for one token: who computes what, with how much shared memory. */
#include "backend/cuda/decode_experts.h"

#include "backend/cuda/decode_product.h"

static uint64_t expert_bytes(const weight *experts, int32_t n)
{
    return n > 1 ? (uint64_t)(experts[1].data - experts[0].data) : 0;
}

/* What a product of experts is, before it is known where its vectors are. */
static decode_experts product_of(const gpu *g, const layer_steps *l, bool is_down)
{
    const step *s = is_down ? l->expert_down : l->expert_glu;
    const weight *w = is_down ? s->a.moe.down : s->a.moe.gate;
    tile_kind kind = tile_kind_of(w->type);
    int32_t n_tiles = (int32_t)((w->n_cols + tile_cols(kind) - 1) / tile_cols(kind));
    int64_t k = (w->n_cols + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN;
    decode_experts p = {.n_experts = s->a.moe.n_experts,
                        .n_used = s->a.moe.n_used,
                        .norms = l->route->a.moe.rule.norms,
                        .kind = (int32_t)kind,
                        .tile_bytes = tile_bytes(kind),
                        .tiles = w->data,
                        .expert_bytes = expert_bytes(w, s->a.moe.n_experts),
                        .bias = is_down ? s->a.moe.down_bias : s->a.moe.gate_bias,
                        .n_rows = (int32_t)w->n_rows,
                        .n_tiles = n_tiles,
                        .x = {.k = (int32_t)k, .act = (int32_t)tile_kind_act(kind)},
                        .scale = is_down ? s->a.moe.scale : 1,
                        .glu = is_down ? 0 : (int32_t)s->a.moe.glu};
    p.n_all = p.n_used + (l->shared_glu != NULL);
    if (l->shared_glu)
        p.shared = (is_down ? l->shared_down : l->shared_glu)->a.matmul.weights[0]->data;
    if (l->shared_glu && !is_down)
        p.shared_pair = l->shared_glu->a.matmul.weights[1]->data;
    if (!is_down) {
        p.pair = s->a.moe.up->data;
        p.pair_bytes = expert_bytes(s->a.moe.up, s->a.moe.n_experts);
        p.pair_bias = s->a.moe.up_bias;
    }
    int32_t units = p.n_rows / TILE_ROWS * (is_down ? 1 : p.n_all);
    p.n_blocks = units < g->info.n_processors ? units : g->info.n_processors;
    p.stage_bytes = gpu_stage_bytes(g, kind);
    return p;
}

/* Units of 16 rows that a block has at most. */
static int32_t units_of_block(const decode_experts *p, bool is_down)
{
    int32_t units = p->n_rows / TILE_ROWS * (is_down ? 1 : p->n_all);
    return (units + p->n_blocks - 1) / p->n_blocks;
}

static int32_t slots_of_block(const decode_experts *p, bool is_down)
{
    return units_of_block(p, is_down) * (is_down ? p->n_all : 2);
}

/* Shared memory of a block without its ring. */
static uint64_t fixed_bytes(const decode_experts *p, bool is_down)
{
    uint64_t x = (gpu_act_bytes((gpu_act)p->x.act, p->x.k) + 64 + 127) / 128 * 128;
    uint64_t slots = (uint64_t)slots_of_block(p, is_down);
    uint64_t sums = is_down ? (uint64_t)units_of_block(p, is_down) : slots;
    return DECODE_EXPERTS_RING_AT + (is_down ? (uint64_t)p->n_all : 1) * x +
           DECODE_WARPS * sums * TILE_ROWS * 4 + slots * TILE_ROWS * 4;
}

static uint64_t least_bytes(const decode_experts *p, bool is_down)
{
    return fixed_bytes(p, is_down) + (uint64_t)(DECODE_WARPS * p->stage_bytes);
}

/* Vectors that come as planes; blocks of experts do not make them of floats. */
static bool has_planes(const decode_experts *p)
{
    return p->x.act != GPU_ACT_ROTATED && p->x.act != GPU_ACT_FLOATS;
}

bool gpu_experts_fit(const gpu *g, const layer_steps *l)
{
    decode_experts glu = product_of(g, l, false), down = product_of(g, l, true);
    uint64_t most = (uint64_t)g->info.max_shared_bytes;
    return gpu_glu_is_fused(l->expert_glu->a.moe.glu) && glu.n_experts <= DECODE_MAX_EXPERTS &&
           glu.n_all <= DECODE_MAX_USED && glu.n_used <= glu.n_experts && has_planes(&glu) &&
           has_planes(&down) && !glu.bias == !glu.pair_bias &&
           slots_of_block(&glu, false) <= DECODE_MAX_SLOTS &&
           slots_of_block(&down, true) <= DECODE_MAX_SLOTS &&
           units_of_block(&down, true) * TILE_ROWS <= DECODE_THREADS &&
           least_bytes(&glu, false) <= most && least_bytes(&down, true) <= most;
}

uint64_t gpu_experts_stride(const layer_steps *l)
{
    const weight *down = l->expert_down->a.moe.down;
    uint64_t bytes = gpu_act_bytes(tile_kind_act(tile_kind_of(down->type)), down->n_cols);
    return (bytes + 255) & ~(uint64_t)255;
}

int32_t gpu_experts_n_blocks(const gpu *g, const layer_steps *l)
{
    return product_of(g, l, true).n_blocks;
}

uint64_t gpu_experts_bytes(const layer_steps *l)
{
    const step *s = l->expert_glu;
    const weight *w[3] = {s->a.moe.gate, s->a.moe.up, l->expert_down->a.moe.down};
    uint64_t n = 0;
    for (int i = 0; i < 3; i++)
        n += tile_matrix_bytes(tile_kind_of(w[i]->type), w[i]->n_rows, w[i]->n_cols);
    return n * (uint64_t)(s->a.moe.n_used + (l->shared_glu != NULL));
}

/* ---- Shared memory --------------------------------------------------------------------------- */

/*
 * As with other products (decode_room.h), a block of down takes a little more than half of a
 * processor's shared memory and one of gate and up what is left, so that they meet there and down
 * has its weights on their way. Where there is little of it each takes all.
 */
uint32_t gpu_experts_down_bytes(const gpu *g, const layer_steps *l)
{
    if (g->can.rounds)
        return (uint32_t)g->info.max_shared_bytes;
    decode_experts p = product_of(g, l, true);
    /* Each block costs 1024 bytes more than it asks for. */
    uint64_t half = ((uint64_t)g->info.max_shared_bytes + 1024) / 2 - 1024 + 128;
    uint64_t least = least_bytes(&p, true);
    return (uint32_t)(least > half ? least : half);
}

/* The ring takes what there is, up to all tiles of a block. */
static void place_ring(decode_experts *p, bool is_down, uint32_t shared)
{
    int32_t places = (int32_t)((shared - fixed_bytes(p, is_down)) / (uint64_t)p->stage_bytes);
    p->n_places = places < DECODE_MAX_PLACES ? places : DECODE_MAX_PLACES;
}

uint32_t gpu_experts_glu(const gpu *g, const layer_steps *l, decode_vector x, uint32_t down_bytes,
                         decode_experts *out)
{
    uint32_t most = (uint32_t)g->info.max_shared_bytes;
    decode_experts p = product_of(g, l, false);
    p.x = x;
    p.next_stride = (int32_t)gpu_experts_stride(l);
    uint32_t rest = (most - 1024 - down_bytes) / 128 * 128;
    bool is_shared = down_bytes + 1024 < most && rest >= least_bytes(&p, false);
    uint32_t shared = is_shared ? rest : most;
    place_ring(&p, false, shared);
    *out = p;
    return shared;
}

uint32_t gpu_experts_down(const gpu *g, const layer_steps *l, decode_vector x, uint32_t down_bytes,
                          decode_experts *out)
{
    decode_experts p = product_of(g, l, true);
    p.x = x;
    p.x_stride = (int32_t)gpu_experts_stride(l);
    place_ring(&p, true, down_bytes);
    *out = p;
    return down_bytes;
}
