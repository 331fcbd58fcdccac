/* (x - mean) / deviation, scaled and shifted: a workgroup for each group of a row. */
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
    float sum = 0.0, squares = 0.0;
    for (uint i = THREAD; i < p.group; i += THREADS)
        sum += p.x.v[x + i];
    float mean = group_sum(sum) / float(p.group);
    sum = 0.0; /* of what rounding has left */
    for (uint i = THREAD; i < p.group; i += THREADS)
        sum += p.x.v[x + i] - mean;
    mean += group_sum(sum) / float(p.group);
    for (uint i = THREAD; i < p.group; i += THREADS)
        squares += (p.x.v[x + i] - mean) * (p.x.v[x + i] - mean);
    float scale = 1.0 / sqrt(group_sum(squares) / float(p.group) + p.eps);
    for (uint i = THREAD; i < p.group; i += THREADS) {
        float bias = IS_NULL(p.bias) ? 0.0 : p.bias.v[by + i];
        p.y.v[y + i] = (p.x.v[x + i] - mean) * scale * p.weight.v[by + i] + bias;
    }
}
