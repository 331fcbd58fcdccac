/* rms_norm, layer_norm and rms_norm_quantize. */
#include <string.h>

#include "checkkernels.h"

/* Widths of models, and odd ones; groups of 0 mean the whole row. */
static const struct {
    int width, group;
} shapes[] = {{64, 0},     {96, 0},   {2048, 0}, {4096, 0},  {2304, 0},
              {1, 0},      {33, 0},   {47, 0},   {1000, 0},  {2048, 64},
              {1024, 128}, {160, 80}, {120, 24}, {256, 256}, {21, 7}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static step make_step(op which, int i, int n_rows, check_fill fill)
{
    int width = shapes[i].width, group = shapes[i].group ? shapes[i].group : width;
    step s = {.op = which, .in = {check_operand(ACT_F32, width, n_rows)}};
    float *by = check_alloc((uint64_t)width * 4);
    check_fill_f32(by, width, CHECK_NORMAL);
    for (int r = 0; r < n_rows; r++)
        check_fill_f32(check_row(&s.in[0], r), width, fill);
    s.a.norm.weight = by;
    s.a.norm.group = group;
    s.a.norm.eps = 1e-5f;
    return s;
}

static void bench(const char *what, kernel_fn fn, op which, act_format format, int width, int group,
                  int n_rows)
{
    if (!check_is_bench())
        return;
    check_shape("bench");
    step s = {.op = which, .in = {check_operand(ACT_F32, width, n_rows)}};
    float *by = check_alloc((uint64_t)group * 4);
    check_fill_f32(by, group, CHECK_NORMAL);
    for (int r = 0; r < n_rows; r++)
        check_fill_f32(check_row(&s.in[0], r), width, CHECK_NORMAL);
    s.a.norm.weight = by;
    s.a.norm.group = group;
    s.a.norm.eps = 1e-5f;
    s.out[0] = check_operand(format, width, n_rows);
    batch b = {.n_tokens = n_rows};
    check_bench_step(what, fn, &s, &b, 0, (check_rate){.n_bytes = 4.0 * width * n_rows});
}

static void add_bias(step *s)
{
    float *bias = check_alloc((uint64_t)s->in[0].width * 4);
    check_fill_f32(bias, (int)s->in[0].width, CHECK_NORMAL);
    s->a.norm.bias = bias;
}

/*
 * A few rows make the workers share columns, many make them share rows. In place, too: plans norm
 * the heads of q and k where they are.
 */
static void check_one(op which, const kernel_table *ref, const kernel_table *table)
{
    kernel_fn fn = table->ops[which];
    if (!check_begin(op_name(which), NULL, CHECK_FN(fn)))
        return;
    for (int i = 0; i < N_SHAPES; i++)
        for (int fill = 0; fill < CHECK_N_FILLS; fill++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                int n_rows =
                    check_random_int(0, 1) ? check_random_int(1, 3) : check_random_int(4, 20);
                bool is_in_place = check_random_int(0, 2) == 0;
                bool has_bias = which == OP_LAYER_NORM && n % 2;
                bool is_wide = check_random_int(0, 1);
                check_shape("width %d group %d rows %d %s workers %d%s%s%s", shapes[i].width,
                            shapes[i].group, n_rows, check_fill_name((check_fill)fill), n,
                            is_in_place ? " in place" : "", has_bias ? " with bias" : "",
                            is_wide ? " wide" : "");
                step s = make_step(which, i, n_rows, (check_fill)fill);
                s.a.norm.is_wide = is_wide;
                if (has_bias)
                    add_bias(&s);
                batch b = {.n_tokens = n_rows};
                operand want = check_operand(ACT_F32, shapes[i].width, n_rows);
                operand got = is_in_place ? s.in[0] : check_operand_copy(&want, n_rows);
                s.out[0] = want;
                check_run(ref->ops[which], &s, &b, 1, 0);
                s.out[0] = got;
                check_run(fn, &s, &b, n, 0);
                /* The CPU's sums are double: the float scale may differ in its last bit, 6e-8 of each
                 * value, once in 1e8 sums. A GPU's sums of 4096 floats are off by a few of those. */
                check_rows("out", &want, &got, n_rows, check_is_gpu() ? 1e-12 : 1e-14);
            }
    bench("4096, 1 token", fn, which, ACT_F32, 4096, 4096, 1);
    bench("4096, 128 tokens", fn, which, ACT_F32, 4096, 4096, 128);
    bench("32 heads of 128, 1 token", fn, which, ACT_F32, 4096, 128, 1);
    check_end();
}

static void check_rms_norm_quantize(const kernel_table *ref, const kernel_table *table)
{
    kernel_fn fn = table->ops[OP_RMS_NORM_QUANTIZE];
    if (!check_begin("rms_norm_quantize", NULL, CHECK_FN(fn)))
        return;
    for (int i = 0; i < N_SHAPES; i++)
        for (int fill = 0; fill < CHECK_N_FILLS && shapes[i].width % 32 == 0; fill++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                int n_rows = check_random_int(1, 14);
                check_shape("width %d group %d rows %d %s workers %d", shapes[i].width,
                            shapes[i].group, n_rows, check_fill_name((check_fill)fill), n);
                step s = make_step(OP_RMS_NORM_QUANTIZE, i, n_rows, (check_fill)fill);
                batch b = {.n_tokens = n_rows};
                operand want = check_operand(ACT_Q8, shapes[i].width, n_rows);
                operand got = check_operand_copy(&want, n_rows);
                s.out[0] = want;
                check_run(ref->ops[OP_RMS_NORM_QUANTIZE], &s, &b, 1, 0);
                s.out[0] = got;
                check_run(fn, &s, &b, n, 0);
                check_bytes("out", want.data, got.data, want.stride * (uint64_t)n_rows);
            }
    bench("4096, 1 token", fn, OP_RMS_NORM_QUANTIZE, ACT_Q8, 4096, 4096, 1);
    bench("4096, 128 tokens", fn, OP_RMS_NORM_QUANTIZE, ACT_Q8, 4096, 4096, 128);
    check_end();
}

void check_norm(const kernel_table *ref, const kernel_table *table)
{
    check_one(OP_RMS_NORM, ref, table);
    check_one(OP_LAYER_NORM, ref, table);
    check_rms_norm_quantize(ref, table);
}
