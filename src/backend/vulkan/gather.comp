/* The rows whose logits are wanted. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    uint row = p.indices.v[GROUP.x];
    for (uint i = THREAD; i < p.width; i += THREADS)
        p.y.v[GROUP.x * p.y_stride + i] = p.x.v[row * p.x_stride + i];
}
