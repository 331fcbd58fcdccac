/* Matrix steps and experts on a GPU against the plain versions. */
#include <stdio.h>
#include <string.h>

#include "check_gpu.h"
#include "check_products.h"
#include "backend/ref/bytes_ref.h"

/*
 * Weights, their scales and activations are rounded to f16: each is off by 2^-12 of itself on
 * average, which is 2e-7 together; types with mins lose a little more where both cancel. With one
 * row two int8 planes are used, which is more exact.
 */
static const double max_nmse = 1e-6;

static const dtype types[] = {DTYPE_F32,    DTYPE_F16,    DTYPE_BF16, DTYPE_Q8_0,  DTYPE_Q5_0,
                              DTYPE_Q5_1,   DTYPE_Q4_0,   DTYPE_Q4_1, DTYPE_MXFP4, DTYPE_IQ4_NL,
                              DTYPE_Q4_K,   DTYPE_Q5_K,   DTYPE_Q6_K, DTYPE_Q3_K,  DTYPE_Q2_K,
                              DTYPE_IQ4_XS, DTYPE_IQ2_XS, DTYPE_S2,   DTYPE_S3,    DTYPE_S4,
                              DTYPE_S5,     DTYPE_S6,     DTYPE_S8};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* The same for timings: 64 rows, over and over. */
static weight repeated_weight(const kernel_table *ref, dtype type, int64_t n_rows, int64_t n_cols)
{
    weight w = check_random_weight(ref, type, 64, n_cols, 1);
    uint64_t some = 64 * row_bytes(type, n_cols);
    uint8_t *data = check_alloc(row_bytes(type, n_cols) * (uint64_t)n_rows);
    for (int64_t i = 0; i < n_rows / 64; i++)
        memcpy(data + some * (uint64_t)i, w.data, some);
    w.data = data;
    w.n_rows = n_rows;
    return w;
}

static void repeat_rows(const operand *x, int64_t n)
{
    int64_t some = n < 16 ? n : 16;
    for (int64_t t = 0; t < some; t++)
        check_fill_f32(check_row(x, t), x->width, CHECK_NORMAL);
    for (int64_t t = some; t < n; t++)
        memcpy(check_row(x, t), check_row(x, t - some), x->stride);
}

static const int all_tokens[] = {1, 2, 4, 8, 9, 16, 33, 64, 65, 130, 300};

/* first: how many of bench_tokens are left out. */
static const int bench_tokens[] = {8, 16, 32, 64, 128, 256, 512, 2048};
enum { N_BENCH_TOKENS = sizeof bench_tokens / sizeof bench_tokens[0], BENCH_BYTES = 5 };

static void bench(const kernel_table *ref, dtype type, int first)
{
    static const struct {
        const char *name;
        op o;
        int rows[3], n_weights, n_cols;
    } shapes[] = {{"qkv", OP_MATMUL_GROUP, {4096, 1024, 1024}, 3, 4096},
                  {"o", OP_MATMUL_ADD, {4096}, 1, 4096},
                  {"gate/up", OP_MATMUL_GLU, {14336, 14336}, 2, 4096},
                  {"down", OP_MATMUL_ADD, {4096}, 1, 14336}};
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        for (int m = first; m < N_BENCH_TOKENS; m++) {
            int n = bench_tokens[m], cols = shapes[k].n_cols;
            char what[64];
            check_shape("bench");
            batch b = {.n_tokens = n};
            step s = {.op = shapes[k].o, .row_factor = 1};
            double bytes = 0, macs = 0;
            weight w[3];
            s.in[0] = check_strided(cols, n);
            repeat_rows(&s.in[0], n);
            for (int i = 0; i < shapes[k].n_weights; i++) {
                int rows = shapes[k].rows[i];
                w[i] = repeated_weight(ref, type, rows, cols);
                s.a.matmul.weights[i] = &w[i];
                bytes += (double)tile_matrix_bytes(tile_kind_of(type), rows, cols);
                macs += (double)rows * cols * n;
                if (s.op == OP_MATMUL_GLU && i)
                    continue;
                s.out[i] = check_strided(rows, n);
                memset(s.out[i].data, 0, s.out[i].stride * (uint64_t)n);
            }
            s.a.matmul.n_weights = shapes[k].n_weights;
            s.a.matmul.scale = 1;
            gpu_step g;
            gpu_step_prepare(&g, &s, &b, NULL, NULL, 0, 0, 0, 0);
            snprintf(what, sizeof what, "%s %s, %d tokens", dtype_describe(type)->name,
                     shapes[k].name, n);
            gpu_step_bench(&g, what, bytes, 2 * macs);
            gpu_step_release();
        }
    }
}

