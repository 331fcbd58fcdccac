/* Attention for AVX-512. */
#include "backend/cpu/vec_avx512.h"
#include "backend/cpu/vec_math.h"

#define FN(name) name##_avx512
#include "backend/cpu/attend_tmpl.c"
