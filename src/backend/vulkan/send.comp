/*
 * A batch's numbers to where the device reads them: its lists, the pages that are new, and in place of
 * TOKEN_CHOSEN those that were chosen last.
 */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMS(send_args)

void main()
{
    send_args p = params.value;
    uint first = GROUP.x * THREADS + THREAD, next = gl_NumWorkGroups.x * THREADS;
    uint n = p.from.v[SEND_N_TOKENS], n_outputs = p.from.v[SEND_N_OUTPUTS];
    uint n_scales = p.from.v[SEND_N_SCALES];
    uint n_patches = p.from.v[SEND_N_PATCHES], n_given = p.from.v[SEND_N_GIVEN];
    for (uint i = first; i < p.n_lists * n; i += next) {
        uint list = i / n, t = i % n, v = p.from.v[SEND_HEAD + list * p.from_stride + t];
        if (list == 0 && int(v) == ID_CHOSEN)
            v = p.last_tokens.v[p.from.v[SEND_HEAD + SEND_SEQUENCES * p.from_stride + t]];
        p.to.v[list * p.to_stride + t] = v;
    }
    for (uint i = first; i < n_outputs; i += next)
        p.outputs.v[i] = p.from.v[p.from_outputs + i];
    for (uint i = first; i < n_patches; i += next)
        p.tables.v[p.from.v[p.from_patches + 2 * i]] = p.from.v[p.from_patches + 2 * i + 1];
    for (uint i = first; i < n_given; i += next)
        p.given.v[i] = p.from.v[p.from_given + i];
    for (uint i = first; i < n_scales; i += next)
        p.scales.v[i] = p.from.v[p.from_scales + i];
}
