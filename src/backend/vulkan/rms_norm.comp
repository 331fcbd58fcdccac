/* Root-mean-square norm: a workgroup for each group of a row; smaller than `least` becomes 0. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    uint x = GROUP.x * p.x_stride + GROUP.y * p.group, y = GROUP.x * p.y_stride + GROUP.y * p.group;
    uint by = p.kind != 0 ? GROUP.y * p.group : 0;
    float sum = 0.0;
    for (uint i = THREAD; i < p.group; i += THREADS)
        sum += p.x.v[x + i] * p.x.v[x + i];
    float scale = 1.0 / sqrt(group_sum(sum) / float(p.group) + p.eps);
    for (uint i = THREAD; i < p.group; i += THREADS) {
        float v = p.x.v[x + i] * scale * p.weight.v[by + i];
        p.y.v[y + i] = abs(v) < p.least ? 0.0 : v;
    }
}
