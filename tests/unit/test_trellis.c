/* tensor/trellis.h, backend/cpu/trellis_search.h, compress/trellis.c: the trellis types. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "compress/codec.h"
#include "compress/gptq.h"
#include "compress/trellis.h"
#include "tensor/codec/unpack.h"
#include "backend/cpu/trellis_search.h"
#include "random_blocks.h"
#include "tap.h"
#include "tensor/levels.h"

enum { N = 512, ROWS = 6, TOKENS = 768 };

static const dtype types[] = {DTYPE_T2, DTYPE_T3, DTYPE_T4, DTYPE_T5};

static bool is_ok(lace_status status, const lace_error *err)
{
    if (status != LACE_OK)
        tap_note("%s", err->text);
    return status == LACE_OK;
}

/* About normal: the sum of twelve even ones. */
static void make_normal(uint64_t seed, int n, float *out)
{
    float *even = malloc(12 * (size_t)n * sizeof *even);
    random_floats(seed, 12 * n, even);
    for (int i = 0; i < n; i++) {
        out[i] = 0;
        for (int k = 0; k < 12; k++)
            out[i] += 0.5f * even[12 * i + k]; /* each has a variance of 1/3 */
    }
    free(even);
}

static void levels_are_spread_like_a_normal_distribution(void)
{
    double sum = 0, squares = 0, fourths = 0;
    for (uint32_t w = 0; w < 1u << TRELLIS_WINDOW; w++) {
        double x = trellis_level(w);
        CHECK(x >= -128 && x <= 127);
        sum += x;
        squares += x * x;
        fourths += x * x * x * x;
    }
    double n = 65536, variance = squares / n;
    CHECK(fabs(sum / n) < 0.5);
    CHECK(fabs(sqrt(variance) - (double)TRELLIS_SIGMA) < 0.01);
    /* Of four even numbers: 2.7; of a normal distribution: 3. */
    CHECK(fabs(fourths / n / variance / variance - 2.7) < 0.1);
}

/* The example of docs/formats.md. */
static void a_stream_reads_as_the_document_says(void)
{
    static const int expected[4] = {35, 32, 21, 32};
    block_t3 b = {.scale = 0xa8};
    float v[256], u[256];
    b.stream[0] = 0x05;
    uint32_t window = trellis_start(3);
    unpack_row(DTYPE_T3, &b, 256, v);
    for (int i = 0; i < 256; i++) {
        window = trellis_next(window, 3, i == 0 ? 5 : 0);
        u[i] = (float)trellis_level(window) / 128;
        if (i < 4)
            CHECK(trellis_level(window) == expected[i]);
    }
    double most = 0, energy_u = 0, energy_v = 0;
    for (int i = 0; i < 256; i++) {
        energy_u += (double)u[i] * u[i];
        energy_v += (double)v[i] * v[i];
    }
    CHECK(fabs(energy_u - energy_v) < 1e-4 * energy_u); /* it is only rotated */
    for (int half = 0; half < 256; half += 128) {
        double first = 0; /* H u has the sum of u in its first place */
        for (int i = 0; i < 128; i++)
            first += (double)u[half + i];
        most = fmax(most, fabs(first / sqrt(128) + (double)v[half])); /* bit 0 of D is set */
    }
    CHECK(most < 1e-4);
}

/* ---- The search ------------------------------------------------------------------------------ */

static double search_error(trellis_search_fn *search, int n_bits, int merge, int n_blocks)
{
    trellis_scratch *s = calloc(1, (size_t)trellis_scratch_bytes());
    float wanted[TRELLIS_VALUES], x[TRELLIS_VALUES], weights[TRELLIS_VALUES];
    double error = 0;
    for (int i = 0; i < TRELLIS_VALUES; i++)
        weights[i] = 1;
    for (int b = 0; b < n_blocks; b++) {
        uint8_t codes[TRELLIS_VALUES];
        int8_t levels[TRELLIS_VALUES];
        uint32_t window = trellis_start(n_bits);
        make_normal((uint64_t)b + 1, TRELLIS_VALUES, wanted);
        memcpy(x, wanted, sizeof x);
        trellis_task t = {.n_bits = n_bits,
                          .merge = merge,
                          .scale = 1.08f / TRELLIS_SIGMA,
                          .left = x,
                          .n_left = TRELLIS_VALUES,
                          .weights = weights};
        search(&t, s, codes, levels);
        for (int i = 0; i < TRELLIS_VALUES; i++) {
            window = trellis_next(window, n_bits, codes[i]);
            CHECK(codes[i] < 1 << n_bits && levels[i] == trellis_level(window));
            double d = (double)wanted[i] - (double)t.scale * levels[i];
            error += d * d / (TRELLIS_VALUES * n_blocks);
        }
        CHECK(memcmp(x, wanted, sizeof x) == 0); /* without feedback nothing moves */
    }
    free(s);
    return error;
}

