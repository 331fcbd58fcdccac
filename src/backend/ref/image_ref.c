/* Plain operations of images: rows of pixels, pooling, merging, positions in a grid. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "backend/ref/ref.h"

void gather_run_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, width = s->in[0].width;
    int32_t n = s->a.gather_run.n;
    pool_share(b->n_outputs, 1, w->index, w->count, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *y = operand_row(&s->out[0], i);
        for (int32_t k = 0; k < n && !s->a.gather_run.is_mean; k++)
            memcpy(y + k * width, operand_row(&s->in[0], b->outputs[i] + k),
                   (size_t)width * sizeof *y);
        for (int64_t c = 0; c < width && s->a.gather_run.is_mean; c++) {
            double sum = 0;
            for (int32_t k = 0; k < n; k++)
                sum += operand_row(&s->in[0], b->outputs[i] + k)[c];
            y[c] = (float)(sum / n);
        }
    }
}

void given_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, width = s->out[0].width;
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        memcpy(operand_row(&s->out[0], t), batch_given(b, t, width, s->a.given.column),
               (size_t)width * sizeof(float));
}

void add_given_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, width = s->out[0].width;
    if (!b->embeddings)
        return;
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = batch_given(b, t, width, s->a.given.column);
        float *y = operand_row(&s->out[0], t);
        for (int64_t i = 0; b->tokens[t] == TOKEN_GIVEN && i < width; i++)
            y[i] += x[i];
    }
}

void side_by_side_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = operand_row(&s->out[0], t);
        for (int i = 0; i < STEP_MAX_IN && s->in[i].value >= 0; i++) {
            memcpy(y, operand_row(&s->in[i], t), (size_t)s->in[i].width * sizeof *y);
            y += s->in[i].width;
        }
    }
}

/*
 * A place along one side of a grid of n, on a side of the table: two rows, and how much the second
 * counts. In floats and from both ends, as the reference has it.
 */
static void find_between(int32_t at, int32_t n, int32_t side, int32_t *low, int32_t *high,
                         float *part)
{
    float last = (float)(side - 1), by = n > 1 ? last / (float)(n - 1) : 0;
    float place = n < 2 ? 0 : at < n / 2 ? by * (float)at : last - by * (float)(n - 1 - at);
    *low = (int32_t)place < side - 1 ? (int32_t)place : side - 1;
    *high = *low + 1 < side ? *low + 1 : *low;
    *part = place - (float)*low;
}

void grid_embed_ref(const step *s, const batch *b, const worker *w)
{
    const weight *table = s->a.grid.table;
    int64_t begin, end, width = s->out[0].width;
    int32_t side = s->a.grid.side, rows[2], cols[2];
    uint64_t stride = row_bytes(table->type, width);
    float down, right, *row = (float *)w->scratch;
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = operand_row(&s->out[0], t);
        find_between(b->segments[t] / b->grid_cols, b->grid_rows, side, &rows[0], &rows[1], &down);
        find_between(b->segments[t] % b->grid_cols, b->grid_cols, side, &cols[0], &cols[1], &right);
        memset(y, 0, (size_t)width * sizeof *y);
        for (int k = 0; k < 4; k++) {
            float share = (k / 2 ? down : 1 - down) * (k % 2 ? right : 1 - right);
            uint64_t at = (uint64_t)rows[k / 2] * (uint64_t)side + (uint64_t)cols[k % 2];
            unpack_row(table->type, table->data + at * stride, width, row);
            for (int64_t i = 0; i < width; i++)
                y[i] += share * row[i];
        }
    }
}
