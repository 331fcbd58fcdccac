/*
 * Searching for scales: many candidates are tried, each is improved by least squares for the
 * levels that it leads to, and the one with the least weighted error wins.
 */
#include "compress/codec.h"

#include <assert.h>

#include "tensor/half.h"

enum { N_CANDIDATES = 24, N_ROUNDS = 3 };

/* ---- One scale ------------------------------------------------------------------------------- */

/* Sums over the values at their nearest levels l: w x l and w l l. */
typedef struct sums {
    float xl, ll;
} sums;

static sums add_up(const codec_levels *l, const float *x, const float *w, int n, float scale)
{
    sums s = {0, 0};
    float per_scale = 1.0f / scale;
    for (int i = 0; i < n; i++) {
        float level = codec_level(l, codec_nearest_level(l, x[i] * per_scale));
        s.xl += w[i] * x[i] * level;
        s.ll += w[i] * level * level;
    }
    return s;
}

float codec_error(const codec_levels *l, const float *x, const float *w, int n, float scale,
                  float min)
{
    float per_scale = scale != 0 ? 1.0f / scale : 0, error = 0;
    for (int i = 0; i < n; i++) {
        float level = codec_level(l, codec_nearest_level(l, (x[i] + min) * per_scale));
        float d = x[i] - (scale * level - min);
        error += w[i] * d * d;
    }
    return error;
}

/* A candidate is as good as what its levels could reach with the best scale for them. */
static void try_scale(const codec_levels *l, const float *x, const float *w, int n, float scale,
                      float *best, float *best_scale)
{
    sums s = add_up(l, x, w, n, scale);
    if (s.ll > 0 && s.xl * s.xl > *best * s.ll) {
        *best = s.xl * s.xl / s.ll;
        *best_scale = s.xl / s.ll;
    }
}

float codec_search_scale(const codec_levels *l, const float *x, const float *w, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    if (!(most > 1e-30f))
        return 0;
    float low = -codec_level(l, 0), high = codec_level(l, l->n - 1);
    float best = -1, best_scale = most / (low > high ? low : high);
    float reach = low > high ? low : high;
    for (int i = 0; i < N_CANDIDATES; i++) {
        float scale = most / reach * (0.55f + 0.65f * (float)i / (N_CANDIDATES - 1));
        try_scale(l, x, w, n, scale, &best, &best_scale);
        if (low != high)
            try_scale(l, x, w, n, -scale, &best, &best_scale);
    }
    for (int i = 0; i < N_ROUNDS; i++)
        try_scale(l, x, w, n, best_scale, &best, &best_scale);
    return best_scale;
}

/* ---- A scale and a min ----------------------------------------------------------------------- */

typedef struct line {
    float scale, min, error;
} line;

/* The best scale and min for the levels that (scale, min) leads to. */
static line improve(const codec_levels *l, const float *x, const float *w, int n, float scale,
                    float min, float low_min)
{
    float sw = 0, sl = 0, sll = 0, sx = 0, sxl = 0, sxx = 0, per_scale = 1.0f / scale;
    for (int i = 0; i < n; i++) {
        float level = codec_level(l, codec_nearest_level(l, (x[i] + min) * per_scale));
        sw += w[i];
        sl += w[i] * level;
        sll += w[i] * level * level;
        sx += w[i] * x[i];
        sxl += w[i] * x[i] * level;
        sxx += w[i] * x[i] * x[i];
    }
    float det = sw * sll - sl * sl;
    line r = {scale, min, 0};
    if (det > 1e-12f * sw * sll) {
        r.scale = (sw * sxl - sx * sl) / det;
        r.min = (sl * sxl - sll * sx) / det;
    }
    if (r.min < low_min && sll > 0) {
        r.min = low_min;
        r.scale = (sxl + low_min * sl) / sll;
    }
    r.error = sxx + r.scale * r.scale * sll + r.min * r.min * sw - 2 * r.scale * sxl +
              2 * r.min * sx - 2 * r.scale * r.min * sl;
    return r;
}

float codec_search_scale_min(const codec_levels *l, const float *x, const float *w, int n,
                             float low_min, float *min)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (-low < low_min)
        low = -low_min;
    *min = -low;
    if (!(high - low > 1e-30f))
        return 0;
    line best = {(high - low) / (float)(l->n - 1), -low, INFINITY};
    for (int i = 0; i < N_CANDIDATES; i++) {
        float steps = (float)(l->n - 1) - 1.0f + 2.0f * (float)i / (N_CANDIDATES - 1);
        float scale = (high - low) / (steps > 0.5f ? steps : 0.5f);
        line r = improve(l, x, w, n, scale, -low, low_min);
        if (r.scale > 0)
            r = improve(l, x, w, n, r.scale, r.min, low_min);
        if (r.scale > 0 && r.error < best.error)
            best = r;
    }
    for (int i = 0; i < N_ROUNDS; i++) {
        line r = improve(l, x, w, n, best.scale, best.min, low_min);
        if (r.scale > 0 && r.error < best.error)
            best = r;
    }
    *min = best.min;
    return best.scale;
}

/* ---- Integers times a common scale ----------------------------------------------------------- */

