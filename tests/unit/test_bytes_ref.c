/* backend/ref/bytes_ref.c: products in int8, and who has them. */
#include <math.h>
#include <string.h>

#include "backend/ref/bytes_ref.h"
#include "base/mem.h"
#include "lace.h"
#include "random_blocks.h"
#include "tap.h"

enum { ROWS = 24, TOKENS = 5 };

/* How far products in int8 are from exact ones, as a share of their squares. */
static double error_of(dtype type, int64_t n_cols, const float *x, int64_t n_tokens)
{
    uint8_t *blocks = mem_calloc(ROWS, row_bytes(type, n_cols));
    uint8_t *scratch = mem_calloc(1, matmul_bytes_ref.scratch_bytes(n_cols, n_tokens));
    float exact[TOKENS * ROWS], got[TOKENS * ROWS];
    random_blocks(type, 7, ROWS * n_cols / dtype_describe(type)->block_values, blocks);
    weight w = {.type = type, .n_rows = ROWS, .n_cols = n_cols, .data = blocks};
    const uint64_t stride = 4 * (uint64_t)n_cols;
    matmul_rows_ref.rows(&w, 0, ROWS, (const uint8_t *)x, stride, n_tokens, exact, ROWS, scratch);
    matmul_bytes_ref.rows(&w, 0, ROWS, (const uint8_t *)x, stride, n_tokens, got, ROWS, scratch);
    double off = 0, all = 0;
    for (int64_t i = 0; i < n_tokens * ROWS; i++) {
        off += (double)(got[i] - exact[i]) * (got[i] - exact[i]);
        all += (double)exact[i] * exact[i];
    }
    mem_free(blocks);
    mem_free(scratch);
    return off / all;
}

/*
 * Rounding to bytes of the largest of 256 is off by (largest / 127)^2 / 12: of evenly spread
 * activations 1.6e-5 of the squares, of weights whose scales are as far apart as those of random
 * blocks up to some 1e-4.
 */
static void each_type_is_near_exact_products(void)
{
    float x[TOKENS * 640];
    random_floats(3, TOKENS * 640, x);
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (!bytes_ref_has((dtype)t))
            continue;
        const int64_t n = dtype_describe((dtype)t)->block_values;
        const int64_t widths[] = {512, n == 256 ? 256 : 640}; /* the last of 256 is half there */
        for (int i = 0; i < 2; i++) {
            double error = error_of((dtype)t, widths[i], x, TOKENS);
            if (!CHECK(error > 0 && error < 3e-4))
                tap_note("%s, %d columns: %.2e", dtype_describe((dtype)t)->name, (int)widths[i],
                         error);
        }
    }
}

static void one_row_is_exact(void)
{
    float x[512];
    random_floats(4, 512, x);
    CHECK(error_of(DTYPE_Q4_K, 512, x, 1) == 0);
}

static void nothing_comes_of_nothing(void)
{
    float x[TOKENS * 256] = {0};
    uint8_t blocks[ROWS * 144] = {0};
    float scratch[1 << 14];
    weight w = {.type = DTYPE_Q4_K, .n_rows = ROWS, .n_cols = 256, .data = blocks};
    float out[TOKENS * ROWS];
    for (int pass = 0; pass < 2; pass++) {
        memset(out, 0xff, sizeof out);
        matmul_bytes_ref.rows(&w, 0, ROWS, (const uint8_t *)x, sizeof x / TOKENS, TOKENS, out, ROWS,
                              (uint8_t *)scratch);
        bool is_zero = true;
        for (int i = 0; i < TOKENS * ROWS; i++)
            is_zero = is_zero && out[i] == 0;
        CHECK(is_zero);
        random_floats(5, TOKENS * 256, x); /* weights are still zeros */
    }
}

static void the_cpu_refuses_in_one_line(void)
{
    lace_model_options o = lace_model_options_default();
    lace_model *model = NULL;
    lace_error err = {0};
    o.fast_prompts = true;
    CHECK(lace_model_open("models/tales-4m.gguf", &o, &model, &err) == LACE_E_UNSUPPORTED);
    CHECK(!model && strstr(err.text, "--fast-prompts") && !strchr(err.text, '\n'));
    o.device = "ref";
    CHECK(lace_model_open("models/tales-4m.gguf", &o, &model, &err) == LACE_OK);
    lace_model_close(model);
}

int main(void)
{
    CASE(each_type_is_near_exact_products);
    CASE(one_row_is_exact);
    CASE(nothing_comes_of_nothing);
    CASE(the_cpu_refuses_in_one_line);
    return tap_end();
}
