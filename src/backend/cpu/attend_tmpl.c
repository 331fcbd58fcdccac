/*
 * Attention over the paged cache: softmax(q k) v. Compiled once per CPU level (level.h).
 *
 * The work is cut into items: the query heads of one key-value head, for one token or a run of
 * tokens of one sequence. All rows of an item (token, query head) meet the same keys and values,
 * which are read once for all of them, in blocks of ATTEND_BLOCK positions:
 *
 *     scores = q . k        [rows, block]   scaled, capped, masked
 *     most, sum             per row         running maximum and sum of the softmax (Milakov and
 *                                           Gimelshein, "Online normalizer calculation", 2018)
 *     out = out * factor + exp(scores - most) . v
 *
 * so that no more than a block of scores is ever kept. With few rows (decode) keys and values are
 * decoded in registers on their way to the sums. With many (prefill) a block is decoded once to
 * floats, the keys transposed, and both products are done by one small matrix kernel.
 *
 * Items of few rows are summed in parts of the positions (ops.h), which start afresh and are joined
 * in their order. With few tokens in the batch, parts of one item go to different workers, which
 * leave what they have in shared memory; the one that finishes the last part joins them all.
 *
 * In batches of up to ATTEND_SAME tokens the result of a token does not depend on the others: its
 * items have few rows, parts and blocks begin at the same positions, and what it does not see has
 * weights of 0.
 */
#include "backend/cpu/level.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "backend/cpu/latents_cpu.h"
#include "backend/cpu/ops.h"
#include "tensor/blocks.h"
#include "tensor/cache_row.h"
#include "tensor/iq_grids.h"

/*
 * From this many rows on, decoding a block to floats pays: with and without it, 16 rows take 2.28
 * and 1.66 ms (f16), 1.99 and 1.84 ms (q8_0); 48 rows 6.62 and 7.05 ms, 6.56 and 8.02 ms. AVX-512,
 * heads of 128, medians as for prefetch below.
 */
enum { MANY_ROWS = 24 };

/* One query: a head of a token. */
typedef struct query {
    const float *q;      /* [head_dim] */
    float *out;          /* [v_dim] */
    int32_t first, last; /* positions that it sees */
    float most, sum;     /* of its scores so far; sum of exp(score - most) */
    float factor;        /* what the last block's maximum makes of the result so far */
} query;

typedef struct block {
    int32_t first, n; /* positions */
    /* From n on, the last one repeated. */
    const uint8_t *k[ATTEND_BLOCK], *v[ATTEND_BLOCK];
    const struct block *next; /* the one that will be read after it, or itself */
} block;

typedef struct tiles {
    float *scores; /* [ATTEND_ROWS, ATTEND_BLOCK] */
    float *k;      /* [head_dim, ATTEND_BLOCK] */
    float *v;      /* [ATTEND_BLOCK, v_dim] */
    float *part;   /* [ATTEND_ROWS, v_dim] results of one part */
    float *turned; /* [ATTEND_ROWS, head_dim] queries for rotated keys */
    uint8_t *q;    /* rows as words, see attend_words.h */
} tiles;

/* ---- Decoding -------------------------------------------------------------------------------- */

/* Bytes of n values, as far as whole blocks go. */
ALWAYS_INLINE int32_t states_bytes(dtype type, int32_t n)
{
    return type == DTYPE_F16      ? 2 * n
           : type == DTYPE_F32    ? 4 * n
           : type == DTYPE_Q5_0   ? n / 32 * BLOCK_BYTES_Q5_0
           : type == DTYPE_IQ4_NL ? n / 32 * BLOCK_BYTES_IQ4_NL
                                  : n / 32 * BLOCK_BYTES_Q8_0;
}

/* Values i ... i + VW - 1 of a row of the cache. */
ALWAYS_INLINE vf load_kv(dtype type, const uint8_t *row, int32_t i)
{
    const uint8_t *at = row + states_bytes(type, i);
    if (type == DTYPE_F16)
        return v_load_f16(at);
    if (type == DTYPE_F32)
        return v_load((const float *)at);
    uint16_t scale;
    uint32_t high;
    memcpy(&scale, at, 2);
    vf factor = v_set(v_f16(scale));
    if (type == DTYPE_IQ4_NL)
        return v_mul(v_load_levels(at + 2 + i % 16, i % 32 >= 16, iq4_values), factor);
    if (type == DTYPE_Q5_0) {
        memcpy(&high, at + 2, 4);
        return v_mul(v_load_5_bits(at + 6 + i % 16, i % 32 >= 16, high >> i % 32), factor);
    }
    return v_mul(v_load_i8((const int8_t *)at + 2 + i % 32), factor);
}

