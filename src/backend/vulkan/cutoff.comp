/* What is above the mean by some deviations, else 0. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    uint y = GROUP.x * p.y_stride;
    float sum = 0.0, squares = 0.0;
    for (uint i = THREAD; i < p.width; i += THREADS)
        sum += p.y.v[y + i];
    float mean = group_sum(sum) / float(p.width);
    for (uint i = THREAD; i < p.width; i += THREADS)
        squares += (p.y.v[y + i] - mean) * (p.y.v[y + i] - mean);
    float least = mean + p.scale * sqrt(group_sum(squares) / float(p.width));
    for (uint i = THREAD; i < p.width; i += THREADS)
        p.y.v[y + i] = p.y.v[y + i] < least ? 0.0 : p.y.v[y + i] - least;
}
