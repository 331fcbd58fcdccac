/* The rows whose logits are wanted. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    uint row = p.indices.v[GROUP.x];
    for (uint i = FIRST_COLUMN; i < p.width; i += NEXT_COLUMN)
        p.y.v[GROUP.x * p.y_stride + i] = p.x.v[row * p.x_stride + i];
}
