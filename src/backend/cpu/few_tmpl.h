/*
 * Few tokens with tiles, for the levels that have few_<level>.h. A part of matmul_quant_tmpl.h,
 * once for each type.
 *
 * `streams` panels from distant rows are walked at once, with n tokens: a broadcast of activations
 * meets the words of all panels, and every sum stays in a register. Where the registers suffice,
 * all groups of a span are multiplied at once, so that memory is read strictly in order, which is
 * what processors fetch ahead best. The results for a token do not depend on n: each is made by the
 * same operations in the same order.
 *
 * What belongs to a token comes from `extra`, for each group of 32 columns:
 *
 *     float scale[n]            of the activations, divided by 2^shift of the group
 *     number[SCALES][n]         as make_extra makes it: the start of a sum, or a float for the mins
 */

enum { OF(FEW_EXTRA) = 4 * (1 + OF(SCALES)) }; /* bytes for a group and a token */

/* sum[s * n + t] += word i of a group of each panel, at[s], with the words at x. */
ALWAYS_INLINE void OF(few_dot)(const uint8_t *const at[], const int g, const int i,
                               const uint8_t *x, uint64_t stride, const int streams, const int n,
                               vi *sum)
{
    vi w[MOST_STREAMS];
    UNROLL
    for (int s = 0; s < streams; s++)
        w[s] = OF(few)(at[s], g, i);
    UNROLL
    for (int t = 0; t < n; t++) {
        vi words = broadcast_word(x + (uint64_t)t * stride + 4 * i);
        UNROLL
        for (int s = 0; s < streams; s++)
            sum[s * n + t] = _mm512_dpbusd_epi32(sum[s * n + t], w[s], words);
    }
}

/* sum[s * n + t] = what the sums of token t start with. */
ALWAYS_INLINE void OF(few_start)(const uint8_t *e, const int streams, const int n, vi *sum)
{
    UNROLL
    for (int i = 0; i < streams * n; i++)
        sum[i] = OF(HAS_MIN) ? zero_words() : broadcast_word(e + 4 * (i % n));
}

#if TILE_HAS_256

/* Mins of a tile: f[s * n + t] -= min * the scaled sums of the activations. */
ALWAYS_INLINE void OF(few_mins)(const uint8_t *mins, vf d, const uint8_t *e, const int n, vf *f)
{
    vf sum[LEVEL_TOKENS];
    UNROLL
    for (int t = 0; t < n; t++)
        sum[t] = v_set(0);
    for (int j = 0; j < 8; j++, e += OF(FEW_EXTRA) * n) {
        UNROLL
        for (int k = 0; k < OF(SCALES); k++) {
            vf min = floats_from_bytes(load_bytes(mins + 16 * (OF(SCALES) * j + k), 0));
            UNROLL
            for (int t = 0; t < n; t++)
                sum[t] = v_fma(min, broadcast_float(e + 4 * (n + k * n + t)), sum[t]);
        }
    }
    UNROLL
    for (int t = 0; t < n; t++)
        f[t] = v_fma(d, sum[t], f[t]);
}

ALWAYS_INLINE vi OF(few_scale)(const uint8_t *scales, int i)
{
    vb bytes = load_bytes(scales + 16 * i, 0);
    return OF(FEW_SIGNED) ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
}

/*
 * Groups [g, g + n_groups) of a span: whole[s * n + t] += their products without the tile's scale.
 * scales[s], x and extra are those of the span.
 */
ALWAYS_INLINE void OF(few_groups)(const uint8_t *const at[], const uint8_t *const scales[],
                                  const uint8_t *x, uint64_t stride, const uint8_t *extra,
                                  const int g, const int n_groups, const int streams, const int n,
                                  vf *whole)
{
    const int n_sums = streams * n, n_words = 8 / OF(SCALES);
    vi total[FEW_SUMS];
    UNROLL
    for (int k = 0; k < OF(SCALES); k++) {
        vi sum[FEW_SUMS];
        UNROLL
        for (int j = 0; j < n_groups; j++)
            OF(few_start)
        (extra + 4 * n * ((1 + OF(SCALES)) * (g + j) + 1 + k), streams, n, sum + j * n_sums);
        UNROLL
        for (int i = k * n_words; i < (k + 1) * n_words; i++) {
            UNROLL
            for (int j = 0; j < n_groups; j++)
                OF(few_dot)
            (at, g + j, i, x + 32 * (g + j), stride, streams, n, sum + j * n_sums);
        }
        UNROLL
        for (int i = 0; i < n_groups * n_sums; i++) {
            int group = g + i / n_sums, s = i % n_sums / n;
            vi scale = OF(few_scale)(scales[s], OF(SCALES) * group + k);
            vi scaled = _mm512_mullo_epi32(sum[i], scale);
            total[i] = k ? _mm512_add_epi32(total[i], scaled) : scaled;
        }
    }
    UNROLL
    for (int i = 0; i < n_groups * n_sums; i++) {
        const uint8_t *e = extra + OF(FEW_EXTRA) * n * (g + i / n_sums);
        whole[i % n_sums] =
            v_fma(floats_from_words(total[i]), broadcast_float(e + 4 * (i % n)), whole[i % n_sums]);
    }
}

