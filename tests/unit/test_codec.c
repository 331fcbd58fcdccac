/* compress/codec*.c: what a codec writes is what the decoder reads, and it is near. */
#include <math.h>
#include <string.h>

#include "compress/codec.h"
#include "tensor/codec/pack.h"
#include "tensor/codec/unpack.h"
#include "random_blocks.h"
#include "tap.h"
#include "tensor/rotate.h"

enum { N = 2048 };

static float x[N], y[N], importance[N];
static uint8_t blocks[4 * N], again[4 * N];

/* About normal: the sum of twelve even ones, with a few values far out. */
static void make_values(uint64_t seed)
{
    static float even[12 * N];
    random_floats(seed, 12 * N, even);
    random_floats(seed + 1, N, importance);
    for (int i = 0; i < N; i++) {
        x[i] = 0;
        for (int k = 0; k < 12; k++)
            x[i] += even[12 * i + k];
        x[i] *= i % 97 == 0 ? 0.08f : 0.02f;
        importance[i] = 0.1f + importance[i] * importance[i];
    }
}

static double weighted_error(const float *weights)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)(weights ? weights[i] : 1) * ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

static void for_each(void (*fn)(const codec *))
{
    for (int i = 0; i < n_codecs_small; i++)
        fn(&codecs_small[i]);
    for (int i = 0; i < n_codecs_k; i++)
        fn(&codecs_k[i]);
    for (int i = 0; i < n_codecs_s; i++)
        fn(&codecs_s[i]);
    for (int i = 0; i < n_codecs_trellis; i++)
        fn(&codecs_trellis[i]);
}

/* The points that fit promises are those that the decoder gives. */
static void check_grid(const codec *c)
{
    int n = c->n_values;
    const dtype_info *info = dtype_describe(c->type);
    for (int b = 0; b < N / n && c->fit; b++) {
        _Alignas(8) uint8_t block[CODEC_MAX_BYTES];
        uint8_t q[CODEC_MAX_VALUES];
        float weights[CODEC_MAX_VALUES];
        codec_grid grid;
        memset(block, 0xee, sizeof block);
        codec_weights(x + b * n, importance + b * n, n, weights);
        c->fit(x + b * n, weights, block, &grid);
        for (int i = 0; i < n; i++) /* any q will do */
            q[i] = (uint8_t)((i * 7 + b) % grid.levels->n);
        c->put(q, block);
        CHECK(block[info->block_bytes] == 0xee);
        unpack_row(c->type, block, n, y);
        if (c->is_rotated)
            rotate_128(y, y);
        for (int i = 0; i < n; i++) {
            int g = i / grid.group;
            float point = grid.scale[g] * codec_level(grid.levels, q[i]) - grid.min[g];
            /* The decoder rounds each product once more. */
            float size = fabsf(grid.scale[g] * codec_level(grid.levels, q[i])) + fabsf(grid.min[g]);
            if (c->is_rotated) /* and rotates: errors of the largest value go everywhere */
                size = fabsf(grid.scale[g]) * 127 * 4;
            if (fabsf(point - y[i]) > 1e-6f * size) {
                CHECK(!"the decoder reads what was fitted");
                tap_note("%s: value %d: %g, expected %g", info->name, i, (double)y[i],
                         (double)point);
                return;
            }
        }
    }
}

static void decoders_read_what_was_fitted(void)
{
    make_values(1);
    for_each(check_grid);
}

static void check_better(const codec *c)
{
    pack_fn plain = pack_ref[c->type];
    CHECK(codec_encode(c, x, importance, N, blocks, NULL) == LACE_OK);
    unpack_row(c->type, blocks, N, y);
    double searched = weighted_error(importance);
    if (!plain)
        return;
    plain(x, N, blocks);
    unpack_row(c->type, blocks, N, y);
    double rounded = weighted_error(importance);
    tap_note("%s: %.4g of the error of plain rounding", dtype_describe(c->type)->name,
             searched / rounded);
    /* Q8_0 has nothing to search for; the formula of its weights costs it nothing either. */
    CHECK(searched <= rounded * (c->type == DTYPE_Q8_0 ? 1.0001 : 0.97));
}

static void searched_scales_beat_plain_rounding(void)
{
    make_values(2);
    for_each(check_better);
}

/* Relative square errors of normal values: what a type of so many bits can do,
 * and a little more. */
