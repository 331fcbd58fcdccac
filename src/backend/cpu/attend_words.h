/*
 * Attention of many rows in fixed point, AVX-512 VNNI: a part of attend_tmpl.c, for the levels that
 * have LEVEL_HAS_WORDS (level.h).
 *
 * Keys, queries, values and weights become int16 of 13 bits (words_avx512vnni.h), which are
 * multiplied at twice the speed of floats. A block of keys and values is converted once for all
 * rows of an item; then six rows at a time go through scores, softmax and weighted values, so that
 * what is between them stays in L1:
 *
 *     keys     panels of 16 positions, their columns the dimensions; a power of two for each panel
 *              and 32 dimensions
 *     values   panels of 16 dimensions, their columns the positions; a power of two for each
 *              dimension and 32 positions
 *     weights  exp(score - most), with a power of two for each row and block
 *
 * Caches of floats stay floats.
 */
#ifndef LACE_BACKEND_CPU_ATTEND_WORDS_H
#define LACE_BACKEND_CPU_ATTEND_WORDS_H

#include "backend/cpu/words_avx512vnni.h"

enum { WORDS_HALF = ATTEND_BLOCK / 2 }; /* positions of one group of columns, and of two panels */

/* The largest weight as a word; what is less than 2^-WEIGHT_LEAST of the
 * row's largest is nothing. */
#define WEIGHT_MOST 8191.0f
enum { WEIGHT_LEAST = 50 };

/* Weights of six rows, as the gemm takes them. */
typedef struct weight_rows {
    int16_t words[GEMM_TOKENS][ATTEND_BLOCK];
    int32_t exponents[GEMM_TOKENS][16];
} weight_rows;

static bool words_suit(const kv_layer *kv)
{
    return kv->type != DTYPE_F32 && kv->v_type != DTYPE_F32 && kv->head_dim % 32 == 0 &&
           kv->v_dim % 32 == 0;
}

/* ---- Converting ------------------------------------------------------------------------------ */

/* clang-format off */

/* Keys of half a block, from position p on: two panels. */
ALWAYS_INLINE void words_from_keys(dtype type, const block *b, int32_t p, int32_t dim, uint8_t *out)
{
    for (int panel = 0; panel < 2; panel++, p += VW)
        for (int32_t i = 0; i < dim; i += 32, out += WORDS_GROUP_BYTES) {
            vf x[VW], y[VW], most = v_set(0);
            UNROLL for (int k = 0; k < VW; k++) {
                x[k] = load_kv(type, b->k[p + k], i);
                y[k] = load_kv(type, b->k[p + k], i + VW);
                most = v_max(most, v_max(v_abs(x[k]), v_abs(y[k])));
            }
            vf factor = to_13_bits(v_set(v_hmax(most)));
            UNROLL for (int k = 0; k < VW; k++) {
                __m256i low = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v_mul(x[k], factor)));
                __m256i high = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v_mul(y[k], factor)));
                x[k] = _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
            }
            v_transpose(x);
            UNROLL for (int k = 0; k < VW; k++) v_store((float *)(out + 64 * k), x[k]);
            v_store((float *)(out + 1024), v_div(v_set(GEMM_SCALE_FACTOR), factor));
        }
}

/* 16 dimensions of the values of half a block, from position p on: a group of a panel. */
ALWAYS_INLINE void words_from_values(dtype type, const block *b, int32_t p, int32_t i, uint8_t *out)
{
    vf most = v_set(0);
    for (int k = 0; k < WORDS_HALF; k++)
        most = v_max(most, v_abs(load_kv(type, b->v[p + k], i)));
    vf factor = to_13_bits(most);
    for (int k = 0; k < WORDS_HALF; k += 2)
        _mm512_storeu_si512(out + 32 * k, words_of_pairs(load_kv(type, b->v[p + k], i),
                                                         load_kv(type, b->v[p + k + 1], i), factor));
    v_store((float *)(out + 1024), v_div(v_set(GEMM_SCALE_FACTOR / WEIGHT_MOST), factor));
}

/* clang-format on */

