/* Attention for Advanced SIMD. */
#include "kernels/cpu/vec_neon.h"
#include "kernels/cpu/vec_math.h"

#define FN(name) name##_neon
#include "kernels/cpu/attend_tmpl.h"
