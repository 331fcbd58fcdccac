/*
 * matmul_heads: a product for each head, of every type, against the product in double precision of
 * the decoded weights and the activations as the kernel quantizes them; what stands behind a head's
 * input is copied.
 */
#include "checkkernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/ref/ref.h"
#include "random_blocks.h"
#include "tensor/rotate.h"

enum { MAX_HEADS = 20, MAX_COLS = 512 };

/* Of the squares of all terms: as check_matmul.c says for products of each kind. */
static const double max_error[] = {
    [MATMUL_EXACT] = 1e-11, [MATMUL_TO_13_BITS] = 2e-7, [MATMUL_TO_BYTES] = 1e-4};

/*
 * Planes: a block of 32 has steps of its largest value / 32512. The square error of an input is that of a
 * step, squared / 12; the largest value squared is about 5 times the mean of the squares, up to 12 where
 * blocks are few: 4e-10 of them on average, 1e-9 at most.
 */
static const double max_error_planes = 1e-9;
bool check_has_planes;

static double allowed(const matmul_impl *impl, dtype type)
{
    bool is_plane = check_has_planes && dtype_describe(type)->block_values > 1;
    return is_plane ? max_error_planes : max_error[impl->rounding];
}

typedef struct problem {
    weight weights[MAX_HEADS];
    const uint8_t *blocks[MAX_HEADS]; /* as in the file */
    step s;
    batch b;
} problem;

static void make_weight(problem *p, int head, const matmul_impl *impl, dtype type, int64_t n_rows,
                        int64_t n_cols)
{
    uint8_t *blocks = check_alloc((uint64_t)n_rows * row_bytes(type, n_cols));
    random_blocks(type, check_random(), n_rows * n_cols / dtype_describe(type)->block_values,
                  blocks);
    weight *w = &p->weights[head];
    *w = (weight){.type = type, .n_rows = n_rows, .n_cols = n_cols, .impl = impl, .data = blocks};
    p->blocks[head] = blocks;
    if (!impl->packed_bytes)
        return;
    uint8_t *packed = check_alloc(impl->packed_bytes(type, n_rows, n_cols));
    impl->pack(type, blocks, n_rows, n_cols, 0, n_rows, packed);
    w->data = packed;
}

static void make_problem(problem *p, const kernel_table *table, const matmul_impl *impl, dtype type,
                         int n_heads, int64_t n_rows, int64_t n_cols, int n_rest, int n_tokens)
{
    *p = (problem){.s = {.op = OP_MATMUL_HEADS, .row_factor = 1}, .b = {.n_tokens = n_tokens}};
    for (int h = 0; h < n_heads; h++)
        make_weight(p, h, impl, type, n_rows, n_cols);
    p->s.a.heads.weights = p->weights;
    p->s.a.heads.n_heads = n_heads;
    p->s.a.heads.n_rest = n_rest;
    p->s.a.heads.form = heads_form(table, impl->act);
    p->s.in[0] = check_operand(ACT_F32, n_heads * (n_cols + n_rest), n_tokens);
    p->s.out[0] = check_operand(ACT_F32, n_heads * (n_rows + n_rest), n_tokens);
    for (int t = 0; t < n_tokens; t++)
        check_fill_f32(check_row(&p->s.in[0], t), p->s.in[0].width, CHECK_NORMAL);
}

/* What the kernel makes of one head's input. */
static void as_formed(act_format act, const float *x, int64_t n, float *out)
{
    static uint8_t row[4 * MAX_COLS];
    memcpy(out, x, (size_t)n * sizeof *x);
    if (act == ACT_F32)
        return;
    bool is_rotated = act == ACT_ROTATED_Q8;
    for (int64_t i = 0; i < n && is_rotated; i += ROTATE_VALUES)
        rotate_128(out + i, out + i);
    quantize_row_ref(out, n, row);
    for (int64_t i = 0; i < n; i++)
        out[i] = act_q8_scales(row, n)[i / 32] * (float)((const int8_t *)row)[i];
    for (int64_t i = 0; i < n && is_rotated; i += ROTATE_VALUES)
        unrotate_128(out + i, out + i);
}