/* All of a block, as far as there are positions. */
ALWAYS_INLINE void words_of_keys(dtype type, const block *b, int32_t dim, const tiles *t)
{
    uint8_t *keys = (uint8_t *)t->k;
    for (int32_t p = 0; p < b->n; p += WORDS_HALF, keys += 2 * dim / 32 * WORDS_GROUP_BYTES)
        words_from_keys(type, b, p, dim, keys);
}

ALWAYS_INLINE void words_of_values(dtype type, const block *b, int32_t dim, const tiles *t)
{
    uint8_t *values = (uint8_t *)t->v;
    for (int32_t i = 0; i < dim; i += VW)
        for (int32_t p = 0; p < ATTEND_BLOCK; p += WORDS_HALF, values += WORDS_GROUP_BYTES)
            if (p < b->n)
                words_from_values(type, b, p, i, values);
}

/* words_of_keys or words_of_values of a type that is known only now. */
#define BY_TYPE(call, type, ...)                                                                   \
    switch (type) {                                                                                \
    case DTYPE_F32: /* made of latents */                                                          \
        call(DTYPE_F32, __VA_ARGS__);                                                              \
        break;                                                                                     \
    case DTYPE_F16:                                                                                \
        call(DTYPE_F16, __VA_ARGS__);                                                              \
        break;                                                                                     \
    case DTYPE_Q5_0:                                                                               \
        call(DTYPE_Q5_0, __VA_ARGS__);                                                             \
        break;                                                                                     \
    case DTYPE_IQ4_NL:                                                                             \
        call(DTYPE_IQ4_NL, __VA_ARGS__);                                                           \
        break;                                                                                     \
    default:                                                                                       \
        call(DTYPE_Q8_0, __VA_ARGS__);                                                             \
    }

static void words_from_block(const block *b, const kv_layer *kv, const tiles *t)
{
    BY_TYPE(words_of_keys, kv->type, b, kv->head_dim, t)
    BY_TYPE(words_of_values, kv->v_type, b, kv->v_dim, t)
}
#undef BY_TYPE

/* ---- Six rows -------------------------------------------------------------------------------- */

/*
 * Scores of one query and n_halves of a block become weights: words and an exponent. As soften in
 * attend_tmpl.c.
 */
ALWAYS_INLINE void soften_words(const step *s, query *q, const block *b,
                                float scores[2][GEMM_TOKENS][WORDS_HALF], int row, int n_halves,
                                weight_rows *weights)
{
    int32_t from = q->first - b->first, to = q->last + 1 - b->first;
    uint64_t seen = to <= 0 || from >= ATTEND_BLOCK ? 0
                    : to >= ATTEND_BLOCK            ? ~(uint64_t)0
                                                    : ((uint64_t)1 << to) - 1;
    if (from > 0 && seen)
        seen &= ~(uint64_t)0 << from;
    vf x[ATTEND_BLOCK / VW], most_v = v_set(-INFINITY), sum = v_set(0);
    const int n = n_halves * WORDS_HALF / VW;
    for (int i = 0; i < n; i++) {
        x[i] = v_mul(v_load(scores[i / 2][row] + i % 2 * VW), v_set(s->a.attend.scale));
        if (s->a.attend.softcap > 0)
            x[i] = v_mul(v_set(s->a.attend.softcap),
                         v_tanh(v_mul(x[i], v_set(1.0f / s->a.attend.softcap))));
        x[i] = _mm512_mask_mov_ps(v_set(-INFINITY), (__mmask16)(seen >> i * VW), x[i]);
        most_v = v_max(most_v, x[i]);
    }
    float most = v_hmax(most_v), old = q->most;
    q->factor = 1.0f;
    if (most > old) {
        q->most = most;
        q->factor = _mm512_cvtss_f32(v_exp(v_set(old - most)));
    }
    /* The smallest power of two that no weight of this block exceeds. */
    float bits = (most - q->most) * 1.442695022f;
    int exponent = bits > -WEIGHT_LEAST ? (int)bits : -WEIGHT_LEAST;
    vf factor = v_scale_exponent(v_set(WEIGHT_MOST), v_set((float)-exponent));
    for (int i = 0; i < n; i++) {
        x[i] = v_exp(v_sub(x[i], v_set(q->most)));
        sum = v_add(sum, x[i]);
        _mm256_storeu_si256((__m256i *)(weights->words[row] + i * VW),
                            _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v_mul(x[i], factor))));
    }
    weights->exponents[row][0] = weights->exponents[row][1] = (60 + exponent) * (1 << 23);
    q->sum = q->sum * q->factor + v_sum(sum);
}

