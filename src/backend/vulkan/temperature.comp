/* A factor that grows with the position; `group` is the length. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    int n = (int(p.indices.v[GROUP.x]) + p.offset) / int(p.group);
    if (n <= 0)
        return;
    float factor = 1.0 + p.scale * exact_log(float(1 + n));
    for (uint i = THREAD; i < p.width; i += THREADS)
        p.y.v[GROUP.x * p.y_stride + i] *= factor;
}
