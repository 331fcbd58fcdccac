/* Encoding pruned matrices: scales by search, values to the nearest level. */
#include "compress/sparse_encode.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/levels.h"

enum { N_LEVELS = 16, N_TRIES = 6 };

typedef struct encoding {
    sparse_kind kind;
    const sparse_matrix *m;
    uint8_t *codes;  /* [n_rows, n_cols] */
    uint8_t *scales; /* [n_rows, groups] */
} encoding;

/* The code of the level that is nearest to x, and the level. */
static uint8_t nearest(sparse_kind kind, float x, float *level)
{
    if (kind == SPARSE_M8) {
        float q = roundf(x < -127 ? -127 : x > 127 ? 127 : x);
        *level = q;
        return (uint8_t)(int8_t)q;
    }
    int code = 0;
    for (int i = 0; i + 1 < N_LEVELS; i++)
        code += x > 0.5f * (float)(SPARSE_LEVELS[i] + SPARSE_LEVELS[i + 1]);
    *level = (float)SPARSE_LEVELS[code];
    return (uint8_t)code;
}

/* The weighted square error of a group with this scale; stops when it passes `least`. */
static float error_with(const encoding *e, const float *w, const uint8_t *keeps,
                        const float *inputs, int64_t n, uint8_t scale, float least)
{
    float s = sparse_scale(scale), sum = 0;
    for (int64_t i = 0; i < n && sum < least; i++) {
        if (!keeps[i])
            continue;
        float level;
        nearest(e->kind, w[i] / s, &level);
        float d = w[i] - s * level;
        sum += (inputs ? inputs[i] : 1) * d * d;
    }
    return sum;
}

/* The stored scale just above x: 3 bits of mantissa, exponents from -28. */
static int scale_above(float x)
{
    int low = 0, high = 255;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sparse_scale((uint8_t)middle) < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void encode_group(const encoding *e, int64_t row, int64_t begin, int64_t n)
{
    const sparse_matrix *m = e->m;
    const float *w = m->w + row * m->n_cols + begin;
    const uint8_t *keeps = m->keeps + row * m->n_cols + begin;
    const float *inputs = m->inputs ? m->inputs + begin : NULL;
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (keeps[i] && fabsf(w[i]) > largest)
            largest = fabsf(w[i]);
    /* From the one that reaches the largest value down: cutting it off may serve the others. */
    int top = scale_above(largest / 127), best = top;
    float least = INFINITY;
    for (int s = top; s >= 0 && s > top - (e->kind == SPARSE_M8 ? 2 : N_TRIES); s--) {
        float error = error_with(e, w, keeps, inputs, n, (uint8_t)s, least);
        if (error < least) {
            least = error;
            best = s;
        }
    }
    int64_t n_groups = (m->n_cols + SPARSE_GROUP - 1) / SPARSE_GROUP;
    e->scales[row * n_groups + begin / SPARSE_GROUP] = (uint8_t)best;
    for (int64_t i = 0; i < n; i++) {
        float level;
        e->codes[row * m->n_cols + begin + i] =
            nearest(e->kind, w[i] / sparse_scale((uint8_t)best), &level);
    }
}

static void encode_rows(void *arg, int worker, int n_workers)
{
    const encoding *e = arg;
    int64_t begin, end, n_cols = e->m->n_cols;
    pool_share(e->m->n_rows, 1, worker, n_workers, &begin, &end);
    for (int64_t row = begin; row < end; row++)
        for (int64_t col = 0; col < n_cols; col += SPARSE_GROUP)
            encode_group(e, row, col, n_cols - col < SPARSE_GROUP ? n_cols - col : SPARSE_GROUP);
}

/* CSR has the values themselves. */
static lace_status encode_csr(const sparse_matrix *m, buf *out, lace_error *err)
{
    int64_t n = m->n_rows * m->n_cols;
    float *values = mem_alloc((size_t)n * sizeof *values);
    if (!values)
        return error_nomem(err, "a sparse matrix");
    lace_status status = LACE_OK;
    for (int64_t i = 0; i < n && status == LACE_OK; i++) {
        values[i] = m->keeps[i] ? m->w[i] : 0;
        if (!isfinite(f16_to_f32(f16_from_f32(values[i]))))
            status = error_set(err, LACE_E_NUMERIC,
                               "a weight of %g does not fit CSR, whose values are f16",
                               (double)values[i]);
    }
    sparse_source source = {.n_rows = m->n_rows, .n_cols = m->n_cols, .values = values};
    if (status == LACE_OK)
        status = sparse_write(SPARSE_CSR, &source, out, err);
    mem_free(values);
    return status;
}

lace_status sparse_encode(sparse_kind kind, const sparse_matrix *m, pool *workers, buf *out,
                          lace_error *err)
{
    if (kind == SPARSE_CSR)
        return encode_csr(m, out, err);
    int64_t n_groups = (m->n_cols + SPARSE_GROUP - 1) / SPARSE_GROUP;
    encoding e = {.kind = kind,
                  .m = m,
                  .codes = mem_alloc((size_t)(m->n_rows * m->n_cols)),
                  .scales = mem_alloc((size_t)(m->n_rows * n_groups))};
    lace_status status = LACE_OK;
    if (!e.codes || !e.scales)
        status = error_nomem(err, "a sparse matrix");
    if (status == LACE_OK) {
        pool_run(workers, encode_rows, &e);
        sparse_source source = {.n_rows = m->n_rows,
                                .n_cols = m->n_cols,
                                .keeps = m->keeps,
                                .codes = e.codes,
                                .scales = e.scales};
        status = sparse_write(kind, &source, out, err);
    }
    mem_free_all(e.codes, e.scales);
    return status;
}

lace_status sparse_encode_s4(const uint8_t *blocks, int64_t n_rows, int64_t n_cols, buf *out,
                             lace_error *err)
{
    int64_t n = n_rows * n_cols, n_groups = n / SPARSE_GROUP;
    uint8_t *keeps = mem_alloc((size_t)n), *codes = mem_alloc((size_t)n);
    uint8_t *scales = mem_alloc((size_t)n_groups);
    lace_status status = keeps && codes && scales ? LACE_OK : error_nomem(err, "a sparse matrix");
    for (int64_t i = 0; i < n_groups && status == LACE_OK; i++) {
        const uint8_t *block = blocks + i * BLOCK_BYTES_S4;
        scales[i] = block[0];
        for (int part = 0; part < 4; part++)
            s_codes_unpack(4, block + 1 + 16 * part, codes + i * SPARSE_GROUP + 32 * part);
    }
    if (status == LACE_OK) {
        memset(keeps, 1, (size_t)n);
        sparse_source source = {
            .n_rows = n_rows, .n_cols = n_cols, .keeps = keeps, .codes = codes, .scales = scales};
        status = sparse_write(SPARSE_M4R, &source, out, err);
    }
    mem_free_all(keeps, codes, scales);
    return status;
}
