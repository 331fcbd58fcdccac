/*
 * Products with sparse matrices at all densities, against the product in double precision of the
 * decoded rows and the activations as the kernel gets them.
 */
#include "checkkernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "backend/ref/ref.h"
#include "tensor/rotate.h"
#include "tensor/sparse.h"

/*
 * Integer products are exact; float sums over groups and the rounding of scale products remain, of
 * 2^-24 each. CSR sums f32 products. Compared with the squares of all terms, as for other products.
 */
#define MAX_ERROR 1e-11

/* A random blob; of each 256 weights, `density` are kept. The buffer is the caller's. */
static buf make_blob(sparse_kind kind, int64_t n_rows, int64_t n_cols, int density)
{
    int64_t n = n_rows * n_cols, n_groups = (n_cols + SPARSE_GROUP - 1) / SPARSE_GROUP;
    uint8_t *keeps = malloc((size_t)n), *codes = malloc((size_t)n);
    uint8_t *scales = malloc((size_t)(n_rows * n_groups));
    float *values = malloc((size_t)n * 4);
    if (!keeps || !codes || !scales || !values)
        exit(2);
    for (int64_t i = 0; i < n; i++) {
        uint64_t random = check_random();
        codes[i] = (uint8_t)(random & (kind == SPARSE_M8 ? 255 : 15));
        keeps[i] = (int)(random >> 8 & 255) < density;
        values[i] = keeps[i] ? (float)(int8_t)(random >> 16) / 64 : 0;
        if (kind == SPARSE_N24) /* the first two of four, moved by chance */
            keeps[i] = (i + (int64_t)(i / 4 * 2654435761u >> 7)) % 4 < 2;
    }
    for (int64_t i = 0; i < n_rows * n_groups; i++)
        scales[i] = (uint8_t)check_random_int(150, 200);
    sparse_source source = {n_rows, n_cols, keeps, codes, scales, values};
    buf b;
    buf_init(&b, SIZE_MAX / 2);
    if (sparse_write(kind, &source, &b, NULL) != LACE_OK)
        exit(2);
    free(keeps);
    free(codes);
    free(scales);
    free(values);
    return b;
}

/* A weight with the blob as the engine loads it: checked, and packed in two parts. */
static weight load_blob(const matmul_impl *impl, dtype type, const buf *b,
                        uint8_t *(*alloc)(size_t))
{
    sparse s;
    lace_error err;
    if (sparse_parse((span){(const uint8_t *)b->data, b->size}, &s, &err) != LACE_OK) {
        check_true(false, err.text);
        exit(2);
    }
    weight w = {
        .type = type, .n_rows = s.n_rows, .n_cols = s.n_cols, .data = s.where, .impl = impl};
    if (!matmul_packs(impl))
        return w;
    uint64_t n_bytes = matmul_packed_bytes(impl, type, s.where, s.n_rows, s.n_cols);
    uint8_t *out = alloc((size_t)n_bytes);
    for (int i = 0; i < 2; i++) {
        int64_t begin, end;
        pool_share(s.n_rows, MATMUL_TILE_ROWS, i, 2, &begin, &end);
        if (begin < end)
            impl->pack(type, s.where, s.n_rows, s.n_cols, begin, end, out);
    }
    w.data = out;
    return w;
}

static uint8_t *alloc_checked(size_t n_bytes)
{
    return check_alloc(n_bytes);
}

static uint8_t *alloc_plain(size_t n_bytes)
{
    uint8_t *p = malloc(n_bytes);
    if (!p)
        exit(2);
    return p;
}

/* Activations in the impl's format; values: what they stand for, [n_tokens, n_cols]. */
static uint8_t *make_activations(const matmul_impl *impl, int64_t n_cols, int64_t n_tokens,
                                 uint64_t *stride, float **values)
{
    *stride = act_row_bytes(impl->act, n_cols);
    *values = check_alloc((uint64_t)(n_tokens * n_cols) * 4);
    uint8_t *x = check_alloc(*stride * (uint64_t)n_tokens);
    for (int64_t t = 0; t < n_tokens; t++) {
        float *v = *values + t * n_cols;
        uint8_t *row = x + (uint64_t)t * *stride;
        check_fill_f32(v, n_cols, t % 3 == 2 ? CHECK_OUTLIER : CHECK_NORMAL);
        if (impl->act == ACT_F32) {
            memcpy(row, v, (size_t)n_cols * 4);
            continue;
        }
        bool is_rotated = impl->act == ACT_ROTATED_Q8;
        for (int64_t i = 0; i < n_cols && is_rotated; i += ROTATE_VALUES)
            rotate_128(v + i, v + i);
        quantize_row_ref(v, n_cols, row);
        for (int64_t i = 0; i < n_cols; i++)
            v[i] = act_q8_scales(row, n_cols)[i / 32] * (float)((const int8_t *)row)[i];
        for (int64_t i = 0; i < n_cols && is_rotated; i += ROTATE_VALUES)
            unrotate_128(v + i, v + i);
    }
    return x;
}

