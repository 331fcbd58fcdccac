/*
 * Mixture of experts: each token goes through a few of many matrices.
 *
 * Tokens are grouped by expert, so that the weights of an expert are read once for all of its
 * tokens, and those of an expert that nobody chose are not read at all. Every worker makes the same
 * groups and multiplies its own share of rows of each chosen expert. Experts come in the order of
 * their numbers, so a token's result does not depend on what else is in the batch.
 *
 * With few tokens memory sets the pace, and it is slow where a run of rows begins. So gate and up
 * are handed out by whole experts then, and down, whose experts are added up, in large parts. Two
 * cores of Zen 4, Granite 4 Tiny (6 of 64 experts, 1536 to 512 columns, Q4_K), GB/s:
 *
 *                                    gate and up   down
 *     64 rows of every expert                 28     30
 *     these                                   49     38
 */
#include <string.h>

#include "base/numbers.h"
#include "base/threads.h"
#include "backend/ref/ref.h"
#include "ops/op_info.h"

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
    uint64_t choices = (uint64_t)n_tokens * (uint64_t)s->a.moe.n_used, kernel = 0;
    op_weight w[OP_MAX_WEIGHTS];
    int n_weights = step_weights(s, w);
    for (int i = 0; i < n_weights; i++) {
        uint64_t n = matmul_scratch_bytes(w[i].w->impl, w[i].w->type, w[i].w->n_cols, n_tokens);
        kernel = n > kernel ? n : kernel;
    }
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

/* The tokens of one expert, and the rows of its matrices that are computed at a time. */
typedef struct expert_part {
    int32_t expert;
    const int32_t *items; /* [n] */
    int64_t n;
    const uint8_t *x; /* their activations */
    int64_t row, rows;
} expert_part;

static float weight_of(const step *s, int32_t item)
{
    int32_t n_used = s->a.moe.n_used;
    return ((const expert_choice *)operand_row(&s->in[1], item / n_used))[item % n_used].weight;
}

/* y[i] = W x[i] + bias, with each product times its choice's weight if inputs are weighed. */
static void multiply(const step *s, const expert_part *p, const weight *experts, const float *bias,
                     float *y, uint8_t *scratch)
{
    const weight *w = &experts[p->expert];
    w->impl->rows(w, p->row, p->row + p->rows, p->x, s->in[0].stride, p->n, y, p->rows, scratch);
    const float *add = bias ? bias + p->expert * weight_total(w) + p->row : NULL;
    bool weighs = s->op == OP_MOE_GLU && s->a.moe.weighs_inputs;
    for (int64_t i = 0; (add || weighs) && i < p->n; i++) {
        float scale = weighs ? weight_of(s, p->items[i]) : 1;
        for (int64_t j = 0; j < p->rows; j++)
            y[i * p->rows + j] = scale * y[i * p->rows + j] + (add ? add[j] : 0);
    }
}

/* act(gate) * up, or act(up), of a part into its rows. */
static void glu_part(const step *s, const groups *g, const expert_part *p)
{
    int64_t rows = p->rows;
    const weight *first = s->a.moe.gate ? s->a.moe.gate : s->a.moe.up;
    multiply(s, p, first, s->a.moe.gate ? s->a.moe.gate_bias : s->a.moe.up_bias, g->gate, g->rest);
    if (s->a.moe.gate)
        multiply(s, p, s->a.moe.up, s->a.moe.up_bias, g->up, g->rest);
    else
        for (int64_t j = 0; j < rows; j++)
            g->up[j] = 1;
    for (int64_t i = 0; i < p->n; i++)
        s->a.moe.glu_row(s->a.moe.glu, g->gate + i * rows, s->a.moe.gate ? g->up + i * rows : g->up,
                         rows, operand_row(&s->out[0], p->items[i]) + p->row);
}

