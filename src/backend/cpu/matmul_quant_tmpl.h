/*
 * The product of a quantized matrix in tiles with int8 activations. A part of matmul_*_tmpl.c,
 * included once for each type. The template includes level.h, whose LEVEL_* this counts on, and
 * defines, once
 *
 *     QUANT_PACKED_BYTES   packed_bytes and pack of the matmul_impl
 *     QUANT_PACK
 *     QUANT_ACT            the activations: ACT_Q8 or ACT_ROTATED_Q8
 *     QUANT_DIRECT         tokens that are multiplied straight from the tiles, see LEVEL_DIRECT
 *     QUANT_HAS_FEW        whether few tokens are left to few_tmpl.h
 *     TILE_HAS_256         if so: whether tiles have 256 columns, not 32
 *
 * and for each type
 *
 *     TILE_TYPE            its name in unpack_tmpl.h; this gives matmul_<type>_<level>
 *     TILE_BITS            for types that are rounded to bytes for many tokens (gemm_bytes.h): how
 *                          many a weight has
 *     TILE_FIELDS          how many groups in turn have their bits above each other in a byte
 *
 * Few tokens: a group of 32 columns is decoded into registers and multiplied with up to
 * LEVEL_TOKENS of them, so the weights come from memory once; memory sets the pace. Several panels
 * from distant parts of the rows are walked at once, which keeps more reads of memory under way.
 *
 * Where the level has it (LEVEL_HAS_PAIRS), two tokens are multiplied by one instruction; where it
 * has words of its own for this (QUANT_HAS_FEW), few_tmpl.h does it all.
 *
 * More tokens: where the level has it (LEVEL_HAS_GEMM), panels are decoded to bytes that stay in
 * the L2 cache, and gemm_<level>.c multiplies them with 6 tokens at a time.
 */
#if !defined(LEVEL_DOT)
#error "level.h has no LEVEL_DOT for this level"
#endif
#if !defined(QUANT_PACKED_BYTES) || !defined(QUANT_PACK) || !defined(QUANT_ACT) ||                 \
    !defined(QUANT_DIRECT) || !defined(QUANT_HAS_FEW) || !defined(TILE_TYPE)
#error "a macro is missing: see above"
#endif
#if QUANT_HAS_FEW && !defined(TILE_HAS_256)
#error "TILE_HAS_256 is missing: see above"
#endif

#if !defined(TILE_BITS)
#define TILE_BITS 0
#endif
#define TO_BYTES (LEVEL_HAS_GEMM && TILE_BITS)

/* ---- The same for all types ------------------------------------------------------------------ */

#ifndef MATMUL_QUANT_ONCE
#define MATMUL_QUANT_ONCE

#include "base/numbers.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/tiles.h"
#include LEVEL_DOT
#include "backend/cpu/unpack_tmpl.h"
#if QUANT_HAS_FEW
#include LEVEL_FEW
#endif

#include <string.h>

#define OF(name) CAT(name, TILE_TYPE) /* dot -> dot_q4_0 */

/* A pointer as if new: else compilers keep what several groups load, in more registers than there
 * are. */
#define RENEW(pointer) __asm__("" : "+r"(pointer))

enum { PREFETCH_BYTES = 4096, MOST_STREAMS = 4, FEW_SUMS = 16 };

/*
 * What helps to read memory at its speed depends on the maker of the processor. On two cores of Ice
 * Lake one token with Q4_0 runs at 18 GB/s alone, at 29 with fetching to L1. Zen 4's own
 * prefetching follows a stream, if it is fast and strictly in order; else fetching to L2 helps. Two
 * cores of it, GB/s:
 *
 *                                              alone  to L2  to L1
 *     Q4_0, 1 token                               65     51     48
 *     Q8_0, 1 token                               70     51     49
 *     Q6_K, 1 token, each group for itself        33     56     35
 *     Q4_K, 1 token, in order                     60     48     45
 *     Q4_0, 4 tokens                              30     48     37
 *     Q8_0, 8 tokens                              22     41     27
 */
typedef enum fetch_kind { FETCH_TO_L1, FETCH_TO_L2_IF_NEEDED } fetch_kind;

static fetch_kind fetch_kind_of_cpu(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd") ? FETCH_TO_L2_IF_NEEDED : FETCH_TO_L1;
#else
    return FETCH_TO_L1;
#endif
}

