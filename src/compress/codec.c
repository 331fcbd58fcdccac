/* The table of codecs, and writing rows with them. */
#include "compress/codec.h"

#include <assert.h>
#include <string.h>

#include "compress/trellis.h"
#include "tensor/rotate.h"

static const codec *find_in(const codec *list, int n, dtype type)
{
    for (int i = 0; i < n; i++)
        if (list[i].type == type)
            return &list[i];
    return NULL;
}

const codec *codec_find(dtype type)
{
    const codec *c = find_in(codecs_small, n_codecs_small, type);
    if (!c)
        c = find_in(codecs_k, n_codecs_k, type);
    if (!c)
        c = find_in(codecs_s, n_codecs_s, type);
    return c ? c : find_in(codecs_trellis, n_codecs_trellis, type);
}

void codec_weights(const float *x, const float *importance, int n, float *out)
{
    float energy = 0;
    for (int i = 0; i < n; i++)
        energy += x[i] * x[i];
    energy /= (float)n;
    for (int i = 0; i < n; i++)
        out[i] = sqrtf(energy + x[i] * x[i]) * (importance ? importance[i] : 1.0f);
}

lace_status codec_encode(const codec *c, const float *x, const float *importance, int64_t n_values,
                         void *blocks, lace_error *err)
{
    const dtype_info *info = dtype_describe(c->type);
    if (!c->fit)
        return trellis_encode(c->type, x, n_values, blocks, err);
    assert(n_values % c->n_values == 0 && info->block_bytes <= CODEC_MAX_BYTES);
    uint8_t *at = blocks;
    for (int64_t i = 0; i < n_values; i += c->n_values, at += info->block_bytes) {
        const float *xi = x + i, *importance_i = importance ? importance + i : NULL;
        float weights[CODEC_MAX_VALUES], rotated[ROTATE_VALUES], point;
        uint8_t q[CODEC_MAX_VALUES];
        _Alignas(8) uint8_t block[CODEC_MAX_BYTES];
        codec_grid grid;
        if (c->is_rotated) {
            /* Every rotated value has a share in every input: all count the same. */
            rotate_128(xi, rotated);
            xi = rotated;
            importance_i = NULL;
        }
        codec_weights(xi, importance_i, c->n_values, weights);
        c->fit(xi, weights, block, &grid);
        for (int k = 0; k < c->n_values; k++)
            q[k] = (uint8_t)codec_nearest(&grid, k / grid.group, xi[k], &point);
        c->put(q, block);
        memcpy(at, block, (size_t)info->block_bytes);
    }
    return LACE_OK;
}
