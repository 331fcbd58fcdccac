/* Products with F32, F16 and BF16, Advanced SIMD: 16 rows by 6 tokens in registers. */
#include "backend/cpu/vec_neon.h"

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
    uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(at));
    return (vf){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(x, 16))};
}

#define FLOAT_LEVEL  neon
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
