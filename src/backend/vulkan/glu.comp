/* act(gate) * up */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
PARAMS(rows_args)

void main()
{
    rows_args p = params.value;
    for (uint i = FIRST_COLUMN; i < p.width; i += NEXT_COLUMN) {
        float gate = p.x.v[GROUP.x * p.x_stride + i / p.group];
        float up = IS_NULL(p.z) ? 1.0 : p.z.v[GROUP.x * p.z_stride + i];
        p.y.v[GROUP.x * p.y_stride + i] = glu(p.kind, gate, up);
    }
}