static void check_product(const matmul_impl *impl, dtype type, int64_t n_rows, int64_t n_cols,
                          int64_t n_tokens, int density)
{
    check_shape("%d rows, %d columns, %d tokens, %d of 256 kept", (int)n_rows, (int)n_cols,
                (int)n_tokens, density);
    buf b = make_blob(sparse_kind_of(type), n_rows, n_cols, density);
    weight w = load_blob(impl, type, &b, alloc_checked);
    uint64_t stride;
    float *values;
    const uint8_t *x = make_activations(impl, n_cols, n_tokens, &stride, &values);
    operand want = check_operand(ACT_F32, n_rows, n_tokens);
    operand got = check_operand_copy(&want, n_tokens);
    int64_t out_stride = (int64_t)(want.stride / 4);
    float *row = check_alloc((uint64_t)n_cols * 4);
    double squares = 0, error = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        sparse_unpack_row(sparse_kind_of(type), sparse_panel(w.data, r / 16), n_cols, (int)(r % 16),
                          row);
        for (int64_t t = 0; t < n_tokens; t++) {
            double sum = 0;
            for (int64_t i = 0; i < n_cols; i++) {
                double term = (double)row[i] * values[t * n_cols + i];
                sum += term;
                squares += term * term;
            }
            check_row(&want, t)[r] = (float)sum;
        }
    }
    for (int i = 0; i < 2; i++) {
        int64_t begin, end;
        pool_share(n_rows, MATMUL_TILE_ROWS, i, 2, &begin, &end);
        uint64_t n_scratch = impl->scratch_bytes ? impl->scratch_bytes(n_cols, n_tokens) : 0;
        if (begin < end)
            impl->rows(&w, begin, end, x, stride, n_tokens, (float *)got.data + begin, out_stride,
                       check_alloc(n_scratch));
    }
    check_rows("product", &want, &got, n_tokens, 1e6 * MAX_ERROR); /* padding and NaNs */
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t r = 0; r < n_rows; r++)
            error += pow((double)check_row(&want, t)[r] - check_row(&got, t)[r], 2);
    char what[120];
    snprintf(what, sizeof what, "square error %.3g of the terms' squares %.3g, allowed %g of them",
             error, squares, MAX_ERROR);
    check_true(error <= MAX_ERROR * squares, what);
    buf_deinit(&b);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

typedef struct bench {
    weight w;
    const uint8_t *x;
    uint64_t x_stride;
    int64_t n_tokens;
    float *out;
    uint8_t *scratch[16];
} bench;

static void bench_run(void *arg, int index, int count)
{
    bench *b = arg;
    int64_t begin, end;
    pool_share(b->w.n_rows, MATMUL_TILE_ROWS, index, count, &begin, &end);
    if (begin < end)
        b->w.impl->rows(&b->w, begin, end, b->x, b->x_stride, b->n_tokens, b->out + begin,
                        b->w.n_rows, b->scratch[index]);
}

/*
 * The same matrix at rising sparsity, too large for caches: time should follow what is left. And
 * one of the size that a layer has.
 */
static void bench_impl(const matmul_impl *impl, dtype type)
{
    enum { COLS = 5120, ROWS = 5120 };
    static const struct {
        int copies, sparsity;
    } cases[] = {{8, 0}, {8, 28}, {8, 50}, {8, 60}, {8, 70}, {8, 80}, {8, 90}, {8, 95}, {1, 50}};
    bool is_slow = impl == &matmul_sparse_ref;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !is_slow; i++) {
        int n_rows = cases[i].copies * ROWS, sparsity = cases[i].sparsity;
        if (type == DTYPE_N24 && sparsity != 50)
            continue;
        char what[64];
        snprintf(what, sizeof what, "%dx%d, %d %% sparse", n_rows, COLS, sparsity);
        check_shape("%s", what);
        buf one = make_blob(sparse_kind_of(type), n_rows, COLS, 256 - 256 * sparsity / 100);
        bench b = {.w = load_blob(impl, type, &one, alloc_plain), .n_tokens = 1};
        float *values;
        b.x = make_activations(impl, COLS, 1, &b.x_stride, &values);
        b.out = check_alloc((size_t)n_rows * 4);
        for (int k = 0; k < 16; k++)
            b.scratch[k] = check_alloc(impl->scratch_bytes ? impl->scratch_bytes(COLS, 1) : 0);
        check_bench(what, bench_run, &b,
                    (check_rate){.n_bytes = (double)one.size, .n_macs = (double)n_rows * COLS});
        free((void *)b.w.data);
        buf_deinit(&one);
    }
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void check_impl(const char *table, const matmul_impl *impl, dtype type)
{
    static const int densities[] = {0, 3, 64, 128, 200, 256};
    static const int tokens[] = {1, 2, 4, 5, 6, 7, 12, 13, 40};
    static const int rows[] = {1, 16, 23, 64, 100};
    if (!check_begin(table, dtype_describe(type)->name, impl))
        return;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
            if (check_is_quick() && tokens[i] * rows[j] > 600)
                continue;
            int density = densities[check_random_int(0, 5)];
            int64_t n_cols =
                type == DTYPE_M4R ? 128 * check_random_int(1, 3) : 32 * check_random_int(1, 12);
            check_product(impl, type, rows[j], n_cols, tokens[i], density);
        }
    if (check_is_bench())
        bench_impl(impl, type);
    check_end();
}

void check_sparse(const kernel_table *ref, const kernel_table *table)
{
    static const dtype types[] = {DTYPE_M4, DTYPE_M8, DTYPE_N24, DTYPE_CSR, DTYPE_M4R};
    for (int i = 0; i < 5; i++) {
        check_impl("sparse", table->packed[types[i]], types[i]);
        check_impl("sparse_in_place", table->in_place[types[i]], types[i]);
        check_impl("sparse_exact", table->exact[types[i]], types[i]);
    }
}
