/* The operations on rows, rope and the cache for AVX2. */
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/vec_math.h"

#define FN(name) name##_avx2
#include "kernels/cpu/rows_tmpl.h"
#include "kernels/cpu/rope_tmpl.h"
