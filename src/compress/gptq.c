/* Quantizing a matrix with feedback. */
#include "compress/gptq.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "compress/trellis.h"
#include "tensor/rotate.h"

enum { N_PASSES = 8 }; /* of coordinate descent, at most */

typedef struct job {
    const codec *c;
    const hessian_factor *f;
    const float *importance; /* [n] */
    float *rows;
    int64_t n_rows;
    uint8_t *blocks;
    uint8_t *scratch; /* of each worker */
    uint64_t scratch_bytes;
    handout pieces;
} job;

/* One row at work. */
typedef struct row {
    float *w;          /* the weights wanted */
    float *left;       /* [n] what is still to be written, with the errors of those before */
    float *points;     /* [n] what they will read back as */
    float *pull;       /* [n] H (w - points) */
    uint8_t *q;        /* [n] */
    codec_grid *grids; /* [n / n_values] */
} row;

static void subtract_scaled(float *to, float by, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] -= by * from[i];
}

/* Column by column: e is the error in units of its conditional deviation. */
static void feed_forward(const job *j, const row *r, uint8_t *blocks)
{
    int64_t n = j->f->n, per_block = j->c->n_values;
    int64_t block_bytes = dtype_describe(j->c->type)->block_bytes;
    memcpy(r->left, r->w, (size_t)n * sizeof *r->left);
    for (int64_t at = 0; at < n; at += per_block) {
        codec_grid *g = &r->grids[at / per_block];
        _Alignas(8) uint8_t block[CODEC_MAX_BYTES]; /* those in the row lie at any address */
        j->c->fit(r->left + at, j->importance + at, block, g);
        memcpy(blocks + at / per_block * block_bytes, block, (size_t)block_bytes);
        for (int64_t i = at; i < at + per_block; i++) {
            const float *u = j->f->u + i * n;
            r->q[i] =
                (uint8_t)codec_nearest(g, (int)((i - at) / g->group), r->left[i], &r->points[i]);
            float e = (r->left[i] - r->points[i]) / u[i];
            subtract_scaled(r->left + i, e, u + i, n - i);
        }
    }
}

/* The value that fits best, with all others as they are, is its point and pull / h. */
static void descend(const job *j, const row *r)
{
    int64_t n = j->f->n, per_block = j->c->n_values;
    memset(r->pull, 0, (size_t)n * sizeof *r->pull);
    for (int64_t i = 0; i < n; i++)
        subtract_scaled(r->pull, r->points[i] - r->w[i], j->f->h + i * n, n);
    for (int pass = 0; pass < N_PASSES; pass++) {
        int64_t n_changed = 0;
        for (int64_t i = 0; i < n; i++) {
            const float *h = j->f->h + i * n;
            const codec_grid *g = &r->grids[i / per_block];
            float point, wanted = r->points[i] + r->pull[i] / h[i];
            int q = codec_nearest(g, (int)(i % per_block / g->group), wanted, &point);
            if (q == r->q[i])
                continue;
            subtract_scaled(r->pull, point - r->points[i], h, n);
            r->q[i] = (uint8_t)q;
            r->points[i] = point;
            n_changed++;
        }
        if (n_changed == 0)
            break;
    }
}

static uint64_t row_scratch_bytes(const codec *c, int64_t n)
{
    uint64_t bytes = (uint64_t)n * (3 * sizeof(float) + 1) +
                     (uint64_t)(n / c->n_values) * sizeof(codec_grid) + 64;
    return (bytes + 63) & ~(uint64_t)63;
}

static void quantize_rows(void *arg, int me, int n_workers)
{
    job *j = arg;
    int64_t n = j->f->n, per_block = j->c->n_values;
    uint64_t stride = row_bytes(j->c->type, n);
    uint64_t block_bytes = (uint64_t)dtype_describe(j->c->type)->block_bytes;
    uint8_t *at = j->scratch + (uint64_t)me * j->scratch_bytes;
    row r = {.left = (float *)at};
    r.points = r.left + n;
    r.pull = r.points + n;
    r.grids = (codec_grid *)(((uintptr_t)(r.pull + n) + 15) & ~(uintptr_t)15);
    r.q = (uint8_t *)(r.grids + n / per_block);
    uint32_t index;
    while (handout_claim(&j->pieces, (uint32_t)j->n_rows, &index)) {
        uint8_t *blocks = j->blocks + index * stride;
        r.w = j->rows + (int64_t)index * n;
        for (int64_t i = 0; i < n && j->c->is_rotated; i += ROTATE_VALUES)
            rotate_128(r.w + i, r.w + i);
        feed_forward(j, &r, blocks);
        descend(j, &r);
        for (int64_t i = 0; i < n; i += per_block, blocks += block_bytes) {
            _Alignas(8) uint8_t block[CODEC_MAX_BYTES];
            memcpy(block, blocks, block_bytes);
            j->c->put(r.q + i, block);
            memcpy(blocks, block, block_bytes);
        }
    }
}

lace_status gptq_quantize(const codec *c, const hessian_factor *f, float *rows, int64_t n_rows,
                          uint8_t *blocks, pool *workers, lace_error *err)
{
    int64_t n = f->n;
    assert(n % c->n_values == 0);
    if (!c->fit)
        return trellis_quantize(c->type, f, rows, n_rows, blocks, workers, err);
    job j = {.c = c,
             .f = f,
             .rows = rows,
             .n_rows = n_rows,
             .blocks = blocks,
             .scratch_bytes = row_scratch_bytes(c, n)};
    float *importance = mem_alloc((size_t)n * sizeof *importance);
    j.scratch = mem_alloc((size_t)pool_size(workers) * j.scratch_bytes);
    lace_status status = importance && j.scratch ? LACE_OK : error_nomem(err, "rows of weights");
    if (status == LACE_OK) {
        for (int64_t i = 0; i < n; i++)
            importance[i] = 1 / (f->u[i * n + i] * f->u[i * n + i]);
        j.importance = importance;
        pool_run(workers, quantize_rows, &j);
    }
    mem_free(importance);
    mem_free(j.scratch);
    return status;
}
