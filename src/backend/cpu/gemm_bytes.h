/*
 * Many tokens with weights of few bits: panels are decoded to bytes with one scale for 256 columns.
 * A part of matmul_quant_tmpl.h, for the types that define TILE_BITS.
 *
 * Scales and mins of 16 or 32 columns cost a product more for each 32 of them, mins another one;
 * multiplied into the weights, which are rounded to 8 bits of the largest of 256, they cost nothing
 * (gemm_avx512vnni.h). That is off by 4e-5 of the squares, as much as activations of 8 bits are,
 * and one part in 100 of what 4 bits or less have lost before. One core of Zen 4, GMAC/s: Q4_K 186
 * -> 218, Q2_K 150 -> 218.
 */
#ifndef LACE_BACKEND_CPU_GEMM_BYTES_H
#define LACE_BACKEND_CPU_GEMM_BYTES_H

/* Fewer tokens do not repay that decoding takes twice as long. */
enum { BYTES_TOKENS = 128, BYTES_GROUPS = 8, BYTES_MOST = 127 };

static int64_t bytes_panel_bytes(int64_t n_cols)
{
    int64_t n_groups = n_cols / 32;
    return n_groups * 512 + (n_groups + BYTES_GROUPS - 1) / BYTES_GROUPS * 64;
}

/* A number of 16 bits for each row, twice in its word. */
ALWAYS_INLINE vi pair_of_words(vf x)
{
    vi word = _mm512_and_si512(_mm512_cvtps_epi32(x), _mm512_set1_epi32(0xffff));
    return _mm512_or_si512(word, _mm512_slli_epi32(word, 16));
}

/*
 * n vectors of bytes become (byte * factor + start) / 64. Shifted left by `left`, a byte has its
 * highest bit at 14; a factor is of 2^15 of these.
 */
ALWAYS_INLINE void round_words(const vi *w, const int n, int left, vi factor, vi start,
                               uint8_t *out)
{
    const __m128i count = _mm_cvtsi32_si128(left);
    const vi low = _mm512_set1_epi16(0xff), high = _mm512_set1_epi16((short)0xff00);
    UNROLL
    for (int i = 0; i < n; i++) {
        vi even = _mm512_sll_epi16(_mm512_and_si512(w[i], low), count);
        vi odd = _mm512_sll_epi16(_mm512_srli_epi16(w[i], 8), count);
        even = _mm512_add_epi16(_mm512_mulhrs_epi16(even, factor), start);
        odd = _mm512_add_epi16(_mm512_mulhrs_epi16(odd, factor), start);
        even = _mm512_srli_epi16(even, 6);
        odd = _mm512_slli_epi16(odd, 2);
        _mm512_storeu_si512(out + 64 * i, _mm512_ternarylogic_epi32(high, odd, even, 0xca));
    }
}

#endif
