/*
 * Frequencies of the rotary embedding. Dimension pair i turns by base^(-2i/n) radians per position;
 * the methods below stretch that for contexts longer than the model was first trained for.
 */
#include <math.h>
#include <string.h>

#include "model/model.h"

static const double PI = 3.14159265358979323846;

/*
 * YaRN (arXiv 2309.00071): pairs that turn more than beta_fast times within the original context
 * stay as they are, those that turn less than beta_slow times are slowed down by the factor, with a
 * ramp in between. Returns the pair that turns `turns` times.
 */
static double yarn_pair(const rope_config *c, double turns)
{
    return c->n_dims * log(c->original_context / (turns * 2 * PI)) / (2 * log(c->base));
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

lace_status rope_prepare(const rope_config *c, const float *factors, arena *memory,
                         rope_params *out, lace_error *err)
{
    int32_t n = c->n_dims / 2;
    float *frequencies = arena_alloc(memory, (size_t)n, sizeof *frequencies);
    if (!frequencies)
        return error_nomem(err, "rope frequencies");
    double low = 0, high = 0;
    if (c->scaling == ROPE_YARN) {
        low = yarn_pair(c, c->yarn_beta_fast);
        high = yarn_pair(c, c->yarn_beta_slow);
        if (!c->yarn_keeps_fractions) {
            low = floor(low);
            high = ceil(high);
        }
        low = clamp(low, 0, c->n_dims - 1);
        high = clamp(high, 0, c->n_dims - 1);
        if (low == high)
            high += 0.001; /* no division by zero */
    }
    for (int32_t i = 0; i < n; i++) {
        double plain = pow(c->base, -2.0 * i / c->n_dims);
        double frequency = plain;
        if (factors)
            frequency = plain / factors[i];
        if (c->scaling == ROPE_LINEAR)
            frequency /= c->factor;
        if (c->scaling == ROPE_YARN) {
            double slow = clamp((i - low) / (high - low), 0, 1);
            frequency = frequency / c->factor * slow + frequency * (1 - slow);
        }
        frequencies[i] = (float)frequency;
    }
    double magnitude = c->attention_factor;
    if (magnitude == 0)
        magnitude = c->scaling == ROPE_YARN && c->factor > 1 ? 0.1 * log(c->factor) + 1 : 1;
    *out = (rope_params){.frequencies = frequencies,
                         .magnitude = (float)magnitude,
                         .n_dims = c->n_dims,
                         .is_neox = c->is_neox,
                         .is_interleaved = c->interleaves_sections};
    memcpy(out->sections, c->sections, sizeof c->sections);
    return LACE_OK;
}
