/* Rows from one place to another. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    for (uint i = THREAD; i < p.width; i += THREADS)
        p.y.v[GROUP.x * p.y_stride + i] = p.x.v[GROUP.x * p.x_stride + i];
}
