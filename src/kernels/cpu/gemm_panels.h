/*
 * Many tokens: panels are decoded, as many as fit in half of an L2 cache, and multiplied with all
 * tokens, 6 at a time. A part of matmul_quant_tmpl.h, for the levels that have a gemm.
 */
#ifndef LACE_KERNELS_CPU_GEMM_PANELS_H
#define LACE_KERNELS_CPU_GEMM_PANELS_H

#include "kernels/cpu/gemm_avx512vnni.h"

enum { DECODED_BYTES = 512 * 1024 };

static int64_t decoded_panel_bytes(const tile_traits *t, int64_t n_cols)
{
    return n_cols / 32 * (512 + 64 * t->scales * (t->has_min ? 2 : 1));
}

/* Panels to decode at once: an even number. */
static int64_t decoded_panels(const tile_traits *t, int64_t n_cols)
{
    int64_t n = DECODED_BYTES / decoded_panel_bytes(t, n_cols) & ~(int64_t)1;
    return n < 2 ? 2 : n;
}

static uint64_t scratch_bytes_of(const tile_traits *t, int64_t n_cols, int64_t n_tokens)
{
    uint64_t bytes = extra_bytes(t, n_cols) * (uint64_t)n_tokens;
    if (n_tokens > QUANT_DIRECT)
        bytes += (uint64_t)(decoded_panels(t, n_cols) * decoded_panel_bytes(t, n_cols));
    return bytes;
}

/* All tokens with decoded panels, for rows [0, n_rows); out is that of the first row. */
static void multiply_decoded(const tile_traits *t, const uint8_t *decoded, int64_t n_rows,
                             const tokens *x, int64_t n_tokens, float *out, int64_t out_stride)
{
    gemm_fn gemm = gemm_avx512vnni[t->has_min][t->scales - 1];
    int64_t panel_bytes = decoded_panel_bytes(t, x->n_cols);
    float y[GEMM_TOKENS][GEMM_ROWS] __attribute__((aligned(64)));
    gemm_args a = {.x_stride = x->stride,
                   .extra_stride = extra_bytes(t, x->n_cols),
                   .n_groups = x->n_cols / 32,
                   .out = &y[0][0]};
    for (int64_t begin = 0; begin < n_tokens; begin += GEMM_TOKENS) {
        /* The last six overlap those before; the same products are written again. */
        int64_t token = min_i64(begin, n_tokens - GEMM_TOKENS);
        a.x = x->x + (uint64_t)token * x->stride;
        a.x_scales = (const uint8_t *)act_q8_scales(a.x, x->n_cols);
        a.extra = x->extra + (uint64_t)token * a.extra_stride;
        for (int64_t row = 0; row < n_rows; row += GEMM_ROWS) {
            bool is_single = n_rows - row <= TILE_ROWS;
            a.w[0] = decoded + row / TILE_ROWS * panel_bytes;
            a.w[1] = a.w[0] + (is_single ? 0 : panel_bytes);
            gemm(&a);
            for (int i = 0; i < GEMM_TOKENS; i++) {
                float *at = out + (token + i) * out_stride + row;
                store_rows(at, v_load(y[i]), n_rows - row);
                store_rows(at + TILE_ROWS, v_load(y[i] + TILE_ROWS), n_rows - row - TILE_ROWS);
            }
        }
    }
}

static void multiply_panels(const tile_traits *t,
                            void (*decode)(const uint8_t *w, int64_t n_tiles, uint8_t *out),
                            const uint8_t *w, int64_t n_rows, const tokens *x, int64_t n_tokens,
                            float *out, int64_t out_stride, uint8_t *scratch)
{
    uint64_t extra = extra_bytes(t, x->n_cols);
    for (int64_t i = 0; i < n_tokens; i++)
        make_extra(t, x->x + (uint64_t)i * x->stride, x->n_cols, scratch + (uint64_t)i * extra, 1);
    tokens all = *x;
    all.extra = scratch;
    uint8_t *decoded = scratch + (uint64_t)n_tokens * extra;
    int64_t tiles_in_panel = x->n_cols / (32 * t->groups);
    int64_t most = decoded_panels(t, x->n_cols) * TILE_ROWS;
    for (int64_t row = 0; row < n_rows; row += most) {
        int64_t n = min_i64(most, n_rows - row);
        int64_t n_tiles = round_up(n, TILE_ROWS) / TILE_ROWS * tiles_in_panel;
        decode(w + row / TILE_ROWS * tiles_in_panel * t->tile_bytes, n_tiles, decoded);
        multiply_decoded(t, decoded, n, &all, n_tokens, out + row, out_stride);
    }
}

#endif
