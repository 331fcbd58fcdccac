/* The words that unpack_trellis_tmpl.h is written in, for AVX-512 VNNI. */
#ifndef LACE_BACKEND_CPU_TRELLIS_AVX512_H
#define LACE_BACKEND_CPU_TRELLIS_AVX512_H

#include "backend/cpu/tile_avx512.h"
#include "tensor/trellis.h"

/* 16 bits of each row's stream, `at` bits from the start of `word`; `next` is the word after. */
ALWAYS_INLINE vi trellis_window(vi word, vi next, const int at)
{
    const vi mask = _mm512_set1_epi32(0xffff);
    if (at == 16)
        return _mm512_srli_epi32(word, 16);
    if (at < 16)
        return _mm512_and_si512(_mm512_srli_epi32(word, (unsigned)at), mask);
    vi low = _mm512_srli_epi32(word, (unsigned)at), high = _mm512_slli_epi32(next, 32 - at);
    return _mm512_ternarylogic_epi32(low, high, mask, 0xa8); /* (low | high) & mask */
}

/* trellis_level() of a window, with 128 added, in byte 1; byte 0 is anything. */
ALWAYS_INLINE vi trellis_byte(vi window)
{
    vi product = _mm512_mullo_epi32(window, _mm512_set1_epi32((int)TRELLIS_FACTOR));
    return _mm512_dpbusd_epi32(_mm512_set1_epi32(192), product, _mm512_set1_epi8(64));
}

/* Four columns of windows to a vector of words. */
ALWAYS_INLINE vi trellis_levels(vi a, vi b, vi c, vi d)
{
    const vi mask = _mm512_set1_epi32(0xff00);
    vi ab = _mm512_srli_epi32(trellis_byte(a), 8), cd = _mm512_srli_epi32(trellis_byte(c), 8);
    ab = _mm512_ternarylogic_epi32(trellis_byte(b), mask, ab, 0xea); /* (b & mask) | ab */
    cd = _mm512_ternarylogic_epi32(trellis_byte(d), mask, cd, 0xea);
    return _mm512_or_si512(ab, _mm512_slli_epi32(cd, 16));
}

#endif