void check_gpu_matmul(const kernel_table *ref)
{
    static const op ops[] = {OP_MATMUL, OP_MATMUL_ADD, OP_MATMUL_GROUP, OP_MATMUL_GLU};
    static const int shapes[][2] = {{64, 256}, {200, 512}, {320, 768}, {72, 1280}, {528, 2048}};
    enum { N_TOKENS = sizeof all_tokens / sizeof all_tokens[0] };
    const product_check c = {.ref = ref, .fn = check_gpu_run_step, .max_nmse = max_nmse};
    for (int i = 0; i < N_TYPES; i++) {
        if (!check_begin("gpu_matmul", dtype_describe(types[i])->name, ref))
            continue;
        for (int k = 0; k < 4; k++)
            for (int t = 0; t < N_TOKENS; t++) {
                int m = (k + t + i) % 5;
                check_product(&c, ops[k], types[i], all_tokens[t], shapes[m][0], shapes[m][1],
                              t % 3 == 2 ? CHECK_OUTLIER : CHECK_NORMAL);
            }
        bool is_common = types[i] == DTYPE_Q4_K || types[i] == DTYPE_Q6_K ||
                         types[i] == DTYPE_F16 || types[i] == DTYPE_Q8_0 || types[i] == DTYPE_Q4_0;
        if (is_common) { /* as many rows as blocks of 256 tokens are for, on an H200 */
            check_product(&c, OP_MATMUL, types[i], 300, 8448, 512, CHECK_NORMAL);
            check_product(&c, OP_MATMUL_GLU, types[i], 300, 4224, 512, CHECK_NORMAL);
            for (int n = 3; n <= 15; n += 4) /* and in many parts along K */
                check_product(&c, OP_MATMUL_ADD, types[i], n, 272, 14336, CHECK_NORMAL);
        }
        check_end();
        if (check_is_bench() && is_common)
            bench(ref, types[i], 0);
    }
}

/* ---- Prompts in int8 ------------------------------------------------------------------------- */

/*
 * The reference rounds in the same way, so that only sums differ, and of rotated types activations
 * on the border of two bytes: one in 100,000 is another one, off by 1/40 of what is usual.
 */
void check_gpu_bytes(const kernel_table *ref)
{
    static const op ops[] = {OP_MATMUL, OP_MATMUL_ADD, OP_MATMUL_GROUP, OP_MATMUL_GLU};
    static const int shapes[][2] = {{64, 256}, {200, 512}, {320, 768}, {72, 1280}, {528, 2048}};
    static const int tokens[] = {129, 136, 200, 257, 300};
    kernel_table table = *ref;
    for (int i = 0; i < N_TYPES; i++)
        if (bytes_ref_has(types[i]))
            table.exact[types[i]] = &matmul_bytes_ref;
    for (int i = 0; i < N_TYPES; i++) {
        const dtype type = types[i];
        if (!bytes_ref_has(type) || !check_begin("gpu_bytes", dtype_describe(type)->name, ref))
            continue;
        const product_check c = {.ref = &table,
                                 .fn = check_gpu_run_step,
                                 .max_nmse = bytes_ref_is_rotated(type) ? 1e-7 : 1e-11};
        check_gpu_use_bytes(true);
        for (int k = 0; k < 4; k++)
            for (int t = 0; t < 5; t++) {
                int m = (k + t + i) % 5;
                check_product(&c, ops[k], type, tokens[t], shapes[m][0], shapes[m][1],
                              t % 3 == 2 ? CHECK_OUTLIER : CHECK_NORMAL);
            }
        if (type == DTYPE_Q4_K || type == DTYPE_Q6_K) { /* in many parts along K, and in none */
            check_product(&c, OP_MATMUL_ADD, type, 130, 272, 14336, CHECK_NORMAL);
            check_product(&c, OP_MATMUL, type, 600, 8448, 512, CHECK_NORMAL);
            check_product(&c, OP_MATMUL_GLU, type, 300, 4224, 512, CHECK_NORMAL);
        }
        check_end();
        if (check_is_bench() && (type == DTYPE_Q4_K || type == DTYPE_Q6_K))
            bench(ref, type, BENCH_BYTES); /* fewer tokens are not multiplied in int8 */
        check_gpu_use_bytes(false);
    }
}

/* ---- Experts --------------------------------------------------------------------------------- */

/* All experts have the same values, each at its own place. */
static weight *repeated_experts(const kernel_table *ref, dtype type, int n, int n_rows, int n_cols)
{
    weight all = repeated_weight(ref, type, (int64_t)n * n_rows, n_cols);
    weight *w = check_alloc(sizeof *w * (uint64_t)n);
    for (int e = 0; e < n; e++) {
        w[e] = all;
        w[e].n_rows = n_rows;
        w[e].data += row_bytes(type, n_cols) * (uint64_t)e * (uint64_t)n_rows;
    }
    return w;
}

