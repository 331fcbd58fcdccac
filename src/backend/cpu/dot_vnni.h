/*
 * dot_words for the levels whose dot_bytes is one instruction: vpdpbusd. A part of dot_avx2vnni.h
 * and dot_avx512vnni.h.
 */
#ifndef LACE_BACKEND_CPU_DOT_VNNI_H
#define LACE_BACKEND_CPU_DOT_VNNI_H

ALWAYS_INLINE vi dot_words(vi start, const vi *w, const uint8_t *x, const int n, const int most)
{
    /* Two sums, for half the latency. */
    vi a = start, b = zero_words();
    UNROLL
    for (int i = 0; i < n / 2; i++) {
        a = dot_bytes(a, w[i], broadcast_word(x + 4 * i), most);
        b = dot_bytes(b, w[n / 2 + i], broadcast_word(x + 4 * (n / 2 + i)), most);
    }
    return MM(add_epi32)(a, b);
}

#endif
