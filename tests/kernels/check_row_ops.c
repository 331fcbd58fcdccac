/* softcap, xielu, pick, temperature, drop_small: small operations on rows. */
#include <math.h>
#include <string.h>

#include "checkkernels.h"

enum { MAX_ROWS = 9 };

static operand random_operand(int64_t width, int n_rows, check_fill fill)
{
    operand o = check_operand(ACT_F32, width, n_rows);
    for (int r = 0; r < n_rows; r++)
        check_fill_f32(check_row(&o, r), width, fill);
    return o;
}

/* Fill what the step needs besides operands, by chance. */
static void choose_arguments(step *s, int64_t width)
{
    static sparsity_rule rule = {.in_batches = true};
    switch (s->op) {
    case OP_SOFTCAP:
        s->a.softcap.cap = check_random_f32(5, 50);
        break;
    case OP_XIELU:
        s->a.xielu.alpha_p = check_random_f32(0.1f, 1);
        s->a.xielu.alpha_n = check_random_f32(0.1f, 1);
        s->a.xielu.beta = 0.5f;
        s->a.xielu.eps = -1e-6f;
        break;
    case OP_TEMPERATURE:
        s->a.temperature.scale = 0.1f;
        s->a.temperature.offset = check_random_int(0, 1);
        s->a.temperature.length = check_random_int(1, 9000);
        break;
    case OP_PICK: /* every third group of a row that is three times as wide */
        s->a.pick.n = width % 4 == 0 ? width / 4 : width;
        s->a.pick.stride = 3 * s->a.pick.n;
        s->a.pick.offset = check_random_int(0, 2) * s->a.pick.n;
        break;
    default: /* DROP_SMALL */
        rule.threshold = check_random_f32(0, 1);
        s->sparsity = &rule;
        break;
    }
}

/*
 * What is copied or left out is the same; tanh and exp are off by a few 6e-8 of themselves, (2e-7)^2.
 * xIELU takes x from exp(x) - 1, which for small x leaves x^2 / 2 of it, off by 6e-8 x, beside beta x.
 */
static double max_nmse(op which)
{
    return which == OP_PICK || which == OP_DROP_SMALL ? 0 : 1e-13;
}

static void check_op(op which, const kernel_table *ref, const kernel_table *table)
{
    static const check_fill fills[] = {CHECK_NORMAL, CHECK_OUTLIER, CHECK_TINY, CHECK_ZERO};
    kernel_fn fn = table->ops[which];
    if (!check_begin(op_name(which), NULL, CHECK_FN(fn)))
        return;
    bool is_in_place = which != OP_PICK && which != OP_DROP_SMALL;
    for (int width = 1; width < 3000; width = width * 3 + 1)
        for (int f = 0; f < 4; f++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
                int n_rows = check_random_int(1, MAX_ROWS);
                check_shape("width %d rows %d %s workers %d", width, n_rows,
                            check_fill_name(fills[f]), n);
                int32_t positions[MAX_ROWS];
                for (int t = 0; t < n_rows; t++)
                    positions[t] = check_random_int(0, 100000);
                step s = {.op = which, .row_factor = 1};
                if (!is_in_place)
                    s.in[0] =
                        random_operand(which == OP_PICK ? 3 * width : width, n_rows, fills[f]);
                choose_arguments(&s, width);
                batch b = {.n_tokens = n_rows, .positions = positions};
                operand want = random_operand(width, n_rows, fills[f]);
                operand got = check_operand_copy(&want, n_rows);
                s.out[0] = want;
                check_run(ref->ops[which], &s, &b, 1, 0);
                s.out[0] = got;
                check_run(fn, &s, &b, n, 0);
                check_rows("out", &want, &got, n_rows, max_nmse(which));
            }
    check_end();
}

void check_row_ops(const kernel_table *ref, const kernel_table *table)
{
    static const op ops[] = {OP_SOFTCAP, OP_XIELU, OP_PICK, OP_TEMPERATURE, OP_DROP_SMALL};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        check_op(ops[i], ref, table);
}
