/* Cosines and sines of the positions. Angles are products of two floats, as models were trained with them. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
PARAMS(rope_table_args)

/* The axis of positions that a frequency turns by. */
uint axis_of(rope_table_args p, uint frequency)
{
    if (p.is_interleaved != 0) {
        uint axis = frequency % 3;
        return frequency < 3 * p.sections[axis] ? axis : 0;
    }
    uint end = 0;
    for (uint axis = 0; axis < 4; axis++) {
        end += p.sections[axis];
        if (frequency < end)
            return axis;
    }
    return 0;
}

void main()
{
    rope_table_args p = params.value;
    for (uint i = THREAD; i < p.n_frequencies; i += THREADS) {
        int position = int(p.axes.v[axis_of(p, i) * p.axis_stride + GROUP.x]);
        precise float angle = float(position) * p.frequencies.v[i];
        vec2 y = exact_cos_sin(angle) * p.magnitude;
        p.result.v[GROUP.x * p.out_stride + 2 * i] = y.x;
        p.result.v[GROUP.x * p.out_stride + 2 * i + 1] = y.y;
    }
}
