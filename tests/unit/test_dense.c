/* Loops over plain numbers: every version that this CPU has against sums one by one. */
#include "backend/cpu/dense.h"

#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "random_blocks.h"
#include "tap.h"

enum { N = 160, K = 300 };

typedef struct version {
    const char *name;
    const dense_ops *ops;
} version;

static int versions(version out[3])
{
    int n = 0;
    out[n++] = (version){"plain", &dense_ops_plain};
#if defined(__x86_64__)
    if (cpu_level_detect() >= CPU_AVX2)
        out[n++] = (version){"avx2", &dense_ops_avx2};
    if (cpu_level_detect() >= CPU_AVX512)
        out[n++] = (version){"avx512", &dense_ops_avx512};
#endif
    return n;
}

static void rows_are_subtracted(void)
{
    float x[N], y[N];
    version v[3];
    random_floats(1, N, x);
    random_floats(2, N, y);
    for (int i = 0, n = versions(v); i < n; i++)
        for (int64_t size = 0; size <= N; size += 13) {
            float z[N];
            double most = 0;
            memcpy(z, x, sizeof z);
            v[i].ops->subtract(z, 0.3f, y, size);
            for (int64_t k = 0; k < N; k++)
                most = fmax(most, fabs(z[k] - (k < size ? x[k] - 0.3 * y[k] : x[k])));
            if (!CHECK(most < 1e-6)) /* of numbers about 1 */
                tap_note("%s, %d values: %g", v[i].name, (int)size, most);
        }
}

static void tiles_are_updated(void)
{
    static double a[DENSE_TILE * (K + 3)], b[K * DENSE_TILE], c[DENSE_TILE * 70];
    static float random[DENSE_TILE * (K + 3)];
    version v[3];
    random_floats(3, DENSE_TILE * (K + 3), random);
    for (int i = 0; i < DENSE_TILE * (K + 3); i++)
        a[i] = random[i];
    random_floats(4, K * DENSE_TILE, random);
    for (int i = 0; i < K * DENSE_TILE; i++)
        b[i] = random[i];
    for (int i = 0, n = versions(v); i < n; i++) {
        double most = 0;
        for (int k = 0; k < DENSE_TILE * 70; k++)
            c[k] = k;
        v[i].ops->update(c, 70, a, K + 3, b, K);
        for (int row = 0; row < DENSE_TILE; row++)
            for (int col = 0; col < 70; col++) {
                double want = row * 70 + col;
                for (int k = 0; k < K && col < DENSE_TILE; k++)
                    want -= a[row * (K + 3) + k] * b[k * DENSE_TILE + col];
                most = fmax(most, fabs(c[row * 70 + col] - want));
            }
        if (!CHECK(most < 1e-10)) /* sums of 300 products, on numbers up to 4,480, in doubles */
            tap_note("%s: %g", v[i].name, most);
    }
}

/* The level nearest to x, by looking at all of them. */
static double nearest(const dense_levels *l, double x)
{
    double best = l->first, at = l->first;
    for (int i = 1; i < l->n; i++) {
        at += l->is_table ? l->gap[i - 1] : 1;
        best = fabs(at - x) < fabs(best - x) ? at : best;
    }
    return best;
}

static void values_are_rounded_to_their_nearest_levels(void)
{
    static const float table[7] = {-90, -31, -10, 0, 11, 35, 110};
    dense_levels levels[2] = {{.n = 7, .first = -90, .is_table = true}, {.n = 16, .first = -8}};
    float x[N], w[N];
    version v[3];
    for (int i = 0; i < 6; i++) {
        levels[0].middle[i] = 0.5f * (table[i] + table[i + 1]);
        levels[0].gap[i] = table[i + 1] - table[i];
    }
    random_floats(5, N, x);
    random_floats(6, N, w);
    for (int i = 0; i < N; i++) {
        w[i] = fabsf(w[i]);
        x[i] *= 3; /* some beyond the last level */
    }
    for (int i = 0, n = versions(v); i < n; i++)
        for (int kind = 0; kind < 2; kind++)
            for (int size = 16; size <= N; size += 16) {
                float scale = kind ? 0.4f : 0.02f, min = 0.1f;
                double l_sum = 0, ll = 0, xl = 0, error = 0;
                for (int k = 0; k < size; k++) {
                    double l = nearest(&levels[kind], (x[k] + min) * (1.0f / scale));
                    double d = x[k] - (scale * l - min);
                    l_sum += w[k] * l;
                    ll += w[k] * l * l;
                    xl += w[k] * x[k] * l;
                    error += w[k] * d * d;
                }
                dense_sums s = v[i].ops->level_sums(&levels[kind], x, w, size, 1.0f / scale, min);
                double e = v[i].ops->level_error(&levels[kind], x, w, size, scale, min);
                /* Floats: about 1e-7 of each of at most 160 numbers. */
                if (!CHECK(fabs(s.l - l_sum) < 1e-5 * sqrt(size * ll) &&
                           fabs(s.ll - ll) < 1e-5 * ll && fabs(s.xl - xl) < 1e-5 * ll &&
                           fabs(e - error) < 1e-4 * error))
                    tap_note("%s, %d values: %g %g %g %g, expected %g %g %g %g", v[i].name, size,
                             s.l, s.ll, s.xl, e, l_sum, ll, xl, error);
            }
}

int main(void)
{
    CASE(rows_are_subtracted);
    CASE(tiles_are_updated);
    CASE(values_are_rounded_to_their_nearest_levels);
    return tap_end();
}
