/* Expanding sparse tiles, AVX-512 with VBMI2: vpexpandb puts 64 values into their places. */
#ifndef LACE_BACKEND_CPU_EXPAND_AVX512VBMI2_H
#define LACE_BACKEND_CPU_EXPAND_AVX512VBMI2_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/dot_avx512vnni.h"
#include "backend/cpu/sparse_mask.h"
#include "tensor/sparse.h"

/*
 * The levels for vpermb, which takes the 6 lowest bits of an index: four times the same 16, so that
 * the two bits above a nibble may be anything.
 */
ALWAYS_INLINE __m512i level_table(void)
{
    __m128i levels = _mm_loadu_si128((const __m128i *)SPARSE_LEVELS);
    return _mm512_broadcast_i32x4(_mm_add_epi8(levels, _mm_set1_epi8((char)128)));
}

/*
 * The bits of the scales of 16 rows less those of 1.0: the bits of a power of two can be added. A
 * scale s means 2^(s / 8 - 28) (1 + s % 8 / 8), an activation's is at least 2^-60.
 */
ALWAYS_INLINE vi scale_bits(const uint8_t *scales)
{
    vi bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(load_bytes(scales, 0)), 20);
    return _mm512_sub_epi32(bits, _mm512_set1_epi32(28 << 23));
}

/* A tile that is being expanded. */
typedef struct tile_walk {
    const uint8_t *masks;
    const uint8_t *next[2]; /* values: of masks 0-3 and 4-7, which are one stream in M8 */
} tile_walk;

ALWAYS_INLINE void tile_begin(tile_walk *t, const uint8_t *at)
{
    t->masks = at;
    t->next[0] = t->next[1] = at + 64;
}

/* The values of mask i, from 0 on, in their places, and 128 elsewhere. */
ALWAYS_INLINE __m512i tile_expand(const sparse_kind kind, tile_walk *t, int i)
{
    const __m512i zero = _mm512_set1_epi8((char)128);
    const uint8_t **next = &t->next[kind == SPARSE_M8 ? 0 : i / 4];
    uint64_t mask = mask_at(t->masks, i);
    __m512i w = _mm512_loadu_si512(*next);
    *next += _mm_popcnt_u64(mask);
    if (kind == SPARSE_M8)
        w = _mm512_xor_si512(w, zero);
    else
        w = _mm512_permutexvar_epi8(i < 4 ? w : _mm512_srli_epi16(w, 4), level_table());
    return _mm512_mask_expand_epi8(zero, mask, w);
}

ALWAYS_INLINE const uint8_t *tile_end(const tile_walk *t)
{
    return t->next[0] > t->next[1] ? t->next[0] : t->next[1];
}

ALWAYS_INLINE const uint8_t *expand_tile(const sparse_kind kind, const uint8_t *at, uint8_t *out)
{
    tile_walk t;
    tile_begin(&t, at);
    UNROLL
    for (int i = 0; i < 8; i++)
        _mm512_storeu_si512(out + 64 * i, tile_expand(kind, &t, i));
    return tile_end(&t);
}

/*
 * Ask for what a stream brings some tiles from now. To L1: two cores of Zen 4 multiply with M4 of
 * 50 % at 45 GB/s; 39 without, 36 to L2.
 */
ALWAYS_INLINE void fetch_ahead(const sparse_kind kind, const uint8_t *at)
{
    enum { AHEAD = 2048, LINE = 64 };
    const int n = kind == SPARSE_M8 ? 5 : 3;
    for (int i = 0; i < n; i++)
        __builtin_prefetch(at + AHEAD + LINE * i);
}

/* sums[i] = *start + the products of 32 bytes of activations with tile i of n; at[i]: the next. */
ALWAYS_INLINE void dot_tiles(const sparse_kind kind, const uint8_t *at[], const int n,
                             const uint8_t *x, const int32_t *start, vi *sums)
{
    tile_walk t[2];
    UNROLL
    for (int i = 0; i < n; i++) {
        fetch_ahead(kind, at[i]);
        tile_begin(&t[i], at[i]);
        sums[i] = broadcast_word((const uint8_t *)start);
    }
    UNROLL
    for (int k = 0; k < 8; k++) {
        vi four = broadcast_word(x + 4 * k);
        UNROLL
        for (int i = 0; i < n; i++)
            sums[i] = _mm512_dpbusd_epi32(sums[i], tile_expand(kind, &t[i], k), four);
    }
    UNROLL
    for (int i = 0; i < n; i++)
        at[i] = tile_end(&t[i]);
}

/*
 * One token. What bounds it, from 60 % zeros on, are the ports of Zen 4: of each 64 weights, moving
 * a mask, expanding and multiplying take 6 operations of 32 bytes that only ports 0 and 1 do, and
 * expanding and looking up 4 that only 1 and 2 do. So nothing else is left to these ports that can
 * be avoided: broadcasts come from memory, once for both panels, and scales, of which one is a
 * power of two, are multiplied by adding their bits. 31 cycles a tile, was 34.
 */
#define SPARSE_HAS_PANELS 1
ALWAYS_INLINE void dot_panels(const sparse_kind kind, const uint8_t *const panels[], const int n,
                              const uint8_t *x, int64_t n_cols, const int32_t *starts, vf *f)
{
    const uint8_t *x_scales = (const uint8_t *)act_q8_scales(x, n_cols);
    const uint8_t *at[2];
    for (int i = 0; i < n; i++) {
        at[i] = panels[i];
        f[i] = v_set(0);
    }
    for (int64_t col = 0; col < n_cols; col += SPARSE_GROUP) {
        int64_t end = n_cols - col < SPARSE_GROUP ? n_cols : col + SPARSE_GROUP;
        vi scales[2];
        UNROLL
        for (int i = 0; i < n; i++) {
            scales[i] = scale_bits(at[i]);
            at[i] += SPARSE_PANEL;
        }
        for (int64_t tile = col; tile < end; tile += SPARSE_TILE) {
            vi sums[2], exponent = broadcast_word(x_scales + tile / 8);
            dot_tiles(kind, at, n, x + tile, starts + tile / 32, sums);
            UNROLL
            for (int i = 0; i < n; i++) {
                vf scale = _mm512_castsi512_ps(_mm512_add_epi32(scales[i], exponent));
                f[i] = v_fma(floats_from_words(sums[i]), scale, f[i]);
            }
        }
    }
}

#endif
