/*
 * Matrix products: every impl of every type, against the product in double precision of the decoded
 * weights and the activations as the kernel gets them, quantized or not.
 */
#define _GNU_SOURCE /* madvise */
#include "checkkernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/threads.h"
#include "backend/ref/ref.h"
#include "random_blocks.h"
#include "tensor/blocks.h"
#include "tensor/rotate.h"
#include "tensor/sparse.h"

/*
 * Integer products are exact; what remains are float sums over the blocks of a row and the rounding
 * of scale products, each of 2^-24, so 1e-13 or so of the squares of all terms. A wrong column
 * costs 1e-3 and more. Errors are compared with the terms, because a sum can be as small as chance
 * has it.
 */
#define MAX_ERROR 1e-11

/*
 * In fixed point both factors are rounded to 13 bits of the largest of their group, at most 2^-13
 * of it off: 2^-26 / 3 of the squares for groups whose values are all as large, and 5 to 10 times
 * that for a normal distribution of 32 or 128.
 */
#define MAX_ERROR_FIXED 2e-7

/*
 * Weights as bytes are off by at most half a step of 1/127 of the largest of 256: 5e-6 of the
 * squares if all were as large, and up to 20 times that where scales differ within the 256.
 */
#define MAX_ERROR_BYTES 1e-4
enum { FEWEST_AS_BYTES = 128 };

typedef struct problem {
    weight w;
    const uint8_t *blocks; /* as in the file */
    uint8_t *x;            /* activations in the impl's format */
    uint64_t x_stride;
    int64_t n_tokens;
    float *values; /* [n_tokens, n_cols]: what x stands for */
} problem;

typedef enum extreme { RANDOM, HIGHEST, LOWEST, N_EXTREMES } extreme;

/* Where the quants of a block are, to set them all to one value. */
static const struct {
    uint16_t offset, n_bytes;
} quants[DTYPE_COUNT] = {
#define QUANTS(id, type, name) [DTYPE_##id] = {offsetof(type, name), sizeof((type *)0)->name}
    QUANTS(Q4_0, block_q4_0, quants),
    QUANTS(Q4_1, block_q4_1, quants),
    QUANTS(Q8_0, block_q8_0, quants),
    QUANTS(Q2_K, block_q2_k, quants),
    QUANTS(Q4_K, block_q4_k, quants),
    QUANTS(MXFP4, block_mxfp4, quants),
    QUANTS(IQ4_NL, block_iq4_nl, quants),
    QUANTS(IQ4_XS, block_iq4_xs, quants),
    QUANTS(S2, block_s2, codes),
    QUANTS(S3, block_s3, codes),
    QUANTS(S4, block_s4, codes),
    QUANTS(S5, block_s5, codes),
    QUANTS(S6, block_s6, codes),
    QUANTS(T2, block_t2, stream),
    QUANTS(T3, block_t3, stream),
    QUANTS(T4, block_t4, stream),
    QUANTS(T5, block_t5, stream),
    /* Two fields that lie one after the other. */
    [DTYPE_Q5_0] = {offsetof(block_q5_0, high), 4 + 16},
    [DTYPE_Q5_1] = {offsetof(block_q5_1, high), 4 + 16},
    [DTYPE_Q3_K] = {offsetof(block_q3_k, high), 32 + 64},
    [DTYPE_Q5_K] = {offsetof(block_q5_k, high), 32 + 128},
    [DTYPE_Q6_K] = {offsetof(block_q6_k, low), 128 + 64},
};

static uint8_t *make_blocks(dtype type, int64_t n_rows, int64_t n_cols, extreme how)
{
    const dtype_info *info = dtype_describe(type);
    uint64_t n_bytes = (uint64_t)n_rows * row_bytes(type, n_cols);
    int64_t n_blocks = n_rows * n_cols / info->block_values;
    uint8_t *blocks = check_alloc(n_bytes);
    random_blocks(type, check_random(), n_blocks, blocks);
    /* 0x80 is the lowest number of Q8_0. */
    int byte = how == HIGHEST ? 0xff : type == DTYPE_Q8_0 ? 0x80 : 0;
    if (how != RANDOM)
        for (int64_t i = 0; i < n_blocks; i++)
            memset(blocks + i * info->block_bytes + quants[type].offset, byte,
                   quants[type].n_bytes);
    return blocks;
}

/* x as int8, and what is left of it. */
static void quantize_values(act_format format, float *x, int64_t n, uint8_t *row)
{
    bool is_rotated = format == ACT_ROTATED_Q8;
    for (int64_t i = 0; i < n && is_rotated; i += ROTATE_VALUES)
        rotate_128(x + i, x + i);
    quantize_row_ref(x, n, row);
    for (int64_t i = 0; i < n; i++)
        x[i] = act_q8_scales(row, n)[i / 32] * (float)((const int8_t *)row)[i];
    for (int64_t i = 0; i < n && is_rotated; i += ROTATE_VALUES)
        unrotate_128(x + i, x + i);
}

