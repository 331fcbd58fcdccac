/* cap * tanh(x / cap) */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    for (uint i = THREAD; i < p.width; i += THREADS) {
        uint at = GROUP.x * p.y_stride + i;
        p.y.v[at] = p.scale * exact_tanh(p.y.v[at] / p.scale);
    }
}
