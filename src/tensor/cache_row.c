/* Rows of a KV cache: how the values of a head are kept in each type. */
#include "tensor/cache_row.h"

#include "tensor/blocks.h"
#include "tensor/codec/pack.h"
#include "tensor/codec/unpack.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"
#include "tensor/rotate.h"

#include <math.h>

enum { BLOCK = 32 }; /* values, of both types that are rotated */

int32_t cache_span(dtype type, int32_t dim)
{
    if (type != DTYPE_IQ4_NL && type != DTYPE_Q5_0)
        return 0;
    int32_t span = ROTATE_VALUES;
    while (span > BLOCK && dim % span != 0)
        span /= 2;
    return dim % span == 0 ? span : 0;
}

void cache_rotate(const float *x, int32_t n, int32_t span, float *out)
{
    for (int32_t i = 0; i < n; i += span)
        rotate_span(x + i, span, out + i);
}

void cache_unrotate(const float *x, int32_t n, int32_t span, float *out)
{
    for (int32_t i = 0; i < n; i += span)
        unrotate_span(x + i, span, out + i);
}

/* The level next to x, which is between the outermost ones or beyond. */
static int nearest_level(float x)
{
    int q = 0;
    for (int i = 1; i < 16; i++)
        q += x > 0.5f * (float)(iq4_values[i - 1] + iq4_values[i]);
    return q;
}

/*
 * The value farthest from 0 gets the outermost level. Then the scale is set anew, to the one that
 * leaves the least square error with these levels: 4 % less for values of a normal distribution.
 */
static void put_iq4_nl(const float *x, uint8_t *at)
{
    float far = 0, both = 0, squares = 0;
    for (int i = 0; i < BLOCK; i++)
        far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
    float scale = far / -127.0f, per_value = scale != 0 ? 1.0f / scale : 0.0f;
    block_iq4_nl b = {0};
    for (int i = 0; i < BLOCK; i++) {
        int q = nearest_level(x[i] * per_value);
        float level = iq4_values[q];
        b.quants[i % 16] |= (uint8_t)(q << 4 * (i / 16));
        both += x[i] * level;
        squares += level * level;
    }
    b.scale = f16_from_f32(both / squares);
    memcpy(at, &b, sizeof b);
}

void cache_put(dtype type, int32_t span, const float *x, int32_t n, uint8_t *row)
{
    if (span == 0) {
        pack_row(type, x, n, row);
        return;
    }
    for (int32_t i = 0; i < n; i += span) {
        float turned[ROTATE_VALUES];
        rotate_span(x + i, span, turned);
        if (type == DTYPE_Q5_0)
            pack_row(type, turned, span, row + row_bytes(type, i));
        else
            for (int32_t k = 0; k < span; k += BLOCK)
                put_iq4_nl(turned + k, row + row_bytes(type, i + k));
    }
}

void cache_get(dtype type, int32_t span, const uint8_t *row, int32_t n, float *out)
{
    unpack_row(type, row, n, out);
    if (span > 0)
        cache_unrotate(out, n, span, out);
}
