/*
 * Mixture of experts: each token goes through a few of many matrices.
 *
 * Tokens are grouped by expert, so that the weights of an expert are read once for all of its
 * tokens, and those of an expert that nobody chose are not read at all. Every worker makes the same
 * groups and multiplies its own share of rows of each chosen expert. Experts come in the order of
 * their numbers, so a token's result does not depend on what else is in the batch.
 */
#include <string.h>

#include "base/numbers.h"
#include "base/threads.h"
#include "backend/ref/ref.h"

/* The scratch of a worker, cut up. */
typedef struct groups {
    int32_t *begin;    /* [n_experts + 1] into items */
    int32_t *items;    /* [n_tokens * n_used] token * n_used + choice, by expert */
    uint8_t *gathered; /* activations of one expert's tokens */
    float *gate, *up;  /* products of a block of rows */
    uint8_t *rest;     /* for the matrix kernel */
} groups;

/* Products of a block: as many rows of an expert as fit. */
enum { BLOCK_FLOATS = 64 * 1024 };

/* Whole cache lines. */
static uint64_t in_lines(uint64_t n)
{
    return round_up(n, 64);
}

static uint64_t block_bytes(int64_t n_tokens)
{
    uint64_t least = 4 * MATMUL_TILE_ROWS * (uint64_t)n_tokens;
    return in_lines(least > 4 * BLOCK_FLOATS ? least : 4 * BLOCK_FLOATS);
}

uint64_t moe_scratch_bytes(const step *s, int64_t n_tokens)
{
    const weight *w = s->op == OP_MOE_GLU ? s->a.moe.gate : s->a.moe.down;
    uint64_t choices = (uint64_t)n_tokens * (uint64_t)s->a.moe.n_used;
    uint64_t kernel = matmul_scratch_bytes(w->impl, w->type, w->n_cols, n_tokens);
    return in_lines(4 * ((uint64_t)s->a.moe.n_experts + 1)) + in_lines(4 * choices) +
           in_lines((uint64_t)n_tokens * s->in[0].stride) + 2 * block_bytes(n_tokens) +
           in_lines(kernel);
}

/* A counting sort of the choices by expert. */
static groups make_groups(const step *s, const batch *b, const worker *w)
{
    int32_t n_experts = s->a.moe.n_experts, n_used = s->a.moe.n_used;
    uint8_t *at = w->scratch;
    groups g;
    g.begin = (int32_t *)at;
    at += in_lines(4 * ((uint64_t)n_experts + 1));
    g.items = (int32_t *)at;
    at += in_lines(4 * (uint64_t)b->n_tokens * (uint64_t)n_used);
    g.gathered = at;
    at += in_lines((uint64_t)b->n_tokens * s->in[0].stride);
    g.gate = (float *)at;
    at += block_bytes(b->n_tokens);
    g.up = (float *)at;
    g.rest = at + block_bytes(b->n_tokens);

    memset(g.begin, 0, 4 * ((size_t)n_experts + 1));
    for (int32_t t = 0; t < b->n_tokens; t++) {
        const expert_choice *c = (const expert_choice *)operand_row(&s->in[1], t);
        for (int32_t k = 0; k < n_used; k++)
            g.begin[c[k].expert + 1]++;
    }
    for (int32_t e = 0; e < n_experts; e++)
        g.begin[e + 1] += g.begin[e];
    for (int32_t t = 0; t < b->n_tokens; t++) {
        const expert_choice *c = (const expert_choice *)operand_row(&s->in[1], t);
        for (int32_t k = 0; k < n_used; k++)
            g.items[g.begin[c[k].expert]++] = t * n_used + k;
    }
    /* Filling moved every beginning to the next one's place. */
    memmove(g.begin + 1, g.begin, 4 * (size_t)n_experts);
    g.begin[0] = 0;
    return g;
}

/* The activations of some items in a row of rows: where they lie if there is only one. */
static const uint8_t *gather(const step *s, const groups *g, const int32_t *items, int64_t n,
                             int32_t per_row)
{
    if (n == 1)
        return (const uint8_t *)operand_row(&s->in[0], items[0] / per_row);
    for (int64_t i = 0; i < n; i++)
        memcpy(g->gathered + (uint64_t)i * s->in[0].stride,
               operand_row(&s->in[0], items[i] / per_row), s->in[0].stride);
    return g->gathered;
}

