/*
 * The product of a quantized matrix in tiles with int8 activations, for one type.
 *
 * A file that wants the product of TYPE defines TILE_TYPE, the name in unpack_avx512.h, and
 * TILE_DTYPE, the name in dtype.def, and includes this; it may do so for several types.
 *
 * Up to DIRECT_TOKENS tokens: a group of 32 columns is decoded into registers and multiplied with
 * all of them, so the weights are read once; memory sets the pace. For one token, several panels
 * from distant parts of the rows are walked at once, which keeps more reads of memory under way.
 *
 * More tokens: panels are decoded to bytes that stay in the L2 cache, and gemm_avx512vnni.c
 * multiplies them with 6 tokens at a time.
 */
#include "kernels/cpu/gemm_avx512vnni.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/unpack_avx512.h"

#include <string.h>

#define CAT_(a, b) a##_##b
#define CAT(a, b)  CAT_(a, b)
#define OF(name)   CAT(name, TILE_TYPE) /* dot -> dot_q4_0 */
#define STRING_(x) #x
#define STRING(x)  STRING_(x)

/* ---- The same for all types ------------------------------------------------------------------ */

#ifndef MATMUL_QUANT_AVX512VNNI_ONCE
#define MATMUL_QUANT_AVX512VNNI_ONCE

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

enum {
    DIRECT_TOKENS = 8,
    DECODED_BYTES = 512 * 1024, /* of panels that are multiplied together: half of an L2 cache */
    PREFETCH_BYTES = 4096,
};

/* Sizes in this file are of one type; `t` says which. */
typedef struct tile_traits {
    int groups, scales, offset;
    bool has_min;
    int64_t tile_bytes;
} tile_traits;

/* Tokens to multiply: rows of ACT_Q8. */
typedef struct tokens {
    const uint8_t *x;
    uint64_t stride;
    int64_t n_cols;
    const uint8_t *extra; /* see gemm_avx512vnni.h; [n_groups, scales, T] for T tokens at once */
} tokens;

ALWAYS_INLINE __m512i broadcast_word(const uint8_t *at)
{
    int32_t word;
    memcpy(&word, at, 4);
    return _mm512_set1_epi32(word);
}

ALWAYS_INLINE __m512 broadcast_float(const uint8_t *at)
{
    float x;
    memcpy(&x, at, 4);
    return _mm512_set1_ps(x);
}

/* What a type needs of the sums of `n_cols` activations, to out[0], out[every], ... */
static void make_extra(const tile_traits *t, const uint8_t *x, int64_t n_cols, uint8_t *out,
                       int64_t every)
{
    const float *d = act_q8_scales(x, n_cols);
    const int16_t *s = act_q8_sums(x, n_cols);
    for (int64_t i = 0; i < n_cols / 32 * t->scales; i++) {
        int32_t sum = t->scales == 2 ? s[i] : s[2 * i] + s[2 * i + 1];
        float scaled = d[t->scales == 2 ? i / 2 : i] * (float)sum;
        int32_t start = -t->offset * sum;
        memcpy(out + 4 * i * every, t->has_min ? (void *)&scaled : (void *)&start, 4);
    }
}

