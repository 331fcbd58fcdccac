/*
 * Many tokens: panels are decoded, as many as fit in half of an L2 cache, and multiplied with all
 * tokens, 6 at a time. A part of matmul_quant_tmpl.h, for the levels that have a gemm.
 *
 * Meanwhile the panels that come next are fetched. With few tokens half as many are decoded, so that
 * these stay in the cache. One core of Zen 5, a text in nomic-embed-text Q8_0, milliseconds: of 33
 * tokens 15.1 -> 12.6, of 64 tokens 24.6 -> 21.6, of 128 tokens 44.6 -> 43.3.
 */
#ifndef LACE_BACKEND_CPU_GEMM_PANELS_H
#define LACE_BACKEND_CPU_GEMM_PANELS_H

#include "backend/cpu/gemm_avx512vnni.h"

enum { DECODED_BYTES = 512 * 1024, DECODED_BYTES_OF_FEW = 256 * 1024, FEW_DECODED = 128 };

static int64_t decoded_panel_bytes(const tile_traits *t, int64_t n_cols)
{
    if (t->is_bytes)
        return bytes_panel_bytes(n_cols);
    return n_cols / 32 * (512 + 64 * t->scales * (t->has_min ? 2 : 1));
}

/* Panels to decode at once: an even number. */
static int64_t decoded_panels(const tile_traits *t, int64_t n_cols, int64_t n_tokens)
{
    int64_t most = n_tokens > FEW_DECODED ? DECODED_BYTES : DECODED_BYTES_OF_FEW;
    int64_t n = most / decoded_panel_bytes(t, n_cols) & ~(int64_t)1;
    return n < 2 ? 2 : n;
}

/* Exponents and extra of a token, see gemm_avx512vnni.h, with room for whole vectors. */
static uint64_t gemm_token_bytes(const tile_traits *t, int64_t n_cols)
{
    return 4 * round_up((uint64_t)n_cols / 32, 16) * (uint64_t)(1 + t->scales);
}

static uint64_t scratch_bytes_of(const tile_traits *t, int64_t n_cols, int64_t n_tokens)
{
    if (n_tokens <= QUANT_DIRECT)
        return extra_bytes(t, n_cols) * (uint64_t)n_tokens;
    return GEMM_TOKENS * gemm_token_bytes(t, n_cols) +
           (uint64_t)(decoded_panels(t, n_cols, FEW_DECODED + 1) * decoded_panel_bytes(t, n_cols));
}

/* A bit for each of the next 16 of n that exists. */
ALWAYS_INLINE __mmask16 next_16(int64_t n)
{
    return (__mmask16)((1u << min_i64(n, 16)) - 1);
}

/* What the gemm wants to know of one token besides its quants. */
static void make_gemm_token(const tile_traits *t, const uint8_t *x, int64_t n_cols, uint8_t *out)
{
    const vi twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const float *d = act_q8_scales(x, n_cols);
    const int16_t *sums = act_q8_sums(x, n_cols);
    int64_t n_groups = n_cols / 32, n = n_groups * t->scales;
    for (int64_t i = 0; i < n_groups; i += 16) {
        vi scale = _mm512_maskz_loadu_epi32(next_16(n_groups - i), d + i);
        _mm512_storeu_si512(out + 4 * i,
                            _mm512_sub_epi32(scale, _mm512_set1_epi32(GEMM_EXPONENT_LEAST)));
    }
    uint8_t *extra = out + 4 * round_up((uint64_t)n_groups, 16);
    for (int64_t i = 0; i < n; i += 16) {
        vi sum;
        if (t->scales == 2)
            sum = _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(next_16(n - i), sums + i));
        else
            sum = _mm512_madd_epi16(_mm512_maskz_loadu_epi32(next_16(n - i), sums + 2 * i),
                                    _mm512_set1_epi16(1));
        if (t->has_min) {
            vf scale = _mm512_maskz_loadu_ps(next_16(n_groups - i / t->scales), d + i / t->scales);
            if (t->scales == 2)
                scale = _mm512_permutexvar_ps(twice, scale);
            vf minus = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), v_sub(v_set(0), scale));
            _mm512_storeu_ps(extra + 4 * i, minus);
        } else {
            vi start = _mm512_mullo_epi32(sum, _mm512_set1_epi32(-t->offset));
            _mm512_storeu_si512(extra + 4 * i, start);
        }
    }
}