/* clang-format off: loops that are unrolled keep the look of loops */

/* Keys of a block as columns, values as rows of floats. */
ALWAYS_INLINE void unpack_keys(dtype type, const block *b, int32_t dim, float *out)
{
    for (int32_t p = 0; p < b->n; p += VW)
        for (int32_t i = 0; i < dim; i += VW) {
            vf x[VW];
            UNROLL for (int k = 0; k < VW; k++) x[k] = load_kv(type, b->k[p + k], i);
            v_transpose(x);
            UNROLL for (int k = 0; k < VW; k++) v_store(out + (i + k) * ATTEND_BLOCK + p, x[k]);
        }
}

ALWAYS_INLINE void unpack_values(dtype type, const block *b, int32_t dim, float *out)
{
    for (int32_t p = 0; p < b->n; p++)
        for (int32_t i = 0; i < dim; i += VW)
            v_store(out + p * dim + i, load_kv(type, b->v[p], i));
}

/*
 * Pages lie anywhere, so that the processor cannot know which row comes after this block. Asking
 * for it a block ahead pays where the cache exceeds the processor's: 32 x 128 q8_0 at 2048
 * positions 2.72 -> 1.45 ms (AVX-512), 3.01 -> 2.07 ms (AVX2); where it fits, -4 to +5 %. Medians
 * of 7 alternating runs on one Zen 4 core of a busy machine. To L2: two blocks fill an L1 cache, so
 * that 32 x 128 f16 on two cores goes from 33 to 45 GB/s.
 */
ALWAYS_INLINE void prefetch(const uint8_t *row, int32_t n_bytes)
{
    for (int32_t i = 0; i < n_bytes; i += 64)
        __builtin_prefetch(row + i, 0, 2);
}

/* ---- Few rows -------------------------------------------------------------------------------- */

/* Scores of n_rows queries with VW / n_rows keys: one vector of sums. */
ALWAYS_INLINE void score_tile(dtype type, int n_rows, const query *q, const uint8_t *const *keys,
                              int32_t dim, float *scores)
{
    const int n_keys = VW / n_rows;
    vf sums[VW];
    UNROLL for (int i = 0; i < VW; i++) sums[i] = v_set(0);
    for (int32_t i = 0; i < dim; i += VW) {
        vf k[VW];
        UNROLL for (int j = 0; j < n_keys; j++) k[j] = load_kv(type, keys[j], i);
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            vf x = v_load(q[r].q + i);
            UNROLL for (int j = 0; j < n_keys; j++) sums[r * n_keys + j] =
                v_fma(x, k[j], sums[r * n_keys + j]);
        }
    }
    float all[VW];
    v_store(all, v_sum_each(sums));
    for (int r = 0; r < n_rows; r++)
        memcpy(scores + r * ATTEND_BLOCK, all + r * n_keys, (size_t)n_keys * sizeof(float));
}

/* out = out * factor + weights . values, for n_vecs vectors at value i of n_rows results. */
ALWAYS_INLINE void weigh_tile(dtype type, int n_rows, int n_vecs, const query *q,
                              const float *weights, const block *b, int32_t i)
{
    vf sums[16];
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        UNROLL for (int c = 0; c < n_vecs; c++) sums[r * n_vecs + c] =
            v_mul(v_load(q[r].out + i + c * VW), v_set(q[r].factor));
    }
    for (int32_t p = 0; p < b->n; p++) {
        vf v[8];
        prefetch(b->next->v[p] + states_bytes(type, i), states_bytes(type, n_vecs * VW));
        UNROLL for (int c = 0; c < n_vecs; c++) v[c] = load_kv(type, b->v[p], i + c * VW);
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            vf y = v_set(weights[r * ATTEND_BLOCK + p]);
            UNROLL for (int c = 0; c < n_vecs; c++) sums[r * n_vecs + c] =
                v_fma(y, v[c], sums[r * n_vecs + c]);
        }
    }
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        UNROLL for (int c = 0; c < n_vecs; c++)
            v_store(q[r].out + i + c * VW, sums[r * n_vecs + c]);
    }
}