static int clamp(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

/* The common scale that fits the chosen integers best, at their nearest levels. */
static float common_scale(const float *x, const float *w, int n_groups, const codec_grid *g,
                          const int *integers, float scale)
{
    float xl = 0, ll = 0;
    for (int i = 0; i < n_groups; i++) {
        if (integers[i] == 0)
            continue;
        sums s = add_up(g->levels, x + i * g->group, w + i * g->group, g->group,
                        scale * (float)integers[i]);
        xl += (float)integers[i] * s.xl;
        ll += (float)integers[i] * (float)integers[i] * s.ll;
    }
    return ll > 0 ? xl / ll : scale;
}

uint16_t codec_join_scales(const float *x, const float *w, int n_groups, int low, int high,
                           const float *wanted, codec_grid *out, int *integers)
{
    float farthest = 0;
    for (int i = 0; i < n_groups; i++)
        farthest = fabsf(wanted[i]) > fabsf(farthest) ? wanted[i] : farthest;
    float scale = f16_to_f32(f16_from_f32(farthest / (float)low));
    for (int i = 0; i < n_groups; i++)
        integers[i] = scale != 0 ? clamp((int)lrintf(wanted[i] / scale), low, high) : 0;
    for (int round = 0; round < 2 && scale != 0; round++) {
        for (int i = 0; i < n_groups; i++) {
            const float *xi = x + i * out->group, *wi = w + i * out->group;
            int middle = integers[i];
            float best = INFINITY;
            for (int k = clamp(middle - 1, low, high); k <= clamp(middle + 1, low, high); k++) {
                float error = codec_error(out->levels, xi, wi, out->group, scale * (float)k, 0);
                if (error < best) {
                    best = error;
                    integers[i] = k;
                }
            }
        }
        float better = f16_to_f32(f16_from_f32(common_scale(x, w, n_groups, out, integers, scale)));
        if (better != 0 && isfinite(better))
            scale = better;
    }
    for (int i = 0; i < n_groups; i++) {
        out->scale[i] = scale * (float)integers[i];
        out->min[i] = 0;
    }
    return f16_from_f32(scale);
}

/* The same for a pair: least squares over the whole block. */
static void common_pair(const float *x, const float *w, int n_groups, const codec_grid *g,
                        const int *integers, const int *mins, float *scale, float *min)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0; /* value = scale * a - min * b */
    for (int i = 0; i < n_groups; i++) {
        float s = *scale * (float)integers[i], m = *min * (float)mins[i];
        float per_scale = s != 0 ? 1.0f / s : 0;
        for (int k = i * g->group; k < (i + 1) * g->group; k++) {
            float level =
                codec_level(g->levels, codec_nearest_level(g->levels, (x[k] + m) * per_scale));
            double a = (double)integers[i] * level, b = mins[i];
            aa += w[k] * a * a;
            ab += w[k] * a * b;
            bb += w[k] * b * b;
            ax += w[k] * a * x[k];
            bx += w[k] * b * x[k];
        }
    }
    double det = aa * bb - ab * ab;
    if (det > 1e-9 * aa * bb) {
        double s = (ax * bb - bx * ab) / det, m = (ax * ab - bx * aa) / det;
        if (s > 0 && m >= 0) {
            *scale = (float)s;
            *min = (float)m;
        }
    } else if (bb == 0 && aa > 0 && ax > 0) {
        *scale = (float)(ax / aa);
    }
}

void codec_join_scales_mins(const float *x, const float *w, int n_groups, int high,
                            const float *wanted, const float *wanted_mins, codec_grid *out,
                            int *integers, int *min_integers, uint16_t *scale_out,
                            uint16_t *min_out)
{
    float most = 0, most_min = 0;
    for (int i = 0; i < n_groups; i++) {
        most = wanted[i] > most ? wanted[i] : most;
        most_min = wanted_mins[i] > most_min ? wanted_mins[i] : most_min;
    }
    float scale = f16_to_f32(f16_from_f32(most / (float)high));
    float min = f16_to_f32(f16_from_f32(most_min / (float)high));
    for (int i = 0; i < n_groups; i++) {
        integers[i] = scale > 0 ? clamp((int)lrintf(wanted[i] / scale), 0, high) : 0;
        min_integers[i] = min > 0 ? clamp((int)lrintf(wanted_mins[i] / min), 0, high) : 0;
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n_groups; i++) {
            const float *xi = x + i * out->group, *wi = w + i * out->group;
            int s0 = integers[i], m0 = min_integers[i];
            float best = INFINITY;
            for (int s = clamp(s0 - 1, 0, high); s <= clamp(s0 + 1, 0, high); s++)
                for (int m = clamp(m0 - 1, 0, high); m <= clamp(m0 + 1, 0, high); m++) {
                    float error = codec_error(out->levels, xi, wi, out->group, scale * (float)s,
                                              min * (float)m);
                    if (error < best) {
                        best = error;
                        integers[i] = s;
                        min_integers[i] = m;
                    }
                }
        }
        common_pair(x, w, n_groups, out, integers, min_integers, &scale, &min);
        scale = f16_to_f32(f16_from_f32(scale));
        min = f16_to_f32(f16_from_f32(min));
    }
    for (int i = 0; i < n_groups; i++) {
        out->scale[i] = scale * (float)integers[i];
        out->min[i] = min * (float)min_integers[i];
    }
    *scale_out = f16_from_f32(scale);
    *min_out = f16_from_f32(min);
}
