/* Small activations to 0. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    for (uint i = THREAD; i < p.width; i += THREADS) {
        float x = p.x.v[GROUP.x * p.x_stride + i];
        p.y.v[GROUP.x * p.y_stride + i] = abs(x) < p.least ? 0.0 : x;
    }
}