/* f[s * n + t] += the product of a tile of each panel with token t. */
ALWAYS_INLINE void OF(few_tile)(const uint8_t *const tile[], const uint8_t *x, uint64_t stride,
                                const uint8_t *extra, fetching fetches, const int streams,
                                const int n, vf *f)
{
    uint8_t buf[MOST_STREAMS][FEW_BUF] __attribute__((aligned(64)));
    const uint8_t *scales[MOST_STREAMS], *at[MOST_STREAMS];
    vf whole[FEW_SUMS];
    UNROLL
    for (int s = 0; s < streams; s++) {
        at[s] = tile[s];
        scales[s] = OF(few_scales)(tile[s], buf[s]);
        if (OF(HAS_MIN))
            OF(few_mins)
        (scales[s] + FEW_MINS, load_halves(tile[s] + OF(FEW_D) + 32, 0), extra, n, f + s * n);
    }
    UNROLL
    for (int i = 0; i < streams * n; i++)
        whole[i] = v_set(0);
    const int at_once = OF(FEW_SPAN) * streams * n <= FEW_SUMS ? OF(FEW_SPAN) : 1;
    for (int j = 0; j < 8; j += OF(FEW_SPAN)) {
        UNROLL
        for (int g = 0; g < OF(FEW_SPAN); g += at_once) {
            /* Else compilers keep words of several groups, and run out of registers. */
            UNROLL
            for (int s = 0; s < streams; s++)
                RENEW(at[s]);
            OF(few_groups)(at, scales, x, stride, extra, g, at_once, streams, n, whole);
        }
        UNROLL
        for (int s = 0; s < streams; s++) {
            UNROLL
            for (int g = 0; g < OF(FEW_SPAN); g++)
                OF(fetch_ahead)(tile[s], j + g, n, fetches);
            at[s] += OF(FEW_STEP);
            scales[s] += 16 * OF(FEW_SPAN) * OF(SCALES);
        }
        x += 32 * OF(FEW_SPAN);
        extra += OF(FEW_SPAN) * OF(FEW_EXTRA) * n;
    }
    UNROLL
    for (int i = 0; i < streams * n; i++)
        f[i] = v_fma(load_halves(tile[i / n] + OF(FEW_D), 0), whole[i], f[i]);
}

#else

ALWAYS_INLINE void OF(few_tile)(const uint8_t *const tile[], const uint8_t *x, uint64_t stride,
                                const uint8_t *extra, fetching fetches, const int streams,
                                const int n, vf *f)
{
    tile_scales scales[MOST_STREAMS];
    UNROLL
    for (int s = 0; s < streams; s++)
        OF(scales)(tile[s], 0, &scales[s]);
    UNROLL
    for (int k = 0; k < OF(SCALES); k++) {
        const uint8_t *e = extra + 4 * n * (1 + k);
        const int n_words = 8 / OF(SCALES);
        vi sum[FEW_SUMS];
        OF(few_start)(e, streams, n, sum);
        UNROLL
        for (int i = k * n_words; i < (k + 1) * n_words; i++)
            OF(few_dot)(tile, 0, i, x, stride, streams, n, sum);
        UNROLL
        for (int i = 0; i < streams * n; i++) {
            vf scale = v_mul(scales[i / n].scale[k], broadcast_float(extra + 4 * (i % n)));
            f[i] = v_fma(floats_from_words(sum[i]), scale, f[i]);
            if (OF(HAS_MIN))
                f[i] = v_fma(scales[i / n].min[k], broadcast_float(e + 4 * (i % n)), f[i]);
        }
    }
    UNROLL
    for (int s = 0; s < streams; s++)
        OF(fetch_ahead)(tile[s], 0, n, fetches);
}

#endif

/* `streams` panels of a set from the first-th on, with n tokens. */
ALWAYS_INLINE void OF(walk)(const panel_set *set, int first, const tokens *all, const int streams,
                            const int n)
{
    const uint8_t *tile[MOST_STREAMS], *x = all->x, *extra = all->extra;
    vf f[FEW_SUMS];
    UNROLL
    for (int i = 0; i < streams * n; i++)
        f[i] = v_set(0);
    UNROLL
    for (int s = 0; s < streams; s++)
        tile[s] = set->w[first + s];
    for (int64_t g = 0; g < all->n_cols / 32; g += OF(GROUPS)) {
        OF(few_tile)(tile, x, all->stride, extra, all->fetches, streams, n, f);
        x += 32 * OF(GROUPS);
        extra += OF(GROUPS) * OF(FEW_EXTRA) * n;
        UNROLL
        for (int s = 0; s < streams; s++)
            tile[s] += OF(BYTES);
    }
    UNROLL
    for (int i = 0; i < streams * n; i++)
        v_store_some(set->out[first + i / n] + i % n * set->out_stride, f[i],
                     set->n_rows[first + i / n]);
}
