/*
 * Codecs: how each type of block is written, in two steps that every method of quantizing shares.
 *
 *   fit   chooses the scales of a block for given values, and writes them into it. From then on the
 *         block can hold only certain numbers, its grid: in group g, scale[g] * level(q) - min[g].
 *   put   writes the chosen q of each value.
 *
 * Rounding every value to the nearest point of the grid in between is plain quantizing
 * (codec_encode). Methods that spread the error of one value over those that follow choose the q's
 * themselves.
 *
 * Scales are searched for, not computed: the sum of weight * (value - point)^2 is what counts.
 * Weights say how much a value matters: the mean square of the input that it will be multiplied
 * with, where that is known.
 *
 * The trellis types have no grid; their blocks are searched for as a whole (trellis.h).
 */
#ifndef LACE_COMPRESS_CODEC_H
#define LACE_COMPRESS_CODEC_H

#include <math.h>

#include "tensor/dtype.h"

enum { CODEC_MAX_VALUES = 256, CODEC_MAX_GROUPS = 16, CODEC_MAX_BYTES = 288 };

/* What q stands for. */
typedef struct codec_levels {
    int n;              /* q is 0 to n - 1 */
    float first;        /* even levels: q stands for first + q */
    const float *table; /* other levels, ascending; NULL: even */
} codec_levels;

/* The points that a block can hold, once its scales are chosen. */
typedef struct codec_grid {
    const codec_levels *levels;
    int group; /* values that share a scale */
    float scale[CODEC_MAX_GROUPS], min[CODEC_MAX_GROUPS];
} codec_grid;

typedef struct codec {
    dtype type;
    int n_values; /* of a block */

    /* x, weights: [n_values], finite. Writes the scales into `block` and clears the rest. NULL, as
     * put: a trellis type. */
    void (*fit)(const float *x, const float *weights, void *block, codec_grid *out);

    /* q: [n_values]. Once for each fit. */
    void (*put)(const uint8_t *q, void *block);

    /* Values are rotated (tensor/rotate.h) before they are fitted. */
    bool is_rotated;
} codec;

/* NULL for types that cannot be written. */
const codec *codec_find(dtype type);

/*
 * Write a row of whole blocks, each value rounded to the nearest point. importance: [n_values], how
 * much each counts, or NULL. LACE_E_NOMEM, of trellis types only.
 */
lace_status codec_encode(const codec *c, const float *x, const float *importance, int64_t n_values,
                         void *blocks, lace_error *err);

/*
 * The weights that `fit` is given for values x[n] of a block. Large values count for more than
 * their inputs say, because there are few of them and an error in them is seldom made good by
 * others: as the square root of their energy and the mean of the block's.
 */
void codec_weights(const float *x, const float *importance, int n, float *out);

/* ---- For loops over values ------------------------------------------------------------------- */

static inline float codec_level(const codec_levels *l, int q)
{
    return l->table ? l->table[q] : l->first + (float)q;
}

/* The q of the level that is nearest to x. */
static inline int codec_nearest_level(const codec_levels *l, float x)
{
    if (l->table) {
        int q = 0;
        for (int half = 32; half; half /= 2) /* at most 64 levels */
            if (q + half < l->n && x + x > l->table[q + half - 1] + l->table[q + half])
                q += half;
        return q;
    }
    float at = x - l->first + 0.5f;
    if (!(at > 0))
        return 0;
    return at >= (float)l->n ? l->n - 1 : (int)at;
}

/* The same for a value of group g; *point is what it will read back as. */
static inline int codec_nearest(const codec_grid *g, int group, float x, float *point)
{
    float scale = g->scale[group], min = g->min[group];
    int q = scale != 0 ? codec_nearest_level(g->levels, (x + min) / scale)
                       : codec_nearest_level(g->levels, 0);
    *point = scale * codec_level(g->levels, q) - min;
    return q;
}

/* ---- For codecs: the searches ---------------------------------------------------------------- */

/*
 * The scale s for which s * level is nearest to x[n], in the sum of weighted squares. For levels
 * that are not symmetric both signs are tried. 0 if all x are.
 */
float codec_search_scale(const codec_levels *l, const float *x, const float *w, int n);

/* The same for s * level - m, m >= low_min. */
float codec_search_scale_min(const codec_levels *l, const float *x, const float *w, int n,
                             float low_min, float *min);

/* The error that a scale and a min leave; each value at its nearest point. */
float codec_error(const codec_levels *l, const float *x, const float *w, int n, float scale,
                  float min);

/*
 * Blocks of groups whose scales are small integers times one scale: chooses the integers, in
 * [low, high], and the common scale (as an f16) for the group scales wanted. Fills out->scale.
 */
uint16_t codec_join_scales(const float *x, const float *w, int n_groups, int low, int high,
                           const float *wanted, codec_grid *out, int *integers);

/* The same with mins: both integers are 0 to high. Fills out->scale and out->min. */
void codec_join_scales_mins(const float *x, const float *w, int n_groups, int high,
                            const float *wanted, const float *wanted_mins, codec_grid *out,
                            int *integers, int *min_integers, uint16_t *scale, uint16_t *min);

extern const codec codecs_small[], codecs_k[], codecs_s[], codecs_trellis[];
extern const int n_codecs_small, n_codecs_k, n_codecs_s, n_codecs_trellis;

#endif
