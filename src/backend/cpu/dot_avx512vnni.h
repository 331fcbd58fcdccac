/* Sums of products of bytes, AVX-512 VNNI. What each word means is said in dot_avx2.h. */
#ifndef LACE_BACKEND_CPU_DOT_AVX512VNNI_H
#define LACE_BACKEND_CPU_DOT_AVX512VNNI_H

#include "backend/cpu/tile_avx512.h"

ALWAYS_INLINE vi dot_bytes(vi sum, vi w, vi x, const int most)
{
    return _mm512_dpbusd_epi32(sum, w, x);
}

#include "backend/cpu/dot_vnni.h"

#endif
