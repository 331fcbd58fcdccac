/*
 * Matrix steps: who multiplies which rows, and what happens to the products.
 *
 * Each worker has a contiguous run of the rows of all weights in the step, as if they lay one below
 * the other: long runs are what memory reads best. An impl's `rows` only
 * multiplies; adding to the residual, the bias, the scale and the gate are done here, on a block of
 * products that is still in the cache.
 */
#include <assert.h>

#include "base/threads.h"
#include "backend/cpu/columns.h"
#include "backend/ref/ref.h"

enum { BLOCK_FLOATS = 128 * 1024 };

/* Rows of a block for this many tokens: a multiple of the tile. */
static int64_t block_rows(int64_t n_tokens)
{
    int64_t rows = BLOCK_FLOATS / n_tokens / MATMUL_TILE_ROWS * MATMUL_TILE_ROWS;
    return rows > MATMUL_TILE_ROWS ? rows : MATMUL_TILE_ROWS;
}

uint64_t matmul_block_bytes(int64_t n_tokens)
{
    if (n_tokens < 1)
        n_tokens = 1;
    int64_t most = MATMUL_TILE_ROWS * n_tokens;
    return 4 * (uint64_t)(most > BLOCK_FLOATS ? most : BLOCK_FLOATS);
}

/* y = scale * y + bias, for a block of [n_tokens, n_rows]. */
static void finish(float *y, int64_t stride, int64_t n_tokens, int64_t n_rows, float scale,
                   const float *bias)
{
    if (scale == 1.0f && !bias)
        return;
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t i = 0; i < n_rows; i++)
            y[t * stride + i] = scale * y[t * stride + i] + (bias ? bias[i] : 0.0f);
}

/* This worker's share of n_rows. */
static void share(const worker *w, int64_t n_rows, int64_t *begin, int64_t *end)
{
    int64_t ignored;
    pool_share(n_rows, MATMUL_TILE_ROWS, w->index, w->count, begin, end);
    if (w->n_more)
        pool_share(n_rows, MATMUL_TILE_ROWS, w->index + w->n_more, w->count, &ignored, end);
}

static int64_t tiled_rows(const weight *w)
{
    return (w->n_rows + MATMUL_TILE_ROWS - 1) / MATMUL_TILE_ROWS * MATMUL_TILE_ROWS;
}

/* Products of rows [begin, end) of the step's weight number i, finished. */
static void multiply(const step *s, int i, int64_t begin, int64_t end, int64_t n_tokens, float *out,
                     int64_t out_stride, uint8_t *scratch)
{
    const weight *w = s->a.matmul.weights[i];
    const float *bias = s->a.matmul.biases[i];
    assert(s->in[0].format == w->impl->act && s->in[0].width == w->n_cols);
    w->impl->rows(w, begin, end, s->in[0].data, s->in[0].stride, n_tokens, out, out_stride,
                  scratch);
    finish(out, out_stride, n_tokens, end - begin, s->a.matmul.scale, bias ? bias + begin : NULL);
}

/* Whether the weights lie in columns, which one token is multiplied with in another way. */
static bool is_done_by_columns(const step *s, const batch *b, const worker *w)
{
    bool is_done = columns_use(s, b);
    if (is_done)
        columns_step(s, w);
    return is_done;
}

void matmul_ref(const step *s, const batch *b, const worker *w)
{
    int64_t n = step_rows(s, b);
    if (n == 0 || is_done_by_columns(s, b, w))
        return;
    int64_t total = 0, first, last, top = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        total += tiled_rows(s->a.matmul.weights[i]);
    share(w, total, &first, &last);
    for (int i = 0; i < s->a.matmul.n_weights; i++) {
        const weight *m = s->a.matmul.weights[i];
        int64_t begin = first > top ? first - top : 0;
        int64_t end = last - top < m->n_rows ? last - top : m->n_rows;
        if (begin < end)
            multiply(s, i, begin, end, n, operand_row(&s->out[i], 0) + begin,
                     (int64_t)(s->out[i].stride / 4), w->scratch);
        top += tiled_rows(m);
    }
}

void matmul_group_ref(const step *s, const batch *b, const worker *w)
{
    matmul_ref(s, b, w);
}

void matmul_add_ref(const step *s, const batch *b, const worker *w)
{
    int64_t n = step_rows(s, b), begin, end;
    if (n == 0 || is_done_by_columns(s, b, w))
        return;
    share(w, s->a.matmul.weights[0]->n_rows, &begin, &end);
    float *block = (float *)w->scratch;
    uint8_t *rest = w->scratch + matmul_block_bytes(n);
    int64_t most = block_rows(n);
    for (int64_t row = begin; row < end; row += most) {
        int64_t rows = end - row < most ? end - row : most;
        multiply(s, 0, row, row + rows, n, block, rows, rest);
        for (int64_t t = 0; t < n; t++) {
            float *y = operand_row(&s->out[0], t) + row;
            for (int64_t i = 0; i < rows; i++)
                y[i] += block[t * rows + i];
        }
    }
}

void matmul_glu_ref(const step *s, const batch *b, const worker *w)
{
    int64_t n = step_rows(s, b), begin, end;
    if (n == 0 || is_done_by_columns(s, b, w))
        return;
    share(w, s->a.matmul.weights[0]->n_rows, &begin, &end);
    float *gate = (float *)w->scratch;
    float *up = (float *)(w->scratch + matmul_block_bytes(n));
    uint8_t *rest = w->scratch + 2 * matmul_block_bytes(n);
    int64_t most = block_rows(n);
    for (int64_t row = begin; row < end; row += most) {
        int64_t rows = end - row < most ? end - row : most;
        multiply(s, 0, row, row + rows, n, gate, rows, rest);
        multiply(s, 1, row, row + rows, n, up, rows, rest);
        for (int64_t t = 0; t < n; t++) {
            float *y = operand_row(&s->out[0], t) + row;
            s->a.matmul.glu_row(s->a.matmul.glu, gate + t * rows, up + t * rows, rows, y);
        }
    }
}
