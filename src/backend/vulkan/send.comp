/*
 * A batch's numbers to where the device reads them: its lists, the pages that are new, and in place of
 * tokens below 0 those that were chosen last.
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
    uint n_patches = p.from.v[SEND_N_PATCHES], n_beside = p.from.v[SEND_N_BESIDE];
    for (uint i = first; i < p.n_lists * n; i += next) {
        uint list = i / n, t = i % n, v = p.from.v[SEND_HEAD + list * p.from_stride + t];
        if (list == 0 && int(v) < 0)
            v = p.last_tokens.v[p.from.v[SEND_HEAD + SEND_SEQUENCES * p.from_stride + t]];
        p.to.v[list * p.to_stride + t] = v;
    }
    for (uint i = first; i < n_outputs; i += next)
        p.outputs.v[i] = p.from.v[p.from_outputs + i];
    for (uint i = first; i < n_patches; i += next)
        p.tables.v[p.from.v[p.from_patches + 2 * i]] = p.from.v[p.from_patches + 2 * i + 1];
    for (uint i = first; i < n_beside; i += next)
        p.beside.v[i] = p.from.v[p.from_beside + i];
}