/* scale * down of a part, weighed, added to the rows of its tokens. */
static void down_part(const step *s, const groups *g, const expert_part *p)
{
    multiply(s, p, s->a.moe.down, s->a.moe.down_bias, g->gate, g->rest);
    for (int64_t i = 0; i < p->n; i++) {
        float share = s->a.moe.scale * (s->a.moe.weighs_inputs ? 1 : weight_of(s, p->items[i]));
        float *y = operand_row(&s->out[0], p->items[i] / s->a.moe.n_used) + p->row;
        for (int64_t j = 0; j < p->rows; j++)
            y[j] += share * g->gate[i * p->rows + j];
    }
}

/* ---- Shares ---------------------------------------------------------------------------------- */

enum { RUNS_PER_WORKER = 4, PARTS_PER_WORKER = 2 };

/* Gate and up of few tokens: whole experts are handed out, or parts of them to many workers. */
static bool is_by_expert(const step *s, const batch *b)
{
    return s->op == OP_MOE_GLU && b->n_tokens <= MATMUL_FEW_TOKENS;
}

static int64_t n_items_of(const step *s, const batch *b)
{
    return (int64_t)b->n_tokens * s->a.moe.n_used;
}

int64_t moe_n_pieces(const step *s, const batch *b, int n_workers)
{
    int64_t n_items = n_items_of(s, b), least = (int64_t)n_workers * PARTS_PER_WORKER;
    if (!is_by_expert(s, b))
        return least;
    return n_items < least ? n_items * divide_up(least, n_items)
                           : min_i64(n_items, (int64_t)n_workers * RUNS_PER_WORKER);
}

/* What a worker computes: rows of the experts whose items begin in [first, last). */
typedef struct moe_share {
    int64_t begin, end;
    int64_t first, last;
} moe_share;

static moe_share take_share(const step *s, const batch *b, const worker *w)
{
    int64_t n_items = n_items_of(s, b);
    moe_share share = {.last = n_items};
    const weight *rows = s->op == OP_MOE_GLU ? s->a.moe.up : s->a.moe.down;
    if (!is_by_expert(s, b)) {
        pool_share(rows->n_rows, MATMUL_TILE_ROWS, w->index, w->count, &share.begin, &share.end);
        return share;
    }
    int n_parts = w->count > n_items ? (int)(w->count / n_items) : 1;
    int64_t n_runs = w->count / n_parts, run = w->index / n_parts;
    pool_share(rows->n_rows, MATMUL_TILE_ROWS, w->index % n_parts, n_parts, &share.begin,
               &share.end);
    share.first = run * n_items / n_runs;
    share.last = run < n_runs ? (run + 1) * n_items / n_runs : share.first;
    return share;
}

/* One worker's share of all chosen experts. */
static void each_part(const step *s, const batch *b, const worker *w)
{
    bool is_glu = s->op == OP_MOE_GLU;
    groups g = make_groups(s, b, w);
    moe_share mine = take_share(s, b, w);
    for (int64_t t = 0; !is_glu && s->a.moe.makes && t < b->n_tokens; t++)
        memset(operand_row(&s->out[0], t) + mine.begin, 0,
               (size_t)(mine.end - mine.begin) * sizeof(float));
    for (int32_t e = 0; e < s->a.moe.n_experts; e++) {
        expert_part p = {
            .expert = e, .items = g.items + g.begin[e], .n = g.begin[e + 1] - g.begin[e]};
        if (p.n == 0 || g.begin[e] < mine.first || g.begin[e] >= mine.last)
            continue;
        p.x = gather(s, &g, p.items, p.n, is_glu ? s->a.moe.n_used : 1);
        int64_t most = rows_per_block(p.n);
        for (p.row = mine.begin; p.row < mine.end; p.row += most) {
            p.rows = min_i64(mine.end - p.row, most);
            if (is_glu)
                glu_part(s, &g, &p);
            else
                down_part(s, &g, &p);
        }
    }
}

void moe_glu_ref(const step *s, const batch *b, const worker *w)
{
    each_part(s, b, w);
}

void moe_down_ref(const step *s, const batch *b, const worker *w)
{
    each_part(s, b, w);
}
