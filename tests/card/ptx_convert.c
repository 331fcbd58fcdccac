/* Conversions between types of numbers. */
#include <math.h>

#include "ptx_half.h"
#include "ptx_op.h"

/* To integers numbers are held to what these can be; what is not a number becomes 0. */
static inline int32_t held_s32(float x)
{
    int32_t r = x >= 2147483648.0F ? INT32_MAX : x < -2147483648.0F ? INT32_MIN : (int32_t)x;
    return x != x ? 0 : r;
}

static inline uint32_t held_u32(float x)
{
    double at = (double)x;
    return at >= 4294967295.0 ? UINT32_MAX : at > 0 ? (uint32_t)at : 0;
}

static inline int64_t held_s64(double x)
{
    return x >= 0x1p63 ? INT64_MAX : x >= -0x1p63 ? (int64_t)x : INT64_MIN;
}

static inline float held_unit(float x)
{
    return x > 1 ? 1 : x > 0 ? x : 0;
}

#define CONVERT_LIST(X)                                                                            \
    X("cvt.f32.f16", f32_f16, "rr", f32, u32, u32, u32, half_to_f32(x))                            \
    X("cvt.f32.bf16", f32_bf16, "rr", f32, u32, u32, u32, bf16_to_f32(x))                          \
    X("cvt.f64.f32", f64_f32, "lr", f64, f32, u32, u32, (f64)x)                                    \
    X("cvt.rn.f32.f64", f32_f64, "rl", f32, f64, u32, u32, (f32)x)                                 \
    X("cvt.rn.f16.f32", f16_f32, "rr", u32, f32, u32, u32, half_of(x))                             \
    X("cvt.rn.f16x2.f32", f16x2_f32, "rrr", u32, f32, f32, u32, half_of(x) << 16 | half_of(y))     \
    X("cvt.rn.bf16.f32", bf16_f32, "rr", u32, f32, u32, u32, bf16_of(x))                           \
    X("cvt.rn.bf16x2.f32", bf16x2_f32, "rrr", u32, f32, f32, u32, bf16_of(x) << 16 | bf16_of(y))   \
    X("cvt.rn.f32.s8", f32_s8, "rr", f32, u32, u32, u32, (f32)(int8_t)x)                           \
    X("cvt.rn.f32.u8", f32_u8, "rr", f32, u32, u32, u32, (f32)(uint8_t)x)                          \
    X("cvt.rn.f32.s16", f32_s16, "rr", f32, u32, u32, u32, (f32)(int16_t)x)                        \
    X("cvt.rn.f32.u16", f32_u16, "rr", f32, u32, u32, u32, (f32)(uint16_t)x)                       \
    X("cvt.rn.f32.s32", f32_s32, "rr", f32, s32, u32, u32, (f32)x)                                 \
    X("cvt.rn.f32.u32", f32_u32, "rr", f32, u32, u32, u32, (f32)x)                                 \
    X("cvt.rn.f32.s64", f32_s64, "rl", f32, s64, u32, u32, (f32)x)                                 \
    X("cvt.rn.f32.u64", f32_u64, "rl", f32, u64, u32, u32, (f32)x)                                 \
    X("cvt.rn.f64.s32", f64_s32, "lr", f64, s32, u32, u32, (f64)x)                                 \
    X("cvt.rn.f64.u32", f64_u32, "lr", f64, u32, u32, u32, (f64)x)                                 \
    X("cvt.rn.f64.s64", f64_s64, "ll", f64, s64, u32, u32, (f64)x)                                 \
    X("cvt.rn.f64.u64", f64_u64, "ll", f64, u64, u32, u32, (f64)x)                                 \
    X("cvt.rni.f32.f32", rni_f32, "rr", f32, f32, u32, u32, __builtin_rintf(x))                    \
    X("cvt.rzi.f32.f32", rzi_f32, "rr", f32, f32, u32, u32, __builtin_truncf(x))                   \
    X("cvt.rmi.f32.f32", rmi_f32, "rr", f32, f32, u32, u32, __builtin_floorf(x))                   \
    X("cvt.rpi.f32.f32", rpi_f32, "rr", f32, f32, u32, u32, __builtin_ceilf(x))                    \
    X("cvt.rni.s32.f32", rni_s32, "rr", s32, f32, u32, u32, held_s32(__builtin_rintf(x)))          \
    X("cvt.rzi.s32.f32", rzi_s32, "rr", s32, f32, u32, u32, held_s32(x))                           \
    X("cvt.rmi.s32.f32", rmi_s32, "rr", s32, f32, u32, u32, held_s32(__builtin_floorf(x)))         \
    X("cvt.rpi.s32.f32", rpi_s32, "rr", s32, f32, u32, u32, held_s32(__builtin_ceilf(x)))          \
    X("cvt.rzi.u32.f32", rzi_u32, "rr", u32, f32, u32, u32, held_u32(x))                           \
    X("cvt.rni.u32.f32", rni_u32, "rr", u32, f32, u32, u32, held_u32(__builtin_rintf(x)))          \
    X("cvt.rzi.s64.f64", rzi_s64, "ll", s64, f64, u32, u32, held_s64(x))                           \
    X("cvt.rni.s64.f64", rni_s64, "ll", s64, f64, u32, u32, held_s64(__builtin_rint(x)))           \
    X("cvt.rzi.s32.f64", rzi_s32_f64, "rl", s32, f64, u32, u32,                                    \
      x >= 0x1p31    ? INT32_MAX                                                                   \
      : x >= -0x1p31 ? (s32)x                                                                      \
                     : INT32_MIN)                                                                  \
    X("cvt.rni.s32.f64", rni_s32_f64, "rl", s32, f64, u32, u32,                                    \
      x >= 0x1p31    ? INT32_MAX                                                                   \
      : x >= -0x1p31 ? (s32)__builtin_rint(x)                                                      \
                     : INT32_MIN)                                                                  \
    X("cvt.sat.f32.f32", sat_f32, "rr", f32, f32, u32, u32, held_unit(x))                          \
    X("cvt.s16.s8", s16_s8, "rr", u32, u32, u32, u32, (uint16_t)(int16_t)(int8_t)x)                \
    X("cvt.u16.u8", u16_u8, "rr", u32, u32, u32, u32, (uint8_t)x)                                  \
    X("cvt.u16.u32", u16_u32, "rr", u32, u32, u32, u32, (uint16_t)x)                               \
    X("cvt.u16.u64", u16_u64, "rl", u32, u64, u32, u32, (uint16_t)x)                               \
    X("cvt.s32.s8", s32_s8, "rr", u32, u32, u32, u32, (u32)(int8_t)x)                              \
    X("cvt.u32.u8", u32_u8, "rr", u32, u32, u32, u32, (uint8_t)x)                                  \
    X("cvt.s32.s16", s32_s16, "rr", u32, u32, u32, u32, (u32)(int16_t)x)                           \
    X("cvt.u32.u16", u32_u16, "rr", u32, u32, u32, u32, (uint16_t)x)                               \
    X("cvt.u32.u64", u32_u64, "rl", u32, u64, u32, u32, (u32)x)                                    \
    X("cvt.s64.s8", s64_s8, "lr", u64, u32, u32, u32, (u64)(int8_t)x)                              \
    X("cvt.s64.s16", s64_s16, "lr", u64, u32, u32, u32, (u64)(int16_t)x)                           \
    X("cvt.u64.u8", u64_u8, "lr", u64, u32, u32, u32, (uint8_t)x)                                  \
    X("cvt.u64.u16", u64_u16, "lr", u64, u32, u32, u32, (uint16_t)x)                               \
    X("cvt.s64.s32", s64_s32, "lr", s64, s32, u32, u32, x)                                         \
    X("cvt.s64.s32", s64_low, "ll", s64, s64, u32, u32, (s32)x)                                    \
    X("cvt.u64.u32", u64_low, "ll", u64, u64, u32, u32, (u32)x)                                    \
    X("cvt.u64.u32", u64_u32, "lr", u64, u32, u32, u32, x)

DEFINE_OPERATIONS(CONVERT_LIST)
const op_entry convert_ops[] = {CONVERT_LIST(OP_ENTRY){NULL, NULL, NULL}};
