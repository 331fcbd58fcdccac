/* Products with F32, F16 and BF16, AVX-512: 32 rows by 12 tokens in registers. */
#include "backend/cpu/vec_avx512.h"

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
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

#define FLOAT_LEVEL  avx512
#define FLOAT_TOKENS 12

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
