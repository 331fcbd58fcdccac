/* Attention for AVX-512 VNNI: prompts in fixed point. */
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/vec_math.h"

#define ATTEND_HAS_WORDS
#define FN(name) name##_avx512vnni
#include "kernels/cpu/attend_tmpl.h"
