/*
 * Products with one type of floats: a part of matmul_float_tmpl.c, which defines
 *
 *     FLOAT_TYPE    the type's name; this gives matmul_<type>_<level>
 *     FLOAT_BYTES   of a value
 *     FLOAT_LOAD    VW values as floats
 */
#if !defined(FLOAT_TYPE) || !defined(FLOAT_BYTES) || !defined(FLOAT_LOAD)
#error "a macro is missing: see above"
#endif

#define OF(name) CAT(name, FLOAT_TYPE)

enum { OF(FETCHED_COLS) = FLOAT_BYTES == 4 ? 1 : 2 }; /* of a panel, in a line of the cache */

/* Of the columns at w0 and w1, what part i of a block's tokens asks for: an equal share. */
static ahead OF(share)(const uint8_t *w0, const uint8_t *w1, const block *b, int64_t i)
{
    int64_t n_parts = (b->n_tokens + b->part - 1) / b->part;
    int64_t n = (TILE_ROWS * FLOAT_BYTES + n_parts - 1) / n_parts, begin = i * n * b->n_cols;
    return (ahead){{w0 + begin, w1 + begin}, n};
}

/* Two vectors of rows with n tokens over n_cols columns; n_rows of them exist. */
ALWAYS_INLINE void OF(pair)(const uint8_t *w0, const uint8_t *w1, const float *x, int64_t n_cols,
                            const int n, float *out, int64_t out_stride, int64_t n_rows, bool adds,
                            ahead next)
{
    vf f[LEVEL_FLOAT_TOKENS][2];
    UNROLL
    for (int t = 0; t < n; t++) {
        f[t][0] = begin(out + t * out_stride, n_rows, adds);
        f[t][1] = begin(out + t * out_stride + VW, n_rows - VW, adds);
    }
    for (int64_t k = 0; k < n_cols; k++, x += n) {
        if (k % OF(FETCHED_COLS) == 0)
            fetch(&next, OF(FETCHED_COLS));
        vf a = FLOAT_LOAD(w0 + k * TILE_ROWS * FLOAT_BYTES);
        vf b = FLOAT_LOAD(w1 + k * TILE_ROWS * FLOAT_BYTES);
        UNROLL
        for (int t = 0; t < n; t++) {
            vf xt = v_set(x[t]);
            f[t][0] = v_fma(a, xt, f[t][0]);
            f[t][1] = v_fma(b, xt, f[t][1]);
        }
    }
    UNROLL
    for (int t = 0; t < n; t++) {
        finish(out + t * out_stride, f[t][0], n_rows);
        finish(out + t * out_stride + VW, f[t][1], n_rows - VW);
    }
}

/* The same for a number of tokens that is known only now. */
static void OF(pair_n)(const uint8_t *w0, const uint8_t *w1, const float *x, int64_t n_cols,
                       int64_t n, float *out, int64_t out_stride, int64_t n_rows, bool adds,
                       ahead next)
{
    switch (n) {
#define PAIR(count)                                                                                \
    case count:                                                                                    \
        OF(pair)(w0, w1, x, n_cols, count, out, out_stride, n_rows, adds, next);                   \
        break;
        PAIR(1)
        PAIR(2)
        PAIR(3)
        PAIR(4)
        PAIR(5)
        PAIR(6)
#if LEVEL_FLOAT_TOKENS > 6
        PAIR(7)
        PAIR(8)
        PAIR(9)
        PAIR(10)
        PAIR(11)
        PAIR(12)
#endif
#undef PAIR
    }
}

/* Rows [0, n_rows) of panels at w with a block. out is that of the first token. */
static void OF(multiply_block)(const uint8_t *w, int64_t panel_bytes, int64_t n_rows,
                               const block *b, float *out, int64_t out_stride)
{
    for (int64_t row = 0; row < n_rows; row += PAIR_ROWS) {
        const uint8_t *w0 = w + row / TILE_ROWS * panel_bytes, *w1 = w0;
        if (HALVES == 2)
            w1 += VW * FLOAT_BYTES;
        else if (n_rows - row > TILE_ROWS)
            w1 += panel_bytes;
        const float *x = b->x;
        int64_t to_next = n_rows - row > PAIR_ROWS ? PAIR_PANELS * panel_bytes : 0;
        for (int64_t t = 0, i = 0; t < b->n_tokens; t += b->part, i++) {
            int64_t n = min_i64(b->part, b->n_tokens - t);
            ahead next = OF(share)(w0 + to_next, w1 + to_next, b, i);
            OF(pair_n)
            (w0, w1, x, b->n_cols, n, out + t * out_stride + row, out_stride, n_rows - row, b->adds,
             next);
            x += n * b->n_cols;
        }
    }
}

