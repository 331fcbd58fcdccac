/* Norms and rotations of batches: they add up what products left, and leave atoms. */
#include "backend/cuda/handover.h"

enum { NORM_THREADS = 512, NORM_MOST = 16384, ROPE_THREADS = 64, ROPE_MOST_TOKENS = 128 };

static int64_t n_rows_of(const gpu_job *j, const step *s)
{
    int64_t n = s->is_output ? j->batch->n_outputs : j->batch->n_tokens;
    return s->row_factor > 1 ? n * s->row_factor : n;
}

/* What the atoms of a row take at most: K in whole 256s. */
static int64_t padded(int64_t n)
{
    return (n + 255) / 256 * 256;
}

static uint64_t scale_bytes(int64_t n_rows)
{
    return ((uint64_t)n_rows * 4 + 255) / 256 * 256;
}

/* A norm of whole rows that batch_norm_rows can do. */
static bool norm_is_fast(const gpu_job *j, const step *s)
{
    return j->handover && s->op == OP_RMS_NORM && s->a.norm.group == s->in[0].width &&
           s->in[0].width % 8 == 0 && padded(s->in[0].width) <= NORM_MOST && s->row_factor <= 1 &&
           n_rows_of(j, s) >= 2;
}

static bool rope_is_fast(const gpu_job *j, const step *s)
{
    return j->handover && s->op == OP_ROPE_KV && s->kv.type == DTYPE_F16 &&
           s->kv.head_dim % 2 == 0 && n_rows_of(j, s) >= 2 && n_rows_of(j, s) <= ROPE_MOST_TOKENS;
}

/* The product that reads the norm's rows as atoms; NULL: there is none. */
static const step *reader_of(const gpu_job *j, const step *norm)
{
    const step *s = norm + 1;
    if (s >= j->end)
        return NULL;
    bool reads = s->in[0].value == norm->out[0].value &&
                 (s->op == OP_MATMUL || s->op == OP_MATMUL_GROUP || s->op == OP_MATMUL_GLU) &&
                 s->is_output == norm->is_output;
    if (!reads)
        return NULL;
    tile_kind kind = tile_kind_of(s->a.matmul.weights[0]->type);
    return kind != TILE_F32 && !tile_is_rotated(kind) ? s : NULL;
}

static bool is_half(const step *s)
{
    tile_kind kind = tile_kind_of(s->a.matmul.weights[0]->type);
    return kind == TILE_F16 || kind == TILE_BF16;
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

bool gpu_leaves_parts(const gpu_job *j, const step *s)
{
    const step *next = s + 1;
    if (!j->handover || next >= j->end || next->is_output != s->is_output)
        return false;
    if (s->op == OP_MATMUL_ADD && s->a.matmul.n_weights == 1)
        return norm_is_fast(j, next) && next->in[0].value == s->out[0].value;
    return s->op == OP_MATMUL_GROUP && s->a.matmul.n_weights == 3 && rope_is_fast(j, next) &&
           next->out[0].value == s->out[0].value && next->out[1].value == s->out[1].value &&
           next->in[1].value == s->out[2].value;
}

bool gpu_handed_over(const gpu_job *j, const step *s, int64_t n_rows, row_form form, uint8_t **x,
                     float **scales)
{
    const gpu_handover *c = j->handover;
    if (!c || !c->made || s != c->made + 1 || s->in[0].value != c->made->out[0].value ||
        c->n_rows != n_rows || c->form != form)
        return false;
    if (form == ROWS_SLABS) {
        *x = c->memory;
        return true;
    }
    *scales = (float *)c->memory;
    *x = c->memory + scale_bytes(n_rows);
    return true;
}

lace_status gpu_launch_norm_batched(const gpu_job *j, const step *s, lace_error *err)
{
    if (!norm_is_fast(j, s))
        return gpu_launch_rms_norm(j, s, err);
    gpu_handover *c = j->handover;
    int64_t n = n_rows_of(j, s);
    const step *reader = reader_of(j, s);
    batch_norm p = {.x = (float *)s->in[0].data,
                    .y = (float *)s->out[0].data,
                    .x_stride = (int64_t)(s->in[0].stride / 4),
                    .y_stride = (int64_t)(s->out[0].stride / 4),
                    .weight = s->a.norm.weight,
                    .eps = s->a.norm.eps,
                    .width = (int32_t)s->in[0].width,
                    .n_rows = (int32_t)n};
    if (c->n_sums > 0) { /* of the product in front: gpu_leaves_parts */
        const batch_finish *f = &c->sums[0];
        p.added = (batch_sum){.parts = f->parts,
                              .bias = f->bias[0],
                              .stride = (int64_t)f->n_tokens * f->part_stride,
                              .row_stride = f->part_stride,
                              .n_parts = f->n_parts};
        c->n_sums = 0;
    }
    c->made = NULL;
    uint32_t n_blocks = (uint32_t)n;
    if (reader) {
        c->made = s;
        c->n_rows = (int32_t)n;
        n_blocks = (uint32_t)((n + 7) / 8 * 8);
    }
    if (reader && gpu_is_small_batch(j, reader)) {
        c->form = ROWS_SLABS;
        p.slabs = c->memory;
    } else if (reader) {
        tile_kind kind = tile_kind_of(reader->a.matmul.weights[0]->type);
        int64_t cols = tile_cols(kind);
        c->form = is_half(reader) ? ROWS_ATOMS_HALF : ROWS_ATOMS_INT;
        p.scales = (float *)c->memory;
        p.atoms = c->memory + scale_bytes(n);
        p.n_k64 = (int32_t)((p.width + cols - 1) / cols * (cols / 64));
        p.is_half = is_half(reader);
    }
    uint32_t grid[3] = {n_blocks, 1, 1};
    return gpu_start_overlapping(j, "batch_norm_rows", grid, NORM_THREADS, 0, &p, err);
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

lace_status gpu_launch_rope_batched(const gpu_job *j, const step *s, lace_error *err)
{
    if (!rope_is_fast(j, s))
        return gpu_launch_rope(j, s, err);
    batch_rope p = {.r = gpu_rope_of(j, s),
                    .q = sum_of(j->handover, &s->out[0]),
                    .k = sum_of(j->handover, &s->out[1]),
                    .v = sum_of(j->handover, &s->in[1])};
    j->handover->n_sums = 0;
    uint32_t grid[3] = {(uint32_t)j->batch->n_tokens, (uint32_t)(p.r.n_heads + p.r.n_kv_heads), 1};
    return gpu_start_overlapping(j, "batch_rope_heads", grid, ROPE_THREADS, 0, &p, err);
}