/* f[i] += the product of one group with token i of n. x, d and extra are those of this group. */
ALWAYS_INLINE void dot_group(const tile_group *g, const int scales, const bool has_min,
                             const uint8_t *x, uint64_t stride, const uint8_t *d,
                             const uint8_t *extra, const int n, __m512 *f)
{
    UNROLL
    for (int i = 0; i < n; i++) {
        const uint8_t *xi = x + (uint64_t)i * stride;
        const uint8_t *e = extra + 4 * i;
        /* Two sums, for half the latency. */
        __m512i a = _mm512_setzero_si512(), b = a;
        if (!has_min)
            a = broadcast_word(e);
        if (!has_min && scales == 2)
            b = broadcast_word(e + 4 * n);
        UNROLL
        for (int k = 0; k < 4; k++) {
            a = _mm512_dpbusd_epi32(a, g->w[k], broadcast_word(xi + 4 * k));
            b = _mm512_dpbusd_epi32(b, g->w[4 + k], broadcast_word(xi + 16 + 4 * k));
        }
        __m512 xd = broadcast_float(d + (uint64_t)i * stride);
        if (scales == 1) {
            __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(a, b));
            f[i] = _mm512_fmadd_ps(sum, _mm512_mul_ps(g->scale[0], xd), f[i]);
        } else {
            f[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(a), _mm512_mul_ps(g->scale[0], xd), f[i]);
            f[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(b), _mm512_mul_ps(g->scale[1], xd), f[i]);
        }
        if (has_min)
            f[i] = _mm512_fnmadd_ps(g->min[0], broadcast_float(e), f[i]);
        if (has_min && scales == 2)
            f[i] = _mm512_fnmadd_ps(g->min[1], broadcast_float(e + 4 * n), f[i]);
    }
}

