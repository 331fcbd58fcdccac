/* mix, match, cutoff: residual streams, and gates that are cut off. */
#include <math.h>
#include <string.h>

#include "checkkernels.h"

static operand filled(int width, int n_rows)
{
    operand o = check_operand(ACT_F32, width, n_rows);
    for (int r = 0; r < n_rows; r++)
        check_fill_f32(check_row(&o, r), width, CHECK_NORMAL);
    return o;
}

/* Runs a step by both, into an output of its own or onto a copy of what is in out[0]. */
static void compare(const kernel_table *ref, const kernel_table *table, step *s, int n_rows, int n,
                    double max_nmse)
{
    batch b = {.n_tokens = n_rows};
    operand want = s->out[0], got = check_operand_copy(&want, n_rows);
    check_run(ref->ops[s->op], s, &b, 1, 0);
    s->out[0] = got;
    check_run(table->ops[s->op], s, &b, n, 0);
    check_rows("out", &want, &got, n_rows, max_nmse);
    s->out[0] = want;
}

static void check_mix(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("mix", NULL, CHECK_FN(table->ops[OP_MIX])))
        return;
    for (int width = 1; width < 3000; width = width < 40 ? width + 7 : width * 3 + 1)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int n_rows = check_random_int(1, 5), n_in = check_random_int(1, 4),
                n_out = n_in + n - 1;
            check_shape("width %d streams %d of %d rows %d workers %d", width, n_out, n_in, n_rows,
                        n);
            step s = {.op = OP_MIX, .a.mix.width = width};
            s.in[0] = filled(n_in * width, n_rows);
            s.in[1] = filled(n_in * n_out, n_rows);
            s.in[2] = filled(n_out * width, n_rows);
            s.out[0] = check_operand(ACT_F32, n_out * width, n_rows);
            compare(ref, table, &s, n_rows, n, 1e-12);
            /* The last value of the last stream of the last row, summed up here. */
            int row = n_rows - 1;
            double sum = check_row(&s.in[2], row)[n_out * width - 1];
            for (int k = 0; k < n_in; k++)
                sum += (double)check_row(&s.in[1], row)[(n_out - 1) * n_in + k] *
                       check_row(&s.in[0], row)[(k + 1) * width - 1];
            check_true(fabs(sum - check_row(&s.out[0], row)[n_out * width - 1]) < 1e-5,
                       "a sum of streams");
        }
    check_end();
}

static void check_match(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("match", NULL, CHECK_FN(table->ops[OP_MATCH])))
        return;
    for (int width = 1; width < 3000; width = width < 40 ? width + 7 : width * 3 + 1)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int n_rows = check_random_int(1, 5), n_in = check_random_int(1, 4), leads = n % 2;
            check_shape("width %d streams %d rows %d workers %d", width, n_in, n_rows, n);
            step s = {.op = OP_MATCH};
            s.a.match.scale = leads ? 1.0f : 0.25f;
            s.a.match.least = 1e-5f;
            s.a.match.leads = leads;
            s.in[0] = filled(n_in * width, n_rows);
            s.in[1] = filled(width, n_rows);
            if (n_in > 1) /* one that is nearly nothing */
                for (int i = 0; i < width; i++)
                    check_row(&s.in[0], 0)[i] *= 1e-4f;
            s.out[0] = check_operand(ACT_F32, (n_in + leads) * width, n_rows);
            compare(ref, table, &s, n_rows, n, 1e-12);
            const float *x = check_row(&s.in[0], 0), *y = check_row(&s.out[0], 0) + leads * width;
            double before = 0, after = 0, wanted = 0; /* squares of the first stream */
            for (int i = 0; i < width; i++) {
                before += (double)x[i] * x[i];
                after += (double)y[i] * y[i];
                wanted += pow(s.a.match.scale * check_row(&s.in[1], 0)[i], 2);
            }
            wanted *= fmin(1, before / (1e-5 * width));
            check_true(fabs(after - wanted) <= 1e-5 * wanted, "the target's magnitude");
            check_true(!leads || memcmp(check_row(&s.out[0], 0), check_row(&s.in[1], 0),
                                        sizeof(float) * (size_t)width) == 0,
                       "the target leads");
        }
    check_end();
}

static void check_cutoff(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("cutoff", NULL, CHECK_FN(table->ops[OP_CUTOFF])))
        return;
    for (int width = 1; width < 9000; width = width < 40 ? width + 7 : width * 3 + 1)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int n_rows = check_random_int(1, 5);
            check_shape("width %d rows %d workers %d", width, n_rows, n);
            step s = {.op = OP_CUTOFF, .a.cutoff.factor = check_random_f32(-1, 2)};
            s.out[0] = filled(width, n_rows);
            operand x = check_operand_copy(&s.out[0], n_rows);
            /* What is left of a value near the cutoff is small: a GPU's mean of floats shows in it. */
            compare(ref, table, &s, n_rows, n, check_is_gpu() ? 1e-10 : 1e-12);
            double mean = 0, squares = 0;
            for (int i = 0; i < width; i++)
                mean += check_row(&x, 0)[i] / (double)width;
            for (int i = 0; i < width; i++)
                squares += pow(check_row(&x, 0)[i] - mean, 2);
            double least = mean + s.a.cutoff.factor * sqrt(squares / width); /* not width - 1 */
            for (int i = 0; i < width; i++)
                check_true(fabs(fmax(check_row(&x, 0)[i] - least, 0) - check_row(&s.out[0], 0)[i]) <
                               1e-5,
                           "what is above");
        }
    check_end();
}

void check_streams(const kernel_table *ref, const kernel_table *table)
{
    check_mix(ref, table);
    check_match(ref, table);
    check_cutoff(ref, table);
}
