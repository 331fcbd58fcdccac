/* Matrix steps and experts on a GPU against the plain versions. */
#include <stdio.h>
#include <string.h>

#include "check_gpu.h"
#include "random_blocks.h"

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

static weight random_weight(const kernel_table *ref, dtype type, int64_t n_rows, int64_t n_cols,
                            int n)
{
    int64_t n_blocks = n_rows * n_cols / dtype_describe(type)->block_values * n;
    uint8_t *data = check_alloc(row_bytes(type, n_cols) * (uint64_t)(n_rows * n));
    if (type == DTYPE_F32)
        random_floats(check_random(), n_blocks, (float *)(void *)data);
    else
        random_blocks(type, check_random(), n_blocks, data);
    return (weight){
        .type = type, .n_rows = n_rows, .n_cols = n_cols, .data = data, .impl = ref->exact[type]};
}

/* The same for timings: 64 rows, over and over. */
static weight repeated_weight(const kernel_table *ref, dtype type, int64_t n_rows, int64_t n_cols)
{
    weight w = random_weight(ref, type, 64, n_cols, 1);
    uint64_t some = 64 * row_bytes(type, n_cols);
    uint8_t *data = check_alloc(row_bytes(type, n_cols) * (uint64_t)n_rows);
    for (int64_t i = 0; i < n_rows / 64; i++)
        memcpy(data + some * (uint64_t)i, w.data, some);
    w.data = data;
    w.n_rows = n_rows;
    return w;
}

static const float *random_vector(int64_t n)
{
    float *x = check_alloc(4 * (uint64_t)n);
    check_fill_f32(x, n, CHECK_NORMAL);
    return x;
}

static void fill_rows(const operand *x, int64_t n, check_fill kind)
{
    for (int64_t t = 0; t < n; t++)
        check_fill_f32(check_row(x, t), x->width, kind);
}

static void repeat_rows(const operand *x, int64_t n)
{
    int64_t some = n < 16 ? n : 16;
    fill_rows(x, some, CHECK_NORMAL);
    for (int64_t t = some; t < n; t++)
        memcpy(check_row(x, t), check_row(x, t - some), x->stride);
}

static operand strided(int64_t width, int64_t n)
{
    /* As plans have them: rows are padded to 64 bytes. */
    operand o = {.format = ACT_F32, .width = width, .stride = act_row_bytes(ACT_F32, width)};
    o.data = check_alloc(o.stride * (uint64_t)n);
    return o;
}

static operand copied(const operand *o, int64_t n)
{
    operand c = *o;
    c.data = check_alloc(o->stride * (uint64_t)n);
    memcpy(c.data, o->data, o->stride * (uint64_t)n);
    return c;
}

static const int all_tokens[] = {1, 2, 8, 9, 33, 64, 65, 130, 300};

static void check_one(const kernel_table *ref, op o, dtype type, int n, int n_rows, int n_cols,
                      check_fill kind)
{
    check_shape("%s %d x %d, %d tokens, %s", op_name(o), n_rows, n_cols, n, check_fill_name(kind));
    batch b = {.n_tokens = n};
    step s = {.op = o, .row_factor = 1};
    s.in[0] = strided(n_cols, n);
    fill_rows(&s.in[0], n, kind);
    int n_weights = o == OP_MATMUL_GROUP ? 3 : o == OP_MATMUL_GLU ? 2 : 1;
    weight w[3];
    operand want[3];
    for (int i = 0; i < n_weights; i++) {
        int rows = o == OP_MATMUL_GROUP && i > 0 ? n_rows / 2 + 8 * i : n_rows;
        w[i] = random_weight(ref, type, rows, n_cols, 1);
        s.a.matmul.weights[i] = &w[i];
        s.a.matmul.biases[i] = check_random_int(0, 1) ? random_vector(rows) : NULL;
        want[i] = strided(rows, n);
        fill_rows(&want[i], n, CHECK_NORMAL);
        if (o == OP_MATMUL_GLU && i == 1)
            continue;
        s.out[i] = copied(&want[i], n);
    }
    s.a.matmul.n_weights = n_weights;
    s.a.matmul.scale = o == OP_MATMUL_GLU ? 0.01f : 0.5f;
    s.a.matmul.glu = (glu_kind)check_random_int(0, 2);
    s.a.matmul.glu_row = ref->glu_row;
    gpu_step g;
    gpu_step_prepare(&g, &s, &b, NULL, NULL, 0, 0, 0, 0);
    gpu_step_run(&g);
    for (int i = 0; i < n_weights && s.out[i].data; i++)
        gpu_step_fetch(&g, i, &s.out[i], n);
    gpu_step_release();
    step plain = s;
    for (int i = 0; i < n_weights && s.out[i].data; i++)
        plain.out[i] = want[i];
    check_run(ref->ops[o], &plain, &b, 1, 0);
    /* A gate multiplies two errors. With outliers a few values decide, and sums cancel. */
    double most = kind != CHECK_NORMAL ? 50 * max_nmse
                  : o == OP_MATMUL_GLU ? 4 * max_nmse
                                       : max_nmse;
    for (int i = 0; i < n_weights && s.out[i].data; i++)
        check_rows("out", &want[i], &s.out[i], n, most);
}

