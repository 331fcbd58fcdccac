/* What MATMUL_HEADS copies. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(rest_args)

void main()
{
    rest_args p = params.value;
    for (uint i = THREAD; i < p.n_heads * p.n_rest; i += THREADS) {
        uint head = i / p.n_rest, at = i % p.n_rest;
        p.y.v[GROUP.x * p.y_stride + head * (p.n_rows + p.n_rest) + p.n_rows + at] =
            p.x.v[GROUP.x * p.x_stride + head * (p.n_cols + p.n_rest) + p.n_cols + at];
    }
}
