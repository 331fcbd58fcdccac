/* Decoding rows of lace's own types. */
#include "tensor/codec/unpack.h"

#include "tensor/levels.h"
#include "tensor/rotate.h"
#include "tensor/trellis.h"

#define LEVEL(x) x,
static const int8_t s2_levels[4] = {S2_LEVELS(LEVEL)};
static const int8_t s3_levels[8] = {S3_LEVELS(LEVEL)};
static const int8_t s4_levels[16] = {S4_LEVELS(LEVEL)};
static const int8_t s5_levels[32] = {S5_LEVELS(LEVEL)};
static const int8_t s6_levels[64] = {S6_LEVELS(LEVEL)};
#undef LEVEL

static void unpack_block(int n_bits, const int8_t *levels, uint8_t scale, const uint8_t *words,
                         float *out)
{
    float u[128], s = s_scale_to_f32(scale);
    for (int part = 0; part < 4; part++) {
        uint8_t codes[32];
        s_codes_unpack(n_bits, words + part * 4 * n_bits, codes);
        for (int i = 0; i < 32; i++)
            u[32 * part + i] = s * (float)levels[codes[i]];
    }
    unrotate_128(u, out);
}

#define UNPACK_S(bits)                                                                             \
    static void unpack_block_s##bits(const block_s##bits *b, float *out)                           \
    {                                                                                              \
        unpack_block(bits, s##bits##_levels, b->scale, &b->codes[0][0][0], out);                   \
    }                                                                                              \
    UNPACK_ROWS(s##bits, S##bits)

UNPACK_S(2)
UNPACK_S(3)
UNPACK_S(4)
UNPACK_S(5)
UNPACK_S(6)

static void unpack_block_s8(const block_s8 *b, float *out)
{
    float u[128], s = s_scale_to_f32(b->scale);
    for (int i = 0; i < 128; i++)
        u[i] = s * (float)b->values[i];
    unrotate_128(u, out);
}
UNPACK_ROWS(s8, S8)

/* ---- Trellis types --------------------------------------------------------------------------- */

static void unpack_stream(int n_bits, uint8_t scale, const uint8_t *stream, float *out)
{
    float u[TRELLIS_VALUES], s = s_scale_to_f32(scale);
    uint32_t window = trellis_start(n_bits), bits = 0;
    for (int i = 0, n_read = 0; i < TRELLIS_VALUES; i++, n_read -= n_bits, bits >>= n_bits) {
        for (; n_read < n_bits; n_read += 8)
            bits |= (uint32_t)*stream++ << n_read;
        window = trellis_next(window, n_bits, bits & ((1u << n_bits) - 1));
        u[i] = s * (float)trellis_level(window);
    }
    unrotate_128(u, out);
    unrotate_128(u + 128, out + 128);
}

#define UNPACK_T(bits)                                                                             \
    static void unpack_block_t##bits(const block_t##bits *b, float *out)                           \
    {                                                                                              \
        unpack_stream(bits, b->scale, b->stream, out);                                             \
    }                                                                                              \
    UNPACK_ROWS(t##bits, T##bits)

UNPACK_T(2)
UNPACK_T(3)
UNPACK_T(4)
UNPACK_T(5)
