/* Products with F32, F16 and BF16, AVX2: 16 rows by 6 tokens in registers. */
#include "backend/cpu/vec_avx2.h"

static inline vf load_f32(const uint8_t *at)
{
    return v_load((const float *)at);
}

static inline vf load_f16(const uint8_t *at)
{
    return v_load_f16(at);
}

static inline vf load_bf16(const uint8_t *at)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

#define FLOAT_LEVEL  avx2
#define FLOAT_TOKENS 6

#define FLOAT_TYPE  f32
#define FLOAT_BYTES 4
#define FLOAT_LOAD  load_f32
#include "backend/cpu/matmul_float_tmpl.h"

#define FLOAT_TYPE  f16
#define FLOAT_BYTES 2
#define FLOAT_LOAD  load_f16
#include "backend/cpu/matmul_float_tmpl.h"

#define FLOAT_TYPE  bf16
#define FLOAT_BYTES 2
#define FLOAT_LOAD  load_bf16
#include "backend/cpu/matmul_float_tmpl.h"
