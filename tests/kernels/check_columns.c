/*
 * Products with matrices in columns: every kind of matrix step with its join, against the product
 * in double precision of the decoded weights and the activations as the kernel gets them.
 */
#include "checkkernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "backend/cpu/columns.h"
#include "backend/ref/ref.h"
#include "random_blocks.h"

/*
 * Integer products are exact; float sums over groups and the rounding of scale products remain, of
 * 2^-24 each. F16 sums f32 products. Compared with the squares of all terms, as for other products.
 */
#define MAX_ERROR 1e-11

enum { MAX_WEIGHTS = 3 };

typedef struct problem {
    step s, join;
    batch b;
    weight weights[MAX_WEIGHTS];
    uint8_t *blocks[MAX_WEIGHTS];
    float *values; /* [n_cols] what the activations stand for */
    float *bias;
} problem;

/* A weight as a model loads it: groups packed in two parts. */
static void make_weight(problem *p, int i, const columns_impl *impl, dtype type, int64_t n_rows,
                        int64_t n_cols)
{
    int64_t n_groups = n_cols / COLUMNS_GROUP;
    uint8_t *blocks = check_alloc((uint64_t)n_rows * row_bytes(type, n_cols));
    uint8_t *columns = check_alloc(columns_bytes(type, n_rows, n_cols));
    random_blocks(type, check_random(), n_rows * n_cols / dtype_describe(type)->block_values,
                  blocks);
    columns_pack(type, blocks, n_rows, n_cols, 0, n_groups / 2, columns);
    columns_pack(type, blocks, n_rows, n_cols, n_groups / 2, n_groups, columns);
    p->blocks[i] = blocks;
    p->weights[i] = (weight){.type = type,
                             .n_rows = n_rows,
                             .n_cols = n_cols,
                             .impl = &matmul_rows_ref,
                             .columns = columns,
                             .columns_impl = impl};
    p->s.a.matmul.weights[i] = &p->weights[i];
    p->s.out[i] = check_operand(ACT_F32, n_rows, 1);
    p->s.out[i].value = i;
}

/* Activations of which a share is 0. */
static void make_input(problem *p, act_format format, int64_t n_cols, double sparsity,
                       check_fill fill)
{
    p->values = check_alloc((uint64_t)n_cols * 4);
    p->s.in[0] = check_operand(format, n_cols, 1);
    check_fill_f32(p->values, n_cols, fill);
    for (int64_t i = 0; i < n_cols; i++)
        if (check_random_f32(0, 1) < (float)sparsity)
            p->values[i] = 0;
    if (format == ACT_F32) {
        memcpy(p->s.in[0].data, p->values, (size_t)n_cols * 4);
        return;
    }
    quantize_row_ref(p->values, n_cols, p->s.in[0].data);
    const int8_t *q = (const int8_t *)p->s.in[0].data;
    for (int64_t i = 0; i < n_cols; i++)
        p->values[i] = act_q8_scales(q, n_cols)[i / 32] * (float)q[i];
}

static void make_problem(problem *p, const columns_impl *impl, dtype type, op kind, int64_t n_rows,
                         int64_t n_cols, double sparsity, check_fill fill)
{
    *p = (problem){.s = {.op = kind, .row_factor = 1}, .b = {.n_tokens = 1, .n_outputs = 1}};
    int n = kind == OP_MATMUL_GLU ? 2 : kind == OP_MATMUL_GROUP ? 3 : 1;
    p->s.a.matmul.n_weights = n;
    p->s.a.matmul.scale = kind == OP_MATMUL_ADD ? 0.5f : 1;
    p->s.a.matmul.glu_row = glu_row_ref;
    for (int i = 0; i < n; i++)
        make_weight(p, i, impl, type, kind == OP_MATMUL_GROUP && i ? 16 * i : n_rows, n_cols);
    make_input(p, impl->act, n_cols, sparsity, fill);
    p->bias = check_alloc((uint64_t)n_rows * 4);
    check_fill_f32(p->bias, n_rows, CHECK_NORMAL);
    p->s.a.matmul.biases[0] = kind == OP_MATMUL_GROUP ? p->bias : NULL;
    p->s.a.matmul.sums = check_alloc(columns_sums_bytes(&p->s));
    p->join = p->s;
    p->join.op = OP_MATMUL_JOIN;
    p->join.a.matmul.joins = kind;
}

/* W x of weight i; returns the squares of all terms. */
static double multiply(const problem *p, int i, double *out)
{
    const weight *w = &p->weights[i];
    float *row = check_alloc((uint64_t)w->n_cols * 4);
    double squares = 0;
    for (int64_t r = 0; r < w->n_rows; r++) {
        unpack_row(w->type, p->blocks[i] + (uint64_t)r * row_bytes(w->type, w->n_cols), w->n_cols,
                   row);
        out[r] = 0;
        for (int64_t c = 0; c < w->n_cols; c++) {
            double term = (double)row[c] * p->values[c];
            out[r] += term;
            squares += term * term;
        }
    }
    return squares;
}

