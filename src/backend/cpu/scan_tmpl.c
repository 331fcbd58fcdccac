/*
 * The state space: SCAN. Compiled once per CPU level (level.h).
 *
 * Tokens of one sequence that lie together are taken SCAN_TOKENS at a time, head by head. A block of
 * the head's state, SCAN_ROWS rows of a few vectors, goes through all of these tokens in registers
 * before it is stored:
 *
 *     state [n_state, head_dim]:   rows     b and c of each row and token, packed by rows
 *                                  columns  dt * x of each token
 *
 * What is read again for each block lies in scratch without gaps, so that it stays in the first
 * cache: in the operands the same columns of different tokens are often a power of two apart. The
 * order of all sums is that of the tokens and rows, so a result does not depend on how a text was
 * cut into batches.
 */
#include "backend/cpu/level.h"

#include <string.h>

#include "base/threads.h"
#include "backend/cpu/ops.h"

/* Vectors of a row that are held at once. */
enum { SCAN_VECTORS = LEVEL_BYTES == 32 ? 2 : 4 };

/* Tokens [begin, begin + n) of one sequence, and scratch. */
typedef struct scan_run {
    const step *s;
    int64_t begin, n;
    float *pairs;      /* [n_state / SCAN_ROWS][SCAN_TOKENS][2][SCAN_ROWS]: b, c */
    float *x, *y;      /* [SCAN_TOKENS, head_dim]: dt * x, and what comes out */
    float *dt, *decay; /* [SCAN_TOKENS] */
} scan_run;

/* b and c of a group, by blocks of rows. Rows that are not there stay as they are. */
static void pack_pairs(const scan_run *r, int64_t group)
{
    int64_t n_state = r->s->a.scan.n_state;
    for (int64_t t = 0; t < r->n; t++) {
        const float *b = operand_row(&r->s->in[1], r->begin + t) + group * n_state;
        const float *c = operand_row(&r->s->in[2], r->begin + t) + group * n_state;
        for (int64_t i = 0; i < n_state; i += SCAN_ROWS) {
            float *to = r->pairs + (i * SCAN_TOKENS + t * SCAN_ROWS) * 2;
            int64_t n = n_state - i < SCAN_ROWS ? n_state - i : SCAN_ROWS;
            memcpy(to, b + i, (size_t)n * sizeof *to);
            memcpy(to + SCAN_ROWS, c + i, (size_t)n * sizeof *to);
        }
    }
}

static void time_steps(const scan_run *r, int64_t head)
{
    const step *s = r->s;
    vf bias = v_set(s->a.scan.dt_bias[head]), a = v_set(s->a.scan.a[head]);
    vf least = v_set(s->a.scan.dt_min), most = v_set(s->a.scan.dt_max);
    for (int64_t t = 0; t < r->n; t++)
        r->dt[t] = operand_row(&s->in[3], r->begin + t)[head];
    for (int64_t t = 0; t < r->n; t += VW) {
        int64_t n = r->n - t < VW ? r->n - t : VW;
        vf dt = v_softplus(v_add(v_load_n(r->dt + t, n), bias));
        dt = v_min(most, v_max(least, dt));
        v_store_n(r->dt + t, dt, n);
        v_store_n(r->decay + t, v_exp(v_mul(dt, a)), n);
    }
}

/* dt * x, and d * x, to which the sums are added. */
static void begin_head(const scan_run *r, int64_t head)
{
    int64_t dim = r->s->a.scan.head_dim;
    vf d = v_set(r->s->a.scan.d[head]);
    for (int64_t t = 0; t < r->n; t++) {
        const float *x = operand_row(&r->s->in[0], r->begin + t) + head * dim;
        vf dt = v_set(r->dt[t]);
        for (int64_t i = 0; i < dim; i += VW) {
            int64_t n = dim - i < VW ? dim - i : VW;
            vf v = v_load_n(x + i, n);
            v_store_n(r->x + t * dim + i, v_mul(v, dt), n);
            v_store_n(r->y + t * dim + i, v_mul(v, d), n);
        }
    }
}

/*
 * n_rows rows by n_vectors vectors of the state, the last with n_last columns, through all tokens.
 * All three are constants where it is called, so that the state is held in registers.
 */
