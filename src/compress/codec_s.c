/* Codecs of lace's own types, for values that are rotated already. */
#include <string.h>

#include "compress/codec.h"
#include "tensor/blocks.h"
#include "tensor/levels.h"

#define LEVEL(x) x,
static const float s2_table[4] = {S2_LEVELS(LEVEL)};
static const float s3_table[8] = {S3_LEVELS(LEVEL)};
static const float s4_table[16] = {S4_LEVELS(LEVEL)};
static const float s5_table[32] = {S5_LEVELS(LEVEL)};
static const float s6_table[64] = {S6_LEVELS(LEVEL)};
#undef LEVEL

static const codec_levels s2_levels = {.n = 4, .table = s2_table};
static const codec_levels s3_levels = {.n = 8, .table = s3_table};
static const codec_levels s4_levels = {.n = 16, .table = s4_table};
static const codec_levels s5_levels = {.n = 32, .table = s5_table};
static const codec_levels s6_levels = {.n = 64, .table = s6_table};
static const codec_levels s8_levels = {.n = 255, .first = -127};

/* The stored scale that is nearest to x, from below. */
static int scale_below(float x)
{
    if (!(x > s_scale_to_f32(0)))
        return 0;
    int at = (int)((f32_to_bits(x) >> 20) - ((127u - 28) << 3));
    return at < 255 ? at : 255;
}

/* The searched scale lies between two stored ones; those around it are tried. */
static uint8_t fit_scale(const codec_levels *l, const float *x, const float *w, codec_grid *out)
{
    int middle = scale_below(fabsf(codec_search_scale(l, x, w, 128))), best = middle;
    float least = INFINITY;
    for (int s = middle > 0 ? middle - 1 : 0; s <= middle + 2 && s < 256; s++) {
        float error = codec_error(l, x, w, 128, s_scale_to_f32((uint8_t)s), 0);
        if (error < least) {
            least = error;
            best = s;
        }
    }
    *out = (codec_grid){.levels = l, .group = 128, .scale = {s_scale_to_f32((uint8_t)best)}};
    return (uint8_t)best;
}

#define CODEC_S(bits)                                                                              \
    static void fit_s##bits(const float *x, const float *w, void *block, codec_grid *out)          \
    {                                                                                              \
        *(block_s##bits *)block =                                                                  \
            (block_s##bits){.scale = fit_scale(&s##bits##_levels, x, w, out)};                     \
    }                                                                                              \
    static void put_s##bits(const uint8_t *q, void *block)                                         \
    {                                                                                              \
        for (int part = 0; part < 4; part++)                                                       \
            s_codes_pack(bits, q + 32 * part, &((block_s##bits *)block)->codes[part][0][0]);       \
    }

CODEC_S(2)
CODEC_S(3)
CODEC_S(4)
CODEC_S(5)
CODEC_S(6)

static void fit_s8(const float *x, const float *w, void *block, codec_grid *out)
{
    *(block_s8 *)block = (block_s8){.scale = fit_scale(&s8_levels, x, w, out)};
}

static void put_s8(const uint8_t *q, void *block)
{
    for (int i = 0; i < 128; i++)
        ((block_s8 *)block)->values[i] = (int8_t)(q[i] - 127);
}

const codec codecs_s[] = {
    {DTYPE_S2, 128, fit_s2, put_s2, true}, {DTYPE_S3, 128, fit_s3, put_s3, true},
    {DTYPE_S4, 128, fit_s4, put_s4, true}, {DTYPE_S5, 128, fit_s5, put_s5, true},
    {DTYPE_S6, 128, fit_s6, put_s6, true}, {DTYPE_S8, 128, fit_s8, put_s8, true},
};
const int n_codecs_s = sizeof codecs_s / sizeof *codecs_s;
