/*
 * Products with sparse matrices (tensor/sparse.h): a tile of 32 columns is expanded to the bytes of
 * a dense one, zeros included, and multiplied as such. Time follows what is stored, because memory
 * sets the pace and expanding costs about as much as multiplying.
 *
 * Compiled once per CPU level (level.h). LEVEL_EXPAND gives
 *
 *     expand_tile(kind, at, out)   16 x 32 bytes with 128 added; returns where the next tile begins
 *     SPARSE_HAS_PANELS            whether it also has dot_panels, as below: panels with one token
 *
 * One token: tile by tile. More: a panel is expanded once into the form that gemm_<level>.h reads,
 * and all tokens are multiplied with it.
 */
#include "backend/cpu/level.h"
#include LEVEL_DOT

#include "backend/cpu/cpu.h"
#include "tensor/half.h"
#include "tensor/sparse.h"

#include <string.h>

#include LEVEL_EXPAND
#if LEVEL_HAS_GEMM
#include "backend/cpu/gemm_avx512vnni.h"
#endif

#if !defined(SPARSE_HAS_PANELS)
#error "LEVEL_EXPAND does not say SPARSE_HAS_PANELS"
#endif

enum {
    EXPANDED_TILE = 512 + 64,         /* bytes: quants, then the scales of the rows */
    EXPANDED_MOST = 512 * 1024,       /* panels that are expanded at once: half of an L2 cache */
    TOKENS_AT_ONCE = LEVEL_TOKENS / 2 /* their sums stay in registers */
};

/* The rows of ACT_Q8 to multiply with. */
typedef struct activations {
    const uint8_t *x;
    uint64_t stride;
    int64_t n_cols;
} activations;

static int64_t expanded_panel_bytes(int64_t n_cols)
{
    return n_cols / SPARSE_TILE * EXPANDED_TILE;
}

static int64_t expanded_panels(int64_t n_cols)
{
    int64_t n = EXPANDED_MOST / expanded_panel_bytes(n_cols);
    return n < 2 ? 2 : n & ~(int64_t)1;
}

/* What the sum of a group starts with: takes off the 128 that the bytes have too much. */
ALWAYS_INLINE int32_t start_of_group(const activations *a, const uint8_t *x, int64_t group)
{
    const int16_t *s = act_q8_sums(x, a->n_cols) + 2 * group;
    return LEVEL_SIGNED ? 0 : -128 * (s[0] + s[1]);
}

ALWAYS_INLINE float scale_of_group(const activations *a, const uint8_t *x, int64_t group)
{
    return act_q8_scales(x, a->n_cols)[group];
}

/* f + the product of a part of a tile, in words, with one token. */
ALWAYS_INLINE vf add_product(vf f, const vi w[8], vf scale, const activations *a, int64_t token,
                             int64_t group)
{
    const uint8_t *x = a->x + (uint64_t)token * a->stride;
    int32_t start = start_of_group(a, x, group);
    vi sum = dot_words(broadcast_word((const uint8_t *)&start), w, x + 32 * group, 8, 255);
    return v_fma(floats_from_words(sum), v_mul(scale, v_set(scale_of_group(a, x, group))), f);
}

/* f[i * TILE_PARTS + p] += the product of a tile with token i of n. scales: float[16]. */
ALWAYS_INLINE void dot_tile(const uint8_t *quants, const uint8_t *scales, const activations *a,
                            int64_t token, int64_t group, const int n, vf *f)
{
    UNROLL
    for (int part = 0; part < TILE_PARTS; part++) {
        vi w[8];
        UNROLL
        for (int i = 0; i < 8; i++)
            w[i] = load_words(quants + 64 * i, part);
        vf scale = load_floats(scales, part);
        UNROLL
        for (int i = 0; i < n; i++) {
            vf *to = &f[i * TILE_PARTS + part];
            *to = add_product(*to, w, scale, a, token + i, group);
        }
    }
}