ALWAYS_INLINE void scan_block(const scan_run *r, float *state, const float *pairs, int64_t column,
                              int n_rows, int n_vectors, int n_last)
{
    int64_t dim = r->s->a.scan.head_dim;
    vf held[SCAN_ROWS][SCAN_VECTORS];
    for (int i = 0; i < n_rows; i++)
        for (int k = 0; k < n_vectors; k++) {
            const float *at = state + i * dim + k * VW;
            held[i][k] = k + 1 < n_vectors || n_last == VW ? v_load(at) : v_load_n(at, n_last);
        }
    const float *x = r->x + column;
    float *y = r->y + column;
    for (int64_t t = 0; t < r->n; t++, x += dim, y += dim, pairs += 2 * SCAN_ROWS) {
        vf decay = v_set(r->decay[t]);
        for (int k = 0; k < n_vectors; k++) {
            bool is_whole = k + 1 < n_vectors || n_last == VW;
            vf in = is_whole ? v_load(x + k * VW) : v_load_n(x + k * VW, n_last);
            vf sum = is_whole ? v_load(y + k * VW) : v_load_n(y + k * VW, n_last);
            for (int i = 0; i < n_rows; i++) {
                held[i][k] = v_fma(v_set(pairs[i]), in, v_mul(held[i][k], decay));
                sum = v_fma(v_set(pairs[SCAN_ROWS + i]), held[i][k], sum);
            }
            if (is_whole)
                v_store(y + k * VW, sum);
            else
                v_store_n(y + k * VW, sum, n_last);
        }
    }
    for (int i = 0; i < n_rows; i++)
        for (int k = 0; k < n_vectors; k++) {
            float *at = state + i * dim + k * VW;
            if (k + 1 < n_vectors || n_last == VW)
                v_store(at, held[i][k]);
            else
                v_store_n(at, held[i][k], n_last);
        }
}

/* All rows of some columns: n_vectors of them, or less than a vector. */
ALWAYS_INLINE void scan_columns(const scan_run *r, float *state, int64_t column, int n_vectors,
                                int n_last)
{
    int64_t dim = r->s->a.scan.head_dim, n_state = r->s->a.scan.n_state, i = 0;
    const float *pairs = r->pairs;
    for (; i + SCAN_ROWS <= n_state; i += SCAN_ROWS, pairs += 2 * SCAN_ROWS * SCAN_TOKENS)
        scan_block(r, state + i * dim + column, pairs, column, SCAN_ROWS, n_vectors, n_last);
    for (; i < n_state; i++, pairs++)
        scan_block(r, state + i * dim + column, pairs, column, 1, n_vectors, n_last);
}

/* state: [n_state, head_dim] */
static void scan_head(const scan_run *r, int64_t head, float *state)
{
    int64_t dim = r->s->a.scan.head_dim, i = 0;
    time_steps(r, head);
    begin_head(r, head);
    for (; i + SCAN_VECTORS * VW <= dim; i += SCAN_VECTORS * VW)
        scan_columns(r, state, i, SCAN_VECTORS, VW);
    for (; i + VW <= dim; i += VW)
        scan_columns(r, state, i, 1, VW);
    if (i < dim)
        scan_columns(r, state, i, 1, (int)(dim - i));
    for (int64_t t = 0; t < r->n; t++)
        memcpy(operand_row(&r->s->out[0], r->begin + t) + head * dim, r->y + t * dim,
               (size_t)dim * sizeof(float));
}

/* Heads [begin, end) of the run's tokens. */
static void scan_heads(const scan_run *r, int64_t begin, int64_t end, float *state)
{
    const step *s = r->s;
    int64_t floats = (int64_t)s->a.scan.n_state * s->a.scan.head_dim, packed = -1;
    for (int64_t head = begin; head < end; head++) {
        int64_t group = head / (s->a.scan.n_heads / s->a.scan.n_groups);
        if (group != packed)
            pack_pairs(r, group);
        packed = group;
        scan_head(r, head, state + head * floats);
    }
}

static void scan(const step *s, const batch *b, const worker *w)
{
    int64_t dim = s->a.scan.head_dim, begin, end;
    scan_run r = {.s = s, .pairs = (float *)w->scratch};
    r.x = r.pairs + scan_pair_floats(s->a.scan.n_state);
    r.y = r.x + SCAN_TOKENS * dim;
    r.dt = r.y + SCAN_TOKENS * dim;
    r.decay = r.dt + SCAN_TOKENS;
    pool_share(s->a.scan.n_heads, 1, w->index, w->count, &begin, &end);
    for (int64_t t = 0; t < b->n_tokens && begin < end; t += r.n) {
        r.begin = t;
        for (r.n = 1; r.n < SCAN_TOKENS && t + r.n < b->n_tokens; r.n++)
            if (b->slots[t + r.n] != b->slots[t])
                break;
        scan_heads(&r, begin, end,
                   (float *)(s->recurrent.data + s->recurrent.offset +
                             (uint64_t)b->slots[t] * s->recurrent.slot_bytes));
    }
}

void FN(scan_use)(kernel_table *table)
{
    table->ops[OP_SCAN] = scan;
}
