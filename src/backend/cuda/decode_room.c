/* Shared memory of the products of one token. */
#include "backend/cuda/decode_room.h"

#include "backend/cuda/decode_experts.h"
#include "backend/cuda/decode_product.h"

enum {
    ALONE_BYTES = 116 * 1024,
    SHARED_RING = 64 * 1024, /* at least */
    LARGE_LAYER = 64 * 1024 * 1024,
    LARGE_PRODUCT = 24 * 1024 * 1024
};

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* What a block of output or down, whose input is x, asks for when processors are shared. */
static uint32_t residual_bytes(const gpu *g, const weight *w, decode_vector x)
{
    decode_product_any p = {.parts = {gpu_product_part(g, w, NULL, NULL)}, .n_parts = 1, .x = x};
    gpu_product_hand_out(&p, g->info.n_processors);
    /* Each block costs 1024 bytes more than it asks for. */
    uint32_t half = ((uint32_t)g->info.max_shared_bytes + 1024) / 2 - 1024 + 128;
    return larger(gpu_product_fixed_bytes(g, &p) + larger(gpu_product_least_ring(&p), SHARED_RING),
                  half);
}

static uint64_t matrix_bytes(const step *s)
{
    uint64_t n = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++) {
        const weight *w = s->a.matmul.weights[i];
        n += tile_matrix_bytes(tile_kind_of(w->type), w->n_rows, w->n_cols);
    }
    return n;
}

static uint64_t layer_bytes(const layer_steps *l)
{
    return matrix_bytes(l->qkv) + matrix_bytes(l->o) +
           (l->glu            ? matrix_bytes(l->glu) + matrix_bytes(l->down)
            : l->is_attention ? 0
                              : gpu_experts_bytes(l));
}

product_room product_room_choose(const decode_form *f, const decode_layout *m, const gpu *g)
{
    product_room r = {0};
    const layer_steps *first = NULL;
    bool norms_behind = false;
    for (int32_t i = 0; i < f->n_segments; i++) {
        const layer_steps *l = &f->segments[i].l;
        if (!f->segments[i].is_fused)
            continue;
        first = first ? first : l;
        norms_behind |= l->o_norm != NULL;
        const weight *o = l->o->a.matmul.weights[0];
        uint32_t bytes = residual_bytes(g, o, decode_layout_vector(m, FOR_OUTPUT, o));
        r.residual_shared = larger(r.residual_shared, bytes);
        if (l->glu) {
            const weight *down = l->down->a.matmul.weights[0];
            bytes = residual_bytes(g, down, decode_layout_vector(m, FOR_DOWN, down));
        } else if (!l->is_attention) {
            bytes = gpu_experts_down_bytes(g, l);
        }
        r.residual_shared = larger(r.residual_shared, bytes);
    }
    r.kernel = "decode_product_kernel";
    if (!first)
        return r;
    int64_t units = first->o->a.matmul.weights[0]->n_rows / TILE_ROWS;
    r.is_late = layer_bytes(first) >= LARGE_LAYER;
    r.shares = !g->can.rounds && !r.is_late && !norms_behind &&
               4 * units >= 3 * g->info.n_processors &&
               r.residual_shared + 1024 < (uint32_t)g->info.max_shared_bytes;
    r.kernel = r.shares ? "decode_product_shared" : "decode_product_kernel";
    return r;
}

/* What a block of a product into the residual asks for, of those that make their input. */
static uint32_t any_residual_bytes(const decode_form *f, const gpu *g)
{
    uint32_t most = 0;
    for (int32_t i = 0; i < f->n_steps; i++) {
        const step *s = &f->steps[i];
        if (f->forms[i].use != USE_PRODUCT || (s->op != OP_MATMUL_ADD && !f->forms[i].add))
            continue;
        const weight *w = s->a.matmul.weights[0];
        gpu_act act = tile_kind_act(tile_kind_of(w->type));
        int64_t k = (w->n_cols + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN;
        if (act != GPU_ACT_F32)
            most =
                larger(most, residual_bytes(g, w, (decode_vector){NULL, (int32_t)k, (int32_t)act}));
    }
    return most;
}

/* What the largest product of single steps reads. */
static uint64_t largest_product(const decode_form *f)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < f->n_steps; i++) {
        uint64_t n = f->forms[i].use == USE_PRODUCT ? matrix_bytes(&f->steps[i]) : 0;
        most = n > most ? n : most;
    }
    return most;
}

product_room product_room_choose_any(const decode_form *f, const gpu *g)
{
    product_room r = {.residual_shared = any_residual_bytes(f, g)};
    r.shares = !g->can.rounds && r.residual_shared > 0 && largest_product(f) < LARGE_PRODUCT &&
               r.residual_shared + 1024 < (uint32_t)g->info.max_shared_bytes;
    r.kernel = r.shares ? "decode_product_any_shared" : "decode_product_any_kernel";
    return r;
}

uint32_t product_room_place(const product_room *r, const gpu *g, decode_product_any *p,
                            uint32_t *shared_bytes)
{

    int32_t n_blocks = gpu_product_hand_out(p, g->info.n_processors);
    uint32_t fixed = gpu_product_fixed_bytes(g, p), most = (uint32_t)g->info.max_shared_bytes;
    uint32_t least = fixed + gpu_product_least_ring(p), shared = 0;
    if (r->shares)
        shared = p->mode == DECODE_RESIDUAL ? r->residual_shared
                                            : (most - 1024 - r->residual_shared) / 128 * 128;
    bool is_shared = shared >= larger(least, fixed + SHARED_RING);
    if (is_shared) {
        p->ring_bytes = (int32_t)((shared - fixed) / 128 * 128);
    } else {
        p->ring_bytes = (int32_t)gpu_product_alone_ring(p, most - fixed);
        shared = larger(fixed + (uint32_t)p->ring_bytes, most < ALONE_BYTES ? most : ALONE_BYTES);
    }
    p->n_blocks = n_blocks;
    for (int32_t i = 0; i < p->n_parts; i++) {
        decode_part *part = &p->parts[i];
        part->n_places = p->ring_bytes / part->stage_bytes;
        if (part->n_places > DECODE_MAX_PLACES)
            part->n_places = DECODE_MAX_PLACES;
        part->n_early = r->is_late ? DECODE_WARPS : DECODE_MAX_PLACES;
    }
    *shared_bytes = shared;
    /* Blocks without work keep places, or two of the next product would meet there. */
    return (uint32_t)(r->shares && p->mode == DECODE_RESIDUAL ? g->info.n_processors : n_blocks);
}
