/* Attention for Advanced SIMD. */
#include "backend/cpu/vec_neon.h"
#include "backend/cpu/vec_math.h"

#define FN(name) name##_neon
#include "backend/cpu/attend_tmpl.c"
