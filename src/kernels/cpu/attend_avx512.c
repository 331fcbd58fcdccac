/* Attention for AVX-512. */
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/vec_math.h"

#define FN(name) name##_avx512
#include "kernels/cpu/attend_tmpl.h"