/* The best table for single values leaves 0.1175, 0.0345, 0.0095 and 0.0025. */
static void streams_beat_tables_of_single_values(void)
{
    static const double most[] = {[2] = 0.093, [3] = 0.0235, [4] = 0.0068, [5] = 0.0021};
    for (int n_bits = 2; n_bits <= 5; n_bits++) {
        double error = search_error(trellis_search, n_bits, 12, 12);
        tap_note("%d bits: %.5f", n_bits, error);
        CHECK(error < most[n_bits]);
    }
}

static void more_paths_find_better_streams(void)
{
    double few = search_error(trellis_search, 3, 10, 6),
           more = search_error(trellis_search, 3, 13, 6);
    tap_note("merged by 10 bits %.5f, by 13 bits %.5f", few, more);
    CHECK(more < 0.97 * few);
}

/* Levels round their sums in other ways, so paths of equal cost may differ; errors may not. */
static void all_cpu_levels_find_equal_streams(void)
{
#if defined(__x86_64__)
    double plain = search_error(trellis_search_plain, 3, 12, 3);
    if (cpu_has_level(CPU_AVX2))
        CHECK(fabs(search_error(trellis_search_avx2, 3, 12, 3) - plain) < 1e-3 * plain);
    if (cpu_has_level(CPU_AVX512))
        CHECK(fabs(search_error(trellis_search_avx512, 3, 12, 3) - plain) < 1e-3 * plain);
#else
    tap_skip("one level only");
#endif
}

/* ---- Feedback -------------------------------------------------------------------------------- */

static float inputs[TOKENS * N], rows_of[ROWS * N], rows[ROWS * N];
static uint8_t plain[ROWS * N], fed[ROWS * N], again[ROWS * N];

/* tr(dW H dW') of blocks against rows_of. */
static double loss(dtype type, const uint8_t *blocks)
{
    double sum = 0;
    for (int r = 0; r < ROWS; r++) {
        float row[N];
        unpack_row(type, blocks + (uint64_t)r * row_bytes(type, N), N, row);
        for (int i = 0; i < N; i++)
            row[i] -= rows_of[r * N + i];
        for (int t = 0; t < TOKENS; t++) {
            double y = 0;
            for (int i = 0; i < N; i++)
                y += (double)row[i] * inputs[t * N + i];
            sum += y * y;
        }
    }
    return sum;
}

static void feedback_lowers_the_error_whatever_the_threads(void)
{
    lace_error err;
    pool *one, *three;
    hessian h;
    hessian_factor f;
    CHECK(is_ok(pool_create(1, &one, &err), &err) && is_ok(pool_create(3, &three, &err), &err));
    random_floats(1, TOKENS * N, inputs);
    make_normal(2, ROWS * N, rows_of);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 1; i < N; i++) /* neighbours share most of what they are */
            inputs[t * N + i] += 0.9f * inputs[t * N + i - 1];
    CHECK(is_ok(hessian_init(&h, N, TOKENS, false, three, &err), &err));
    hessian_add(&h, inputs, NULL, N, TOKENS, three);
    hessian_finish(&h, three);
    CHECK(is_ok(hessian_factorize(&h, true, 0.01, &f, three, &err), &err));
    for (size_t i = 1; i < 3; i++) { /* T3 and T4 */
        const codec *c = codec_find(types[i]);
        CHECK(is_ok(codec_encode(c, rows_of, NULL, ROWS * N, plain, &err), &err));
        memcpy(rows, rows_of, sizeof rows);
        CHECK(is_ok(gptq_quantize(c, &f, rows, ROWS, fed, three, &err), &err));
        double ratio = loss(types[i], fed) / loss(types[i], plain);
        tap_note("%s: %.3f of the error without", dtype_describe(types[i])->name, ratio);
        CHECK(ratio < 0.6);
        memcpy(rows, rows_of, sizeof rows);
        CHECK(is_ok(gptq_quantize(c, &f, rows, ROWS, again, one, &err), &err));
        CHECK(memcmp(fed, again, ROWS * (size_t)row_bytes(types[i], N)) == 0);
    }
    hessian_factor_deinit(&f);
    hessian_deinit(&h);
    pool_free(one);
    pool_free(three);
}

static void no_memory_is_an_error(void)
{
    lace_error err;
    mem_fail_at(0, true);
    lace_status status =
        codec_encode(codec_find(DTYPE_T3), rows_of, NULL, TRELLIS_VALUES, plain, &err);
    mem_fail_at(-1, false);
    CHECK(status == LACE_E_NOMEM);
}

int main(void)
{
    CASE(levels_are_spread_like_a_normal_distribution);
    CASE(a_stream_reads_as_the_document_says);
    CASE(streams_beat_tables_of_single_values);
    CASE(more_paths_find_better_streams);
    CASE(all_cpu_levels_find_equal_streams);
    CASE(feedback_lowers_the_error_whatever_the_threads);
    CASE(no_memory_is_an_error);
    return tap_end();
}