/* clang-format on */

/* As many vectors at a time as leave VW sums in registers. */
ALWAYS_INLINE void weigh_rows(dtype type, int n_rows, const query *q, const float *weights,
                              const block *b, int32_t dim)
{
    int32_t i = 0;
    if (n_rows <= VW / 8)
        for (; i + 8 * VW <= dim; i += 8 * VW)
            weigh_tile(type, n_rows, 8, q, weights, b, i);
    if (n_rows <= VW / 4)
        for (; i + 4 * VW <= dim; i += 4 * VW)
            weigh_tile(type, n_rows, 4, q, weights, b, i);
    if (n_rows <= VW / 2)
        for (; i + 2 * VW <= dim; i += 2 * VW)
            weigh_tile(type, n_rows, 2, q, weights, b, i);
    for (; i < dim; i += VW)
        weigh_tile(type, n_rows, 1, q, weights, b, i);
}

ALWAYS_INLINE void score_rows(dtype type, int n_rows, const query *q, const block *b, int32_t dim,
                              float *scores)
{
    for (int32_t p = 0; p < b->n; p += VW / n_rows) {
        for (int32_t j = p; j < p + VW / n_rows; j++)
            prefetch(b->next->k[j], states_bytes(type, dim));
        score_tile(type, n_rows, q, b->k + p, dim, scores + p);
    }
}

/* Rows in eights, fours, twos, ones. */
#define BY_ROWS(n, r, CALL)                                                                        \
    do {                                                                                           \
        int r = 0;                                                                                 \
        for (; r + 8 <= (n); r += 8)                                                               \
            CALL(8);                                                                               \
        for (; r + 4 <= (n); r += 4)                                                               \
            CALL(4);                                                                               \
        for (; r + 2 <= (n); r += 2)                                                               \
            CALL(2);                                                                               \
        for (; r < (n); r++)                                                                       \
            CALL(1);                                                                               \
    } while (0)

ALWAYS_INLINE void score_few(dtype type, const query *q, int n_rows, const block *b, int32_t dim,
                             const tiles *t)
{
#define CALL(n) score_rows(type, n, q + r, b, dim, t->scores + r * ATTEND_BLOCK)
    BY_ROWS(n_rows, r, CALL);
#undef CALL
}

ALWAYS_INLINE void weigh_few(dtype type, const query *q, int n_rows, const block *b, int32_t dim,
                             const tiles *t)
{
#define CALL(n) weigh_rows(type, n, q + r, t->scores + r * ATTEND_BLOCK, b, dim)
    BY_ROWS(n_rows, r, CALL);
#undef CALL
}

/* ---- Many rows ------------------------------------------------------------------------------- */

enum { SUM_ROWS = 6, SUM_VECS = VW == 16 ? 4 : 2 }; /* the sums fill the registers */

/* clang-format off */

/* c[r] = c[r] * factor[r] + a[r] . b, for n_vecs vectors of columns. a[r]: [depth], b: [depth, ldb] */
ALWAYS_INLINE void gemm_tile(int n_rows, int n_vecs, const float *const *a, const float *b, int32_t ldb,
                      int32_t depth, float *const *c, const float *factor)
{
    vf sums[SUM_ROWS * 4];
    UNROLL for (int r = 0; r < n_rows; r++) {
        UNROLL for (int j = 0; j < n_vecs; j++)
            sums[r * n_vecs + j] =
                factor ? v_mul(v_load(c[r] + j * VW), v_set(factor[r])) : v_set(0);
    }
    for (int32_t k = 0; k < depth; k++) {
        vf x[4];
        UNROLL for (int j = 0; j < n_vecs; j++) x[j] = v_load(b + k * ldb + j * VW);
        UNROLL for (int r = 0; r < n_rows; r++) {
            vf y = v_set(a[r][k]);
            UNROLL for (int j = 0; j < n_vecs; j++)
                sums[r * n_vecs + j] = v_fma(y, x[j], sums[r * n_vecs + j]);
        }
    }
    UNROLL for (int r = 0; r < n_rows; r++) {
        UNROLL for (int j = 0; j < n_vecs; j++) v_store(c[r] + j * VW, sums[r * n_vecs + j]);
    }
}

