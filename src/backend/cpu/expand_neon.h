/* Expanding sparse tiles, Advanced SIMD: a table look-up puts 8 values into their places. */
#ifndef LACE_BACKEND_CPU_EXPAND_NEON_H
#define LACE_BACKEND_CPU_EXPAND_NEON_H

#include "backend/cpu/dot_neon.h"
#include "tensor/sparse.h"

#define SPARSE_HAS_PANELS 0

ALWAYS_INLINE uint64_t spread8(uint64_t values, uint8_t mask)
{
    static const uint8_t bit_of[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint8x8_t is_set = vtst_u8(vdup_n_u8(mask), vld1_u8(bit_of));
    uint64_t ones = vget_lane_u64(vreinterpret_u64_u8(vand_u8(is_set, vdup_n_u8(1))), 0);
    /* In each byte the number of set bits before it; where none is set, beyond the table: 0. */
    uint8x8_t before = vcreate_u8(ones * 0x0101010101010101u - ones);
    uint8x8_t index = vorr_u8(before, vmvn_u8(is_set));
    return vget_lane_u64(vreinterpret_u64_u8(vtbl1_u8(vcreate_u8(values), index)), 0);
}

ALWAYS_INLINE void levels_of(const uint8_t *from, const int shift, uint8_t out[64])
{
    uint8x16_t levels = vreinterpretq_u8_s8(vld1q_s8(SPARSE_LEVELS));
    for (int i = 0; i < 64; i += 16) {
        uint8x16_t x = vshlq_u8(vld1q_u8(from + i), vdupq_n_s8((int8_t)-shift));
        vst1q_u8(out + i, vqtbl1q_u8(levels, vandq_u8(x, vdupq_n_u8(15))));
    }
}

#include "backend/cpu/expand_bytes.h"

#endif