/* What to ask for while tiles are multiplied. */
typedef struct fetching {
    fetch_kind kind;
    int64_t next; /* weight.next: then only that */
} fetching;

/* What the functions for all types must know of one. */
typedef struct tile_traits {
    int64_t tile_bytes;
    int groups, scales, offset, most;
    bool has_min;
    int streams;       /* panels to walk at once with one token */
    uint8_t shifts[4]; /* QUANT_HAS_FEW: of the groups of a half, see few_<level>.h */
    bool is_bytes;     /* decoded panels are those of gemm_bytes.h */
} tile_traits;

/*
 * Tokens to multiply with: rows of ACT_Q8. `extra` has a number for each group, scale and token, in
 * this order: the integer that a sum starts with to take off the offset of the weights, or, for
 * types with mins, minus the float sum of the activations.
 */
typedef struct tokens {
    const uint8_t *x;
    uint64_t stride;
    int64_t n_cols;
    int n;
    fetching fetches;
    const uint8_t *extra;
} tokens;

/* Panels to walk at once. */
typedef struct panel_set {
    const uint8_t *w[MOST_STREAMS];
    float *out[MOST_STREAMS];     /* for the first token */
    int64_t n_rows[MOST_STREAMS]; /* those beyond do not exist */
    int64_t out_stride;
} panel_set;

/* Bytes of `extra` for one token. */
static uint64_t extra_bytes(const tile_traits *t, int64_t n_cols)
{
    return round_up((uint64_t)(n_cols / 32 * (t->scales + QUANT_HAS_FEW) * 4), 64);
}

#if !QUANT_HAS_FEW
/* One token's numbers for `extra`, to out[0], out[every], ... */
static void make_extra(const tile_traits *t, const uint8_t *x, int64_t n_cols, uint8_t *out,
                       int64_t every)
{
    const float *d = act_q8_scales(x, n_cols);
    const int16_t *s = act_q8_sums(x, n_cols);
    for (int64_t i = 0; i < n_cols / 32 * t->scales; i++) {
        int32_t sum = t->scales == 2 ? s[i] : s[2 * i] + s[2 * i + 1];
        float scaled = -d[t->scales == 2 ? i / 2 : i] * (float)sum;
        int32_t start = -t->offset * sum;
        memcpy(out + 4 * i * every, t->has_min ? (void *)&scaled : (void *)&start, 4);
    }
}
#endif

#if QUANT_HAS_FEW
/* Token number i of n in the layout of few_tmpl.h. */
static void make_few_extra(const tile_traits *t, const uint8_t *x, int64_t n_cols, uint8_t *out,
                           int64_t i, int64_t n)
{
    const float *d = act_q8_scales(x, n_cols);
    const int16_t *s = act_q8_sums(x, n_cols);
    for (int64_t g = 0; g < n_cols / 32; g++, s += 2) {
        int shift = t->shifts[g % 4];
        float shifted = d[g] / (float)(1 << shift);
        memcpy(out + 4 * i, &shifted, 4);
        out += 4 * n;
        for (int k = 0; k < t->scales; k++, out += 4 * n) {
            int32_t sum = t->scales == 2 ? s[k] : s[0] + s[1];
            float scaled = -d[g] * (float)sum;
            int32_t start = -t->offset * sum * (1 << shift);
            memcpy(out + 4 * i, t->has_min ? (void *)&scaled : (void *)&start, 4);
        }
    }
}
#endif

ALWAYS_INLINE vf broadcast_float(const uint8_t *at)
{
    float x;
    memcpy(&x, at, 4);
    return v_set(x);
}

/* What a sum starts with; e: this token's number of `extra`. */
ALWAYS_INLINE vi start_of(const tile_traits t, const uint8_t *e)
{
    return t.offset ? broadcast_word(e) : zero_words();
}

/* f + what a sum of products stands for. xd: the scale of the activations. */
ALWAYS_INLINE vf add_scaled(vf f, vi sum, vf xd, const vf *scale, const vf *min,
                            const tile_traits t, const uint8_t *e)
{
    f = v_fma(floats_from_words(sum), v_mul(*scale, xd), f);
    return t.has_min ? v_fma(*min, broadcast_float(e), f) : f;
}

/*
 * f[i] += the product of one group with token i of n, for those from `first` on. scale, min, x, d
 * and extra are those of this group.
 */