ALWAYS_INLINE void gemm_rows(int n_rows, const float *const *a, const float *b, int32_t ldb, int32_t depth,
                      float *const *c, const float *factor, int32_t n_cols)
{
    float *at[SUM_ROWS];
    int32_t i = 0;
    for (; i + SUM_VECS * VW <= n_cols; i += SUM_VECS * VW) {
        UNROLL for (int r = 0; r < n_rows; r++) at[r] = c[r] + i;
        gemm_tile(n_rows, SUM_VECS, a, b + i, ldb, depth, at, factor);
    }
    for (; i < n_cols; i += VW) {
        UNROLL for (int r = 0; r < n_rows; r++) at[r] = c[r] + i;
        gemm_tile(n_rows, 1, a, b + i, ldb, depth, at, factor);
    }
}

/* clang-format on */

/* The same for any number of rows; factor may be NULL: c = a . b */
static void gemm(int n_rows, const float *const *a, const float *b, int32_t ldb, int32_t depth,
                 float *const *c, const float *factor, int32_t n_cols)
{
    int r = 0;
    for (; r + SUM_ROWS <= n_rows; r += SUM_ROWS)
        if (factor)
            gemm_rows(SUM_ROWS, a + r, b, ldb, depth, c + r, factor + r, n_cols);
        else
            gemm_rows(SUM_ROWS, a + r, b, ldb, depth, c + r, NULL, n_cols);
    for (; r < n_rows; r++)
        gemm_rows(1, a + r, b, ldb, depth, c + r, factor ? factor + r : NULL, n_cols);
}

static void score_many(const query *q, int n_rows, const block *b, int32_t dim, const tiles *t)
{
    const float *a[ATTEND_ROWS];
    float *c[ATTEND_ROWS];
    for (int r = 0; r < n_rows; r++) {
        a[r] = q[r].q;
        c[r] = t->scores + r * ATTEND_BLOCK;
    }
    gemm(n_rows, a, t->k, ATTEND_BLOCK, dim, c, NULL, (b->n + VW - 1) / VW * VW);
}

static void weigh_many(const query *q, int n_rows, const block *b, int32_t dim, const tiles *t)
{
    const float *a[ATTEND_ROWS];
    float *c[ATTEND_ROWS], factor[ATTEND_ROWS];
    for (int r = 0; r < n_rows; r++) {
        a[r] = t->scores + r * ATTEND_BLOCK;
        c[r] = q[r].out;
        factor[r] = q[r].factor;
    }
    gemm(n_rows, a, t->v, dim, b->n, c, factor, dim);
}

/* ---- Softmax --------------------------------------------------------------------------------- */

/* Scores of one query and a block become weights, exp(score - most). */
static void soften(const step *s, query *q, const block *b, float *scores)
{
    int32_t n = (b->n + VW - 1) / VW * VW;
    vf scale = v_set(s->a.attend.scale), most_v = v_set(-INFINITY), sum = v_set(0);
    if (s->a.attend.softcap > 0) {
        vf cap = v_set(s->a.attend.softcap), part = v_set(s->a.attend.scale / s->a.attend.softcap);
        for (int32_t i = 0; i < n; i += VW)
            v_store(scores + i, v_mul(cap, v_tanh(v_mul(v_load(scores + i), part))));
        scale = v_set(1.0f);
    }
    int32_t from = q->first - b->first, to = q->last + 1 - b->first;
    for (int32_t i = 0; i < from && i < n; i++)
        scores[i] = -INFINITY;
    for (int32_t i = to < 0 ? 0 : to < b->n ? to : b->n; i < n; i++)
        scores[i] = -INFINITY;
    for (int32_t i = 0; i < n; i += VW) {
        vf x = v_mul(v_load(scores + i), scale);
        v_store(scores + i, x);
        most_v = v_max(most_v, x);
    }
    float most = v_hmax(most_v), old = q->most;
    q->most = most > old ? most : old;
    for (int32_t i = 0; i < n; i += VW) {
        vf x = v_exp(v_sub(v_load(scores + i), v_set(q->most)));
        v_store(scores + i, x);
        sum = v_add(sum, x);
    }
    float factor[VW];
    v_store(factor, v_exp(v_set(old - q->most)));
    q->factor = factor[0];
    q->sum = q->sum * q->factor + v_sum(sum);
}

