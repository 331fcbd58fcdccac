/* Attention for AVX2. */
#include "backend/cpu/vec_avx2.h"
#include "backend/cpu/vec_math.h"

#define FN(name) name##_avx2
#include "backend/cpu/attend_tmpl.c"