ALWAYS_INLINE void dot_singly(const vi w[8], const vf *scale, const vf *min, const tile_traits t,
                              const uint8_t *x, uint64_t stride, const uint8_t *d,
                              const uint8_t *extra, const int first, const int n, vf *f)
{
    const int words = 8 / t.scales;
    UNROLL
    for (int i = first; i < n; i++) {
        vf xd = broadcast_float(d + (uint64_t)i * stride);
        UNROLL
        for (int k = 0; k < t.scales; k++) {
            const uint8_t *e = extra + 4 * (k * n + i);
            vi sum = dot_words(start_of(t, e), w + k * words,
                               x + (uint64_t)i * stride + 4 * k * words, words, t.most);
            f[i] = add_scaled(f[i], sum, xd, scale + k, min + k, t, e);
        }
    }
}

#if LEVEL_HAS_PAIRS
/* The same for all tokens, two at a time. */
ALWAYS_INLINE void dot_group(const vi w[8], const vf *scale, const vf *min, const tile_traits t,
                             const uint8_t *x, uint64_t stride, const uint8_t *d,
                             const uint8_t *extra, const int n, vf *f)
{
    const int words = 8 / t.scales;
    UNROLL
    for (int i = 0; i + 1 < n; i += 2) {
        const uint8_t *x0 = x + (uint64_t)i * stride, *d0 = d + (uint64_t)i * stride;
        UNROLL
        for (int k = 0; k < t.scales; k++) {
            const uint8_t *e = extra + 4 * (k * n + i);
            vi sum[2] = {start_of(t, e), start_of(t, e + 4)};
            dot_pair(sum, w + k * words, x0 + 4 * k * words, x0 + stride + 4 * k * words, words);
            f[i] = add_scaled(f[i], sum[0], broadcast_float(d0), scale + k, min + k, t, e);
            f[i + 1] = add_scaled(f[i + 1], sum[1], broadcast_float(d0 + stride), scale + k,
                                  min + k, t, e + 4);
        }
    }
    dot_singly(w, scale, min, t, x, stride, d, extra, n & ~1, n, f);
}
#else
ALWAYS_INLINE void dot_group(const vi w[8], const vf *scale, const vf *min, const tile_traits t,
                             const uint8_t *x, uint64_t stride, const uint8_t *d,
                             const uint8_t *extra, const int n, vf *f)
{
    dot_singly(w, scale, min, t, x, stride, d, extra, 0, n, f);
}
#endif

/* How many of n tokens to multiply with at once: a count that multiply_set has, and never one
 * alone. */
static int next_count(int64_t n)
{
#if LEVEL_TOKENS == 8
    static const int counts[] = {0, 1, 2, 3, 4, 3, 6, 4, 8, 6};
    return n < 10 ? counts[n] : 8;
#else
    static const int counts[] = {0, 1, 2, 3, 4, 3};
    return n < 6 ? counts[n] : 4;
#endif
}