static void compare(const char *what, const double *want, const float *got, int64_t n,
                    double squares)
{
    double error = 0;
    for (int64_t r = 0; r < n; r++)
        error += pow(want[r] - got[r], 2);
    char line[120];
    snprintf(line, sizeof line, "%s: square error %.3g of the terms' squares %.3g, allowed %g",
             what, error, squares, MAX_ERROR);
    check_true(error <= MAX_ERROR * squares, line);
}

static void check_kind(const kernel_table *table, dtype type, op kind, int64_t n_rows,
                       int64_t n_cols, double sparsity, int n_workers)
{
    check_shape("%s, %d rows, %d columns, %g sparse, %d workers", op_name(kind), (int)n_rows,
                (int)n_cols, sparsity, n_workers);
    problem p;
    make_problem(&p, table->columns[type], type, kind, n_rows, n_cols, sparsity,
                 check_random_int(0, 1) ? CHECK_NORMAL : CHECK_OUTLIER);
    int n_outputs = kind == OP_MATMUL_GLU ? 1 : p.s.a.matmul.n_weights;
    operand before = p.s.out[0];
    if (kind == OP_MATMUL_ADD) {
        check_fill_f32(check_row(&p.s.out[0], 0), n_rows, CHECK_NORMAL);
        before = check_operand_copy(&p.s.out[0], 1);
    }
    check_run(matmul_ref, &p.s, &p.b, n_workers, 1);
    check_run(matmul_join_ref, &p.join, &p.b, n_workers, 1);
    for (int i = 0; i < n_outputs; i++) {
        int64_t n = p.weights[i].n_rows;
        double *want = check_alloc((uint64_t)n * 8);
        double squares = multiply(&p, i, want);
        const float *got = check_row(&p.s.out[i], 0);
        if (kind == OP_MATMUL_GLU) {
            float *gate = check_alloc((uint64_t)n * 4), *up = check_alloc((uint64_t)n * 4);
            float *out = check_alloc((uint64_t)n * 4);
            double *other = check_alloc((uint64_t)n * 8);
            multiply(&p, 1, other);
            for (int64_t r = 0; r < n; r++) {
                gate[r] = (float)want[r];
                up[r] = (float)other[r];
            }
            glu_row_ref(GLU_SILU, gate, up, n, out);
            /* Both factors have the error of a product. */
            check_f32("glu", out, got, n, squares > 0 ? 1e-9 : 0);
            continue;
        }
        for (int64_t r = 0; r < n; r++)
            want[r] =
                want[r] * p.s.a.matmul.scale + (kind == OP_MATMUL_GROUP && i == 0 ? p.bias[r]
                                                : kind == OP_MATMUL_ADD ? check_row(&before, 0)[r]
                                                                        : 0);
        compare("product", want, got, n, squares + (double)n);
    }
}

/* ---- Timing ---------------------------------------------------------------------------------- */

typedef struct bench {
    const step *s;
} bench;

static void bench_run(void *arg, int index, int count)
{
    const bench *b = arg;
    worker w = {.index = index, .count = count};
    columns_step(b->s, &w);
}

/* A matrix too large for caches, at rising sparsity: time should follow what is left. */
static void bench_type(const columns_impl *impl, dtype type)
{
    static const int sparsities[] = {0, 25, 40, 50, 60, 80};
    enum { ROWS = 2048, COLS = 51200 };
    for (size_t i = 0; i < sizeof sparsities / sizeof *sparsities; i++) {
        char what[64];
        snprintf(what, sizeof what, "%dx%d, %d %% sparse", ROWS, COLS, sparsities[i]);
        check_shape("%s", what);
        problem p;
        make_problem(&p, impl, type, OP_MATMUL, ROWS, COLS, sparsities[i] / 100.0, CHECK_NORMAL);
        bench b = {&p.s};
        check_bench(what, bench_run, &b,
                    (check_rate){.n_bytes = (double)columns_bytes(type, ROWS, COLS),
                                 .n_macs = (double)ROWS * COLS});
    }
}

/* ---- Cases ----------------------------------------------------------------------------------- */

void check_columns(const kernel_table *ref, const kernel_table *table)
{
    static const dtype types[] = {DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_K, DTYPE_Q6_K};
    static const op kinds[] = {OP_MATMUL, OP_MATMUL_ADD, OP_MATMUL_GROUP, OP_MATMUL_GLU};
    static const int rows[] = {1, 16, 100, 128, 129, 700, 2200};
    static const double sparsities[] = {0, 0.3, 0.5, 0.9, 1};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        if (!check_begin("columns", dtype_describe(types[t])->name, table->columns[types[t]]))
            continue;
        for (int k = 0; k < 4; k++)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                for (size_t i = 0; i < sizeof sparsities / sizeof *sparsities; i++) {
                    if (check_is_quick() && rows[r] > 700)
                        continue;
                    bool is_k = dtype_describe(types[t])->block_values > COLUMNS_GROUP;
                    int64_t n_cols =
                        is_k ? 256 * check_random_int(1, 3) : 32 * check_random_int(1, 20);
                    check_kind(table, types[t], kinds[k], rows[r], n_cols, sparsities[i],
                               check_random_int(1, CHECK_MAX_WORKERS));
                }
        if (check_is_bench())
            bench_type(table->columns[types[t]], types[t]);
        check_end();
    }
}
