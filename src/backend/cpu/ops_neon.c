/* The operations on rows, rope and the cache for Advanced SIMD. */
#include "backend/cpu/vec_neon.h"
#include "backend/cpu/vec_math.h"

#define FN(name) name##_neon
#include "backend/cpu/rows_tmpl.c"
#include "backend/cpu/rope_tmpl.c"
