/* The operations on rows, rope and the cache for Advanced SIMD. */
#include "kernels/cpu/vec_neon.h"
#include "kernels/cpu/vec_math.h"

#define FN(name) name##_neon
#include "kernels/cpu/rows_tmpl.h"
#include "kernels/cpu/rope_tmpl.h"