#if LEVEL_HAS_WORDS
#include "backend/cpu/attend_words.h"
#else
static bool words_suit(const kv_layer *kv)
{
    return false;
}
static void attend_words(const step *s, query *q, int n_rows, const block *b, const tiles *t)
{
}
static void words_from_queries(const query *q, int n_rows, int32_t dim, uint8_t *out)
{
}
static uint64_t queries_row_bytes(int32_t dim)
{
    return 0;
}
#endif

/* ---- Blocks and items ------------------------------------------------------------------------ */

/*
 * The block that position `first` lies in, up to `end`: where its rows are, page by page. Those in
 * front of `first` may be gone: it stands for them.
 */
static void find_rows(const kv_layer *kv, const int32_t *pages, int32_t head, int32_t first,
                      int32_t end, block *b)
{
    int32_t n_before = first % ATTEND_BLOCK;
    b->first = first - n_before;
    b->n = end - b->first < ATTEND_BLOCK ? end - b->first : ATTEND_BLOCK;
    for (int32_t i = n_before; i < b->n;) {
        int32_t at = (b->first + i) % kv->page_tokens;
        const uint8_t *page =
            kv->data + (uint64_t)pages[(b->first + i) / kv->page_tokens] * kv->page_bytes;
        uint64_t row = (uint64_t)(head * kv->page_tokens + at);
        for (; at < kv->page_tokens && i < b->n; at++, i++, row++) {
            b->k[i] = page + kv->k_offset + row * kv->row_bytes;
            b->v[i] = page + kv->v_offset + row * kv->v_row_bytes;
        }
    }
    for (int32_t i = 0; i < n_before; i++) {
        b->k[i] = b->k[n_before];
        b->v[i] = b->v[n_before];
    }
    for (int32_t i = b->n; i < ATTEND_BLOCK; i++) {
        b->k[i] = b->k[b->n - 1];
        b->v[i] = b->v[b->n - 1];
    }
}

ALWAYS_INLINE void score_block(dtype type, const query *q, int n_rows, const block *b, int32_t dim,
                               const tiles *t)
{
    if (n_rows >= MANY_ROWS) {
        unpack_keys(type, b, dim, t->k);
        score_many(q, n_rows, b, dim, t);
    } else {
        score_few(type, q, n_rows, b, dim, t);
    }
}

ALWAYS_INLINE void weigh_block(dtype type, const query *q, int n_rows, const block *b, int32_t dim,
                               const tiles *t)
{
    if (n_rows >= MANY_ROWS) {
        unpack_values(type, b, dim, t->v);
        weigh_many(q, n_rows, b, dim, t);
    } else {
        weigh_few(type, q, n_rows, b, dim, t);
    }
}