static int64_t rows_per_block(int64_t n)
{
    int64_t rows = BLOCK_FLOATS / n / MATMUL_TILE_ROWS * MATMUL_TILE_ROWS;
    return rows > MATMUL_TILE_ROWS ? rows : MATMUL_TILE_ROWS;
}

/* y[i] = W x[i] + bias for rows [row, row + rows) */
static void multiply(const weight *w, const float *bias, const uint8_t *x, uint64_t stride,
                     int64_t n, int64_t row, int64_t rows, float *y, uint8_t *scratch)
{
    w->impl->rows(w, row, row + rows, x, stride, n, y, rows, scratch);
    for (int64_t i = 0; bias && i < n; i++)
        for (int64_t j = 0; j < rows; j++)
            y[i * rows + j] += bias[row + j];
}

void moe_glu_ref(const step *s, const batch *b, const worker *w)
{
    groups g = make_groups(s, b, w);
    int64_t n_ff = s->a.moe.gate[0].n_rows, begin, end;
    pool_share(n_ff, MATMUL_TILE_ROWS, w->index, w->count, &begin, &end);
    for (int32_t e = 0; e < s->a.moe.n_experts; e++) {
        const int32_t *items = g.items + g.begin[e];
        int64_t n = g.begin[e + 1] - g.begin[e];
        if (n == 0 || begin == end)
            continue;
        const float *gate_bias = s->a.moe.gate_bias ? s->a.moe.gate_bias + e * n_ff : NULL;
        const float *up_bias = s->a.moe.up_bias ? s->a.moe.up_bias + e * n_ff : NULL;
        const uint8_t *x = gather(s, &g, items, n, s->a.moe.n_used);
        int64_t most = rows_per_block(n);
        for (int64_t row = begin; row < end; row += most) {
            int64_t rows = end - row < most ? end - row : most;
            multiply(&s->a.moe.gate[e], gate_bias, x, s->in[0].stride, n, row, rows, g.gate,
                     g.rest);
            multiply(&s->a.moe.up[e], up_bias, x, s->in[0].stride, n, row, rows, g.up, g.rest);
            for (int64_t i = 0; i < n; i++)
                s->a.moe.glu_row(s->a.moe.glu, g.gate + i * rows, g.up + i * rows, rows,
                                 operand_row(&s->out[0], items[i]) + row);
        }
    }
}

void moe_down_ref(const step *s, const batch *b, const worker *w)
{
    groups g = make_groups(s, b, w);
    int32_t n_used = s->a.moe.n_used;
    int64_t n_embd = s->a.moe.down[0].n_rows, begin, end;
    pool_share(n_embd, MATMUL_TILE_ROWS, w->index, w->count, &begin, &end);
    for (int32_t e = 0; e < s->a.moe.n_experts; e++) {
        const int32_t *items = g.items + g.begin[e];
        int64_t n = g.begin[e + 1] - g.begin[e];
        if (n == 0 || begin == end)
            continue;
        const float *bias = s->a.moe.down_bias ? s->a.moe.down_bias + e * n_embd : NULL;
        const uint8_t *x = gather(s, &g, items, n, 1);
        int64_t most = rows_per_block(n);
        for (int64_t row = begin; row < end; row += most) {
            int64_t rows = end - row < most ? end - row : most;
            multiply(&s->a.moe.down[e], bias, x, s->in[0].stride, n, row, rows, g.gate, g.rest);
            for (int64_t i = 0; i < n; i++) {
                int32_t t = items[i] / n_used;
                const expert_choice *c = (const expert_choice *)operand_row(&s->in[1], t);
                float share = s->a.moe.scale * c[items[i] % n_used].weight;
                float *y = operand_row(&s->out[0], t) + row;
                for (int64_t j = 0; j < rows; j++)
                    y[j] += share * g.gate[i * rows + j];
            }
        }
    }
}