/*
 * All tokens with decoded panels, for rows [0, n_rows); out is that of the first row. scratch: for
 * what belongs to 6 tokens. From next to next_end is what is decoded after them.
 */
static void multiply_decoded(const tile_traits *t, const uint8_t *decoded, int64_t n_rows,
                             const tokens *x, int64_t n_tokens, float *out, int64_t out_stride,
                             uint8_t *scratch, const uint8_t *next, const uint8_t *next_end)
{
    gemm_fn gemm = t->is_bytes ? gemm_bytes_avx512vnni : gemm_avx512vnni[t->has_min][t->scales - 1];
    int64_t panel_bytes = decoded_panel_bytes(t, x->n_cols);
    float y[GEMM_TOKENS][GEMM_ROWS] __attribute__((aligned(64)));
    gemm_args a = {.x_stride = x->stride,
                   .exponents = scratch,
                   .extra = scratch + 4 * round_up((uint64_t)x->n_cols / 32, 16),
                   .stride = gemm_token_bytes(t, x->n_cols),
                   .n_groups = x->n_cols / 32,
                   .out = &y[0][0]};
    for (int64_t begin = 0; begin < n_tokens; begin += GEMM_TOKENS) {
        /* The last six overlap those before; the same products are written again. */
        int64_t token = min_i64(begin, n_tokens - GEMM_TOKENS);
        a.x = x->x + (uint64_t)token * x->stride;
        for (int i = 0; i < GEMM_TOKENS; i++)
            make_gemm_token(t, a.x + (uint64_t)i * x->stride, x->n_cols,
                            scratch + (uint64_t)i * a.stride);
        for (int64_t row = 0; row < n_rows; row += GEMM_ROWS) {
            bool is_single = n_rows - row <= TILE_ROWS;
            a.w[0] = decoded + row / TILE_ROWS * panel_bytes;
            a.w[1] = a.w[0] + (is_single ? 0 : panel_bytes);
            a.next = next < next_end ? next : decoded;
            next += a.n_groups * GEMM_FETCHED;
            gemm(&a);
            for (int i = 0; i < GEMM_TOKENS; i++) {
                float *at = out + (token + i) * out_stride + row;
                v_store_some(at, v_load(y[i]), n_rows - row);
                v_store_some(at + TILE_ROWS, v_load(y[i] + TILE_ROWS), n_rows - row - TILE_ROWS);
            }
        }
    }
}

static void multiply_panels(const tile_traits *t,
                            void (*decode)(const uint8_t *w, int64_t n_tiles, int64_t n_panels,
                                           uint8_t *out),
                            const uint8_t *w, int64_t n_rows, const tokens *x, int64_t n_tokens,
                            float *out, int64_t out_stride, uint8_t *scratch)
{
    uint8_t *decoded = scratch + GEMM_TOKENS * gemm_token_bytes(t, x->n_cols);
    int64_t tiles_in_panel = x->n_cols / (32 * t->groups);
    int64_t panel_bytes = tiles_in_panel * t->tile_bytes;
    int64_t most = decoded_panels(t, x->n_cols, n_tokens) * TILE_ROWS;
    for (int64_t row = 0; row < n_rows; row += most) {
        int64_t n = min_i64(most, n_rows - row), n_next = min_i64(most, n_rows - row - n);
        const uint8_t *now = w + row / TILE_ROWS * panel_bytes;
        const uint8_t *next = now + divide_up(n, TILE_ROWS) * panel_bytes;
        decode(now, tiles_in_panel, divide_up(n, TILE_ROWS), decoded);
        multiply_decoded(t, decoded, n, x, n_tokens, out + row, out_stride, scratch, next,
                         next + divide_up(n_next, TILE_ROWS) * panel_bytes);
    }
}

#endif
