/*
 * The product of a quantized matrix in tiles with int8 activations, for one type.
 *
 * A file that wants it defines TILE_TYPE, a name in unpack_avx512.h, and includes this; it may do
 * so for several types.
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

/* Without it compilers keep what several groups load, in more registers than there are. */
#define FORGET_LOADS __asm__ volatile("" ::: "memory")

enum {
    DIRECT_TOKENS = 32,
    DECODED_BYTES = 512 * 1024, /* of panels that are multiplied together: half of an L2 cache */
    PREFETCH_BYTES = 4096,
};

/* Sizes in this file are of one type; `t` says which. */
typedef struct tile_traits {
    int groups, scales, offset;
    bool has_min;
    int64_t tile_bytes;
} tile_traits;

/* Tokens to multiply with: rows of ACT_Q8. */
typedef struct tokens {
    const uint8_t *x;
    uint64_t stride;
    int64_t n_cols;
    int n;
    const uint8_t *extra; /* see gemm_avx512vnni.h; here [n_groups, scales, n] */
} tokens;

/* Panels to walk at once: 4 for one token, else 2. */
typedef struct panel_set {
    const uint8_t *w[4];
    float *out[4];     /* for the first token */
    int64_t n_rows[4]; /* those beyond do not exist */
    int64_t out_stride;
} panel_set;

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

/* How many of n tokens to multiply with at once: a count that multiply_set knows, and never one
 * alone. */
static int next_count(int64_t n)
{
    static const int counts[] = {0, 1, 2, 3, 4, 3, 6, 4, 8, 6};
    return n < 10 ? counts[n] : 8;
}

/* The i-th set of panels; the last one may have the same panel several times. */
static panel_set panel_set_view(const uint8_t *w, int64_t panel_bytes, int64_t n_rows, float *out,
                                int64_t out_stride, int64_t i, int streams)
{
    int64_t n_panels = (n_rows + TILE_ROWS - 1) / TILE_ROWS, run = n_panels / streams;
    panel_set set = {.out_stride = out_stride};
    for (int k = 0; k < streams; k++) {
        /* From distant parts of the rows, so that each is one long stream. */
        int64_t p = i < run ? k * run + i : min_i64(run * streams + k, n_panels - 1);
        set.w[k] = w + p * panel_bytes;
        set.out[k] = out + p * TILE_ROWS;
        set.n_rows[k] = n_rows - p * TILE_ROWS;
    }
    return set;
}

/* Few tokens, straight from the tiles. */
static void multiply_direct(const tile_traits *t,
                            void (*multiply_set)(const panel_set *, const tokens *),
                            const uint8_t *w, int64_t panel_bytes, int64_t n_rows,
                            const tokens *all, float *out, int64_t out_stride, uint8_t *scratch)
{
    tokens parts[DIRECT_TOKENS];
    int n_parts = 0;
    for (int64_t at = 0; at < all->n; at += parts[n_parts++].n) {
        tokens *part = &parts[n_parts];
        *part = *all;
        part->x += (uint64_t)at * all->stride;
        part->n = next_count(all->n - at);
        part->extra = scratch;
        for (int i = 0; i < part->n; i++)
            make_extra(t, part->x + (uint64_t)i * all->stride, all->n_cols, scratch + 4 * i,
                       part->n);
        scratch += all->n_cols / 32 * t->scales * 4 * part->n;
    }
    int streams = all->n == 1 ? 4 : 2;
    int64_t n_sets = round_up(n_rows, TILE_ROWS * streams) / (TILE_ROWS * streams);
    for (int64_t i = 0; i < n_sets; i++) {
        panel_set set = panel_set_view(w, panel_bytes, n_rows, out, out_stride, i, streams);
        for (int k = 0; k < n_parts; k++) {
            multiply_set(&set, &parts[k]);
            for (int m = 0; m < streams; m++)
                set.out[m] += parts[k].n * out_stride;
        }
    }
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
    .tile_bytes = OF(BYTES),
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
        FORGET_LOADS;
        OF(group)(tile, &head, j, &g);
        /* This group's part of a tile to come. */
        for (int i = OF(BYTES) * j / OF(GROUPS); i < OF(BYTES) * (j + 1) / OF(GROUPS); i += 64)
            _mm_prefetch((const char *)tile + PREFETCH_BYTES + i, _MM_HINT_T0);
        dot_group(&g, OF(SCALES), OF(HAS_MIN), x->x + 32 * (group + j), x->stride, d + 4 * j,
                  extra + 4 * j * OF(SCALES) * n, n, f);
    }
}

/* `streams` panels at once, with n tokens. */
ALWAYS_INLINE void OF(walk)(const panel_set *set, const tokens *x, const int streams, const int n)
{
    __m512 f[8];
    UNROLL
    for (int i = 0; i < streams * n; i++)
        f[i] = _mm512_setzero_ps();
    int64_t at = 0;
    for (int64_t g = 0; g < x->n_cols / 32; g += OF(GROUPS), at += OF(BYTES)) {
        UNROLL
        for (int i = 0; i < streams; i++)
            OF(dot)(set->w[i] + at, x, g, n, f + i * n);
    }
    for (int i = 0; i < streams; i++) {
        UNROLL
        for (int k = 0; k < n; k++)
            store_rows(set->out[i] + k * set->out_stride, f[i * n + k], set->n_rows[i]);
    }
}

/* A set of panels with x->n tokens. Each count is compiled for itself: its sums stay in registers.
 */
static void OF(multiply_set)(const panel_set *set, const tokens *x)
{
    panel_set second = {.w = {set->w[1]},
                        .out = {set->out[1]},
                        .n_rows = {set->n_rows[1]},
                        .out_stride = set->out_stride};
    switch (x->n) {
    case 1:
        OF(walk)(set, x, 4, 1);
        break;
    case 2:
        OF(walk)(set, x, 2, 2);
        break;
    case 3:
        OF(walk)(set, x, 2, 3);
        break;
    case 4:
        OF(walk)(set, x, 2, 4);
        break;
    case 6:
        for (int i = 0; i < 2; i++)
            OF(walk)(i ? &second : set, x, 1, 6);
        break;
    case 8:
        for (int i = 0; i < 2; i++)
            OF(walk)(i ? &second : set, x, 1, 8);
        break;
    }
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
    tokens all = {
        .x = x, .stride = x_stride, .n_cols = n_cols, .n = (int)n_tokens, .extra = scratch};
    if (n_tokens <= DIRECT_TOKENS) {
        multiply_direct(t, OF(multiply_set), w, tiles_in_panel * t->tile_bytes, n_rows, &all, out,
                        out_stride, scratch);
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
