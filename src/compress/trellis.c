/* Writing trellis types. */
#include "compress/trellis.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "compress/codec.h"
#include "backend/host_trellis.h"
#include "tensor/levels.h"
#include "tensor/rotate.h"

/*
 * Bits in which paths must agree to become one. On normal values at 3 bits, 13 leave 0.0212 of the
 * energy where 12 leave 0.0216 and 14 0.0209; each takes twice the time of the one before.
 */
enum { MERGE_PLAIN = 12, MERGE_FEEDBACK = 13 };

/*
 * Levels are a little wider than the values, because the search seldom needs the outermost ones;
 * the more so the more codes there are. Tried on normal values.
 */
static const float widths[] = {[2] = 1.05f, [3] = 1.11f, [4] = 1.18f, [5] = 1.22f};

const codec codecs_trellis[] = {
    {.type = DTYPE_T2, .n_values = TRELLIS_VALUES, .is_rotated = true},
    {.type = DTYPE_T3, .n_values = TRELLIS_VALUES, .is_rotated = true},
    {.type = DTYPE_T4, .n_values = TRELLIS_VALUES, .is_rotated = true},
    {.type = DTYPE_T5, .n_values = TRELLIS_VALUES, .is_rotated = true},
};
const int n_codecs_trellis = sizeof codecs_trellis / sizeof *codecs_trellis;

int trellis_bits_of(dtype type)
{
    switch (type) {
    case DTYPE_T2:
        return 2;
    case DTYPE_T3:
        return 3;
    case DTYPE_T4:
        return 4;
    case DTYPE_T5:
        return 5;
    default:
        return 0;
    }
}

/* The stored scale that is nearest to x, by ratio. */
static uint8_t nearest_scale(float x)
{
    if (!(x > s_scale_to_f32(0)))
        return 0;
    int below = (int)((f32_to_bits(x) >> 20) - ((127u - 28) << 3));
    if (below >= 255)
        return 255;
    float a = s_scale_to_f32((uint8_t)below), b = s_scale_to_f32((uint8_t)(below + 1));
    return (uint8_t)(x * x < a * b ? below : below + 1);
}

static uint8_t fit_scale(int n_bits, const float *x, const float *weights)
{
    double energy = 0, sum = 0;
    for (int i = 0; i < TRELLIS_VALUES; i++) {
        energy += (double)(weights[i] * x[i]) * x[i];
        sum += (double)weights[i];
    }
    return nearest_scale(widths[n_bits] / TRELLIS_SIGMA * (float)sqrt(energy / sum));
}

static void put_block(int n_bits, uint8_t scale, const uint8_t *codes, uint8_t *block)
{
    uint32_t bits = 0;
    int n_held = 0;
    *block++ = scale;
    for (int i = 0; i < TRELLIS_VALUES; i++) {
        bits |= (uint32_t)codes[i] << n_held;
        for (n_held += n_bits; n_held >= 8; n_held -= 8, bits >>= 8)
            *block++ = (uint8_t)bits;
    }
    assert(n_held == 0);
}

/* One block; what is left of the row behind it is moved, if there is feedback. */
static void write_block(trellis_task *t, trellis_scratch *s, uint8_t *block)
{
    uint8_t codes[TRELLIS_VALUES];
    int8_t levels[TRELLIS_VALUES];
    uint8_t scale = fit_scale(t->n_bits, t->left, t->weights);
    t->scale = s_scale_to_f32(scale);
    trellis_search(t, s, codes, levels);
    put_block(t->n_bits, scale, codes, block);
}

static void rotate_row(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += ROTATE_VALUES)
        rotate_128(x + i, x + i);
}

lace_status trellis_encode(dtype type, const float *x, int64_t n_values, uint8_t *blocks,
                           lace_error *err)
{
    float left[TRELLIS_VALUES], weights[TRELLIS_VALUES];
    trellis_task t = {.n_bits = trellis_bits_of(type),
                      .merge = MERGE_PLAIN,
                      .left = left,
                      .n_left = TRELLIS_VALUES,
                      .weights = weights};
    trellis_scratch *s = mem_calloc(1, (size_t)trellis_scratch_bytes());
    if (!s)
        return error_nomem(err, "a search");
    for (int i = 0; i < TRELLIS_VALUES; i++)
        weights[i] = 1;
    for (int64_t i = 0; i < n_values; i += TRELLIS_VALUES) {
        memcpy(left, x + i, sizeof left);
        rotate_row(left, TRELLIS_VALUES);
        write_block(&t, s, blocks);
        blocks += dtype_describe(type)->block_bytes;
    }
    mem_free(s);
    return LACE_OK;
}

typedef struct job {
    dtype type;
    const hessian_factor *f;
    const float *weights; /* [n] */
    float *rows;
    int64_t n_rows;
    uint8_t *blocks;
    uint8_t *scratch; /* of each worker */
    handout pieces;
} job;

static void quantize_rows(void *arg, int me, int n_workers)
{
    job *j = arg;
    int64_t n = j->f->n;
    uint64_t stride = row_bytes(j->type, n);
    trellis_scratch *s = (trellis_scratch *)(j->scratch + (uint64_t)me * trellis_scratch_bytes());
    uint32_t index;
    while (handout_claim(&j->pieces, (uint32_t)j->n_rows, &index)) {
        float *row = j->rows + (int64_t)index * n;
        uint8_t *block = j->blocks + index * stride;
        rotate_row(row, n);
        for (int64_t at = 0; at < n; at += TRELLIS_VALUES) {
            trellis_task t = {.n_bits = trellis_bits_of(j->type),
                              .merge = MERGE_FEEDBACK,
                              .left = row + at,
                              .n_left = n - at,
                              .weights = j->weights + at,
                              .u = j->f->u + at * n + at,
                              .stride = n};
            write_block(&t, s, block);
            block += dtype_describe(j->type)->block_bytes;
        }
    }
}

lace_status trellis_quantize(dtype type, const hessian_factor *f, float *rows, int64_t n_rows,
                             uint8_t *blocks, pool *workers, lace_error *err)
{
    int64_t n = f->n;
    assert(n % TRELLIS_VALUES == 0);
    job j = {.type = type, .f = f, .rows = rows, .n_rows = n_rows, .blocks = blocks};
    float *weights = mem_alloc((size_t)n * sizeof *weights);
    j.scratch = mem_calloc((size_t)pool_size(workers), (size_t)trellis_scratch_bytes());
    lace_status status = weights && j.scratch ? LACE_OK : error_nomem(err, "a search");
    if (status == LACE_OK) {
        /* Relative to each other: costs are floats, and must not become too small. */
        double mean = 0;
        for (int64_t i = 0; i < n; i++)
            mean += 1 / ((double)f->u[i * n + i] * f->u[i * n + i]) / (double)n;
        for (int64_t i = 0; i < n; i++)
            weights[i] = (float)(1 / ((double)f->u[i * n + i] * f->u[i * n + i]) / mean);
        j.weights = weights;
        pool_run(workers, quantize_rows, &j);
    }
    mem_free_all(weights, j.scratch);
    return status;
}
