/* Sums of residual streams, weighed by each token: a workgroup for each stream that comes out. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(mix_args)

void main()
{
    mix_args p = params.value;
    uint at = GROUP.y * p.width, by = GROUP.x * p.weights_stride + GROUP.y * p.n_in;
    for (uint i = THREAD; i < p.width; i += THREADS) {
        float sum = p.base.v[GROUP.x * p.base_stride + at + i];
        for (uint k = 0; k < p.n_in; k++)
            sum += p.weights.v[by + k] * p.x.v[GROUP.x * p.x_stride + k * p.width + i];
        p.y.v[GROUP.x * p.y_stride + at + i] = sum;
    }
}