static void bench(const kernel_table *ref, dtype type)
{
    static const struct {
        const char *name;
        op o;
        int rows[3], n_weights, n_cols;
    } shapes[] = {{"qkv", OP_MATMUL_GROUP, {4096, 1024, 1024}, 3, 4096},
                  {"o", OP_MATMUL_ADD, {4096}, 1, 4096},
                  {"gate/up", OP_MATMUL_GLU, {14336, 14336}, 2, 4096},
                  {"down", OP_MATMUL_ADD, {4096}, 1, 14336}};
    static const int tokens[] = {8, 16, 32, 64, 128, 512, 2048};
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        for (size_t m = 0; m < sizeof tokens / sizeof tokens[0]; m++) {
            int n = tokens[m], cols = shapes[k].n_cols;
            char what[64];
            check_shape("bench");
            batch b = {.n_tokens = n};
            step s = {.op = shapes[k].o, .row_factor = 1};
            double bytes = 0, macs = 0;
            weight w[3];
            s.in[0] = strided(cols, n);
            repeat_rows(&s.in[0], n);
            for (int i = 0; i < shapes[k].n_weights; i++) {
                int rows = shapes[k].rows[i];
                w[i] = repeated_weight(ref, type, rows, cols);
                s.a.matmul.weights[i] = &w[i];
                bytes += (double)tile_matrix_bytes(tile_kind_of(type), rows, cols);
                macs += (double)rows * cols * n;
                if (s.op == OP_MATMUL_GLU && i)
                    continue;
                s.out[i] = strided(rows, n);
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
    for (int i = 0; i < N_TYPES; i++) {
        if (!check_begin("gpu_matmul", dtype_describe(types[i])->name, ref))
            continue;
        for (int k = 0; k < 4; k++)
            for (int t = 0; t < N_TOKENS; t++) {
                int m = (k + t + i) % 5;
                check_one(ref, ops[k], types[i], all_tokens[t], shapes[m][0], shapes[m][1],
                          t % 3 == 2 ? CHECK_OUTLIER : CHECK_NORMAL);
            }
        bool is_common = types[i] == DTYPE_Q4_K || types[i] == DTYPE_Q6_K ||
                         types[i] == DTYPE_F16 || types[i] == DTYPE_Q8_0 || types[i] == DTYPE_Q4_0;
        if (is_common) { /* as many rows as blocks of 256 tokens are for, on an H200 */
            check_one(ref, OP_MATMUL, types[i], 300, 8448, 512, CHECK_NORMAL);
            check_one(ref, OP_MATMUL_GLU, types[i], 300, 4224, 512, CHECK_NORMAL);
        }
        check_end();
        if (check_is_bench() && is_common)
            bench(ref, types[i]);
    }
}

/* ---- Experts --------------------------------------------------------------------------------- */

static void fill_choices(const operand *o, int n, int n_experts, int n_used)
{
    for (int t = 0; t < n; t++) {
        expert_choice *c = (expert_choice *)(void *)check_row(o, t);
        for (int k = 0; k < n_used; k++) {
            bool is_new;
            do { /* most tokens like the first few */
                c[k].expert = check_random_int(0, check_random_int(0, n_experts - 1));
                is_new = true;
                for (int i = 0; i < k; i++)
                    is_new = is_new && c[i].expert != c[k].expert;
            } while (!is_new);
            c[k].weight = check_random_f32(0, 1);
        }
    }
}

/* has_gate, weighs: as in moe_params. */
static void check_experts(const kernel_table *ref, bool is_down, dtype type, int n, int n_experts,
                          int n_used, bool has_gate, bool weighs)
{
    int n_in = is_down ? 512 : 256, n_out = is_down ? 256 : 200;
    check_shape("%s, %d experts, %d of them, %d tokens", is_down ? "down" : "glu", n_experts,
                n_used, n);
    batch b = {.n_tokens = n};
    step s = {.op = is_down ? OP_MOE_DOWN : OP_MOE_GLU, .row_factor = 1};
    s.in[0] = strided(n_in, is_down ? n * n_used : n);
    fill_rows(&s.in[0], is_down ? n * n_used : n, CHECK_NORMAL);
    s.in[1] = strided(2 * n_used, n);
    fill_choices(&s.in[1], n, n_experts, n_used);
    int64_t n_results = is_down ? n : n * n_used;
    operand want = strided(n_out, n_results);
    fill_rows(&want, n_results, CHECK_NORMAL);
    s.out[0] = copied(&want, n_results);
    weight all[2], *each[2];
    for (int i = 0; i < 2; i++) {
        all[i] = random_weight(ref, type, n_out, n_in, n_experts);
        each[i] = check_alloc(sizeof(weight) * (uint64_t)n_experts);
        for (int e = 0; e < n_experts; e++) {
            each[i][e] = all[i];
            each[i][e].data += row_bytes(type, n_in) * (uint64_t)(n_out * e);
        }
    }
    s.a.moe.n_experts = n_experts;
    s.a.moe.n_used = n_used;
    s.a.moe.scale = 0.3f;
    s.a.moe.glu_row = ref->glu_row;
    s.a.moe.glu = has_gate ? GLU_SILU : GLU_RELU2;
    s.a.moe.weighs_inputs = weighs;
    if (is_down) {
        s.a.moe.down = each[0];
        s.a.moe.down_bias = random_vector((int64_t)n_experts * n_out);
    } else {
        s.a.moe.gate = has_gate ? each[0] : NULL;
        s.a.moe.up = each[1];
        s.a.moe.gate_bias = has_gate ? random_vector((int64_t)n_experts * n_out) : NULL;
        s.a.moe.up_bias = random_vector((int64_t)n_experts * n_out);
    }
    gpu_step g;
    gpu_step_prepare(&g, &s, &b, NULL, NULL, 0, 0, 0, 0);
    gpu_step_run(&g);
    gpu_step_fetch(&g, 0, &s.out[0], n_results);
    gpu_step_release();
    step plain = s;
    plain.out[0] = want;
    check_run(ref->ops[s.op], &plain, &b, 1, 0);
    check_rows("out", &want, &s.out[0], n_results, 4 * max_nmse);
}

void check_gpu_moe(const kernel_table *ref)
{
    static const dtype moe_types[] = {DTYPE_F32,  DTYPE_F16,   DTYPE_Q4_K,
                                      DTYPE_Q8_0, DTYPE_MXFP4, DTYPE_S4};
    static const int tokens[] = {1, 2, 7, 40, 150};
    for (size_t i = 0; i < sizeof moe_types / sizeof moe_types[0]; i++) {
        if (!check_begin("gpu_moe", dtype_describe(moe_types[i])->name, ref))
            continue;
        for (int is_down = 0; is_down < 2; is_down++)
            for (int t = 0; t < 5; t++) {
                check_experts(ref, is_down, moe_types[i], tokens[t], 8, 2, true, false);
                check_experts(ref, is_down, moe_types[i], tokens[t], 33, 5, true, false);
                check_experts(ref, is_down, moe_types[i], tokens[t], 8, 2, false, false);
                check_experts(ref, is_down, moe_types[i], tokens[t], 8, 1, true, true);
            }
        check_end();
    }
}
