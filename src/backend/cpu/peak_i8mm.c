/* The int8 limit of a core with smmla. */
#include <arm_neon.h>

#include "backend/cpu/peak.h"

PEAK_LOOP(peak_int8_i8mm, int32x4_t, 16, vdupq_n_s32(0), vdupq_n_s32(0x03030303),
          vdupq_n_s32(0x05050505),
          vmmlaq_s32(acc, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y)), 32,
          vgetq_lane_s32(acc, 0))
