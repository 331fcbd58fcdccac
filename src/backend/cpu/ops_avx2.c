/* The operations on rows, rope and the cache for AVX2. */
#include "backend/cpu/vec_avx2.h"
#include "backend/cpu/vec_math.h"

#define FN(name) name##_avx2
#include "backend/cpu/rows_tmpl.c"
#include "backend/cpu/rope_tmpl.c"
