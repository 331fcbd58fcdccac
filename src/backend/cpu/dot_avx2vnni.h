/* Sums of products of bytes, AVX2 with AVX-VNNI. What each word means is said in dot_avx2.h. */
#ifndef LACE_BACKEND_CPU_DOT_AVX2VNNI_H
#define LACE_BACKEND_CPU_DOT_AVX2VNNI_H

#include "backend/cpu/tile_avx2.h"

ALWAYS_INLINE vi dot_bytes(vi sum, vi w, vi x, const int most)
{
    return _mm256_dpbusd_avx_epi32(sum, w, x);
}

#include "backend/cpu/dot_vnni.h"

#endif