/*
 * STREAMS panels, n_rows[i] of them each, with one token. Each sum is one chain, column after column,
 * as in `pair`: what comes of a token does not depend on how many there are.
 */
static void OF(multiply_one)(const uint8_t *const w[STREAMS], const float *x, int64_t n_cols,
                             float *const out[STREAMS], const int64_t n_rows[STREAMS])
{
    vf f[STREAMS][HALVES];
    UNROLL
    for (int i = 0; i < STREAMS * HALVES; i++)
        (&f[0][0])[i] = v_set(0);
    bool fetches = fetches_ahead();
    for (int64_t k = 0; k < n_cols; k++) {
        vf xk = v_set(x[k]);
        int64_t at = k * TILE_ROWS * FLOAT_BYTES;
        UNROLL
        for (int i = 0; i < STREAMS; i++) {
            if (fetches && (FLOAT_BYTES == 4 || k % 2))
                __builtin_prefetch(w[i] + at + PREFETCH_BYTES);
            UNROLL
            for (int h = 0; h < HALVES; h++)
                f[i][h] = v_fma(FLOAT_LOAD(w[i] + at + h * VW * FLOAT_BYTES), xk, f[i][h]);
        }
    }
    UNROLL
    for (int i = 0; i < STREAMS; i++)
        UNROLL
    for (int h = 0; h < HALVES; h++)
        finish(out[i] + h * VW, f[i][h], n_rows[i] - h * VW);
}

static void OF(multiply_token)(const uint8_t *w, int64_t panel_bytes, int64_t n_rows,
                               const float *x, int64_t n_cols, float *out)
{
    int64_t n_panels = (n_rows + TILE_ROWS - 1) / TILE_ROWS, run = n_panels / STREAMS;
    for (int64_t p = 0; p < run + (run * STREAMS < n_panels); p++) {
        const uint8_t *at[STREAMS];
        float *y[STREAMS];
        int64_t n[STREAMS];
        for (int i = 0; i < STREAMS; i++) {
            /* From distant parts of the rows; the last few may be the same panel several times. */
            int64_t panel = p < run ? i * run + p : min_i64(run * STREAMS + i, n_panels - 1);
            at[i] = w + panel * panel_bytes;
            y[i] = out + panel * TILE_ROWS;
            n[i] = n_rows - panel * TILE_ROWS;
        }
        OF(multiply_one)(at, x, n_cols, y, n);
    }
}

static void OF(rows)(const weight *matrix, int64_t row_begin, int64_t row_end, const uint8_t *x,
                     uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                     uint8_t *scratch)
{
    int64_t n_cols = matrix->n_cols, n_rows = row_end - row_begin;
    int64_t panel_bytes = n_cols * TILE_ROWS * FLOAT_BYTES;
    const uint8_t *w = matrix->data + row_begin / TILE_ROWS * panel_bytes;
    if (n_tokens == 1) {
        OF(multiply_token)(w, panel_bytes, n_rows, (const float *)x, n_cols, out);
        return;
    }
    int64_t most_cols = block_cols(n_tokens, n_cols);
    for (int64_t t = 0; t < n_tokens; t += BLOCK_TOKENS) {
        block b = {.n_tokens = min_i64(BLOCK_TOKENS, n_tokens - t), .x = (float *)scratch};
        b.part = part_tokens(b.n_tokens);
        for (int64_t col = 0; col < n_cols; col += most_cols) {
            b.n_cols = min_i64(most_cols, n_cols - col);
            b.adds = col > 0;
            float *to = (float *)scratch;
            const uint8_t *w0 = w + col * TILE_ROWS * FLOAT_BYTES;
            const uint8_t *w1 = n_rows > TILE_ROWS ? w0 + (PAIR_PANELS - 1) * panel_bytes : w0;
            for (int64_t i = 0; i < b.n_tokens; i += b.part) {
                int64_t n = min_i64(b.part, b.n_tokens - i);
                interleave(x + (uint64_t)(t + i) * x_stride + 4 * col, x_stride, n, b.n_cols, to,
                           OF(share)(w0, w1, &b, i / b.part));
                to += n * b.n_cols;
            }
            OF(multiply_block)
            (w0, panel_bytes, n_rows, &b, out + t * out_stride, out_stride);
        }
    }
}

const matmul_impl FN(OF(matmul)) = {
    .name = STRING(FLOAT_TYPE) " " LEVEL_NAME,
    .act = ACT_F32,
    .same_tokens = MATMUL_SAME_ALWAYS,
    .packed_bytes = tiles_packed_bytes,
    .pack = tiles_pack_plain,
    .scratch_bytes = scratch_bytes,
    .rows = OF(rows),
};

#undef OF
#undef FLOAT_TYPE
#undef FLOAT_BYTES
#undef FLOAT_LOAD
