/*
 * The tables of lace's own types: the levels that represent a normal distribution with the least
 * mean square error (Lloyd and Max), scaled to +-127 and rounded.
 */
#ifndef LACE_TENSOR_LEVELS_H
#define LACE_TENSOR_LEVELS_H

#include <stdint.h>

#include "tensor/half.h"

/* clang-format off */
#define S2_LEVELS(X) X(-127) X(-38) X(38) X(127)
#define S3_LEVELS(X) X(-127) X(-79) X(-45) X(-14) X(14) X(45) X(79) X(127)
#define S4_LEVELS(X) \
    X(-127) X(-96) X(-75) X(-58) X(-44) X(-31) X(-18) X(-6) X(6) X(18) X(31) X(44) X(58) X(75) \
    X(96) X(127)
#define S5_LEVELS(X) \
    X(-127) X(-105) X(-90) X(-79) X(-70) X(-61) X(-54) X(-47) X(-41) X(-35) X(-29) X(-24) X(-18) \
    X(-13) X(-8) X(-3) X(3) X(8) X(13) X(18) X(24) X(29) X(35) X(41) X(47) X(54) X(61) X(70) \
    X(79) X(90) X(105) X(127)
#define S6_LEVELS(X) \
    X(-127) X(-110) X(-99) X(-91) X(-84) X(-78) X(-73) X(-68) X(-64) X(-60) X(-56) X(-53) X(-49) \
    X(-46) X(-43) X(-40) X(-38) X(-35) X(-32) X(-30) X(-27) X(-24) X(-22) X(-20) X(-17) X(-15) \
    X(-13) X(-10) X(-8) X(-6) X(-3) X(-1) X(1) X(3) X(6) X(8) X(10) X(13) X(15) X(17) X(20) \
    X(22) X(24) X(27) X(30) X(32) X(35) X(38) X(40) X(43) X(46) X(49) X(53) X(56) X(60) X(64) \
    X(68) X(73) X(78) X(84) X(91) X(99) X(110) X(127)
/* clang-format on */

/* The scale of a block: 3 bits of mantissa, 5 of exponent, from 2^-28 on. */
static inline float s_scale_to_f32(uint8_t scale)
{
    return f32_from_bits(((uint32_t)scale << 20) + ((127u - 28) << 23));
}

/*
 * The codes of a part of 32 values from its words, and back; the layout is drawn in blocks.h.
 * n_bits is 2 to 6. codes: [32]; words: [n_bits * 4] bytes.
 */
static inline void s_codes_unpack(int n_bits, const uint8_t *words, uint8_t *codes)
{
    for (int i = 0; i < 4; i++) {
        unsigned w[6] = {0};
        for (int k = 0; k < n_bits; k++)
            w[k] = words[4 * k + i];
        unsigned c[8] = {0};
        switch (n_bits) {
        case 2:
            for (int k = 0; k < 8; k++)
                c[k] = w[k / 4] >> 2 * (k % 4);
            break;
        case 3:
            for (int k = 0; k < 6; k++)
                c[k] = w[k / 2] >> 3 * (k % 2);
            c[6] = w[0] >> 6 | (w[2] >> 6 & 1) << 2;
            c[7] = w[1] >> 6 | (w[2] >> 7 & 1) << 2;
            break;
        case 4:
            for (int k = 0; k < 8; k++)
                c[k] = w[k % 4] >> 4 * (k / 4);
            break;
        case 5:
            for (int k = 0; k < 5; k++)
                c[k] = w[k];
            c[5] = w[0] >> 5 | (w[3] >> 5 & 3) << 3;
            c[6] = w[1] >> 5 | (w[3] >> 7 & 1) << 3 | (w[4] >> 7 & 1) << 4;
            c[7] = w[2] >> 5 | (w[4] >> 5 & 3) << 3;
            break;
        default:
            for (int k = 0; k < 6; k++)
                c[k] = w[k];
            c[6] = w[0] >> 6 | w[1] >> 6 << 2 | w[2] >> 6 << 4;
            c[7] = w[3] >> 6 | w[4] >> 6 << 2 | w[5] >> 6 << 4;
        }
        for (int k = 0; k < 8; k++)
            codes[4 * k + i] = (uint8_t)(c[k] & ((1u << n_bits) - 1));
    }
}

static inline void s_codes_pack(int n_bits, const uint8_t *codes, uint8_t *words)
{
    for (int i = 0; i < 4; i++) {
        unsigned w[6] = {0}, c[8];
        for (int k = 0; k < 8; k++)
            c[k] = codes[4 * k + i];
        switch (n_bits) {
        case 2:
            for (int k = 0; k < 8; k++)
                w[k / 4] |= c[k] << 2 * (k % 4);
            break;
        case 3:
            for (int k = 0; k < 6; k++)
                w[k / 2] |= c[k] << 3 * (k % 2);
            w[0] |= (c[6] & 3) << 6;
            w[1] |= (c[7] & 3) << 6;
            w[2] |= (c[6] >> 2) << 6 | (c[7] >> 2) << 7;
            break;
        case 4:
            for (int k = 0; k < 8; k++)
                w[k % 4] |= c[k] << 4 * (k / 4);
            break;
        case 5:
            for (int k = 0; k < 5; k++)
                w[k] = c[k];
            for (int k = 0; k < 3; k++)
                w[k] |= (c[5 + k] & 7) << 5;
            w[3] |= (c[5] >> 3) << 5 | (c[6] >> 3 & 1) << 7;
            w[4] |= (c[7] >> 3) << 5 | (c[6] >> 4) << 7;
            break;
        default:
            for (int k = 0; k < 6; k++)
                w[k] = c[k] | (c[6 + k / 3] >> 2 * (k % 3) & 3) << 6;
        }
        for (int k = 0; k < n_bits; k++)
            words[4 * k + i] = (uint8_t)w[k];
    }
}

#endif
