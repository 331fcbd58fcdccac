/* Arithmetic of the software card: additions, products, quotients, minima, logic and shifts. */
#include <math.h>
#include <string.h>

#include "ptx_half.h"
#include "ptx_op.h"

/* ---- What expressions below call ------------------------------------------------------------- */

static inline float as_f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* What is not a number loses; -0 is below 0. */
static inline float min_f32(float x, float y)
{
    float both = as_f32(bits_of(x) | bits_of(y));
    float least = x < y ? x : y < x ? y : both;
    return y != y ? x : x != x ? y : least;
}

static inline float max_f32(float x, float y)
{
    float both = as_f32(bits_of(x) & bits_of(y));
    float most = x > y ? x : y > x ? y : both;
    return y != y ? x : x != x ? y : most;
}

/* Numbers below the normal ones are taken as 0. */
static inline float flushed(float x)
{
    uint32_t bits = bits_of(x);
    return bits & 0x7F800000u ? x : as_f32(bits & 0x80000000u);
}

/* 2^x in double: a Taylor series of 2^f for f in [-1/2, 1/2], and the exponent. */
static inline float exp2_f32(float x)
{
    double at = x < -160.0F ? -160.0 : x > 160.0F ? 160.0 : (double)x;
    double whole = rint(at), f = (at - whole) * 0.693147180559945309417;
    double p = 1.0 / 362880;
    p = p * f + 1.0 / 40320;
    p = p * f + 1.0 / 5040;
    p = p * f + 1.0 / 720;
    p = p * f + 1.0 / 120;
    p = p * f + 1.0 / 24;
    p = p * f + 1.0 / 6;
    p = p * f + 0.5;
    p = p * f + 1;
    p = p * f + 1;
    union {
        uint64_t bits;
        double x;
    } power = {.bits = (uint64_t)((int64_t)whole + 1023) << 52};
    float y = (float)(p * power.x);
    return x != x ? x : y;
}

static inline int32_t div_s32(int32_t x, int32_t y)
{
    return y == 0 ? -1 : y == -1 ? (int32_t)(0u - (uint32_t)x) : x / y;
}

static inline int32_t rem_s32(int32_t x, int32_t y)
{
    return y == 0 ? x : y == -1 ? 0 : x % y;
}

static inline int64_t div_s64(int64_t x, int64_t y)
{
    return y == 0 ? -1 : y == -1 ? (int64_t)(0u - (uint64_t)x) : x / y;
}

static inline int64_t rem_s64(int64_t x, int64_t y)
{
    return y == 0 ? x : y == -1 ? 0 : x % y;
}

