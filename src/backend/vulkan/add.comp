/* y += scale * x */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    for (uint i = FIRST_COLUMN; i < p.width; i += NEXT_COLUMN)
        p.y.v[GROUP.x * p.y_stride + i] += p.scale * p.x.v[GROUP.x * p.x_stride + i];
}
