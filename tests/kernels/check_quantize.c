/* quantize: activations to int8. All versions must give the same bytes. */
#include "checkkernels.h"

static void bench(kernel_fn fn, op o, const char *what, int width, int n_rows)
{
    if (!check_is_bench())
        return;
    check_shape("bench");
    operand in = check_operand(ACT_F32, width, n_rows);
    for (int r = 0; r < n_rows; r++)
        check_fill_f32(check_row(&in, r), width, CHECK_NORMAL);
    step s = {.op = o, .in = {in}, .out = {check_operand(ACT_Q8, width, n_rows)}};
    batch b = {.n_tokens = n_rows};
    check_bench_step(what, fn, &s, &b, 0, (check_rate){.n_bytes = 4.0 * width * n_rows});
}

/* Widths are multiples of `unit`. */
static void check_op(const kernel_table *ref, const kernel_table *table, op o, int unit)
{
    static const int widths[] = {1, 2, 3, 5, 32, 86, 128};
    kernel_fn fn = table->ops[o];
    if (!check_begin(op_name(o), NULL, CHECK_FN(fn)))
        return;
    for (int i = 0; i < 7; i++)
        for (int fill = 0; fill < CHECK_N_FILLS; fill++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                int width = unit * widths[i], n_rows = check_random_int(1, 14);
                check_shape("width %d rows %d %s workers %d", width, n_rows,
                            check_fill_name((check_fill)fill), n);
                operand in = check_operand(ACT_F32, width, n_rows);
                for (int r = 0; r < n_rows; r++)
                    check_fill_f32(check_row(&in, r), width, (check_fill)fill);
                /* Halves: with a maximum of 127 the scale is 1. */
                if (fill == CHECK_NORMAL)
                    for (int k = 0; k < 32; k++)
                        check_row(&in, 0)[k] = k == 5 ? 127.0f : (float)(k - 16) + 0.5f;
                batch b = {.n_tokens = n_rows};
                operand want = check_operand(ACT_Q8, width, n_rows);
                operand got = check_operand_copy(&want, n_rows);
                step s = {.op = o, .in = {in}, .out = {want}};
                check_run(ref->ops[o], &s, &b, 1, 0);
                s.out[0] = got;
                check_run(fn, &s, &b, n, 0);
                check_bytes("out", want.data, got.data, want.stride * (uint64_t)n_rows);
            }
    bench(fn, o, "4096, 1 token", 4096, 1);
    bench(fn, o, "14336, 1 token", 14336, 1);
    bench(fn, o, "4096, 128 tokens", 4096, 128);
    check_end();
}

void check_quantize(const kernel_table *ref, const kernel_table *table)
{
    check_op(ref, table, OP_QUANTIZE, 32);
    check_op(ref, table, OP_ROTATE_QUANTIZE, 128);
}
