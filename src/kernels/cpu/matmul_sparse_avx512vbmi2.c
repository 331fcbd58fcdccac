/* Products with sparse matrices, AVX-512 with VBMI2: vpexpandb puts 64 values into their places. */
#include "kernels/cpu/dot_avx512vnni.h"

#include "tensor/sparse.h"

#define SPARSE_LEVEL avx512vbmi2
#include "kernels/cpu/sparse_mask.h"

/*
 * The levels for vpermb, which takes the 6 lowest bits of an index: four times the same 16, so that
 * the two bits above a nibble may be anything.
 */
ALWAYS_INLINE __m512i level_table(void)
{
    __m128i levels = _mm_loadu_si128((const __m128i *)SPARSE_LEVELS);
    return _mm512_broadcast_i32x4(_mm_add_epi8(levels, _mm_set1_epi8((char)128)));
}

/* To registers; one token needs no more. Through memory it took half as long again on Zen 4. */
#define SPARSE_HAS_WORDS 1
ALWAYS_INLINE const uint8_t *expand_words(const sparse_kind kind, const uint8_t *at, vi words[8])
{
    const __m512i zero = _mm512_set1_epi8((char)128), levels = level_table();
    const uint8_t *values = at + 64;
    uint64_t n[2] = {0, 0};
    UNROLL
    for (int i = 0; i < 8; i++) {
        uint64_t mask = mask_at(at, i), *before = &n[kind == SPARSE_M8 ? 0 : i / 4];
        __m512i w = _mm512_loadu_si512(values + *before);
        if (kind == SPARSE_M8)
            w = _mm512_xor_si512(w, zero);
        else
            w = _mm512_permutexvar_epi8(i < 4 ? w : _mm512_srli_epi16(w, 4), levels);
        words[i] = _mm512_mask_expand_epi8(zero, mask, w);
        *before += (uint64_t)_mm_popcnt_u64(mask);
    }
    return values + (n[0] > n[1] ? n[0] : n[1]);
}

ALWAYS_INLINE const uint8_t *expand_tile(const sparse_kind kind, const uint8_t *at, uint8_t *out)
{
    vi words[8];
    at = expand_words(kind, at, words);
    for (int i = 0; i < 8; i++)
        _mm512_storeu_si512(out + 64 * i, words[i]);
    return at;
}

#include "kernels/cpu/matmul_sparse_tmpl.h"
