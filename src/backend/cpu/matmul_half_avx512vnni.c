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
    FEW_PANELS = 128,           /* tokens for which no more panels are decoded than needed */
};

typedef vf (*load_fn)(const void *at);

/* ---- Weights --------------------------------------------------------------------------------- */

static int64_t panel_bytes(int64_t n_cols)
{
    return n_cols / 32 * WORDS_GROUP_BYTES;
}

/*
 * Panels to decode at once: an even number. With few tokens as few as are multiplied at once, so that
 * they and the next ones are in the nearest caches.
 */
static int64_t decoded_panels(int64_t n_cols, int64_t n_tokens)
{
    int64_t n = DECODED_BYTES / panel_bytes(n_cols) & ~(int64_t)1;
    return n < 2 || n_tokens <= FEW_PANELS ? 2 : n;
}

/* The largest magnitude of each row in 32 columns. Without signs, the bits of both types ascend. */
static inline __attribute__((always_inline)) __m512 largest(load_fn load, const uint8_t *w)
{
    __m512i most = _mm512_setzero_si512(), all_but_sign = _mm512_set1_epi16(0x7fff);
    for (int k = 0; k < 16; k++)
        most =
            _mm512_max_epu16(most, _mm512_and_si512(_mm512_loadu_si512(w + 64 * k), all_but_sign));
    __m256i both =
        _mm256_max_epu16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    return load(&both);
}

/* n_groups of 32 columns of a panel to what gemm_avx512vnni.h describes. */
static inline __attribute__((always_inline)) void decode(load_fn load, const uint8_t *w,
                                                         int64_t n_groups, uint8_t *out)
{
    for (int64_t g = 0; g < n_groups; g++, w += 32 * 32, out += WORDS_GROUP_BYTES) {
        __m512 factor = to_13_bits(largest(load, w));
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

/*
 * Weights that come next: they are asked for evenly while others are multiplied. Many at once would
 * fill the core's list of requests, and products wait. One core of Zen 5, the matrices of tales-26m
 * from memory, GMAC/s: 24 tokens 111 -> 160, 64 tokens 156 -> 188, 512 tokens 198 -> 208.
 */
typedef struct ahead {
    const uint8_t *at;
    int64_t n_bytes;
} ahead;

/* Panels from the row-th on, at most `most` rows. */
static ahead panels_ahead(const weight *matrix, int64_t row, int64_t row_end, int64_t most)
{
    int64_t n = (min_i64(most, row_end - row) + TILE_ROWS - 1) / TILE_ROWS;
    int64_t bytes = matrix->n_cols * TILE_ROWS * 2;
    return (ahead){matrix->data + row / TILE_ROWS * bytes, n * bytes};
}

/* Part i of n. */
static void fetch_part(ahead next, int64_t i, int64_t n)
{
    for (int64_t at = next.n_bytes * i / n; at < next.n_bytes * (i + 1) / n; at += 64)
        _mm_prefetch((const char *)next.at + at, _MM_HINT_T1);
}

/* All tokens with decoded panels, for rows [0, n_rows). x: as words_from_floats made them. */
static void multiply_decoded(const uint8_t *decoded, int64_t n_rows, const uint8_t *x,
                             int64_t n_cols, int64_t n_tokens, float *out, int64_t out_stride,
                             ahead next)
{
    float y[GEMM_TOKENS][GEMM_ROWS] __attribute__((aligned(64)));
    int64_t n_steps = (n_tokens + GEMM_TOKENS - 1) / GEMM_TOKENS *
                      ((n_rows + GEMM_ROWS - 1) / GEMM_ROWS) * n_cols / 2;
    gemm_args a = {.x_stride = words_row_bytes(n_cols),
                   .stride = words_row_bytes(n_cols),
                   .n_groups = n_cols / 32,
                   .out = &y[0][0],
                   .next = next.at,
                   .next_step = (next.n_bytes + n_steps - 1) / n_steps};
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
            a.next += n_cols / 2 * a.next_step;
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
                    (uint64_t)(decoded_panels(n_cols, FEW_PANELS + 1) * panel_bytes(n_cols));
    return many < few ? few : many;
}

static void rows_half(void (*decode_panels)(const uint8_t *, int64_t, uint8_t *),
                      const matmul_impl *floats, const weight *matrix, int64_t row_begin,
                      int64_t row_end, const uint8_t *x, uint64_t x_stride, int64_t n_tokens,
                      float *out, int64_t out_stride, uint8_t *scratch)
{
    int64_t n_cols = matrix->n_cols;
    if (is_for_floats(n_cols, n_tokens)) {
        floats->rows(matrix, row_begin, row_end, x, x_stride, n_tokens, out, out_stride, scratch);
        return;
    }
    uint8_t *decoded = scratch + words_row_bytes(n_cols) * (uint64_t)n_tokens;
    int64_t most = decoded_panels(n_cols, n_tokens) * TILE_ROWS;
    ahead first = panels_ahead(matrix, row_begin, row_end, 2 * TILE_ROWS);
    for (int64_t t = 0; t < n_tokens; t++) {
        fetch_part(first, t, n_tokens);
        words_from_floats((const float *)(x + (uint64_t)t * x_stride), n_cols,
                          scratch + (uint64_t)t * words_row_bytes(n_cols));
    }
    for (int64_t row = row_begin; row < row_end; row += most) {
        ahead now = panels_ahead(matrix, row, row_end, most);
        ahead next = row + most < row_end ? panels_ahead(matrix, row + most, row_end, most)
                                          : (ahead){now.at, 0};
        decode_panels(now.at, now.n_bytes / (32 * 2 * TILE_ROWS), decoded);
        multiply_decoded(decoded, min_i64(most, row_end - row), scratch, n_cols, n_tokens,
                         out + row - row_begin, out_stride, next);
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
