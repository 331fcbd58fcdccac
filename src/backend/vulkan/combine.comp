/* The sum of what a token's experts made. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(combine_args)

void main()
{
    combine_args p = params.value;
    uint t = GROUP.x;
    for (uint i = THREAD; i < p.width; i += THREADS) {
        float sum = 0.0;
        for (uint k = 0; k < p.n_used; k++)
            sum += (p.is_weighed != 0 ? 1.0 : p.choices.v[t * p.choice_stride + k].weight) *
                   p.rows.v[(t * p.n_used + k) * p.rows_stride + i];
        uint at = t * p.out_stride + i;
        p.result.v[at] = (p.makes != 0 ? 0.0 : p.result.v[at]) + p.scale * sum;
    }
}