static void bench_experts(const kernel_table *ref, dtype type)
{
    static const struct {
        const char *name;
        int n_experts, n_used, width, ff;
    } shapes[] = {{"256 experts", 256, 8, 2048, 512},
                  {"128 experts", 128, 8, 2048, 768},
                  {"64 experts", 64, 4, 2048, 1536}};
    static const int tokens[] = {2, 8, 16, 128, 512, 2048};
    for (size_t k = 0; k < 2 * sizeof shapes / sizeof shapes[0]; k++) {
        const int n_experts = shapes[k / 2].n_experts, n_used = shapes[k / 2].n_used;
        const bool is_down = k % 2;
        const int n_in = is_down ? shapes[k / 2].ff : shapes[k / 2].width;
        const int n_out = is_down ? shapes[k / 2].width : shapes[k / 2].ff;
        check_shape("bench");
        weight *first = repeated_experts(ref, type, n_experts, n_out, n_in);
        weight *second = is_down ? NULL : repeated_experts(ref, type, n_experts, n_out, n_in);
        for (size_t m = 0; m < sizeof tokens / sizeof tokens[0]; m++) {
            const int n = tokens[m];
            char what[64];
            batch b = {.n_tokens = n};
            step s = {.op = is_down ? OP_MOE_DOWN : OP_MOE_GLU, .row_factor = 1};
            s.in[0] = check_strided(n_in, is_down ? n * n_used : n);
            repeat_rows(&s.in[0], is_down ? n * n_used : n);
            s.in[1] = check_strided(2 * n_used, n);
            for (int t = 0; t < n; t++)
                for (int i = 0, e = check_random_int(0, n_experts - 1); i < n_used; i++) {
                    expert_choice *c = (expert_choice *)(void *)check_row(&s.in[1], t);
                    c[i] = (expert_choice){e, 1.0f / (float)n_used};
                    e = (e + check_random_int(1, n_experts / n_used)) % n_experts;
                }
            s.out[0] = check_strided(n_out, is_down ? n : n * n_used);
            memset(s.out[0].data, 0, s.out[0].stride * (uint64_t)(is_down ? n : n * n_used));
            s.a.moe.n_experts = n_experts;
            s.a.moe.n_used = n_used;
            s.a.moe.scale = 1;
            s.a.moe.gate = is_down ? NULL : first;
            s.a.moe.up = second;
            s.a.moe.down = is_down ? first : NULL;
            gpu_step g;
            gpu_step_prepare(&g, &s, &b, NULL, NULL, 0, 0, 0, 0);
            snprintf(what, sizeof what, "%s %s, %d tokens", shapes[k / 2].name,
                     is_down ? "down" : "gate/up", n);
            double macs = (double)n * n_used * n_in * n_out * (is_down ? 1 : 2);
            double read = (double)(n * n_used < n_experts ? n * n_used : n_experts);
            gpu_step_bench(&g, what,
                           read * (is_down ? 1 : 2) *
                               (double)tile_matrix_bytes(tile_kind_of(type), n_out, n_in),
                           2 * macs);
            gpu_step_release();
        }
    }
}

void check_gpu_moe(const kernel_table *ref)
{
    static const dtype moe_types[] = {DTYPE_F32,  DTYPE_F16,   DTYPE_Q4_K,
                                      DTYPE_Q8_0, DTYPE_MXFP4, DTYPE_S4};
    static const int tokens[] = {1, 2, 7, 40, 150};
    const product_check c = {
        .ref = ref, .fn = check_gpu_run_step, .max_nmse = max_nmse, .repeats = true};
    for (size_t i = 0; i < sizeof moe_types / sizeof moe_types[0]; i++) {
        if (!check_begin("gpu_moe", dtype_describe(moe_types[i])->name, ref))
            continue;
        for (int is_down = 0; is_down < 2; is_down++)
            for (int t = 0; t < 5; t++) {
                check_expert_product(&c, is_down, moe_types[i], tokens[t], 8, 2, true, false);
                check_expert_product(&c, is_down, moe_types[i], tokens[t], 33, 5, true, false);
                check_expert_product(&c, is_down, moe_types[i], tokens[t], 8, 2, false, false);
                check_expert_product(&c, is_down, moe_types[i], tokens[t], 8, 1, true, true);
            }
        for (int n = 20; n <= 320 && moe_types[i] == DTYPE_Q4_K; n += 300) /* many, with few each */
            for (int is_down = 0; is_down < 2; is_down++)
                check_expert_product(&c, is_down, DTYPE_Q4_K, n, 256, 8, true, false);
        check_end();
        if (check_is_bench() && moe_types[i] == DTYPE_Q4_K)
            bench_experts(ref, DTYPE_Q4_K);
    }
}