/* n queries, at most six; x: the first of six rows of words. */
static void attend_six(const step *s, query *q, int n, const uint8_t *x, const block *b,
                       const tiles *t)
{
    const int64_t dim = s->kv.head_dim, panel = dim / 32 * WORDS_GROUP_BYTES;
    float scores[2][GEMM_TOKENS][WORDS_HALF] __attribute__((aligned(64)));
    weight_rows weights;
    int32_t first = INT32_MAX, last = -1;
    for (int r = 0; r < n; r++) {
        first = q[r].first < first ? q[r].first : first;
        last = q[r].last > last ? q[r].last : last;
    }
    if (last < b->first || first >= b->first + b->n)
        return;
    const int n_halves = last - b->first < WORDS_HALF || b->n <= WORDS_HALF ? 1 : 2;
    const uint8_t *keys = (const uint8_t *)t->k, *values = (const uint8_t *)t->v;
    gemm_args a = {.x = x,
                   .x_stride = words_row_bytes(dim),
                   .exponents = x + 2 * dim,
                   .extra = x,
                   .stride = words_row_bytes(dim),
                   .n_groups = dim / 32,
                   .next = x};
    for (int i = 0; i < n_halves; i++) {
        a.w[0] = keys + 2 * i * panel;
        a.w[1] = a.w[0] + panel;
        a.out = &scores[i][0][0];
        gemm_words_avx512vnni(&a);
    }
    for (int r = 0; r < n; r++)
        soften_words(s, &q[r], b, scores, r, n_halves, &weights);
    for (int r = n; r < GEMM_TOKENS; r++)
        memset(weights.exponents[r], 0, sizeof weights.exponents[r]);
    a = (gemm_args){.x = (const uint8_t *)weights.words,
                    .x_stride = sizeof weights.words[0],
                    .exponents = (const uint8_t *)weights.exponents,
                    .extra = (const uint8_t *)weights.exponents,
                    .stride = sizeof weights.exponents[0],
                    .n_groups = n_halves,
                    .out = &scores[0][0][0],
                    .next = x};
    for (int32_t i = 0; i < s->kv.v_dim; i += GEMM_ROWS) {
        a.w[0] = values + i / VW * 2 * WORDS_GROUP_BYTES;
        a.w[1] = a.w[0] + 2 * WORDS_GROUP_BYTES;
        gemm_words_avx512vnni(&a);
        for (int r = 0; r < n; r++)
            for (int k = 0; k < GEMM_ROWS; k += VW) {
                float *out = q[r].out + i + k;
                v_store(out, v_fma(v_load(out), v_set(q[r].factor), v_load(scores[0][r] + k)));
            }
    }
}

static void attend_words(const step *s, query *q, int n_rows, const block *b, const tiles *t)
{
    int32_t dim = s->kv.head_dim;
    words_from_block(b, &s->kv, t);
    for (int r = 0; r < n_rows; r += GEMM_TOKENS)
        attend_six(s, q + r, n_rows - r < GEMM_TOKENS ? n_rows - r : GEMM_TOKENS,
                   t->q + (uint64_t)r * words_row_bytes(dim), b, t);
}

static uint64_t queries_row_bytes(int32_t dim)
{
    return words_row_bytes(dim);
}

/* Queries as words, and rows of zeros until there are whole sixes. */
static void words_from_queries(const query *q, int n_rows, int32_t dim, uint8_t *out)
{
    for (int r = 0; r < n_rows; r++, out += words_row_bytes(dim))
        words_from_floats(q[r].q, dim, out);
    memset(out, 0, (GEMM_TOKENS - 1) * words_row_bytes(dim));
}

#endif
