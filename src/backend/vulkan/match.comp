/* x with the magnitude of z: a workgroup for each stream of `group` columns that comes out; with `kind`, z is the first. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    uint target = GROUP.x * p.z_stride, y = GROUP.x * p.y_stride + GROUP.y * p.group;
    if (p.kind != 0 && GROUP.y == 0) {
        for (uint i = THREAD; i < p.group; i += THREADS)
            p.y.v[y + i] = p.z.v[target + i];
        return;
    }
    uint x = GROUP.x * p.x_stride + (p.kind != 0 ? GROUP.y - 1 : GROUP.y) * p.group;
    float wanted = 0.0, found = 0.0;
    for (uint i = THREAD; i < p.group; i += THREADS) {
        wanted += p.z.v[target + i] * p.z.v[target + i];
        found += p.x.v[x + i] * p.x.v[x + i];
    }
    wanted = group_sum(wanted) / float(p.group);
    found = group_sum(found) / float(p.group);
    float scale = p.scale * sqrt(wanted) / sqrt(max(found, p.eps));
    for (uint i = THREAD; i < p.group; i += THREADS)
        p.y.v[y + i] = p.x.v[x + i] * scale;
}