static void errors_are_of_the_size_of_the_type(void)
{
    static const struct {
        dtype type;
        double most;
    } cases[] = {
        {DTYPE_Q8_0, 7e-5},   {DTYPE_Q6_K, 6e-4},   {DTYPE_Q5_K, 2.2e-3},  {DTYPE_Q5_0, 2.5e-3},
        {DTYPE_Q5_1, 2e-3},   {DTYPE_Q4_K, 9e-3},   {DTYPE_Q4_0, 1e-2},    {DTYPE_Q4_1, 8.5e-3},
        {DTYPE_IQ4_NL, 8e-3}, {DTYPE_IQ4_XS, 8e-3}, {DTYPE_MXFP4, 1.6e-2}, {DTYPE_Q3_K, 3.2e-2},
        {DTYPE_Q2_K, 0.11},   {DTYPE_S8, 1e-4},     {DTYPE_S6, 1.2e-3},    {DTYPE_S5, 4e-3},
        {DTYPE_S4, 1.2e-2},   {DTYPE_S3, 4.2e-2},   {DTYPE_S2, 0.14},      {DTYPE_T2, 0.1},
        {DTYPE_T3, 2.6e-2},   {DTYPE_T4, 7.5e-3},   {DTYPE_T5, 2.5e-3},
    };
    make_values(3);
    double energy = 0;
    for (int i = 0; i < N; i++)
        energy += (double)x[i] * x[i];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(codec_encode(codec_find(cases[i].type), x, NULL, N, blocks, NULL) == LACE_OK);
        unpack_row(cases[i].type, blocks, N, y);
        double error = weighted_error(NULL) / energy;
        if (!CHECK(error < cases[i].most && error > cases[i].most / 4))
            tap_note("%s: %g", dtype_describe(cases[i].type)->name, error);
    }
}

/* The mean square errors of rotated types, relative to the values, on a normal distribution. */
static double error_of_rotated(dtype type)
{
    static const struct {
        dtype type;
        double error;
    } errors[] = {{DTYPE_S2, 0.1175}, {DTYPE_S3, 0.03454}, {DTYPE_S4, 0.009501}, {DTYPE_S5, 2.6e-3},
                  {DTYPE_S6, 7e-4},   {DTYPE_S8, 4e-5},    {DTYPE_T2, 0.088},    {DTYPE_T3, 0.0225},
                  {DTYPE_T4, 6.4e-3}, {DTYPE_T5, 1.9e-3}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].type == type)
            return errors[i].error;
    return 0;
}

static void check_extremes(const codec *c)
{
    /*
     * The scales of rotated types end at 15 and cannot be 0. Their errors are sums of those of 128
     * values, spread like a normal distribution: one of 2,048 is beyond 4 deviations once in 8
     * tries, and beyond 4.5 once in 70.
     */
    static const float wide[] = {0, 1e-30f, -1e-12f, 1e4f, -6e4f};
    static const float rotated[] = {0, 1e-30f, -1e-12f, 0.5f, -100};
    const float *extremes = c->is_rotated ? rotated : wide;
    float floor = c->is_rotated ? 2e-6f : 1e-7f;
    float most = c->is_rotated ? 4.5f * (float)sqrt(error_of_rotated(c->type)) : 0.3f;
    for (size_t k = 0; k < sizeof wide / sizeof *wide; k++) {
        float furthest = 0;
        for (int i = 0; i < N; i++)
            x[i] = extremes[k];
        CHECK(codec_encode(c, x, NULL, N, blocks, NULL) == LACE_OK);
        unpack_row(c->type, blocks, N, y);
        bool is_near = true;
        for (int i = 0; i < N; i++) {
            is_near = is_near && isfinite(y[i]) && fabsf(y[i] - x[i]) <= most * fabsf(x[i]) + floor;
            furthest = fmaxf(furthest, fabsf(y[i] - x[i]));
        }
        if (!CHECK(is_near))
            tap_note("%s: %g was missed by %g, at most %g", dtype_describe(c->type)->name,
                     (double)x[0], (double)furthest, (double)(most * fabsf(x[0])));
    }
}

static void constants_and_zeros_survive(void)
{
    for_each(check_extremes);
}

/* The example of docs/formats.md: every value at level 6, scale 2^-7. */
static void a_block_reads_as_the_document_says(void)
{
    uint8_t block[65];
    float v[128];
    memset(block, 0x88, sizeof block);
    block[0] = 0xa8;
    unpack_row(DTYPE_S4, block, 128, v);
    CHECK(fabsf(v[0] + 6 / sqrtf(128)) < 1e-6f);
    for (int i = 1; i < 128; i++)
        CHECK(v[i] == 0);
}

static void check_same(const codec *c)
{
    memset(blocks, 0, sizeof blocks);
    memset(again, 0xff, sizeof again);
    CHECK(codec_encode(c, x, importance, N, blocks, NULL) == LACE_OK);
    CHECK(codec_encode(c, x, importance, N, again, NULL) == LACE_OK);
    CHECK(memcmp(blocks, again, (size_t)row_bytes(c->type, N)) == 0);
}

static void the_same_values_give_the_same_bytes(void)
{
    make_values(4);
    for_each(check_same);
}

int main(void)
{
    CASE(decoders_read_what_was_fitted);
    CASE(searched_scales_beat_plain_rounding);
    CASE(errors_are_of_the_size_of_the_type);
    CASE(constants_and_zeros_survive);
    CASE(the_same_values_give_the_same_bytes);
    CASE(a_block_reads_as_the_document_says);
    return tap_end();
}
