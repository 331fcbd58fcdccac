/* The parts of attention as one: a workgroup for each token and head. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
#include "planes.glsl"
#define LEAST -1e30
#define MOST_WIDTH 256
#define PARTS_AT floats_at
PARAMS(attend_args)
#include "attend_join.glsl"

void main()
{
    attend_args p = params.value;
    join_parts(p, p.parts, GROUP.x, GROUP.y);
}
