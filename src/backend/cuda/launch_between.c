/* Norms and rotations of batches: they add up what products left, and leave atoms or slabs. */
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/handover.h"

enum {
    NORM_THREADS = 512,
    NORM_MOST = 16384,
    ROPE_THREADS = 64,
    ROPE_FEW_TOKENS = 128,
    ROPE_WARPS = 8
};

/* What the atoms of a row take at most: K in whole 256s. */
static int64_t padded(int64_t n)
{
    return (n + 255) / 256 * 256;
}

static uint64_t scale_bytes(int64_t n_rows)
{
    return ((uint64_t)n_rows * 4 + 255) / 256 * 256;
}

bool gpu_norm_is_batched(const step *s, int64_t n_rows)
{
    return s->op == OP_RMS_NORM && s->a.norm.group == s->in[0].width && s->in[0].width % 8 == 0 &&
           padded(s->in[0].width) <= NORM_MOST && s->row_factor <= 1 && n_rows >= 2;
}

bool gpu_rope_is_batched(const step *s, int64_t n_rows)
{
    int32_t unit = n_rows > ROPE_FEW_TOKENS ? 4 : 2;
    return s->op == OP_ROPE_KV && s->kv.type == DTYPE_F16 && s->kv.head_dim % unit == 0 &&
           s->a.rope.n_dims % unit == 0 && !s->kv.v_in_k && n_rows >= 2;
}

uint64_t gpu_handover_bytes(const step *steps, int32_t n_steps, int64_t max_tokens)
{
    int64_t width = 0;
    for (int32_t i = 0; i < n_steps; i++)
        if (steps[i].op == OP_RMS_NORM && steps[i].in[0].width > width)
            width = steps[i].in[0].width;
    uint64_t atoms = (uint64_t)padded(width) * 2 * (uint64_t)(max_tokens + 7), slabs = 0;
    for (int32_t i = 0; i < n_steps; i++)
        if ((steps[i].op == OP_MATMUL_GLU || steps[i].op == OP_ATTEND) &&
            gpu_slab_bytes(steps[i].out[0].width) > slabs)
            slabs = gpu_slab_bytes(steps[i].out[0].width);
    return scale_bytes(max_tokens) + (atoms > slabs ? atoms : slabs);
}

void gpu_handover_atoms(const gpu_handover *h, int64_t n_rows, uint8_t **x, float **scales)
{
    *scales = (float *)h->memory;
    *x = h->memory + scale_bytes(n_rows);
}

/* First ones, then units, then bytes. */
void gpu_handover_bytes_at(const gpu_handover *h, int64_t n_cols, int64_t n_rows, uint8_t **x,
                           float **units, float **ones)
{
    uint64_t rows = ((uint64_t)n_rows + 7) / 8 * 8;
    *ones = (float *)h->memory;
    *units = (float *)(h->memory + scale_bytes(n_rows));
    *x = (uint8_t *)(*units + 2 * rows * (uint64_t)padded(n_cols) / 256);
}

lace_status gpu_launch_norm(const gpu_job *j, const device_step *d, lace_error *err)
{
    const step *s = d->first;
    gpu_handover *h = j->handover;
    int64_t n = gpu_rows_of(j, s);
    batch_norm p = {.x = (float *)s->in[0].data,
                    .y = (float *)s->out[0].data,
                    .x_stride = (int64_t)(s->in[0].stride / 4),
                    .y_stride = (int64_t)(s->out[0].stride / 4),
                    .weight = s->a.norm.weight,
                    .eps = s->a.norm.eps,
                    .width = (int32_t)s->in[0].width,
                    .n_rows = (int32_t)n};
    if (d->takes == ROWS_PARTS && h->n_sums > 0) { /* the product was cut */
        const batch_finish *f = &h->sums[0];
        p.added = (batch_sum){.parts = f->parts,
                              .bias = f->bias[0],
                              .stride = (int64_t)f->n_tokens * f->part_stride,
                              .row_stride = f->part_stride,
                              .n_parts = f->n_parts};
        h->n_sums = 0;
    }
    if (d->leaves == ROWS_SLABS) {
        p.slabs = h->memory;
    } else if (d->leaves != ROWS_PLAIN && d->leaves != ROWS_BYTES) {
        gpu_handover_atoms(h, n, &p.atoms, &p.scales);
        p.n_k64 = d->n_k64;
        p.is_half = d->leaves == ROWS_ATOMS_HALF;
    }
    uint32_t n_blocks = (uint32_t)(d->leaves != ROWS_PLAIN ? (n + 7) / 8 * 8 : n);
    uint32_t grid[3] = {n_blocks, 1, 1};
    if (d->leaves == ROWS_BYTES) {
        batch_norm_bytes b = {.n = p};
        gpu_handover_bytes_at(h, s->in[0].width, n, &b.out, &b.units, &b.ones);
        return gpu_start(j, "batch_norm_bytes_rows", grid, NORM_THREADS, 0, &b, err);
    }
    return gpu_start(j, "batch_norm_rows", grid, NORM_THREADS, 0, &p, err);
}

/* Where rows lie: in parts, if a product left them for this operand. */
static batch_sum sum_of(const gpu_handover *c, const operand *o)
{
    for (int32_t i = 0; i < c->n_sums; i++) {
        const batch_finish *f = &c->sums[i];
        for (int32_t w = 0; w < f->n_weights; w++)
            if (f->out[w] == (float *)o->data)
                return (batch_sum){.parts = f->parts + f->part_offset[w],
                                   .bias = f->bias[w],
                                   .stride = (int64_t)f->n_tokens * f->part_stride,
                                   .row_stride = f->part_stride,
                                   .n_parts = f->n_parts};
    }
    return (batch_sum){
        .parts = (float *)o->data, .row_stride = (int64_t)(o->stride / 4), .n_parts = 1};
}

lace_status gpu_launch_rope(const gpu_job *j, const device_step *d, lace_error *err)
{
    const step *s = d->first;
    batch_rope p = {.r = gpu_rope_of(j, s),
                    .q = sum_of(j->handover, &s->out[0]),
                    .k = sum_of(j->handover, &s->out[1]),
                    .v = sum_of(j->handover, &s->in[1])};
    j->handover->n_sums = 0;
    uint32_t n_heads = (uint32_t)(p.r.n_heads + p.r.n_kv_heads);
    uint32_t grid[3] = {(uint32_t)j->batch->n_tokens, n_heads, 1};
    if (j->batch->n_tokens <= ROPE_FEW_TOKENS)
        return gpu_start(j, "batch_rope_heads", grid, ROPE_THREADS, 0, &p, err);
    grid[1] = (n_heads + ROPE_WARPS - 1) / ROPE_WARPS;
    return gpu_start(j, "batch_rope_rows", grid, 32 * ROPE_WARPS, 0, &p, err);
}
