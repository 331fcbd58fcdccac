/*
 * Searching for scales: many candidates are tried, each is improved by least squares for the
 * levels that it leads to, and the one with the least weighted error wins.
 */
#include "compress/codec.h"

#include <assert.h>

#include "backend/host_loops.h"
#include "tensor/half.h"

enum { N_CANDIDATES = 24, N_ROUNDS = 3 };

/* ---- One scale ------------------------------------------------------------------------------- */

static dense_levels levels_of(const codec_levels *l)
{
    dense_levels out = {.n = l->n, .first = codec_level(l, 0), .is_table = l->table != NULL};
    assert(!l->table || l->n <= DENSE_MAX_LEVELS);
    for (int i = 0; i + 1 < l->n && l->table; i++) {
        out.middle[i] = 0.5f * (l->table[i] + l->table[i + 1]);
        out.gap[i] = l->table[i + 1] - l->table[i];
    }
    return out;
}

float codec_error(const codec_levels *l, const float *x, const float *w, int n, float scale,
                  float min)
{
    dense_levels levels = levels_of(l);
    return dense_ops_detect()->level_error(&levels, x, w, n, scale, min);
}

/* A candidate is as good as what its levels could reach with the best scale for them. */
static void try_scale(const dense_levels *l, const float *x, const float *w, int n, float scale,
                      float *best, float *best_scale)
{
    dense_sums s = dense_ops_detect()->level_sums(l, x, w, n, 1.0f / scale, 0);
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
    dense_levels levels = levels_of(l);
    for (int i = 0; i < N_CANDIDATES; i++) {
        float scale = most / reach * (0.55f + 0.65f * (float)i / (N_CANDIDATES - 1));
        try_scale(&levels, x, w, n, scale, &best, &best_scale);
        if (low != high)
            try_scale(&levels, x, w, n, -scale, &best, &best_scale);
    }
    for (int i = 0; i < N_ROUNDS; i++)
        try_scale(&levels, x, w, n, best_scale, &best, &best_scale);
    return best_scale;
}

/* ---- A scale and a min ----------------------------------------------------------------------- */

typedef struct line {
    float scale, min, error;
} line;

/* What does not depend on levels. */
typedef struct moments {
    float w, x, xx; /* sums of w, w x and w x x */
} moments;

/* The best scale and min for the levels that (scale, min) leads to. */
static line improve(const dense_levels *l, const moments *m, const float *x, const float *w, int n,
                    float scale, float min, float low_min)
{
    dense_sums s = dense_ops_detect()->level_sums(l, x, w, n, 1.0f / scale, min);
    float det = m->w * s.ll - s.l * s.l;
    line r = {scale, min, 0};
    if (det > 1e-12f * m->w * s.ll) {
        r.scale = (m->w * s.xl - m->x * s.l) / det;
        r.min = (s.l * s.xl - s.ll * m->x) / det;
    }
    if (r.min < low_min && s.ll > 0) {
        r.min = low_min;
        r.scale = (s.xl + low_min * s.l) / s.ll;
    }
    r.error = m->xx + r.scale * r.scale * s.ll + r.min * r.min * m->w - 2 * r.scale * s.xl +
              2 * r.min * m->x - 2 * r.scale * r.min * s.l;
    return r;
}

float codec_search_scale_min(const codec_levels *l, const float *x, const float *w, int n,
                             float low_min, float *min)
{
    float low = x[0], high = x[0];
    moments m = {0};
    for (int i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        m.w += w[i];
        m.x += w[i] * x[i];
        m.xx += w[i] * x[i] * x[i];
    }
    if (-low < low_min)
        low = -low_min;
    *min = -low;
    if (!(high - low > 1e-30f))
        return 0;
    dense_levels levels = levels_of(l);
    line best = {(high - low) / (float)(l->n - 1), -low, INFINITY};
    for (int i = 0; i < N_CANDIDATES; i++) {
        float steps = (float)(l->n - 1) - 1.0f + 2.0f * (float)i / (N_CANDIDATES - 1);
        float scale = (high - low) / (steps > 0.5f ? steps : 0.5f);
        line r = improve(&levels, &m, x, w, n, scale, -low, low_min);
        if (r.scale > 0)
            r = improve(&levels, &m, x, w, n, r.scale, r.min, low_min);
        if (r.scale > 0 && r.error < best.error)
            best = r;
    }
    for (int i = 0; i < N_ROUNDS; i++) {
        line r = improve(&levels, &m, x, w, n, best.scale, best.min, low_min);
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
    dense_levels levels = levels_of(g->levels);
    for (int i = 0; i < n_groups; i++) {
        if (integers[i] == 0)
            continue;
        dense_sums s =
            dense_ops_detect()->level_sums(&levels, x + i * g->group, w + i * g->group, g->group,
                                           1.0f / (scale * (float)integers[i]), 0);
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