static inline uint64_t high_u64(uint64_t x, uint64_t y)
{
    __extension__ typedef unsigned __int128 u128;
    return (uint64_t)((u128)x * y >> 64);
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* name, function, signature, types of the result and of x, y, z, and the result. */
#define MATH_LIST(X)                                                                               \
    X("add.f32", add_f32, "rrr", f32, f32, f32, f32, x + y)                                        \
    X("add.rn.f32", add_rn_f32, "rrr", f32, f32, f32, f32, x + y)                                  \
    X("add.ftz.f32", add_ftz_f32, "rrr", f32, f32, f32, f32, flushed(flushed(x) + flushed(y)))     \
    X("add.f64", add_f64, "lll", f64, f64, f64, f64, x + y)                                        \
    X("add.rn.f64", add_rn_f64, "lll", f64, f64, f64, f64, x + y)                                  \
    X("add.s16", add_s16, "rrr", u32, u32, u32, u32, (uint16_t)(x + y))                            \
    X("add.u16", add_u16, "rrr", u32, u32, u32, u32, (uint16_t)(x + y))                            \
    X("add.s32", add_s32, "rrr", u32, u32, u32, u32, x + y)                                        \
    X("add.u32", add_u32, "rrr", u32, u32, u32, u32, x + y)                                        \
    X("add.s64", add_s64, "lll", u64, u64, u64, u64, x + y)                                        \
    X("add.u64", add_u64, "lll", u64, u64, u64, u64, x + y)                                        \
    X("sub.f32", sub_f32, "rrr", f32, f32, f32, f32, x - y)                                        \
    X("sub.rn.f32", sub_rn_f32, "rrr", f32, f32, f32, f32, x - y)                                  \
    X("sub.f64", sub_f64, "lll", f64, f64, f64, f64, x - y)                                        \
    X("sub.s16", sub_s16, "rrr", u32, u32, u32, u32, (uint16_t)(x - y))                            \
    X("sub.s32", sub_s32, "rrr", u32, u32, u32, u32, x - y)                                        \
    X("sub.u32", sub_u32, "rrr", u32, u32, u32, u32, x - y)                                        \
    X("sub.s64", sub_s64, "lll", u64, u64, u64, u64, x - y)                                        \
    X("sub.u64", sub_u64, "lll", u64, u64, u64, u64, x - y)                                        \
    X("mul.f32", mul_f32, "rrr", f32, f32, f32, f32, x *y)                                         \
    X("mul.rn.f32", mul_rn_f32, "rrr", f32, f32, f32, f32, x *y)                                   \
    X("mul.ftz.f32", mul_ftz_f32, "rrr", f32, f32, f32, f32, flushed(flushed(x) * flushed(y)))     \
    X("mul.f64", mul_f64, "lll", f64, f64, f64, f64, x *y)                                         \
    X("mul.rn.f64", mul_rn_f64, "lll", f64, f64, f64, f64, x *y)                                   \
    X("mul.lo.s16", mul_lo_s16, "rrr", u32, u32, u32, u32, (uint16_t)(x * y))                      \
    X("mul.lo.u16", mul_lo_u16, "rrr", u32, u32, u32, u32, (uint16_t)(x * y))                      \
    X("mul.lo.s32", mul_lo_s32, "rrr", u32, u32, u32, u32, x *y)                                   \
    X("mul.lo.u32", mul_lo_u32, "rrr", u32, u32, u32, u32, x *y)                                   \
    X("mul.lo.s64", mul_lo_s64, "lll", u64, u64, u64, u64, x *y)                                   \
    X("mul.lo.u64", mul_lo_u64, "lll", u64, u64, u64, u64, x *y)                                   \
    X("mul.hi.s32", mul_hi_s32, "rrr", u32, s32, s32, s32, (uint32_t)((int64_t)x * y >> 32))       \
    X("mul.hi.u32", mul_hi_u32, "rrr", u32, u32, u32, u32, (uint32_t)((uint64_t)x * y >> 32))      \
    X("mul.hi.u64", mul_hi_u64, "lll", u64, u64, u64, u64, high_u64(x, y))                         \
    X("mul.wide.s16", mul_wide_s16, "rrr", u32, u32, u32, u32,                                     \
      (uint32_t)((int16_t)x * (int16_t)y))                                                         \
    X("mul.wide.u16", mul_wide_u16, "rrr", u32, u32, u32, u32, (x & 0xFFFF) * (y & 0xFFFF))        \
    X("mul.wide.s32", mul_wide_s32, "lrr", u64, s32, s32, s32, (uint64_t)((int64_t)x * y))         \
    X("mul.wide.u32", mul_wide_u32, "lrr", u64, u32, u32, u32, (uint64_t)x *y)                     \
    X("mad.lo.s32", mad_lo_s32, "rrrr", u32, u32, u32, u32, x *y + z)                              \
    X("mad.lo.u32", mad_lo_u32, "rrrr", u32, u32, u32, u32, x *y + z)                              \
    X("mad.lo.s64", mad_lo_s64, "llll", u64, u64, u64, u64, x *y + z)                              \
    X("mad.lo.u64", mad_lo_u64, "llll", u64, u64, u64, u64, x *y + z)                              \
    X("mad.lo.s16", mad_lo_s16, "rrrr", u32, u32, u32, u32, (uint16_t)(x * y + z))                 \
    X("mad.wide.s32", mad_wide_s32, "lrrl", u64, s32, s32, u64, (uint64_t)((int64_t)x * y) + z)    \
    X("mad.wide.u32", mad_wide_u32, "lrrl", u64, u32, u32, u64, (uint64_t)x *y + z)                \
    X("fma.rn.f32", fma_rn_f32, "rrrr", f32, f32, f32, f32, __builtin_fmaf(x, y, z))               \
    X("fma.rn.ftz.f32", fma_rn_ftz_f32, "rrrr", f32, f32, f32, f32,                                \
      flushed(__builtin_fmaf(flushed(x), flushed(y), flushed(z))))                                 \
    X("fma.rn.f64", fma_rn_f64, "llll", f64, f64, f64, f64, __builtin_fma(x, y, z))                \
    X("div.rn.f32", div_rn_f32, "rrr", f32, f32, f32, f32, x / y)                                  \
    X("div.approx.f32", div_approx_f32, "rrr", f32, f32, f32, f32, x / y)                          \
    X("div.full.f32", div_full_f32, "rrr", f32, f32, f32, f32, x / y)                              \
    X("div.rn.f64", div_rn_f64, "lll", f64, f64, f64, f64, x / y)                                  \
    X("div.s32", div_s32_op, "rrr", s32, s32, s32, s32, div_s32(x, y))                             \
    X("div.u32", div_u32, "rrr", u32, u32, u32, u32, y ? x / y : ~0u)                              \
    X("div.s64", div_s64_op, "lll", s64, s64, s64, s64, div_s64(x, y))                             \
    X("div.u64", div_u64, "lll", u64, u64, u64, u64, y ? x / y : ~(uint64_t)0)                     \
    X("rem.s32", rem_s32_op, "rrr", s32, s32, s32, s32, rem_s32(x, y))                             \
    X("rem.u32", rem_u32, "rrr", u32, u32, u32, u32, y ? x % y : x)                                \
    X("rem.s64", rem_s64_op, "lll", s64, s64, s64, s64, rem_s64(x, y))                             \
    X("rem.u64", rem_u64, "lll", u64, u64, u64, u64, y ? x % y : x)                                \
    X("abs.f32", abs_f32, "rr", u32, u32, u32, u32, x & 0x7FFFFFFFu)                               \
    X("abs.f64", abs_f64, "ll", u64, u64, u64, u64, x & ~((uint64_t)1 << 63))                      \
    X("abs.s32", abs_s32, "rr", u32, s32, s32, s32, x < 0 ? 0u - (uint32_t)x : (uint32_t)x)        \
    X("abs.s64", abs_s64, "ll", u64, s64, s64, s64, x < 0 ? 0u - (uint64_t)x : (uint64_t)x)        \
    X("neg.f32", neg_f32, "rr", u32, u32, u32, u32, x ^ 0x80000000u)                               \
    X("neg.f64", neg_f64, "ll", u64, u64, u64, u64, x ^ (uint64_t)1 << 63)                         \
    X("neg.s32", neg_s32, "rr", u32, u32, u32, u32, 0u - x)                                        \
    X("neg.s64", neg_s64, "ll", u64, u64, u64, u64, 0u - x)                                        \
    X("neg.s16", neg_s16, "rr", u32, u32, u32, u32, (uint16_t)(0u - x))                            \
    X("copysign.f32", copysign_f32, "rrr", u32, u32, u32, u32,                                     \
      (x & 0x80000000u) | (y & 0x7FFFFFFFu))                                                       \
    X("min.f32", min_f32_op, "rrr", f32, f32, f32, f32, min_f32(x, y))                             \
    X("max.f32", max_f32_op, "rrr", f32, f32, f32, f32, max_f32(x, y))                             \
    X("min.f64", min_f64, "lll", f64, f64, f64, f64, fmin(x, y))                                   \
    X("max.f64", max_f64, "lll", f64, f64, f64, f64, fmax(x, y))                                   \
    X("min.s32", min_s32, "rrr", s32, s32, s32, s32, x < y ? x : y)                                \
    X("max.s32", max_s32, "rrr", s32, s32, s32, s32, x > y ? x : y)                                \
    X("min.u32", min_u32, "rrr", u32, u32, u32, u32, x < y ? x : y)                                \
    X("max.u32", max_u32, "rrr", u32, u32, u32, u32, x > y ? x : y)                                \
    X("min.s64", min_s64, "lll", s64, s64, s64, s64, x < y ? x : y)                                \
    X("max.s64", max_s64, "lll", s64, s64, s64, s64, x > y ? x : y)                                \
    X("min.u64", min_u64, "lll", u64, u64, u64, u64, x < y ? x : y)                                \
    X("max.u64", max_u64, "lll", u64, u64, u64, u64, x > y ? x : y)                                \
    X("min.s16", min_s16, "rrr", u32, u32, u32, u32, (int16_t)x < (int16_t)y ? x : y)              \
    X("max.s16", max_s16, "rrr", u32, u32, u32, u32, (int16_t)x > (int16_t)y ? x : y)              \
    X("min.u16", min_u16, "rrr", u32, u32, u32, u32, x < y ? x : y)                                \
    X("max.u16", max_u16, "rrr", u32, u32, u32, u32, x > y ? x : y)                                \
    X("ex2.approx.f32", ex2_f32, "rr", f32, f32, f32, f32, exp2_f32(x))                            \
    X("ex2.approx.ftz.f32", ex2_ftz_f32, "rr", f32, f32, f32, f32, flushed(exp2_f32(flushed(x))))  \
    X("rcp.rn.f32", rcp_rn_f32, "rr", f32, f32, f32, f32, 1.0F / x)                                \
    X("rcp.approx.ftz.f32", rcp_ftz_f32, "rr", f32, f32, f32, f32, flushed(1.0F / flushed(x)))     \
    X("rcp.approx.f32", rcp_f32, "rr", f32, f32, f32, f32, 1.0F / x)                               \
    X("rcp.rn.f64", rcp_rn_f64, "ll", f64, f64, f64, f64, 1.0 / x)                                 \
    X("rsqrt.approx.f32", rsqrt_f32, "rr", f32, f32, f32, f32, (float)(1.0 / sqrt((double)x)))     \
    X("rsqrt.approx.ftz.f32", rsqrt_ftz_f32, "rr", f32, f32, f32, f32,                             \
      flushed((float)(1.0 / sqrt((double)flushed(x)))))                                            \
    X("sqrt.rn.f32", sqrt_rn_f32, "rr", f32, f32, f32, f32, __builtin_sqrtf(x))                    \
    X("sqrt.approx.f32", sqrt_f32, "rr", f32, f32, f32, f32, __builtin_sqrtf(x))                   \
    X("sqrt.rn.f64", sqrt_rn_f64, "ll", f64, f64, f64, f64, __builtin_sqrt(x))                     \
    X("fma.rn.f16x2", fma_f16x2, "rrrr", u32, u32, u32, u32, half_fma_2(x, y, z))                  \
    X("mul.f16x2", mul_f16x2, "rrr", u32, u32, u32, u32, HALF_2(*))                                \
    X("mul.rn.f16x2", mul_rn_f16x2, "rrr", u32, u32, u32, u32, HALF_2(*))                          \
    X("add.f16x2", add_f16x2, "rrr", u32, u32, u32, u32, HALF_2(+))                                \
    X("add.rn.f16x2", add_rn_f16x2, "rrr", u32, u32, u32, u32, HALF_2(+))                          \
    X("sub.f16x2", sub_f16x2, "rrr", u32, u32, u32, u32, HALF_2(-))                                \
    X("sub.rn.f16x2", sub_rn_f16x2, "rrr", u32, u32, u32, u32, HALF_2(-))                          \
    X("fma.rn.bf16x2", fma_bf16x2, "rrrr", u32, u32, u32, u32, bf16_fma_2(x, y, z))                \
    X("add.bf16x2", add_bf16x2, "rrr", u32, u32, u32, u32, bf16_fma_2(x, 0x3F803F80, y))           \
    X("add.rn.bf16x2", add_rn_bf16x2, "rrr", u32, u32, u32, u32, bf16_fma_2(x, 0x3F803F80, y))     \
    X("sub.bf16x2", sub_bf16x2, "rrr", u32, u32, u32, u32, bf16_fma_2(y, 0xBF80BF80, x))           \
    X("sub.rn.bf16x2", sub_rn_bf16x2, "rrr", u32, u32, u32, u32, bf16_fma_2(y, 0xBF80BF80, x))

/* The same operation for both halves of x and y: in f32 it is exact, or rounded without harm. */
#define HALF_2(op)                                                                                 \
    (half_of(half_to_f32(x) op half_to_f32(y)) |                                                   \
     half_of(half_to_f32(x >> 16) op half_to_f32(y >> 16)) << 16)

DEFINE_OPERATIONS(MATH_LIST)
const op_entry math_ops[] = {MATH_LIST(OP_ENTRY){NULL, NULL, NULL}};
