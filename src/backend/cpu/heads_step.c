/*
 * A product for each head: y[head] = W[head] x[head], and values behind x[head] that are copied.
 *
 * The rows of all heads' matrices are taken as one, so that a worker's share is a run of memory.
 * Each brings the inputs of the heads that it meets into the form that the matrix kernel reads.
 */
#include <string.h>

#include "backend/cpu/latents_cpu.h"
#include "backend/ref/ref.h"
#include "base/numbers.h"
#include "base/threads.h"

/* The scratch of a worker: rows of one head in form, a row for making them, the kernel's own. */
static uint64_t formed_bytes(const weight *w, int64_t n_tokens)
{
    return w->impl->act == ACT_F32 ? 0
                                   : (uint64_t)n_tokens * act_row_bytes(w->impl->act, w->n_cols);
}

static uint64_t row_scratch_bytes(const weight *w)
{
    return w->impl->act == ACT_F32 ? 0 : round_up(4 * (uint64_t)w->n_cols, 64);
}

uint64_t heads_scratch_bytes(const step *s, int64_t n_tokens)
{
    return heads_product_bytes(s->a.heads.weights, n_tokens);
}

step_fn heads_form(const kernel_table *table, act_format act)
{
    return act == ACT_F32          ? NULL
           : act == ACT_ROTATED_Q8 ? table->ops[OP_ROTATE_QUANTIZE]
                                   : table->ops[OP_QUANTIZE];
}

/* n rows of x in the form that w reads; x, or in scratch. */
static operand in_form(const weight *w, step_fn form, operand x, int64_t n, uint8_t *scratch)
{
    if (w->impl->act == ACT_F32)
        return x;
    operand formed = {.format = w->impl->act,
                      .width = w->n_cols,
                      .stride = act_row_bytes(w->impl->act, w->n_cols),
                      .data = scratch};
    step quantize = {.op = OP_QUANTIZE, .row_factor = 1, .in = {x}, .out = {formed}};
    batch b = {.n_tokens = (int32_t)n};
    worker alone = {.count = 1, .scratch = scratch + formed_bytes(w, n)};
    form(&quantize, &b, &alone);
    return formed;
}

uint64_t heads_product_bytes(const weight *w, int64_t n)
{
    return formed_bytes(w, n) + row_scratch_bytes(w) +
           matmul_scratch_bytes(w->impl, w->type, w->n_cols, n);
}

void heads_product(const weight *w, step_fn form, const float *rows, int64_t n, float *out,
                   uint8_t *scratch)
{
    operand x = {.width = w->n_cols, .stride = 4 * (uint64_t)w->n_cols, .data = (uint8_t *)rows};
    x = in_form(w, form, x, n, scratch);
    w->impl->rows(w, 0, w->n_rows, x.data, x.stride, n, out, w->n_rows,
                  scratch + formed_bytes(w, n) + row_scratch_bytes(w));
}

/* The inputs of one head. */
static operand inputs_of(const step *s, int32_t head, int64_t n, uint8_t *scratch)
{
    const weight *w = s->a.heads.weights;
    operand x = s->in[0];
    x.data += 4 * (uint64_t)head * (uint64_t)(w->n_cols + s->a.heads.n_rest);
    x.width = w->n_cols;
    return in_form(w, s->a.heads.form, x, n, scratch);
}

/* Rows [begin, end) of one head's matrix; whoever has the first row copies the rest. */
static void multiply_head(const step *s, int32_t head, int64_t begin, int64_t end, int64_t n,
                          uint8_t *scratch)
{
    const weight *w = &s->a.heads.weights[head];
    const int64_t rest = s->a.heads.n_rest, out = head * (w->n_rows + rest);
    operand x = inputs_of(s, head, n, scratch);
    w->impl->rows(w, begin, end, x.data, x.stride, n, operand_row(&s->out[0], 0) + out + begin,
                  (int64_t)(s->out[0].stride / 4),
                  scratch + formed_bytes(w, n) + row_scratch_bytes(w));
    for (int64_t t = 0; begin == 0 && rest > 0 && t < n; t++)
        memcpy(operand_row(&s->out[0], t) + out + w->n_rows,
               operand_row(&s->in[0], t) + head * (w->n_cols + rest) + w->n_cols,
               (size_t)rest * sizeof(float));
}

void matmul_heads_ref(const step *s, const batch *b, const worker *w)
{
    const int64_t n = step_rows(s, b), n_rows = s->a.heads.weights->n_rows;
    const int64_t tiled = (int64_t)round_up((uint64_t)n_rows, MATMUL_TILE_ROWS);
    int64_t first, last;
    if (n == 0 || latents_are_expanded(&s->a.heads.latents, b))
        return;
    pool_share(s->a.heads.n_heads * tiled, MATMUL_TILE_ROWS, w->index, w->count, &first, &last);
    for (int64_t head = first / tiled; head * tiled < last; head++) {
        int64_t begin = first > head * tiled ? first - head * tiled : 0;
        int64_t end = last - head * tiled < n_rows ? last - head * tiled : n_rows;
        if (begin < end)
            multiply_head(s, (int32_t)head, begin, end, n, w->scratch);
    }
}