/* The i-th set of panels; the last one may have the same panel several times. */
static panel_set panel_set_view(const uint8_t *w, int64_t panel_bytes, int64_t n_rows, float *out,
                                int64_t out_stride, int64_t i, int streams)
{
    int64_t n_panels = divide_up(n_rows, TILE_ROWS), run = n_panels / streams;
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

/* At most QUANT_DIRECT tokens, straight from the tiles. scratch: for the tokens' extra. */
static void multiply_direct(const tile_traits *t,
                            void (*multiply_set)(const panel_set *, const tokens *),
                            const uint8_t *w, int64_t panel_bytes, int64_t n_rows,
                            const tokens *all, float *out, int64_t out_stride, uint8_t *scratch)
{
    tokens slices[QUANT_DIRECT];
    int n_slices = 0;
    for (int64_t at = 0; at < all->n; at += slices[n_slices++].n) {
        tokens *s = &slices[n_slices];
        *s = *all;
        s->x += (uint64_t)at * all->stride;
        s->n = next_count(all->n - at);
        s->extra = scratch;
        for (int i = 0; i < s->n; i++)
#if QUANT_HAS_FEW
            make_few_extra(t, s->x + (uint64_t)i * all->stride, all->n_cols, scratch, i, s->n);
#else
            make_extra(t, s->x + (uint64_t)i * all->stride, all->n_cols, scratch + 4 * i, s->n);
#endif
        scratch += (int64_t)extra_bytes(t, all->n_cols) * s->n;
    }
    int streams = all->n == 1 ? t->streams : 2;
    int64_t n_sets = divide_up(n_rows, TILE_ROWS * streams);
    for (int64_t i = 0; i < n_sets; i++) {
        panel_set set = panel_set_view(w, panel_bytes, n_rows, out, out_stride, i, streams);
        for (int k = 0; k < n_slices; k++) {
            multiply_set(&set, &slices[k]);
            for (int m = 0; m < streams; m++)
                set.out[m] += slices[k].n * out_stride;
        }
    }
}

#if LEVEL_HAS_GEMM
#include "backend/cpu/gemm_bytes.h"
#include "backend/cpu/gemm_panels.h"
#else
static uint64_t scratch_bytes_of(const tile_traits *t, int64_t n_cols, int64_t n_tokens)
{
    return extra_bytes(t, n_cols) * (uint64_t)min_i64(n_tokens, QUANT_DIRECT);
}
#endif

#endif

/* ---- For this type --------------------------------------------------------------------------- */

#if QUANT_HAS_FEW && TILE_HAS_256
/* As many panels as leave the sums in registers, of a whole span for 1 and 2 tokens. */
enum {
    OF(STREAMS) = OF(FEW_SPAN) > 4 || OF(MOST) == 3 ? 2 : 4,
    OF(STREAMS_2) = OF(FEW_SPAN) > 4 ? 1 : 2,
    OF(STREAMS_8) = 1
};
#else
enum { OF(STREAMS) = 4, OF(STREAMS_2) = 2, OF(STREAMS_8) = 1 + QUANT_HAS_FEW };
#endif

static const tile_traits OF(traits) = {
    .tile_bytes = OF(BYTES),
    .groups = OF(GROUPS),
    .scales = OF(SCALES),
    .offset = LEVEL_SIGNED && OF(MOST) > 127 ? 0 : OF(OFFSET),
    .most = OF(MOST),
    .has_min = OF(HAS_MIN),
    .streams = OF(STREAMS),
#if QUANT_HAS_FEW && TILE_HAS_256
    .shifts = OF(FEW_SHIFTS),
#endif
};

/* Ask for group j's share of a tile to come, when multiplying with n tokens. */
ALWAYS_INLINE void OF(fetch_ahead)(const uint8_t *tile, int j, const int n, fetching f)
{
    const uint8_t *at = tile + PREFETCH_BYTES + OF(BYTES) / OF(GROUPS) * j;
    if (f.next) { /* one line for each group, a fourth to an eighth */
        uintptr_t next = (uintptr_t)tile + (uintptr_t)(f.next + OF(BYTES) / OF(GROUPS) * j);
        __builtin_prefetch((const void *)next, 0, 2);
    } else if (f.kind == FETCH_TO_L1) {
        UNROLL
        for (int k = 0; k < OF(BYTES) / OF(GROUPS); k += 64)
            __builtin_prefetch(at + k);
    } else if ((!QUANT_HAS_FEW && !OF(IS_STREAM)) || n > 2) {
        UNROLL
        for (int k = 0; k < OF(BYTES) / OF(GROUPS); k += 64)
            __builtin_prefetch(at + k, 0, 2);
    }
}

#if QUANT_HAS_FEW
#include "backend/cpu/few_tmpl.h"
#else
/*
 * f[i * n + k] += the product of a part of tile w[i] with token k of n, for all streams, at columns
 * 32 * group and on.
 */
ALWAYS_INLINE void OF(dot)(const uint8_t *const w[], int64_t at, int part, const tokens *x,
                           int64_t group, const int streams, const int n, vf *f)
{
    tile_scales s[MOST_STREAMS];
    UNROLL
    for (int i = 0; i < streams; i++)
        OF(scales)(w[i] + at, part, &s[i]);
    for (int j = 0; j < OF(GROUPS); j++) {
        const uint8_t *xj = x->x + 32 * (group + j);
        const uint8_t *d = x->x + x->n_cols + 4 * (group + j);
        const uint8_t *extra = x->extra + 4 * (group + j) * OF(SCALES) * n;
        UNROLL
        for (int i = 0; i < streams; i++) {
            const uint8_t *tile = w[i] + at;
            vi words[8];
            RENEW(tile);
            RENEW(xj);
            RENEW(d);
            RENEW(extra);
            OF(words)(tile, part, j, words);
            if (part == 0)
                OF(fetch_ahead)(tile, j, n, x->fetches);
            dot_group(words, s[i].scale + OF(SCALES) * j, s[i].min + OF(SCALES) * j, OF(traits), xj,
                      x->stride, d, extra, n, f + i * n);
        }
    }
}

/* `streams` panels of a set from the first-th on, with n tokens. */
ALWAYS_INLINE void OF(walk)(const panel_set *set, int first, const tokens *x, const int streams,
                            const int n)
{
    for (int part = 0; part < TILE_PARTS; part++) {
        vf f[LEVEL_TOKENS];
        UNROLL
        for (int i = 0; i < streams * n; i++)
            f[i] = v_set(0);
        int64_t at = 0;
        for (int64_t g = 0; g < x->n_cols / 32; g += OF(GROUPS), at += OF(BYTES))
            OF(dot)(set->w + first, at, part, x, g, streams, n, f);
        for (int i = 0; i < streams; i++) {
            float *out = set->out[first + i] + part * TILE_PART;
            UNROLL
            for (int k = 0; k < n; k++)
                v_store_some(out + k * set->out_stride, f[i * n + k],
                             set->n_rows[first + i] - part * TILE_PART);
        }
    }
}
#endif

/*
 * A set of panels with x->n tokens. Each count is compiled for itself, so that its sums stay in
 * registers, and in a function of its own, so that compilers end soon.
 */
#define COUNTS                                                                                     \
    COUNT(1, OF(STREAMS), OF(STREAMS))                                                             \
    COUNT(2, 2, OF(STREAMS_2))                                                                     \
    COUNT(3, 2, LEVEL_TOKENS == 8 ? 2 : 1)                                                         \
    COUNT(4, 2, LEVEL_TOKENS == 8 ? 2 : 1)                                                         \
    COUNTS_ABOVE_4

#if LEVEL_TOKENS == 8
#define COUNTS_ABOVE_4 COUNT(6, 2, OF(STREAMS_8)) COUNT(8, 2, OF(STREAMS_8))
#else
#define COUNTS_ABOVE_4
#endif

#define COUNT(n, set_panels, streams)                                                              \
    static __attribute__((noinline)) void OF(walk_##n)(const panel_set *set, const tokens *x)      \
    {                                                                                              \
        for (int i = 0; i < (set_panels); i += (streams))                                          \
            OF(walk)(set, i, x, streams, n);                                                       \
    }
COUNTS
#undef COUNT

static void OF(multiply_set)(const panel_set *set, const tokens *x)
{
    switch (x->n) {
#define COUNT(n, set_panels, streams)                                                              \
    case n:                                                                                        \
        OF(walk_##n)(set, x);                                                                      \
        break;
        COUNTS
#undef COUNT
    }
}
#undef COUNTS
#undef COUNTS_ABOVE_4

#if LEVEL_HAS_GEMM
static void OF(decode)(const uint8_t *w, int64_t n_tiles, int64_t n_panels, uint8_t *out)
{
    n_tiles *= n_panels;
    for (int64_t i = 0; i < n_tiles; i++, w += OF(BYTES)) {
        tile_scales s;
        OF(scales)(w, 0, &s);
        for (int j = 0; j < OF(GROUPS); j++) {
            vi words[8];
            OF(words)(w, 0, j, words);
            for (int k = 0; k < 8; k++, out += 64)
                _mm512_storeu_si512(out, words[k]);
            for (int k = 0; k < OF(SCALES); k++, out += 64)
                _mm512_storeu_ps(out, v_mul(s.scale[OF(SCALES) * j + k], v_set(GEMM_SCALE_FACTOR)));
            for (int k = 0; k < OF(SCALES) * OF(HAS_MIN); k++, out += 64)
                _mm512_storeu_ps(out, s.min[OF(SCALES) * j + k]);
        }
    }
}
#endif

#if TO_BYTES
static const tile_traits OF(traits_bytes) = {
    .tile_bytes = OF(BYTES), .groups = OF(GROUPS), .scales = 1, .offset = 128, .is_bytes = true};

/* n_tiles: of each panel. Only tiles of 256 columns, that is of one scale. */
static void OF(decode_bytes)(const uint8_t *w, int64_t n_tiles, int64_t n_panels, uint8_t *out)
{
    const int n_scales = OF(GROUPS) * OF(SCALES), n_words = 8 / OF(SCALES);
    for (int64_t i = 0; i < n_tiles * n_panels; i++, w += OF(BYTES), out += 64) {
        tile_scales s;
        vf most = v_set(0x1p-60f);
        OF(scales)(w, 0, &s);
        for (int k = 0; k < n_scales; k++) {
            /* The highest byte; fields may stay where they are in their bytes. */
            const int field = k / OF(SCALES) % TILE_FIELDS * TILE_BITS;
            vf top = v_mul(s.scale[k], v_set((float)(OF(MOST) << field)));
            s.min[k] = OF(HAS_MIN) ? v_sub(v_set(0), s.min[k])
                                   : v_mul(s.scale[k], v_set((float)-OF(OFFSET)));
            most = v_max(most, v_max(v_abs(s.min[k]), v_abs(v_add(top, s.min[k]))));
        }
        vf unit = v_mul(most, v_set(1.0f / BYTES_MOST)), inverse = v_div(v_set(64.0f), unit);
        for (int j = 0; j < OF(GROUPS); j++) {
            const int left = 15 - TILE_BITS - j % TILE_FIELDS * TILE_BITS;
            vi words[8];
            OF(words)(w, 0, j, words);
            for (int k = OF(SCALES) * j; k < OF(SCALES) * (j + 1); k++, out += 64 * n_words) {
                vf factor = v_mul(s.scale[k], v_mul(inverse, v_set((float)(1 << (15 - left)))));
                vf start = v_fma(s.min[k], inverse, v_set(128 * 64 + 32));
                round_words(words + k % OF(SCALES) * n_words, n_words, left, pair_of_words(factor),
                            pair_of_words(start), out);
            }
        }
        v_store((float *)out, v_mul(unit, v_set(GEMM_SCALE_FACTOR)));
    }
}
#endif

static uint64_t OF(scratch_bytes)(int64_t n_cols, int64_t n_tokens)
{
    uint64_t exact = scratch_bytes_of(&OF(traits), n_cols, n_tokens);
#if TO_BYTES
    uint64_t bytes = scratch_bytes_of(&OF(traits_bytes), n_cols, n_tokens);
    return bytes > exact ? bytes : exact;
#else
    return exact;
#endif
}

static void OF(rows)(const weight *matrix, int64_t row_begin, int64_t row_end, const uint8_t *x,
                     uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                     uint8_t *scratch)
{
    const tile_traits *t = &OF(traits);
    int64_t n_rows = row_end - row_begin;
    int64_t panel_bytes = matrix->n_cols / (32 * t->groups) * t->tile_bytes;
    const uint8_t *w = matrix->data + row_begin / TILE_ROWS * panel_bytes;
    tokens all = {.x = x,
                  .stride = x_stride,
                  .n_cols = matrix->n_cols,
                  .fetches = {fetch_kind_of_cpu(), matrix->next}};
#if TO_BYTES
    if (n_tokens >= BYTES_TOKENS) {
        multiply_panels(&OF(traits_bytes), OF(decode_bytes), w, n_rows, &all, n_tokens, out,
                        out_stride, scratch);
        return;
    }
#endif
#if LEVEL_HAS_GEMM
    if (n_tokens > QUANT_DIRECT) {
        multiply_panels(t, OF(decode), w, n_rows, &all, n_tokens, out, out_stride, scratch);
        return;
    }
#endif
    for (int64_t i = 0; i < n_tokens; i += QUANT_DIRECT) {
        all.x = x + (uint64_t)i * x_stride;
        all.n = (int)min_i64(QUANT_DIRECT, n_tokens - i);
        multiply_direct(t, OF(multiply_set), w, panel_bytes, n_rows, &all, out + i * out_stride,
                        out_stride, scratch);
    }
}

const matmul_impl FN(OF(matmul)) = {
    .name = STRING(TILE_TYPE) " " LEVEL_NAME,
    .act = QUANT_ACT,
    .same_tokens = LEVEL_HAS_GEMM ? QUANT_DIRECT : MATMUL_SAME_ALWAYS,
#if TO_BYTES
    .rounding = MATMUL_TO_BYTES,
#endif
    .packed_bytes = QUANT_PACKED_BYTES,
    .pack = QUANT_PACK,
    .scratch_bytes = OF(scratch_bytes),
    .rows = OF(rows),
};

#undef TO_BYTES
#undef TILE_TYPE
#undef TILE_BITS
#undef TILE_FIELDS