/* Errors and terms of one head, squared and added up; and whether the rest is a copy. */
static void compare_head(const problem *p, int head, double *error, double *terms)
{
    const weight *w = &p->weights[head];
    int64_t rest = p->s.a.heads.n_rest, n = w->n_cols;
    static float row[MAX_COLS], x[MAX_COLS];
    for (int t = 0; t < p->b.n_tokens; t++) {
        const float *in = check_row(&p->s.in[0], t) + head * (n + rest);
        const float *out = check_row(&p->s.out[0], t) + head * (w->n_rows + rest);
        as_formed(w->impl->act, in, n, x);
        for (int64_t r = 0; r < w->n_rows; r++) {
            unpack_row(w->type, p->blocks[head] + (uint64_t)r * row_bytes(w->type, n), n, row);
            double sum = 0;
            for (int64_t i = 0; i < n; i++) {
                sum += (double)row[i] * x[i];
                *terms += pow((double)row[i] * x[i], 2);
            }
            *error += pow(sum - out[r], 2);
        }
        check_bytes("rest", in + n, out + w->n_rows, 4 * (uint64_t)rest);
    }
}

static void check_one(const kernel_table *table, const matmul_impl *impl, dtype type, int n_heads,
                      int64_t n_rows, int64_t n_cols, int n_rest, int n_tokens, int n_workers)
{
    problem p;
    check_shape("%d heads of %dx%d, %d behind, %d tokens, %d workers", n_heads, (int)n_rows,
                (int)n_cols, n_rest, n_tokens, n_workers);
    make_problem(&p, table, impl, type, n_heads, n_rows, n_cols, n_rest, n_tokens);
    check_run(table->ops[OP_MATMUL_HEADS], &p.s, &p.b, n_workers, 1);
    double error = 0, terms = 0, most = allowed(impl, type);
    for (int h = 0; h < n_heads; h++)
        compare_head(&p, h, &error, &terms);
    char line[120];
    snprintf(line, sizeof line, "square error %.3g of the terms' squares %.3g, allowed %g", error,
             terms, most);
    check_true(error <= most * terms, line);
}

static void bench(const kernel_table *table, const matmul_impl *impl, dtype type, int64_t n_rows,
                  int64_t n_cols, int n_tokens)
{
    problem p;
    char what[64];
    if (!check_is_bench())
        return;
    snprintf(what, sizeof what, "20 of %dx%d, %d tokens", (int)n_rows, (int)n_cols, n_tokens);
    check_shape("bench");
    make_problem(&p, table, impl, type, MAX_HEADS, n_rows, n_cols, 64, n_tokens);
    double n_weights = (double)MAX_HEADS * (double)(n_rows * n_cols);
    check_rate rate = {.n_macs = n_weights * n_tokens};
    if (n_tokens == 1)
        rate.n_bytes = (double)MAX_HEADS * (double)n_rows * (double)row_bytes(type, n_cols);
    check_bench_step(what, table->ops[OP_MATMUL_HEADS], &p.s, &p.b, 1, rate);
}

void check_heads(const kernel_table *ref, const kernel_table *table)
{
    static const dtype types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,
                                  DTYPE_Q4_0, DTYPE_Q4_K, DTYPE_T4};
    static const int rows[] = {24, 16, 100, 128}, tokens[] = {1, 3, 17, 70};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const matmul_impl *impl = table->packed[types[t]];
        if (!check_begin("matmul_heads", dtype_describe(types[t])->name, impl))
            continue;
        int block = (int)dtype_describe(types[t])->block_values;
        for (int i = 0; i < 4; i++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++)
                check_one(table, impl, types[t], 1 + 2 * i, rows[(i + n) % 4],
                          block == 1 ? 16 + 8 * i : (int64_t)block * (1 + i % 2), i % 2 ? 8 : 0,
                          tokens[(i + 2 * n) % 4], n);
        bench(table, impl, types[t], 512, block == 256 ? 256 : 192, 1);
        bench(table, impl, types[t], 256, 512, 1);
        bench(table, impl, types[t], 256, 512, 512);
        check_end();
    }
}