/* The scales of 16 rows, for a group of 128 columns. */
ALWAYS_INLINE void read_scales(const uint8_t *scales, float out[16])
{
    for (int r = 0; r < SPARSE_PANEL; r++)
        out[r] = f32_from_bits(((uint32_t)scales[r] + ((127 - 28) << 3)) << 20);
}

#if !SPARSE_HAS_PANELS
/* A panel on the way through its tiles. */
typedef struct walk {
    const uint8_t *at;
    _Alignas(64) float scales[16]; /* of the group of 128 columns */
} walk;

/*
 * f[i * TILE_PARTS + p] = the product of panel i of n, at most 2, with a row of ACT_Q8.
 * starts: start_of_group() of each group, for levels that would compute it too often.
 */
ALWAYS_INLINE void dot_panels(const sparse_kind kind, const uint8_t *const panels[], const int n,
                              const uint8_t *x, int64_t n_cols, const int32_t *starts, vf *f)
{
    activations a = {x, 0, n_cols};
    walk w[2];
    for (int i = 0; i < n; i++)
        w[i].at = panels[i];
    for (int i = 0; i < n * TILE_PARTS; i++)
        f[i] = v_set(0);
    for (int64_t group = 0; group < n_cols / SPARSE_TILE; group++)
        UNROLL
    for (int i = 0; i < n; i++) {
        if (group % (SPARSE_GROUP / SPARSE_TILE) == 0) {
            read_scales(w[i].at, w[i].scales);
            w[i].at += SPARSE_PANEL;
        }
        _Alignas(64) uint8_t quants[512];
        w[i].at = expand_tile(kind, w[i].at, quants);
        dot_tile(quants, (const uint8_t *)w[i].scales, &a, 0, group, 1, f + i * TILE_PARTS);
    }
}
#endif

/*
 * One token, straight from `n` panels that lie `apart` panels apart. Two at once hide that each
 * tile says where the next one begins.
 */
ALWAYS_INLINE void multiply_one(const sparse_kind kind, const uint8_t *table, int64_t panel,
                                int64_t apart, const int n, const activations *a,
                                const int32_t *starts, float *out, int64_t n_rows)
{
    const uint8_t *panels[2];
    vf f[2 * TILE_PARTS];
    for (int i = 0; i < n; i++)
        panels[i] = sparse_panel(table, panel + i * apart);
    dot_panels(kind, panels, n, a->x, a->n_cols, starts, f);
    for (int i = 0; i < n; i++)
        for (int part = 0; part < TILE_PARTS; part++) {
            int64_t row = i * apart * SPARSE_PANEL + part * TILE_PART;
            v_store_some(out + row, f[i * TILE_PARTS + part], n_rows - row);
        }
}

/* One token, rows [row_begin, row_end): two panels of distant parts at once, each part a stream. */
ALWAYS_INLINE void multiply_token(const sparse_kind kind, const uint8_t *table, int64_t row_begin,
                                  int64_t row_end, const activations *a, float *out,
                                  int32_t *starts)
{
    int64_t n_rows = row_end - row_begin, n_panels = (n_rows + SPARSE_PANEL - 1) / SPARSE_PANEL;
    int64_t first = row_begin / SPARSE_PANEL, half = n_panels / 2;
    for (int64_t g = 0; g < a->n_cols / SPARSE_TILE; g++)
        starts[g] = start_of_group(a, a->x, g);
    for (int64_t i = 0; i < half; i++)
        multiply_one(kind, table, first + i, half, 2, a, starts, out + i * SPARSE_PANEL,
                     n_rows - i * SPARSE_PANEL);
    if (n_panels % 2)
        multiply_one(kind, table, first + n_panels - 1, 0, 1, a, starts,
                     out + (n_panels - 1) * SPARSE_PANEL, n_rows - (n_panels - 1) * SPARSE_PANEL);
}