/* Activations of one row in the impl's format, and the values that they stand for. */
static void make_row(problem *p, int64_t t, check_fill fill)
{
    int64_t n = p->w.n_cols;
    float *x = p->values + t * n;
    uint8_t *row = p->x + (uint64_t)t * p->x_stride;
    check_fill_f32(x, n, fill);
    if (p->w.impl->act == ACT_F32) {
        memcpy(row, x, (size_t)n * 4);
        return;
    }
    quantize_values(p->w.impl->act, x, n, row);
}

/* Pack as an engine does, in parts. */
static void pack(problem *p)
{
    const matmul_impl *impl = p->w.impl;
    p->w.data = p->blocks;
    if (!impl->packed_bytes)
        return;
    uint8_t *out = check_alloc(impl->packed_bytes(p->w.type, p->w.n_rows, p->w.n_cols));
    for (int i = 0; i < 2; i++) {
        int64_t begin, end;
        pool_share(p->w.n_rows, MATMUL_TILE_ROWS, i, 2, &begin, &end);
        if (begin < end)
            impl->pack(p->w.type, p->blocks, p->w.n_rows, p->w.n_cols, begin, end, out);
    }
    p->w.data = out;
}

static problem make_problem(const matmul_impl *impl, dtype type, int64_t n_rows, int64_t n_cols,
                            int64_t n_tokens, extreme how)
{
    problem p = {.w = {.type = type, .n_rows = n_rows, .n_cols = n_cols, .impl = impl},
                 .n_tokens = n_tokens};
    p.blocks = make_blocks(type, n_rows, n_cols, how);
    p.x_stride = act_row_bytes(impl->act, n_cols) + 64 * (uint64_t)check_random_int(0, 2);
    p.x = check_alloc(p.x_stride * (uint64_t)n_tokens);
    p.values = check_alloc((uint64_t)(n_tokens * n_cols) * 4);
    for (int64_t t = 0; t < n_tokens; t++)
        make_row(&p, t, how != RANDOM ? CHECK_EQUAL : t % 5 == 4 ? CHECK_OUTLIER : CHECK_NORMAL);
    pack(&p);
    return p;
}

/* One token of an extreme problem has one sign throughout, so that sums grow as
 * large as they can. */
static void make_one_sided(problem *p)
{
    int64_t n = p->w.n_cols;
    for (int64_t i = 0; i < n; i++)
        p->values[i] = p->n_tokens % 2 ? -1.0f : 1.0f;
    if (p->w.impl->act == ACT_F32)
        memcpy(p->x, p->values, (size_t)n * 4);
    else
        quantize_values(p->w.impl->act, p->values, n, p->x);
}

/* The product, and the sum of the squares of all its terms. */
static double multiply_double(const problem *p, float *out, int64_t out_stride)
{
    int64_t n = p->w.n_cols;
    double squares = 0;
    float *row = check_alloc((uint64_t)n * 4);
    for (int64_t r = 0; r < p->w.n_rows; r++) {
        unpack_row(p->w.type, p->blocks + (uint64_t)r * row_bytes(p->w.type, n), n, row);
        for (int64_t t = 0; t < p->n_tokens; t++) {
            const float *x = p->values + t * n;
            double sum[4] = {0}, square[4] = {0};
            for (int64_t i = 0; i < n; i++) {
                double term = (double)row[i] * x[i];
                sum[i & 3] += term;
                square[i & 3] += term * term;
            }
            out[t * out_stride + r] = (float)(sum[0] + sum[1] + (sum[2] + sum[3]));
            squares += square[0] + square[1] + square[2] + square[3];
        }
    }
    return squares;
}

static uint64_t scratch_bytes(const problem *p)
{
    return matmul_scratch_bytes(p->w.impl, p->w.type, p->w.n_cols, p->n_tokens);
}

/* In place there is the same arithmetic as with packed weights, and so are the results. */
static void check_in_place(const problem *p, const operand *got)
{
    problem packed = *p;
    packed.w.impl = p->w.impl->panels;
    pack(&packed);
    operand want = check_operand_copy(got, p->n_tokens);
    packed.w.impl->rows(&packed.w, 0, p->w.n_rows, p->x, p->x_stride, p->n_tokens,
                        (float *)want.data, (int64_t)(want.stride / 4),
                        check_alloc(scratch_bytes(&packed)));
    check_bytes("product of packed weights", want.data, got->data,
                (uint64_t)p->n_tokens * want.stride);
}

/*
 * With many tokens, a sum of 0 over 32 columns counts as 2^-127 of the step that its scales make,
 * because exponents are added and not multiplied (gemm_avx512vnni.c): all weights 0, as MXFP4's
 * lowest quants are, give 6e-40. Not an error, but more than any share of 0.
 */
