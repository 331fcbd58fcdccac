/* gather_run, given, add_given, side_by_side, grid_embed: what images need. */
#include <string.h>

#include "checkkernels.h"

enum { MAX_TOKENS = 24 };

static operand random_operand(int64_t width, int n_rows)
{
    operand o = check_operand(ACT_F32, width, n_rows);
    for (int r = 0; r < n_rows; r++)
        check_fill_f32(check_row(&o, r), width, CHECK_NORMAL);
    return o;
}

/* Run the plain kernel and the other; nothing may differ by more than max_nmse. */
static void compare(const kernel_table *ref, const kernel_table *table, step *s, const batch *b,
                    int n_rows, int n_workers, uint64_t scratch, operand *want)
{
    operand got = check_operand_copy(want, n_rows);
    s->out[0] = *want;
    check_run(ref->ops[s->op], s, b, 1, scratch);
    s->out[0] = got;
    check_run(table->ops[s->op], s, b, n_workers, scratch);
    check_rows("out", want, &got, n_rows, 1e-13);
}

static void check_gather_run(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("gather_run", NULL, CHECK_FN(table->ops[OP_GATHER_RUN])))
        return;
    for (int width = 1; width < 300; width = width * 3 + 1)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int run = check_random_int(1, 4), n_outputs = MAX_TOKENS / run;
            bool is_mean = n % 2;
            int32_t outputs[MAX_TOKENS];
            check_shape("width %d run %d mean %d workers %d", width, run, is_mean, n);
            for (int i = 0; i < n_outputs; i++)
                outputs[i] = i * run;
            batch b = {.n_tokens = MAX_TOKENS, .n_outputs = n_outputs, .outputs = outputs};
            step s = {.op = OP_GATHER_RUN, .is_output = true, .row_factor = 1};
            s.a.gather_run.n = run;
            s.a.gather_run.is_mean = is_mean;
            s.in[0] = random_operand(width, MAX_TOKENS);
            operand want = random_operand(is_mean ? width : width * run, n_outputs);
            compare(ref, table, &s, &b, n_outputs, n, 0, &want);
            /* What the plain one says is what is meant. */
            float sum = 0;
            for (int k = 0; k < run; k++)
                sum += check_row(&s.in[0], run + k)[width - 1] * (run < MAX_TOKENS);
            const float *second = n_outputs > 1 ? check_row(&want, 1) : NULL;
            if (second && is_mean)
                check_true(second[width - 1] > sum / (float)run - 1e-4f &&
                               second[width - 1] < sum / (float)run + 1e-4f,
                           "a mean");
            else if (second)
                check_true(second[width * run - 1] == check_row(&s.in[0], 2 * run - 1)[width - 1],
                           "the last of the second run");
        }
    check_end();
}

static void check_given(op which, const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin(op_name(which), NULL, CHECK_FN(table->ops[which])))
        return;
    for (int width = 1; width < 300; width = width * 3 + 1)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int column = n % 3 * width;
            int32_t tokens[MAX_TOKENS];
            check_shape("width %d column %d workers %d", width, column, n);
            float *rows = check_alloc(4 * (uint64_t)(3 * width) * MAX_TOKENS);
            check_fill_f32(rows, (int64_t)3 * width * MAX_TOKENS, CHECK_NORMAL);
            for (int t = 0; t < MAX_TOKENS; t++)
                tokens[t] = t % 3 ? TOKEN_GIVEN : 7;
            batch b = {.n_tokens = MAX_TOKENS,
                       .tokens = tokens,
                       .embeddings = rows,
                       .embedding_width = 3 * width};
            step s = {.op = which, .row_factor = 1};
            s.a.given.column = column;
            operand want = random_operand(width, MAX_TOKENS);
            float before = check_row(&want, 3)[0];
            compare(ref, table, &s, &b, MAX_TOKENS, n, 0, &want);
            if (which == OP_ADD_GIVEN)
                check_true(check_row(&want, 3)[0] == before, "a token's own row stays");
            else
                check_true(check_row(&want, 3)[0] == rows[3 * 3 * width + column], "its column");
        }
    check_end();
}

static void check_side_by_side(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("side_by_side", NULL, CHECK_FN(table->ops[OP_SIDE_BY_SIDE])))
        return;
    for (int n_parts = 2; n_parts <= STEP_MAX_IN; n_parts++)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int n_rows = check_random_int(1, MAX_TOKENS), total = 0;
            check_shape("parts %d rows %d workers %d", n_parts, n_rows, n);
            batch b = {.n_tokens = n_rows};
            step s = {.op = OP_SIDE_BY_SIDE, .row_factor = 1};
            for (int i = 0; i < STEP_MAX_IN; i++)
                s.in[i].value = -1;
            for (int i = 0; i < n_parts; i++) {
                int width = check_random_int(1, 50);
                s.in[i] = random_operand(width, n_rows);
                s.in[i].value = i;
                total += width;
            }
            operand want = random_operand(total, n_rows);
            compare(ref, table, &s, &b, n_rows, n, 0, &want);
            check_true(check_row(&want, n_rows - 1)[total - 1] ==
                           check_row(&s.in[n_parts - 1], n_rows - 1)[s.in[n_parts - 1].width - 1],
                       "the last value");
        }
    check_end();
}

/* Corners are the table's own, whatever the grid. */
static void check_grid(const kernel_table *ref, const kernel_table *table)
{
    if (!check_begin("grid_embed", NULL, CHECK_FN(table->ops[OP_GRID_EMBED])))
        return;
    for (int width = 1; width < 100; width = width * 3 + 1)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++) {
            int side = check_random_int(1, 9), rows = check_random_int(1, 4), cols = 6;
            int32_t places[MAX_TOKENS];
            check_shape("side %d grid %d x %d width %d workers %d", side, rows, cols, width, n);
            float *values = check_alloc(4 * (uint64_t)(side * side * width));
            check_fill_f32(values, (int64_t)side * side * width, CHECK_NORMAL);
            for (int t = 0; t < rows * cols; t++)
                places[t] = t;
            weight w = {.type = DTYPE_F32,
                        .n_rows = side * side,
                        .n_cols = width,
                        .data = (const uint8_t *)values};
            batch b = {
                .n_tokens = rows * cols, .segments = places, .grid_rows = rows, .grid_cols = cols};
            step s = {.op = OP_GRID_EMBED, .row_factor = 1};
            s.a.grid.table = &w;
            s.a.grid.side = side;
            operand want = random_operand(width, rows * cols);
            compare(ref, table, &s, &b, rows * cols, n, 4 * (uint64_t)width, &want);
            check_true(check_row(&want, 0)[0] == values[0], "the first corner");
            check_true(check_row(&want, cols - 1)[0] == values[(side - 1) * width],
                       "the second corner");
            if (rows > 1)
                check_true(check_row(&want, rows * cols - 1)[0] ==
                               values[(side * side - 1) * width],
                           "the last corner");
        }
    check_end();
}

void check_image(const kernel_table *ref, const kernel_table *table)
{
    check_gather_run(ref, table);
    check_given(OP_GIVEN, ref, table);
    check_given(OP_ADD_GIVEN, ref, table);
    check_side_by_side(ref, table);
    check_grid(ref, table);
}