static void expand_panel(const sparse_kind kind, const uint8_t *panel, int64_t n_cols, uint8_t *out)
{
    _Alignas(64) float scales[16];
    const uint8_t *at = panel;
    for (int64_t group = 0; group < n_cols / SPARSE_TILE; group++, out += EXPANDED_TILE) {
        if (group % (SPARSE_GROUP / SPARSE_TILE) == 0) {
            read_scales(at, scales);
            at += SPARSE_PANEL;
        }
        at = expand_tile(kind, at, out);
        memcpy(out + 512, scales, sizeof scales);
    }
}

/* n tokens from `token` on, with an expanded panel. */
ALWAYS_INLINE void multiply_some(const uint8_t *panel, const activations *a, int64_t token,
                                 const int n, float *out, int64_t out_stride, int64_t n_rows)
{
    vf f[TOKENS_AT_ONCE * TILE_PARTS];
    UNROLL
    for (int i = 0; i < n * TILE_PARTS; i++)
        f[i] = v_set(0);
    for (int64_t group = 0; group < a->n_cols / SPARSE_TILE; group++)
        dot_tile(panel + group * EXPANDED_TILE, panel + group * EXPANDED_TILE + 512, a, token,
                 group, n, f);
    for (int i = 0; i < n; i++)
        for (int part = 0; part < TILE_PARTS; part++)
            v_store_some(out + (token + i) * out_stride + part * TILE_PART,
                         f[i * TILE_PARTS + part], n_rows - part * TILE_PART);
}

/* All tokens with the expanded panels of rows [0, n_rows). */
static void multiply_few(const uint8_t *expanded, int64_t n_rows, const activations *a,
                         int64_t n_tokens, float *out, int64_t out_stride)
{
    for (int64_t row = 0; row < n_rows; row += SPARSE_PANEL) {
        const uint8_t *panel = expanded + row / SPARSE_PANEL * expanded_panel_bytes(a->n_cols);
        int64_t t = 0;
        for (; t + TOKENS_AT_ONCE <= n_tokens; t += TOKENS_AT_ONCE)
            multiply_some(panel, a, t, TOKENS_AT_ONCE, out + row, out_stride, n_rows - row);
        for (; t < n_tokens; t++)
            multiply_some(panel, a, t, 1, out + row, out_stride, n_rows - row);
    }
}

#if LEVEL_HAS_GEMM
/* Of each token: the exponents of its scales, then the starts of its sums (gemm_avx512vnni.h). */
static void make_starts(const activations *a, int64_t n_tokens, int32_t *out)
{
    int64_t n = a->n_cols / SPARSE_TILE;
    for (int64_t t = 0; t < n_tokens; t++, out += 2 * n) {
        const uint8_t *x = a->x + (uint64_t)t * a->stride;
        for (int64_t g = 0; g < n; g++) {
            out[g] = (int32_t)f32_to_bits(scale_of_group(a, x, g)) - GEMM_EXPONENT_LEAST;
            out[n + g] = start_of_group(a, x, g);
        }
    }
}

/* The gemm's products: the scales are without its factor, and its zeros are not quite zero. */
ALWAYS_INLINE vf unscaled(const float *y)
{
    vf product = v_mul(v_load(y), v_set(GEMM_SCALE_FACTOR));
    return v_select_less(v_abs(product), v_set(1e-30f), v_set(0), product);
}

