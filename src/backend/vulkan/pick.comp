/* Of every `kind` columns `group`, from `offset` on. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    uint x = GROUP.x * p.x_stride + uint(p.offset);
    for (uint i = THREAD; i < p.width; i += THREADS)
        p.y.v[GROUP.x * p.y_stride + i] = p.x.v[x + i / p.group * p.kind + i % p.group];
}
