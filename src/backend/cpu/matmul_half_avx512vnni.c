/*
 * Products of many tokens with F16 and BF16, AVX-512 VNNI: in fixed point, at twice the speed of
 * floats.
 *
 * Weights become int16 of 13 bits and a sign, with a power of two for each 32 of a row: the 11 bits
 * of F16 are exact down to a quarter of the largest, the rest is off by at most 2^-14 of it.
 * Activations become the same, with a power of two for each 128. That is about what rounding
 * activations to F16 costs: 3e-8 of the squares. Sums of 32 products are exact, and fit in 31 bits.
 *
 * Few tokens, and widths that are no multiple of 32, are left to the floats of the level below,
 * whose layout this is. Exactness has its own entry in the kernel table.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/tiles.h"
#include "backend/cpu/words_avx512vnni.h"
#include "backend/cpu/vec_math.h"
#include "base/numbers.h"

enum {
    FEWEST = 24,                /* tokens that are worth decoding panels */
    DECODED_BYTES = 512 * 1024, /* half of an L2 cache */
};

typedef vf (*load_fn)(const void *at);

/* ---- Weights --------------------------------------------------------------------------------- */

static int64_t panel_bytes(int64_t n_cols)
{
    return n_cols / 32 * WORDS_GROUP_BYTES;
}

/* Panels to decode at once: an even number. */
static int64_t decoded_panels(int64_t n_cols)
{
    int64_t n = DECODED_BYTES / panel_bytes(n_cols) & ~(int64_t)1;
    return n < 2 ? 2 : n;
}

/* n_groups of 32 columns of a panel to what gemm_avx512vnni.h describes. */
static inline __attribute__((always_inline)) void decode(load_fn load, const uint8_t *w,
                                                         int64_t n_groups, uint8_t *out)
{
    for (int64_t g = 0; g < n_groups; g++, w += 32 * 32, out += WORDS_GROUP_BYTES) {
        __m512 most = _mm512_setzero_ps();
        for (int k = 0; k < 32; k++)
            most = _mm512_max_ps(_mm512_abs_ps(load(w + 32 * k)), most);
        __m512 factor = to_13_bits(most);
        for (int k = 0; k < 16; k++) {
            __m512 even = load(w + 64 * k), odd = load(w + 64 * k + 32);
            _mm512_storeu_si512(out + 64 * k, words_of_pairs(even, odd, factor));
        }
        _mm512_storeu_ps(out + 1024, _mm512_div_ps(_mm512_set1_ps(GEMM_SCALE_FACTOR), factor));
    }
}

static void decode_f16(const uint8_t *w, int64_t n_groups, uint8_t *out)
{
    decode(v_load_f16, w, n_groups, out);
}

static void decode_bf16(const uint8_t *w, int64_t n_groups, uint8_t *out)
{
    decode(v_load_bf16, w, n_groups, out);
}

/* ---- Products -------------------------------------------------------------------------------- */

/* All tokens with decoded panels, for rows [0, n_rows). x: as words_from_floats made them. */
static void multiply_decoded(const uint8_t *decoded, int64_t n_rows, const uint8_t *x,
                             int64_t n_cols, int64_t n_tokens, float *out, int64_t out_stride)
{
    float y[GEMM_TOKENS][GEMM_ROWS] __attribute__((aligned(64)));
    gemm_args a = {.x_stride = words_row_bytes(n_cols),
                   .stride = words_row_bytes(n_cols),
                   .n_groups = n_cols / 32,
                   .out = &y[0][0]};
    for (int64_t begin = 0; begin < n_tokens; begin += GEMM_TOKENS) {
        /* The last six overlap those before; the same products are written again. */
        int64_t token = min_i64(begin, n_tokens - GEMM_TOKENS);
        a.x = x + (uint64_t)token * a.x_stride;
        a.exponents = a.extra = a.x + 2 * n_cols;
        for (int64_t row = 0; row < n_rows; row += GEMM_ROWS) {
            bool is_single = n_rows - row <= TILE_ROWS;
            a.w[0] = decoded + row / TILE_ROWS * panel_bytes(n_cols);
            a.w[1] = a.w[0] + (is_single ? 0 : panel_bytes(n_cols));
            gemm_words_avx512vnni(&a);
            for (int i = 0; i < GEMM_TOKENS; i++) {
                float *at = out + (token + i) * out_stride + row;
                v_store_some(at, v_load(y[i]), n_rows - row);
                v_store_some(at + TILE_ROWS, v_load(y[i] + TILE_ROWS), n_rows - row - TILE_ROWS);
            }
        }
    }
}

static bool is_for_floats(int64_t n_cols, int64_t n_tokens)
{
    return n_tokens < FEWEST || n_cols % 32;
}

/* For up to n_tokens: fewer may need the floats' scratch. */
static uint64_t scratch_bytes_half(int64_t n_cols, int64_t n_tokens)
{
    uint64_t few = matmul_f16_avx512.scratch_bytes(n_cols, n_tokens);
    if (is_for_floats(n_cols, n_tokens))
        return few;
    uint64_t many = words_row_bytes(n_cols) * (uint64_t)n_tokens +
                    (uint64_t)(decoded_panels(n_cols) * panel_bytes(n_cols));
    return many < few ? few : many;
}

static void rows_half(void (*decode_panels)(const uint8_t *, int64_t, uint8_t *),
                      const matmul_impl *floats, const weight *matrix, int64_t row_begin,
                      int64_t row_end, const uint8_t *x, uint64_t x_stride, int64_t n_tokens,
                      float *out, int64_t out_stride, uint8_t *scratch)
{
    int64_t n_cols = matrix->n_cols, bytes = n_cols * TILE_ROWS * 2;
    if (is_for_floats(n_cols, n_tokens)) {
        floats->rows(matrix, row_begin, row_end, x, x_stride, n_tokens, out, out_stride, scratch);
        return;
    }
    uint8_t *decoded = scratch + words_row_bytes(n_cols) * (uint64_t)n_tokens;
    for (int64_t t = 0; t < n_tokens; t++)
        words_from_floats((const float *)(x + (uint64_t)t * x_stride), n_cols,
                          scratch + (uint64_t)t * words_row_bytes(n_cols));
    int64_t most = decoded_panels(n_cols) * TILE_ROWS;
    for (int64_t row = row_begin; row < row_end; row += most) {
        int64_t n = min_i64(most, row_end - row);
        int64_t n_panels = (n + TILE_ROWS - 1) / TILE_ROWS;
        decode_panels(matrix->data + row / TILE_ROWS * bytes, n_panels * n_cols / 32, decoded);
        multiply_decoded(decoded, n, scratch, n_cols, n_tokens, out + row - row_begin, out_stride);
    }
}

#define IMPL(type)                                                                                 \
    static void rows_##type(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x, \
                            uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,   \
                            uint8_t *scratch)                                                      \
    {                                                                                              \
        rows_half(decode_##type, &matmul_##type##_avx512, w, row_begin, row_end, x, x_stride,      \
                  n_tokens, out, out_stride, scratch);                                             \
    }                                                                                              \
    const matmul_impl matmul_##type##_avx512vnni = {                                               \
        .name = #type " avx512vnni",                                                               \
        .act = ACT_F32,                                                                            \
        .packed_bytes = tiles_packed_bytes,                                                        \
        .pack = tiles_pack_plain,                                                                  \
        .rounding = MATMUL_TO_13_BITS,                                                             \
        .same_tokens = FEWEST - 1,                                                                 \
        .scratch_bytes = scratch_bytes_half,                                                       \
        .rows = rows_##type,                                                                       \
    };
IMPL(f16)
IMPL(bf16)
