/* Random but sane blocks of every type. */
#include "random_blocks.h"

#include <stddef.h>
#include <string.h>

#include "tensor/codec/unpack.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static float random_float(uint64_t *state)
{
    return (float)(random_bits(state) >> 40) * 0x1p-23f - 1.0f;
}

/* A scale of either sign with a size in [2^-8, 2^-5): a random mantissa and one of 3 exponents. */
static uint16_t random_f16_scale(uint64_t *state)
{
    uint64_t bits = random_bits(state);
    return (uint16_t)((bits & 0x83ff) | (7 + (bits >> 20) % 3) << 10);
}

/* Where the f16 fields of a block are, for the types that have them; min is -1 if there is none. */
static const struct {
    int scale, min;
} f16_fields[DTYPE_COUNT] = {
#define SCALE(id, type)     [DTYPE_##id] = {(int)offsetof(type, scale), -1}
#define SCALE_MIN(id, type) [DTYPE_##id] = {(int)offsetof(type, scale), (int)offsetof(type, min)}
    SCALE(Q4_0, block_q4_0),     SCALE_MIN(Q4_1, block_q4_1), SCALE(Q5_0, block_q5_0),
    SCALE_MIN(Q5_1, block_q5_1), SCALE(Q8_0, block_q8_0),     SCALE(Q1_0, block_q1_0),
    SCALE(Q2_0, block_q2_0),     SCALE(TQ1_0, block_tq1_0),   SCALE(TQ2_0, block_tq2_0),
    SCALE_MIN(Q2_K, block_q2_k), SCALE(Q3_K, block_q3_k),     SCALE_MIN(Q4_K, block_q4_k),
    SCALE_MIN(Q5_K, block_q5_k), SCALE(Q6_K, block_q6_k),     SCALE(IQ2_XXS, block_iq2_xxs),
    SCALE(IQ2_XS, block_iq2_xs), SCALE(IQ2_S, block_iq2_s),   SCALE(IQ3_XXS, block_iq3_xxs),
    SCALE(IQ3_S, block_iq3_s),   SCALE(IQ1_S, block_iq1_s),   SCALE(IQ4_NL, block_iq4_nl),
    SCALE(IQ4_XS, block_iq4_xs),
};

static void make_sane(dtype type, uint64_t *state, uint8_t *block)
{
    if (type == DTYPE_F32) {
        float x = random_float(state);
        memcpy(block, &x, sizeof x);
    } else if (type == DTYPE_F16 || type == DTYPE_BF16) {
        float x = random_float(state);
        uint16_t h = type == DTYPE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
        memcpy(block, &h, sizeof h);
    } else if (type == DTYPE_F8_E4M3) {
        block[0] &= 0xb7; /* up to exponent 6 of 15: below 1 */
    } else if (type == DTYPE_F8_E5M2) {
        block[0] &= 0xbb; /* up to exponent 14 of 31 */
    } else if (type == DTYPE_MXFP4) {
        block[0] = (uint8_t)(120 + random_bits(state) % 8); /* 2^-7 to 1 */
    } else if (type == DTYPE_NVFP4) {
        for (int i = 0; i < 4; i++)
            block[i] = (uint8_t)(random_bits(state) % 64); /* 0 and subnormals, to below 2 */
    } else if ((type >= DTYPE_S2 && type <= DTYPE_S8) || (type >= DTYPE_T2 && type <= DTYPE_T5)) {
        block[0] = (uint8_t)(8 * 17 + random_bits(state) % 24); /* 2^-11 to 2^-8 */
    } else if (type == DTYPE_IQ1_M) {
        block_iq1_m b;
        memcpy(&b, block, sizeof b);
        uint16_t scale = random_f16_scale(state);
        for (int i = 0; i < 4; i++)
            b.scales[i] = (uint16_t)((b.scales[i] & 0xfff) | (scale >> 4 * i & 15) << 12);
        memcpy(block, &b, sizeof b);
    } else {
        uint16_t scale = random_f16_scale(state);
        memcpy(block + f16_fields[type].scale, &scale, sizeof scale);
        uint16_t min = random_f16_scale(state);
        if (f16_fields[type].min >= 0)
            memcpy(block + f16_fields[type].min, &min, sizeof min);
    }
}

void random_blocks(dtype type, uint64_t seed, int64_t n_blocks, void *out)
{
    assert(unpack_ref[type]);
    uint64_t state = seed;
    uint8_t *block = out;
    int n_bytes = dtype_describe(type)->block_bytes;
    for (int64_t b = 0; b < n_blocks; b++, block += n_bytes) {
        for (int i = 0; i < n_bytes; i += 8) {
            uint64_t bits = random_bits(&state);
            memcpy(block + i, &bits, (size_t)(n_bytes - i < 8 ? n_bytes - i : 8));
        }
        make_sane(type, &state, block);
    }
}

void random_floats(uint64_t seed, int64_t n, float *out)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < n; i++)
        out[i] = random_float(&state);
}