static void forgive_almost_zeros(const operand *want, operand *got, int64_t n_tokens)
{
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t r = 0; r < want->width; r++)
            if (check_row(want, t)[r] == 0 && fabsf(check_row(got, t)[r]) < 1e-35f)
                check_row(got, t)[r] = 0;
}

/* Each token alone gives the same bits, where the impl says so. */
static void check_alone(const problem *p, const operand *got)
{
    if (p->n_tokens == 1 || p->n_tokens > matmul_same_tokens(p->w.impl))
        return;
    operand alone = check_operand(ACT_F32, p->w.n_rows, 1);
    for (int64_t t = 0; t < p->n_tokens; t++) {
        p->w.impl->rows(&p->w, 0, p->w.n_rows, p->x + (uint64_t)t * p->x_stride, p->x_stride, 1,
                        (float *)alone.data, (int64_t)(alone.stride / 4),
                        check_alloc(scratch_bytes(p)));
        check_bytes("product of a token alone", alone.data, check_row(got, t),
                    (uint64_t)p->w.n_rows * 4);
    }
}

static void check_problem(const problem *p, int n_workers)
{
    /* Some columns of padding behind each token, which must stay as they are. */
    operand want = check_operand(ACT_F32, p->w.n_rows, p->n_tokens);
    operand got = check_operand_copy(&want, p->n_tokens);
    int64_t stride = (int64_t)(want.stride / 4);
    double squares = p->w.impl->panels ? 0 : multiply_double(p, (float *)want.data, stride);
    for (int i = 0; i < n_workers; i++) {
        int64_t begin, end;
        pool_share(p->w.n_rows, MATMUL_TILE_ROWS, i, n_workers, &begin, &end);
        if (begin < end)
            p->w.impl->rows(&p->w, begin, end, p->x, p->x_stride, p->n_tokens,
                            (float *)got.data + begin, stride, check_alloc(scratch_bytes(p)));
    }
    check_alone(p, &got);
    if (p->w.impl->panels) {
        check_in_place(p, &got);
        return;
    }
    /* Looks at the padding, too, and for NaNs; chance makes few sums smaller than 1e-3 of their
     * terms. */
    static const double errors[] = {MAX_ERROR, MAX_ERROR_FIXED, MAX_ERROR_BYTES};
    static const double errors_of_rows[] = {1e6 * MAX_ERROR, 1e3 * MAX_ERROR_FIXED,
                                            1e2 * MAX_ERROR_BYTES};
    matmul_rounding rounding = p->w.impl->rounding;
    if (rounding == MATMUL_TO_BYTES && p->n_tokens < FEWEST_AS_BYTES)
        rounding = MATMUL_EXACT;
    double allowed = errors[rounding];
    forgive_almost_zeros(&want, &got, p->n_tokens);
    check_rows("product", &want, &got, p->n_tokens, errors_of_rows[rounding]);
    double error = 0;
    for (int64_t t = 0; t < p->n_tokens; t++)
        for (int64_t r = 0; r < p->w.n_rows; r++)
            error += pow((double)check_row(&want, t)[r] - check_row(&got, t)[r], 2);
    char what[120];
    snprintf(what, sizeof what, "square error %.3g of the terms' squares, allowed %g",
             error / squares, allowed);
    check_true(error <= allowed * squares, what);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

typedef struct bench {
    weight w;
    const uint8_t *x;
    uint64_t x_stride;
    int64_t n_tokens;
    float *out;
    uint8_t *scratch[64];
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

/* Large pages, as an engine's weights have them. */
static uint8_t *alloc_weights(uint64_t n_bytes)
{
    uint64_t page = 2 << 20, rounded = (n_bytes + page - 1) / page * page;
    uint8_t *p = aligned_alloc(page, rounded);
    if (!p)
        exit(2);
    madvise(p, rounded, MADV_HUGEPAGE);
    return p;
}

static void bench_one(const char *what, const matmul_impl *impl, dtype type, int64_t n_rows,
                      int64_t n_cols, int64_t n_tokens, bool is_of_memory)
{
    check_shape("%s", what);
    uint64_t stride = row_bytes(type, n_cols);
    uint64_t n_bytes = (uint64_t)n_rows * stride;
    uint8_t *blocks = alloc_weights(n_bytes), *packed = NULL;
    int64_t n_distinct = n_rows < 64 ? n_rows : 64;
    random_blocks(type, 1, n_distinct * n_cols / dtype_describe(type)->block_values, blocks);
    for (int64_t i = n_distinct; i < n_rows; i++)
        memcpy(blocks + (uint64_t)i * stride, blocks + (uint64_t)(i - n_distinct) * stride, stride);
    bench b = {
        .w = {.type = type, .n_rows = n_rows, .n_cols = n_cols, .data = blocks, .impl = impl},
        .n_tokens = n_tokens};
    if (impl->packed_bytes) {
        n_bytes = impl->packed_bytes(type, n_rows, n_cols);
        packed = alloc_weights(n_bytes);
        impl->pack(type, blocks, n_rows, n_cols, 0, n_rows, packed);
        b.w.data = packed;
    }
    problem p = make_problem(impl, type, 1, n_cols, n_tokens, RANDOM);
    b.x = p.x;
    b.x_stride = p.x_stride;
    b.out = check_alloc((uint64_t)(n_rows * n_tokens) * 4);
    for (int i = 0; i < 64; i++)
        b.scratch[i] = i < 16 ? check_alloc(scratch_bytes(&p)) : NULL;
    check_rate rate = {0};
    if (is_of_memory)
        rate.n_bytes = (double)n_bytes;
    else
        rate.n_macs = (double)n_rows * (double)n_cols * (double)n_tokens;
    check_bench(what, bench_run, &b, rate);
    free(blocks);
    free(packed);
}

/* 256 MB of weights, more than caches hold, for few tokens; and a prompt. */
static void bench_impl(const matmul_impl *impl, dtype type)
{
    int64_t n_cols = 2048, of_memory = (256 << 20) / (int64_t)row_bytes(type, n_cols);
    bool is_slow = impl == &matmul_rows_ref;
    bench_one("2048 columns, 1 token", impl, type, (is_slow ? of_memory / 64 : of_memory) / 32 * 32,
              n_cols, 1, true);
    if (!is_slow) {
        bench_one("2048 columns, 4 tokens", impl, type, of_memory / 32 * 32, n_cols, 4, true);
        bench_one("2048 columns, 8 tokens", impl, type, of_memory / 32 * 32, n_cols, 8, true);
        bench_one("2048x2048, 16 tokens", impl, type, 2048, n_cols, 16, false);
        bench_one("5632x2048, 512 tokens", impl, type, 5632, n_cols, 512, false);
    }
    bench_one("2048x2048, 512 tokens", impl, type, is_slow ? 32 : 2048, n_cols, 512, false);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void check_impl(const char *table, const matmul_impl *impl, dtype type)
{
    static const int64_t rows[] = {1, 15, 16, 17, 33, 100, 512};
    static const int64_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 100, 130};
    enum { N_ROWS = sizeof rows / sizeof *rows, N_TOKENS = sizeof tokens / sizeof *tokens };
    const dtype_info *info = dtype_describe(type);
    int64_t unit = info->block_values;
    if (impl && impl->act == ACT_Q8 && unit < 32)
        unit = 32;
    if (!check_begin(table, info->name, impl))
        return;

    for (int i = 0; i < N_ROWS; i++) {
        for (int j = 0; j < N_TOKENS; j++) {
            bool is_large = rows[i] * tokens[j] > 5000;
            if (is_large && check_is_quick())
                continue;
            int64_t most = unit == 1 ? 200 : unit < 256 ? 416 : 768;
            int64_t n_cols = unit * check_random_int(1, (int)((is_large ? most / 2 : most) / unit));
            int n_workers = check_random_int(1, CHECK_MAX_WORKERS);
            check_shape("%d rows, %d columns, %d tokens, %d workers", (int)rows[i], (int)n_cols,
                        (int)tokens[j], n_workers);
            problem p = make_problem(impl, type, rows[i], n_cols, tokens[j], RANDOM);
            check_problem(&p, n_workers);
        }
    }
    for (int how = HIGHEST; how < N_EXTREMES && quants[type].n_bytes; how++) {
        /* As bytes, the lowest quants are rounded as coarsely as the highest: not here. */
        static const int some[] = {1, 5, 9, 13, 17, 40, 137};
        bool has_bytes = how == HIGHEST && impl->rounding == MATMUL_TO_BYTES;
        for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
            int n_tokens = some[i];
            if (n_tokens >= FEWEST_AS_BYTES && !has_bytes)
                continue;
            check_shape("%s, %d tokens", how == HIGHEST ? "highest quants" : "lowest quants",
                        n_tokens);
            problem p = make_problem(impl, type, 48, 512, n_tokens, (extreme)how);
            make_one_sided(&p);
            check_problem(&p, 1);
        }
    }
    if (check_is_bench())
        bench_impl(impl, type);
    check_end();
}

void check_matmul(const kernel_table *ref, const kernel_table *table)
{
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (dtype_is_sparse((dtype)type)) /* check_sparse.c */
            continue;
        check_impl("matmul", table->packed[type], (dtype)type);
        check_impl("matmul_in_place", table->in_place[type], (dtype)type);
        check_impl("matmul_exact", table->exact[type], (dtype)type);
    }
}