/* A function for each type, so that one type's registers do not burden the others. */
#define FOR_TYPE(type)                                                                             \
    static void score_##type(const query *q, int n_rows, const block *b, int32_t dim,              \
                             const tiles *t)                                                       \
    {                                                                                              \
        score_block(DTYPE_##type, q, n_rows, b, dim, t);                                           \
    }                                                                                              \
    static void weigh_##type(const query *q, int n_rows, const block *b, int32_t dim,              \
                             const tiles *t)                                                       \
    {                                                                                              \
        weigh_block(DTYPE_##type, q, n_rows, b, dim, t);                                           \
    }
FOR_TYPE(F32)
FOR_TYPE(F16)
FOR_TYPE(Q8_0)
FOR_TYPE(Q5_0)
FOR_TYPE(IQ4_NL)
#undef FOR_TYPE

typedef void block_fn(const query *q, int n_rows, const block *b, int32_t dim, const tiles *t);

static void attend_block(const step *s, query *q, int n_rows, const block *b, const tiles *t)
{
    static block_fn *const score[] = {[DTYPE_F32] = score_F32,
                                      [DTYPE_F16] = score_F16,
                                      [DTYPE_Q8_0] = score_Q8_0,
                                      [DTYPE_Q5_0] = score_Q5_0,
                                      [DTYPE_IQ4_NL] = score_IQ4_NL};
    static block_fn *const weigh[] = {[DTYPE_F32] = weigh_F32,
                                      [DTYPE_F16] = weigh_F16,
                                      [DTYPE_Q8_0] = weigh_Q8_0,
                                      [DTYPE_Q5_0] = weigh_Q5_0,
                                      [DTYPE_IQ4_NL] = weigh_IQ4_NL};
    score[s->kv.type](q, n_rows, b, s->kv.head_dim, t);
    for (int r = 0; r < n_rows; r++)
        soften(s, &q[r], b, t->scores + r * ATTEND_BLOCK);
    weigh[s->kv.v_type](q, n_rows, b, s->kv.v_dim, t);
}

/* Query heads [head, head + n_heads) of tokens [token, token + n_tokens),
 * which share a sequence. */
typedef struct item {
    int64_t token;
    int n_tokens;
    int32_t head;
    int n_heads;
    int32_t first, end;            /* positions that it sees */
    int32_t first_part, last_part; /* of these, if it is done in parts */
} item;

/* Their results are not set yet. */
static int make_queries(const step *s, const batch *b, const item *it, query *q, const tiles *at)
{
    const float *sinks = s->a.attend.sinks;
    int32_t dim = s->kv.head_dim, first, end;
    int n = 0;
    for (int64_t t = it->token; t < it->token + it->n_tokens; t++) {
        attend_range(s, b, (int32_t)t, &first, &end);
        for (int32_t h = it->head; h < it->head + it->n_heads; h++, n++)
            q[n] = (query){
                .q = operand_row(&s->in[0], t) + h * dim,
                .out = operand_row(&s->out[0], t) + h * s->kv.v_dim,
                .first = first,
                .last = end - 1,
                .most = sinks ? sinks[h] : -FLT_MAX, /* finite: infinity less itself is a NaN */
                .sum = sinks ? 1.0f : 0.0f,
            };
    }
    for (int r = 0; s->kv.k_span > 0 && r < n; r++) {
        float *turned = at->turned + r * dim;
        cache_rotate(q[r].q, dim, s->kv.k_span, turned);
        q[r].q = turned;
    }
    return n;
}

/* Queries whose results begin at 0. Where parts are done at once, none may touch the others' rows. */
static int start_queries(const step *s, const batch *b, const item *it, query *q, const tiles *t)
{
    int n = make_queries(s, b, it, q, t);
    for (int r = 0; r < n; r++)
        memset(q[r].out, 0, (size_t)s->kv.v_dim * sizeof(float));
    return n;
}

/* The positions [first, end), for queries that start afresh or go on. */
static void attend_positions(const step *s, const batch *b, const item *it, query *q, int n,
                             int32_t first, int32_t end, const tiles *t)
{
    const kv_layer *kv = &s->kv;
    const int32_t *pages = b->pages[kv->group][it->token];
    block two[2], *now = &two[0], *next = &two[1];
    int32_t head = it->head / (s->a.attend.n_heads / kv->n_heads);
    bool is_in_words = n >= MANY_ROWS && words_suit(kv);
    if (is_in_words)
        words_from_queries(q, n, kv->head_dim, t->q);
    find_rows(kv, pages, head, first, end, now);
    for (;;) {
        first = now->first + now->n;
        now->next = first < end ? next : now;
        if (first < end)
            find_rows(kv, pages, head, first, end, next);
        if (is_in_words)
            attend_words(s, q, n, now, t);
        else
            attend_block(s, q, n, now, t);
        if (first >= end)
            break;
        block *done = now;
        now = next;
        next = done;
    }
}

/* The results, once all positions are summed up. */
static void finish_queries(const kv_layer *kv, const query *q, int n)
{
    for (int r = 0; r < n; r++) {
        for (int32_t i = 0; i < kv->v_dim; i += VW)
            v_store(q[r].out + i, v_div(v_load(q[r].out + i), v_set(q[r].sum)));
        if (kv->v_span > 0)
            cache_unrotate(q[r].out, kv->v_dim, kv->v_span, q[r].out);
    }
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/* One part of an item; its results are in q, whose queries start afresh. */
static void attend_part(const step *s, const batch *b, const item *it, int32_t part, query *q,
                        int n, const tiles *t)
{
    int64_t first = attend_part_begin(part), end = attend_part_begin(part + 1);
    if (part > it->first_part)
        for (int r = 0; r < n; r++) { /* sinks are in the first part */
            q[r].most = -FLT_MAX;
            q[r].sum = 0;
        }
    attend_positions(s, b, it, q, n, first > it->first ? (int32_t)first : it->first,
                     end < it->end ? (int32_t)end : it->end, t);
}

/* all = all and the part after it. */
static void join_part(query *all, const float *out, float most, float sum, int32_t dim)
{
    float both = most > all->most ? most : all->most, factors[2 * VW];
    v_store(factors, v_exp(v_set(all->most - both)));
    v_store(factors + VW, v_exp(v_set(most - both)));
    vf a = v_set(factors[0]), p = v_set(factors[VW]);
    for (int32_t i = 0; i < dim; i += VW)
        v_store(all->out + i, v_fma(v_load(out + i), p, v_mul(v_load(all->out + i), a)));
    all->sum = all->sum * factors[0] + sum * factors[VW];
    all->most = both;
}

/* Where shared memory has a part of a row: its result, then most and sum. */
static float *part_slot(const step *s, const worker *w, int32_t part, int64_t token, int32_t head)
{
    int32_t heads = s->a.attend.n_heads;
    float *slots = (float *)(w->shared + attend_counter_bytes(heads));
    return slots + ((part * ATTEND_SPLIT + token) * heads + head) * attend_part_floats(s->kv.v_dim);
}

/* One part, while others may be done elsewhere. */
static void attend_split_part(const step *s, const batch *b, const item *it, int32_t part,
                              const worker *w, const tiles *t)
{
    int32_t dim = s->kv.v_dim, n_parts = it->last_part - it->first_part + 1;
    query q[ATTEND_ROWS];
    int n = make_queries(s, b, it, q, t);
    for (int r = 0; r < n; r++) {
        q[r].out = part_slot(s, w, part - it->first_part, it->token + r / it->n_heads,
                             it->head + r % it->n_heads);
        memset(q[r].out, 0, (size_t)dim * sizeof(float));
    }
    attend_part(s, b, it, part, q, n, t);
    for (int r = 0; r < n; r++) {
        q[r].out[dim] = q[r].most;
        q[r].out[dim + 1] = q[r].sum;
    }
    _Atomic uint32_t *n_done =
        (_Atomic uint32_t *)w->shared + it->token * s->a.attend.n_heads + it->head;
    if (atomic_fetch_add_explicit(n_done, 1, memory_order_acq_rel) + 1 < (uint32_t)n_parts)
        return;
    atomic_store_explicit(n_done, 0, memory_order_relaxed);
    n = make_queries(s, b, it, q, t);
    for (int r = 0; r < n; r++) {
        int64_t token = it->token + r / it->n_heads;
        int32_t head = it->head + r % it->n_heads;
        const float *slot = part_slot(s, w, 0, token, head);
        memcpy(q[r].out, slot, (size_t)dim * sizeof(float));
        q[r].most = slot[dim];
        q[r].sum = slot[dim + 1];
        for (int32_t p = 1; p < n_parts; p++) {
            slot = part_slot(s, w, p, token, head);
            join_part(&q[r], slot, slot[dim], slot[dim + 1], dim);
        }
    }
    finish_queries(&s->kv, q, n);
}

/* All parts of an item, one after the other: the same operations as above. */
static void attend_in_parts(const step *s, const batch *b, const item *it, const tiles *t)
{
    int32_t dim = s->kv.v_dim;
    query all[ATTEND_ROWS], q[ATTEND_ROWS];
    int n = start_queries(s, b, it, all, t);
    attend_part(s, b, it, it->first_part, all, n, t);
    for (int32_t p = it->first_part + 1; p <= it->last_part; p++) {
        memcpy(q, all, sizeof q);
        for (int r = 0; r < n; r++)
            q[r].out = memset(t->part + r * dim, 0, (size_t)dim * sizeof(float));
        attend_part(s, b, it, p, q, n, t);
        for (int r = 0; r < n; r++)
            join_part(&all[r], q[r].out, q[r].most, q[r].sum, dim);
    }
    finish_queries(&s->kv, all, n);
}

/* All positions at once. */
static void attend_whole(const step *s, const batch *b, const item *it, const tiles *t)
{
    query q[ATTEND_ROWS];
    int n = start_queries(s, b, it, q, t);
    attend_positions(s, b, it, q, n, it->first, it->end, t);
    finish_queries(&s->kv, q, n);
}

/* The part in which what a token sees begins. */
static int32_t first_part_of(const step *s, const batch *b, int64_t t)
{
    int32_t first, end;
    attend_range(s, b, (int32_t)t, &first, &end);
    return attend_part_of(first);
}

/*
 * How many tokens from t on follow each other in one sequence and make an item, with so many heads
 * each.
 */
static int run_length(const step *s, const batch *b, int64_t t, int heads)
{
    const int32_t group = s->kv.group;
    const bool is_same = b->n_tokens <= ATTEND_SAME;
    const int most = (is_same ? MANY_ROWS - 1 : ATTEND_ROWS) / heads;
    int n = 1;
    while (n < most && t + n < b->n_tokens && b->pages[group][t + n] == b->pages[group][t] &&
           b->positions[t + n] == b->positions[t] + n &&
           (!is_same || first_part_of(s, b, t + n) == first_part_of(s, b, t)))
        n++;
    return n;
}

/* An item of a run of tokens, without its heads. */
static item make_item(const step *s, const batch *b, int64_t token, int n_tokens)
{
    item it = {.token = token, .n_tokens = n_tokens};
    int32_t first;
    attend_range(s, b, (int32_t)token, &it.first, &it.end); /* positions of a run ascend */
    for (int64_t t = b->seen ? token : token + n_tokens - 1; t < token + n_tokens; t++) {
        int32_t end;
        attend_range(s, b, (int32_t)t, &first, &end);
        it.end = end > it.end ? end : it.end;
    }
    it.first_part = attend_part_of(it.first);
    it.last_part = attend_part_of(it.end - 1);
    return it;
}

/* The item's heads from h on, of one key-value head, at most `heads` of them. */
static void set_heads(const step *s, item *it, int32_t h, int heads)
{
    int32_t group = s->a.attend.n_heads / s->kv.n_heads, left = group - h % group;
    it->head = h;
    it->n_heads = left < heads ? left : heads;
}

/* How many parts all items have. */
static int64_t count_parts(const step *s, const batch *b, int heads)
{
    int32_t group = s->a.attend.n_heads / s->kv.n_heads;
    int64_t n = 0;
    for (int64_t t = 0; t < b->n_tokens;) {
        int n_tokens = run_length(s, b, t, heads);
        item it = make_item(s, b, t, n_tokens);
        n += it.last_part - it.first_part + 1;
        t += n_tokens;
    }
    return n * s->kv.n_heads * ((group + heads - 1) / heads);
}

#include "backend/cpu/attend_expanded.h"

void FN(attend)(const step *s, const batch *b, const worker *w)
{
    if (latents_are_expanded(&s->a.attend.latents, b)) {
        attend_expanded(s, b, w);
        return;
    }
    const kv_layer *kv = &s->kv;
    int32_t dim = kv->head_dim, v_dim = kv->v_dim, group = s->a.attend.n_heads / kv->n_heads;
    if (dim % VW || v_dim % VW) {
        attend_ref(s, b, w);
        return;
    }
    tiles t = {.scores = (float *)w->scratch};
    t.k = t.scores + ATTEND_ROWS * ATTEND_BLOCK;
    t.v = t.k + dim * ATTEND_BLOCK;
    t.part = t.v + v_dim * ATTEND_BLOCK;
    t.turned = t.part + ATTEND_ROWS * v_dim;
    t.q = (uint8_t *)(t.turned + ATTEND_ROWS * dim);

    const int heads = group < ATTEND_ROWS ? group : ATTEND_ROWS;
    const bool is_split = b->n_tokens <= ATTEND_SPLIT;
    int64_t n_items = 0, begin = 0, end = INT64_MAX, n_tokens;
    if (is_split) /* neighbours lie together */
        pool_share(count_parts(s, b, heads), 1, w->index, w->count, &begin, &end);
    for (int64_t token = 0; token < b->n_tokens; token += n_tokens) {
        n_tokens = run_length(s, b, token, heads);
        item it = make_item(s, b, token, (int)n_tokens);
        for (int32_t h = 0; h < s->a.attend.n_heads; h += it.n_heads) {
            set_heads(s, &it, h, heads);
            if (is_split && it.last_part > it.first_part) {
                for (int32_t p = it.first_part; p <= it.last_part; p++, n_items++)
                    if (begin <= n_items && n_items < end)
                        attend_split_part(s, b, &it, p, w, &t);
                continue;
            }
            /* Items of larger batches go around: later tokens see more and cost more. */
            bool is_mine =
                is_split ? begin <= n_items && n_items < end : n_items % w->count == w->index;
            n_items++;
            if (!is_mine)
                continue;
            if (b->n_tokens <= ATTEND_SAME || it.n_tokens * it.n_heads < MANY_ROWS)
                attend_in_parts(s, b, &it, &t);
            else
                attend_whole(s, b, &it, &t);
        }
    }
}
