/* matmul_heads on a GPU, against the product in double precision of the decoded weights. */
#include <string.h>

#include "check_gpu.h"
#include "random_blocks.h"
#include "tensor/codec/unpack.h"

enum { MAX_HEADS = 5, MAX_COLS = 512 };

/* As check_gpu_matmul.c says for products. */
static const double max_nmse = 1e-6;

static operand rows_of(int64_t width, int n)
{
    operand o = {.format = ACT_F32, .width = width, .stride = act_row_bytes(ACT_F32, width)};
    o.data = check_alloc(o.stride * (uint64_t)n);
    for (int t = 0; t < n; t++)
        check_fill_f32(check_row(&o, t), width, CHECK_NORMAL);
    return o;
}

/* Head h of all tokens, and what is copied behind it. */
static void multiply_head(const step *s, const operand *out, int h, int n_tokens)
{
    static float row[MAX_COLS];
    const weight *w = &s->a.heads.weights[h];
    int64_t rest = s->a.heads.n_rest;
    for (int64_t r = 0; r < w->n_rows; r++) {
        unpack_row(w->type, w->data + (uint64_t)r * row_bytes(w->type, w->n_cols), w->n_cols, row);
        for (int t = 0; t < n_tokens; t++) {
            const float *x = check_row(&s->in[0], t) + h * (w->n_cols + rest);
            double sum = 0;
            for (int64_t i = 0; i < w->n_cols; i++)
                sum += (double)row[i] * x[i];
            check_row(out, t)[h * (w->n_rows + rest) + r] = (float)sum;
        }
    }
    for (int t = 0; t < n_tokens; t++)
        memcpy(check_row(out, t) + h * (w->n_rows + rest) + w->n_rows,
               check_row(&s->in[0], t) + h * (w->n_cols + rest) + w->n_cols,
               (size_t)rest * sizeof(float));
}

static void check_one(dtype type, int n_heads, int64_t n_rows, int64_t n_cols, int n_rest,
                      int n_tokens)
{
    check_shape("%d heads of %dx%d, %d behind, %d tokens", n_heads, (int)n_rows, (int)n_cols,
                n_rest, n_tokens);
    weight weights[MAX_HEADS];
    for (int h = 0; h < n_heads; h++) {
        uint8_t *blocks = check_alloc((uint64_t)n_rows * row_bytes(type, n_cols));
        int64_t n = n_rows * n_cols / dtype_describe(type)->block_values;
        if (type == DTYPE_F32)
            random_floats(check_random(), n, (float *)(void *)blocks);
        else
            random_blocks(type, check_random(), n, blocks);
        weights[h] = (weight){.type = type, .n_rows = n_rows, .n_cols = n_cols, .data = blocks};
    }
    step s = {.op = OP_MATMUL_HEADS, .row_factor = 1};
    s.a.heads.weights = weights;
    s.a.heads.n_heads = n_heads;
    s.a.heads.n_rest = n_rest;
    s.in[0] = rows_of(n_heads * (n_cols + n_rest), n_tokens);
    s.out[0] = rows_of(n_heads * (n_rows + n_rest), n_tokens);
    operand want = rows_of(s.out[0].width, n_tokens);
    for (int h = 0; h < n_heads; h++)
        multiply_head(&s, &want, h, n_tokens);
    batch b = {.n_tokens = n_tokens};
    gpu_step g;
    gpu_step_prepare(&g, &s, &b, NULL, NULL, 0, 0, 0, 0);
    gpu_step_run(&g);
    gpu_step_fetch(&g, 0, &s.out[0], n_tokens);
    gpu_step_release();
    check_rows("out", &want, &s.out[0], n_tokens, max_nmse);
}

void check_gpu_heads(void)
{
    static const dtype types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,
                                  DTYPE_Q4_0, DTYPE_Q4_K, DTYPE_T4};
    static const int tokens[] = {1, 2, 17, 70, 150};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        if (!check_begin("gpu_heads", dtype_describe(types[t])->name, types))
            continue;
        int64_t block = dtype_describe(types[t])->block_values;
        for (int i = 0; i < 5; i++) {
            check_one(types[t], MAX_HEADS, 64, block == 1 ? 96 : block, 32, tokens[i]);
            check_one(types[t], 1 + i % 4, 24 + 8 * i, block == 1 ? 40 : 2 * block, i % 2 ? 8 : 0,
                      tokens[i]);
            check_one(types[t], 4, 512, 256, 64, tokens[i]);
        }
        check_end();
    }
}
