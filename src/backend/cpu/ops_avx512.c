/* The operations on rows, rope and the cache for AVX-512. */
#include "backend/cpu/vec_avx512.h"
#include "backend/cpu/vec_math.h"

#define FN(name) name##_avx512
#include "backend/cpu/rows_tmpl.c"
#include "backend/cpu/rope_tmpl.c"