/* 16 products of one token; those of rows from n_rows on do not exist. */
ALWAYS_INLINE void store_rows(float *out, __m512 y, int64_t n_rows)
{
    if (n_rows >= TILE_ROWS)
        _mm512_storeu_ps(out, y);
    else
        _mm512_mask_storeu_ps(out, (__mmask16)((1u << n_rows) - 1), y);
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t decoded_panel_bytes(const tile_traits *t, int64_t n_cols)
{
    return n_cols / 32 * (512 + 64 * t->scales * (t->has_min ? 2 : 1));
}

/* Panels to decode at once: an even number. */
static int64_t decoded_panels(const tile_traits *t, int64_t n_cols)
{
    int64_t n = DECODED_BYTES / decoded_panel_bytes(t, n_cols) & ~(int64_t)1;
    return n < 2 ? 2 : n;
}

static uint64_t extra_bytes(const tile_traits *t, int64_t n_cols)
{
    return (uint64_t)round_up(n_cols / 32 * t->scales * 4, 64);
}

static uint64_t scratch_bytes_of(const tile_traits *t, int64_t n_cols, int64_t n_tokens)
{
    uint64_t bytes = extra_bytes(t, n_cols) * (uint64_t)n_tokens;
    if (n_tokens > DIRECT_TOKENS)
        bytes += (uint64_t)(decoded_panels(t, n_cols) * decoded_panel_bytes(t, n_cols));
    return bytes;
}

/* All tokens with decoded panels, for rows [0, n_rows); out is that of the first row. */
static void multiply_decoded(const tile_traits *t, const uint8_t *decoded, int64_t n_rows,
                             const tokens *x, int64_t n_tokens, float *out, int64_t out_stride)
{
    gemm_fn gemm = gemm_avx512vnni[t->has_min][t->scales - 1];
    int64_t panel_bytes = decoded_panel_bytes(t, x->n_cols);
    float y[GEMM_TOKENS][GEMM_ROWS] __attribute__((aligned(64)));
    gemm_args a = {.x_stride = x->stride,
                   .extra_stride = extra_bytes(t, x->n_cols),
                   .n_groups = x->n_cols / 32,
                   .out = &y[0][0]};
    for (int64_t begin = 0; begin < n_tokens; begin += GEMM_TOKENS) {
        /* The last six overlap those before; the same products are written again. */
        int64_t token = min_i64(begin, n_tokens - GEMM_TOKENS);
        a.x = x->x + (uint64_t)token * x->stride;
        a.x_scales = (const uint8_t *)act_q8_scales(a.x, x->n_cols);
        a.extra = x->extra + (uint64_t)token * a.extra_stride;
        for (int64_t row = 0; row < n_rows; row += GEMM_ROWS) {
            bool is_single = n_rows - row <= TILE_ROWS;
            a.w[0] = decoded + row / TILE_ROWS * panel_bytes;
            a.w[1] = a.w[0] + (is_single ? 0 : panel_bytes);
            gemm(&a);
            for (int i = 0; i < GEMM_TOKENS; i++) {
                float *at = out + (token + i) * out_stride + row;
                store_rows(at, _mm512_load_ps(y[i]), n_rows - row);
                if (!is_single)
                    store_rows(at + TILE_ROWS, _mm512_load_ps(y[i] + TILE_ROWS),
                               n_rows - row - TILE_ROWS);
            }
        }
    }
}

#endif

/* ---- For this type --------------------------------------------------------------------------- */

static const tile_traits OF(traits) = {
    .groups = OF(GROUPS),
    .scales = OF(SCALES),
    .offset = OF(OFFSET),
    .has_min = OF(HAS_MIN),
    .tile_bytes = TILE_ROWS * CAT(BLOCK_BYTES, TILE_DTYPE),
};

/* f[i] += the product of a tile with token i of n, at columns 32 * group and on. */
ALWAYS_INLINE void OF(dot)(const uint8_t *tile, const tokens *x, int64_t group, const int n,
                           __m512 *f)
{
    const uint8_t *d = x->x + x->n_cols + 4 * group;
    const uint8_t *extra = x->extra + 4 * group * OF(SCALES) * n;
    OF(head) head = OF(open)(tile);
    UNROLL
    for (int j = 0; j < OF(GROUPS); j++) {
        tile_group g;
        OF(group)(tile, &head, j, &g);
        dot_group(&g, OF(SCALES), OF(HAS_MIN), x->x + 32 * (group + j), x->stride, d + 4 * j,
                  extra + 4 * j * OF(SCALES) * n, n, f);
    }
}

/*
 * `n_panels` panels in each of `streams` streams that are stream_bytes apart, with n tokens. Rows
 * from n_rows on are not written.
 */
ALWAYS_INLINE void OF(walk)(const uint8_t *w, int64_t stream_bytes, int64_t n_panels,
                            const tokens *x, float *out, int64_t out_stride, int64_t n_rows,
                            const int streams, const int n)
{
    const int64_t tile_bytes = TILE_ROWS * CAT(BLOCK_BYTES, TILE_DTYPE);
    int64_t n_groups = x->n_cols / 32;
    for (int64_t p = 0; p < n_panels; p++) {
        __m512 f[8];
        UNROLL
        for (int i = 0; i < streams * n; i++)
            f[i] = _mm512_setzero_ps();
        for (int64_t g = 0; g < n_groups; g += OF(GROUPS), w += tile_bytes) {
            UNROLL
            for (int s = 0; s < streams; s++) {
                const uint8_t *tile = w + s * stream_bytes;
                for (int64_t i = 0; i < tile_bytes; i += 64)
                    _mm_prefetch((const char *)tile + PREFETCH_BYTES + i, _MM_HINT_T0);
                OF(dot)(tile, x, g, n, f + s * n);
            }
        }
        UNROLL
        for (int s = 0; s < streams; s++) {
            int64_t row = (s * n_panels + p) * TILE_ROWS;
            UNROLL
            for (int i = 0; i < n; i++)
                store_rows(out + i * out_stride + row, f[s * n + i], n_rows - row);
        }
    }
}

/* Rows [0, n_rows) of panels at w, with n <= DIRECT_TOKENS tokens. */
static void OF(direct)(const uint8_t *w, int64_t n_rows, const tokens *x, int n, float *out,
                       int64_t out_stride)
{
    int64_t n_panels = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    int64_t panel_bytes = x->n_cols / (32 * OF(GROUPS)) * OF(traits).tile_bytes;
    int streams = n == 1 ? 4 : n <= 4 ? 2 : 1;
    int64_t per_stream = n_panels / streams, bytes = per_stream * panel_bytes;
    int64_t walked = per_stream * streams;

    /* Every count of tokens is compiled for itself, so that its sums stay in registers. */
#define WALK(n_streams, count)                                                                     \
    case count:                                                                                    \
        OF(walk)(w, bytes, per_stream, x, out, out_stride, n_rows, n_streams, count);              \
        if (n_streams > 1)                                                                         \
            OF(walk)                                                                               \
            (w + walked * panel_bytes, 0, n_panels - walked, x, out + walked * TILE_ROWS,          \
             out_stride, n_rows - walked * TILE_ROWS, 1, count);                                   \
        break;
    switch (n) {
        WALK(4, 1)
        WALK(2, 2)
        WALK(2, 3)
        WALK(2, 4)
        WALK(1, 5)
        WALK(1, 6)
        WALK(1, 7)
        WALK(1, 8)
    }
#undef WALK
}

static void OF(decode)(const uint8_t *w, int64_t n_tiles, uint8_t *out)
{
    for (int64_t i = 0; i < n_tiles; i++, w += OF(traits).tile_bytes) {
        OF(head) head = OF(open)(w);
        UNROLL
        for (int j = 0; j < OF(GROUPS); j++) {
            tile_group g;
            OF(group)(w, &head, j, &g);
            for (int k = 0; k < 8; k++, out += 64)
                _mm512_storeu_si512(out, g.w[k]);
            for (int k = 0; k < OF(SCALES); k++, out += 64)
                _mm512_storeu_ps(out, g.scale[k]);
            for (int k = 0; k < OF(SCALES) * OF(HAS_MIN); k++, out += 64)
                _mm512_storeu_ps(out, g.min[k]);
        }
    }
}

static uint64_t OF(scratch_bytes)(int64_t n_cols, int64_t n_tokens)
{
    return scratch_bytes_of(&OF(traits), n_cols, n_tokens);
}

static void OF(rows)(const weight *matrix, int64_t row_begin, int64_t row_end, const uint8_t *x,
                     uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                     uint8_t *scratch)
{
    const tile_traits *t = &OF(traits);
    int64_t n_cols = matrix->n_cols, n_rows = row_end - row_begin;
    int64_t tiles_in_panel = n_cols / (32 * t->groups);
    const uint8_t *w = matrix->data + row_begin / TILE_ROWS * tiles_in_panel * t->tile_bytes;
    tokens all = {.x = x, .stride = x_stride, .n_cols = n_cols, .extra = scratch};

    if (n_tokens <= DIRECT_TOKENS) {
        for (int64_t i = 0; i < n_tokens; i++)
            make_extra(t, x + (uint64_t)i * x_stride, n_cols, scratch + 4 * i, n_tokens);
        OF(direct)(w, n_rows, &all, (int)n_tokens, out, out_stride);
        return;
    }

    uint64_t extra = extra_bytes(t, n_cols);
    for (int64_t i = 0; i < n_tokens; i++)
        make_extra(t, x + (uint64_t)i * x_stride, n_cols, scratch + (uint64_t)i * extra, 1);
    uint8_t *decoded = scratch + (uint64_t)n_tokens * extra;
    int64_t most = decoded_panels(t, n_cols) * TILE_ROWS;
    for (int64_t row = 0; row < n_rows; row += most) {
        int64_t n = min_i64(most, n_rows - row);
        int64_t n_tiles = round_up(n, TILE_ROWS) / TILE_ROWS * tiles_in_panel;
        OF(decode)(w + row / TILE_ROWS * tiles_in_panel * t->tile_bytes, n_tiles, decoded);
        multiply_decoded(t, decoded, n, &all, n_tokens, out + row, out_stride);
    }
}

#define MATMUL_NAME CAT(CAT(matmul, TILE_TYPE), avx512vnni)
const matmul_impl MATMUL_NAME = {
    .name = STRING(TILE_TYPE) " avx512vnni",
    .act = ACT_Q8,
    .packed_bytes = tiles_packed_bytes,
    .pack = tiles_pack,
    .scratch_bytes = OF(scratch_bytes),
    .rows = OF(rows),
};

#undef MATMUL_NAME
#undef CAT_
#undef CAT
#undef OF
#undef STRING_
#undef STRING
#undef TILE_TYPE
#undef TILE_DTYPE