static void multiply_many(const uint8_t *expanded, int64_t n_rows, const activations *a,
                          const int32_t *starts, int64_t n_tokens, float *out, int64_t out_stride)
{
    int64_t n_groups = a->n_cols / SPARSE_TILE, panel_bytes = expanded_panel_bytes(a->n_cols);
    _Alignas(64) float y[GEMM_TOKENS][GEMM_ROWS];
    gemm_args g = {.x_stride = a->stride,
                   .stride = (uint64_t)n_groups * 8,
                   .n_groups = n_groups,
                   .out = &y[0][0]};
    for (int64_t begin = 0; begin < n_tokens; begin += GEMM_TOKENS) {
        /* The last six overlap those before; the same products are written again. */
        int64_t token = begin < n_tokens - GEMM_TOKENS ? begin : n_tokens - GEMM_TOKENS;
        g.x = a->x + (uint64_t)token * a->stride;
        g.exponents = (const uint8_t *)(starts + 2 * token * n_groups);
        g.extra = g.exponents + 4 * n_groups;
        for (int64_t row = 0; row < n_rows; row += GEMM_ROWS) {
            bool is_single = n_rows - row <= SPARSE_PANEL;
            g.w[0] = expanded + row / SPARSE_PANEL * panel_bytes;
            g.w[1] = g.w[0] + (is_single ? 0 : panel_bytes);
            g.next = g.w[0];
            gemm_avx512vnni[0][0](&g);
            for (int i = 0; i < GEMM_TOKENS; i++) {
                float *at = out + (token + i) * out_stride + row;
                v_store_some(at, unscaled(y[i]), n_rows - row);
                v_store_some(at + VW, unscaled(y[i] + VW), n_rows - row - VW);
            }
        }
    }
}
#endif

static uint64_t scratch_bytes(int64_t n_cols, int64_t n_tokens)
{
    if (n_tokens == 1)
        return (uint64_t)(n_cols / SPARSE_TILE) * 4;
    uint64_t starts = LEVEL_HAS_GEMM ? (uint64_t)(n_cols / SPARSE_TILE * n_tokens) * 8 : 0;
    return (uint64_t)(expanded_panels(n_cols) * expanded_panel_bytes(n_cols)) + starts;
}

ALWAYS_INLINE void rows_of(const sparse_kind kind, const weight *w, int64_t row_begin,
                           int64_t row_end, const activations *a, int64_t n_tokens, float *out,
                           int64_t out_stride, uint8_t *scratch)
{
    int64_t most = expanded_panels(w->n_cols) * SPARSE_PANEL;
    int64_t bytes = expanded_panel_bytes(w->n_cols);
#if LEVEL_HAS_GEMM
    int32_t *starts = (int32_t *)(scratch + expanded_panels(w->n_cols) * bytes);
    if (n_tokens >= GEMM_TOKENS)
        make_starts(a, n_tokens, starts);
#endif
    if (n_tokens == 1) {
        multiply_token(kind, w->data, row_begin, row_end, a, out, (int32_t *)scratch);
        return;
    }
    for (int64_t row = row_begin; row < row_end; row += most) {
        int64_t n_rows = row_end - row < most ? row_end - row : most;
        float *to = out + row - row_begin;
        for (int64_t i = 0; i < n_rows; i += SPARSE_PANEL)
            expand_panel(kind, sparse_panel(w->data, (row + i) / SPARSE_PANEL), w->n_cols,
                         scratch + i / SPARSE_PANEL * bytes);
#if LEVEL_HAS_GEMM
        if (n_tokens >= GEMM_TOKENS) {
            multiply_many(scratch, n_rows, a, starts, n_tokens, to, out_stride);
            continue;
        }
#endif
        multiply_few(scratch, n_rows, a, n_tokens, to, out_stride);
    }
}

static void rows(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x,
                 uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                 uint8_t *scratch)
{
    activations a = {x, x_stride, w->n_cols};
    if (sparse_kind_of(w->type) == SPARSE_M8)
        rows_of(SPARSE_M8, w, row_begin, row_end, &a, n_tokens, out, out_stride, scratch);
    else
        rows_of(SPARSE_M4, w, row_begin, row_end, &a, n_tokens, out, out_stride, scratch);
}

#define IMPL(impl, called, takes)                                                                  \
    const matmul_impl FN(impl) = {                                                                 \
        .name = called " " LEVEL_NAME,                                                             \
        .act = takes,                                                                              \
        .packed_bytes_of = matmul_sparse_packed_bytes,                                             \
        .pack = matmul_sparse_pack,                                                                \
        .scratch_bytes = scratch_bytes,                                                            \
        .rows = rows,                                                                              \
    };
IMPL(matmul_sparse, "sparse", ACT_Q8)
IMPL(matmul_sparse_rotated, "sparse rotated", ACT_ROTATED_Q8) /* M4R */
