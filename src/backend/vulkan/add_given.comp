/* y += columns of the batch's own rows, of tokens that have one. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(add_given_args)

void main()
{
    add_given_args p = params.value;
    if (int(p.tokens.v[GROUP.x]) != ID_GIVEN)
        return;
    for (uint i = FIRST_COLUMN; i < p.width; i += NEXT_COLUMN)
        p.y.v[GROUP.x * p.y_stride + i] += p.given.v[GROUP.x * p.given_stride + p.column + i];
}
