/*
 * The loops of dense.h. Compiled once per CPU level (level.h). Vectors are the compiler's own. Of
 * c, LEVEL_DENSE_ROWS are held in registers, two vectors each: a divisor of 64.
 */
#include "backend/cpu/level.h"

#include "backend/cpu/dense.h"

typedef double vd __attribute__((vector_size(LEVEL_BYTES), aligned(8), may_alias));

enum { VD = LEVEL_BYTES / 8, DENSE_COLS = 2 * VD };

static void subtract(float *to, float by, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] -= by * from[i];
}

static void update_part(double *c, int64_t c_stride, const double *a, int64_t a_stride,
                        const double *b, int64_t k)
{
    vd sums[LEVEL_DENSE_ROWS][2] = {0};
    for (int64_t i = 0; i < k; i++, b += DENSE_TILE) {
        vd b0 = *(const vd *)b, b1 = *(const vd *)(b + VD);
#pragma GCC unroll 8
        for (int r = 0; r < LEVEL_DENSE_ROWS; r++) {
            double x = a[r * a_stride + i];
            sums[r][0] += b0 * x;
            sums[r][1] += b1 * x;
        }
    }
    for (int r = 0; r < LEVEL_DENSE_ROWS; r++) {
        *(vd *)(c + r * c_stride) -= sums[r][0];
        *(vd *)(c + r * c_stride + VD) -= sums[r][1];
    }
}

static void update(double *c, int64_t c_stride, const double *a, int64_t a_stride, const double *b,
                   int64_t k)
{
    enum { DEPTH = 256 }; /* rows of b that stay in the second cache while all of a passes */
    for (int64_t at = 0; at < k; at += DEPTH) {
        int64_t depth = k - at < DEPTH ? k - at : DEPTH;
        for (int row = 0; row < DENSE_TILE; row += LEVEL_DENSE_ROWS)
            for (int col = 0; col < DENSE_TILE; col += DENSE_COLS)
                update_part(c + row * c_stride + col, c_stride, a + row * a_stride + at, a_stride,
                            b + at * DENSE_TILE + col, depth);
    }
}

/* ---- Levels ---------------------------------------------------------------------------------- */

typedef float vf16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vi16 __attribute__((vector_size(64), aligned(4), may_alias));

enum { LANES = 16, MOST = 8 }; /* vectors that are rounded together */

/* Macros, because functions would pass vectors that the CPU may not have registers for. */
#define SET(x)          ((vf16){0} + (x))
#define CHOOSE(mask, a) ((vf16)((vi16)(a) & (mask)))

/* n vectors of x become their nearest levels. A table is climbed: no branches, no look-ups. */
ALWAYS_INLINE void round_vectors(const dense_levels *levels, vf16 *x, const int n)
{
    vf16 at[MOST];
    if (levels->is_table) {
        for (int i = 0; i < n; i++)
            at[i] = SET(levels->first);
        for (int k = 0; k + 1 < levels->n; k++)
            for (int i = 0; i < n; i++)
                at[i] += CHOOSE(x[i] > levels->middle[k], SET(levels->gap[k]));
        for (int i = 0; i < n; i++)
            x[i] = at[i];
        return;
    }
    for (int i = 0; i < n; i++) {
        vf16 q = x[i] - levels->first + 0.5f, most = SET((float)(levels->n - 1));
        q = CHOOSE(q > 0.0f, q); /* NaN becomes 0 */
        vi16 is_over = q >= most;
        q = CHOOSE(~is_over, q) + CHOOSE(is_over, most);
        x[i] = __builtin_convertvector(__builtin_convertvector(q, vi16), vf16) + levels->first;
    }
}

static float sum_lanes(const vf16 *x)
{
    float s[LANES];
    *(vf16 *)s = *x;
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            s[i] += s[i + n];
    return s[0];
}

/* n vectors of values; the sums go on. */
ALWAYS_INLINE void add_sums(const dense_levels *levels, const float *x, const float *w, const int n,
                            float per_scale, float min, vf16 sums[3])
{
    vf16 l[MOST];
    for (int i = 0; i < n; i++)
        l[i] = (((const vf16 *)x)[i] + min) * per_scale;
    round_vectors(levels, l, n);
    for (int i = 0; i < n; i++) {
        vf16 wl = ((const vf16 *)w)[i] * l[i];
        sums[0] += wl;
        sums[1] += wl * l[i];
        sums[2] += wl * ((const vf16 *)x)[i];
    }
}

static dense_sums level_sums(const dense_levels *levels, const float *x, const float *w, int n,
                             float per_scale, float min)
{
    vf16 sums[3] = {0};
    for (; n >= MOST * LANES; n -= MOST * LANES, x += MOST * LANES, w += MOST * LANES)
        add_sums(levels, x, w, MOST, per_scale, min, sums);
    for (; n >= 2 * LANES; n -= 2 * LANES, x += 2 * LANES, w += 2 * LANES)
        add_sums(levels, x, w, 2, per_scale, min, sums);
    if (n > 0)
        add_sums(levels, x, w, 1, per_scale, min, sums);
    return (dense_sums){sum_lanes(&sums[0]), sum_lanes(&sums[1]), sum_lanes(&sums[2])};
}

ALWAYS_INLINE void add_error(const dense_levels *levels, const float *x, const float *w,
                             const int n, float scale, float min, vf16 *sum)
{
    float per_scale = scale != 0 ? 1.0f / scale : 0;
    vf16 l[MOST];
    for (int i = 0; i < n; i++)
        l[i] = (((const vf16 *)x)[i] + min) * per_scale;
    round_vectors(levels, l, n);
    for (int i = 0; i < n; i++) {
        vf16 d = ((const vf16 *)x)[i] - (l[i] * scale - min);
        *sum += ((const vf16 *)w)[i] * d * d;
    }
}

static float level_error(const dense_levels *levels, const float *x, const float *w, int n,
                         float scale, float min)
{
    vf16 sum = {0};
    for (; n >= MOST * LANES; n -= MOST * LANES, x += MOST * LANES, w += MOST * LANES)
        add_error(levels, x, w, MOST, scale, min, &sum);
    for (; n >= 2 * LANES; n -= 2 * LANES, x += 2 * LANES, w += 2 * LANES)
        add_error(levels, x, w, 2, scale, min, &sum);
    if (n > 0)
        add_error(levels, x, w, 1, scale, min, &sum);
    return sum_lanes(&sum);
}

const dense_ops FN(dense_ops) = {
    .subtract = subtract, .update = update, .level_sums = level_sums, .level_error = level_error};
