/* The parts of attention as one: a workgroup for each token and head. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#include "math.glsl"
#include "planes.glsl"
#include "attend_range.glsl"
#define LEAST -1e30
#define MOST_WIDTH 256
#define JOIN_HEADS 1
#define PARTS_AT pieces_at
#define PART_MARKS_AT floats_at
PARAMS(attend_args)

shared vec4 joined[MOST_WIDTH / 4];
#include "attend_join.glsl"

void main()
{
    attend_args p = params.value;
    uint t = GROUP.x;
    part_range r = find_parts(p, p.cache.positions.v[t], p.cache.seen.v[t]);
    join_parts(p, pieces_at(uvec2(p.parts)), p.parts, t, GROUP.y, r.n);
}
