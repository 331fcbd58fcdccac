/* Attention for AVX-512 VNNI: prompts in fixed point. */
#include "backend/cpu/vec_avx512.h"
#include "backend/cpu/vec_math.h"

#define ATTEND_HAS_WORDS
#define FN(name) name##_avx512vnni
#include "backend/cpu/attend_tmpl.c"
