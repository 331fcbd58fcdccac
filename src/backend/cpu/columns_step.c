/* Matrix steps of single tokens with matrices in columns: pieces of products, and their sum. */
#include <assert.h>
#include <string.h>

#include "base/threads.h"
#include "backend/cpu/columns.h"
#include "backend/ref/ref.h"

bool columns_can(const step *s)
{
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        if (!s->a.matmul.weights[i]->columns_impl)
            return false;
    return true;
}

static columns_shape shape_of(const weight *w)
{
    return columns_shape_of(w->type, w->n_rows, w->n_cols);
}

static int64_t padded_rows(const columns_shape *s)
{
    return s->n_strips * s->strip_rows;
}

int64_t columns_n_pieces(const step *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++) {
        columns_shape cs = shape_of(s->a.matmul.weights[i]);
        n += cs.n_strips * cs.n_parts;
    }
    return n;
}

uint64_t columns_sums_bytes(const step *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++) {
        columns_shape cs = shape_of(s->a.matmul.weights[i]);
        n += padded_rows(&cs) * cs.n_parts;
    }
    return 4 * (uint64_t)n;
}

/* The sums of weight number i: [n_parts, padded_rows]. */
static float *sums_of(const step *s, int i)
{
    float *at = s->a.matmul.sums;
    for (int k = 0; k < i; k++) {
        columns_shape cs = shape_of(s->a.matmul.weights[k]);
        at += padded_rows(&cs) * cs.n_parts;
    }
    return at;
}

static void run_piece(const step *s, int i, int64_t piece)
{
    const weight *w = s->a.matmul.weights[i];
    columns_shape cs = shape_of(w);
    int64_t strip = piece / cs.n_parts, part = piece % cs.n_parts;
    columns_part p = {.shape = &cs,
                      .strip = w->columns + (uint64_t)strip * cs.strip_bytes,
                      .x = s->in[0].data,
                      .n_cols = w->n_cols,
                      .sums = sums_of(s, i) + part * padded_rows(&cs) + strip * cs.strip_rows};
    assert(s->in[0].format == w->columns_impl->act && s->in[0].width == w->n_cols);
    p.group_begin = cs.n_groups * part / cs.n_parts;
    p.group_end = cs.n_groups * (part + 1) / cs.n_parts;
    memset(p.sums, 0, (size_t)cs.strip_rows * sizeof *p.sums);
    w->columns_impl->add_part(&p);
}

void columns_step(const step *s, const worker *w)
{
    int64_t begin, end;
    pool_share(columns_n_pieces(s), 1, w->index, w->count, &begin, &end);
    for (int64_t piece = begin; piece < end; piece++) {
        int i = 0;
        int64_t at = piece;
        for (;; i++) {
            columns_shape cs = shape_of(s->a.matmul.weights[i]);
            if (at < cs.n_strips * cs.n_parts)
                break;
            at -= cs.n_strips * cs.n_parts;
        }
        run_piece(s, i, at);
    }
}

/* ---- Joining --------------------------------------------------------------------------------- */

enum { BLOCK = 256 }; /* rows that are joined at a time */

/* scale * (the parts' sums) + bias, of n rows from `row` on. */
static void join_rows(const step *s, int i, int64_t row, int64_t n, float *out)
{
    const weight *w = s->a.matmul.weights[i];
    columns_shape cs = shape_of(w);
    const float *sums = sums_of(s, i) + row, *bias = s->a.matmul.biases[i];
    memcpy(out, sums, (size_t)n * sizeof *out);
    for (int64_t part = 1; part < cs.n_parts; part++) {
        sums += padded_rows(&cs);
        for (int64_t r = 0; r < n; r++)
            out[r] += sums[r];
    }
    if (s->a.matmul.scale != 1.0f || bias)
        for (int64_t r = 0; r < n; r++)
            out[r] = s->a.matmul.scale * out[r] + (bias ? bias[row + r] : 0.0f);
}

static void join_block(const step *s, int i, int64_t row, int64_t n)
{
    float block[BLOCK], up[BLOCK];
    float *y = operand_row(&s->out[i], 0) + row;
    switch (s->a.matmul.joins) {
    case OP_MATMUL_ADD:
        join_rows(s, i, row, n, block);
        for (int64_t r = 0; r < n; r++)
            y[r] += block[r];
        break;
    case OP_MATMUL_GLU:
        join_rows(s, 0, row, n, block);
        join_rows(s, 1, row, n, up);
        s->a.matmul.glu_row(s->a.matmul.glu, block, up, n, y);
        break;
    default:
        join_rows(s, i, row, n, y);
        break;
    }
}

void matmul_join_ref(const step *s, const batch *b, const worker *w)
{
    if (!columns_use(s, b))
        return;
    int n_outputs = s->a.matmul.joins == OP_MATMUL_GLU ? 1 : s->a.matmul.n_weights;
    for (int i = 0; i < n_outputs; i++) {
        int64_t begin, end;
        pool_share(s->a.matmul.weights[i]->n_rows, MATMUL_TILE_ROWS, w->index, w->count, &begin,
                   &end);
        for (int64_t row = begin; row < end; row += BLOCK)
            join_block(s, i, row, end - row < BLOCK ? end - row : BLOCK);
    }
}
