/*
 * Choices in the order of their experts, and tiles of them, each of one expert: a single workgroup. In
 * which order the choices of an expert stand is no matter, as each is computed by itself.
 */
#version 460
#extension GL_GOOGLE_include_directive : require
#define HAS_OWN_SIZE
#include "common.glsl"
#define SIZE 128
#define MAX_EXPERTS 2048
layout(local_size_x = SIZE) in;
PARAMS(sort_args)

shared uint counts[MAX_EXPERTS], starts[MAX_EXPERTS], first_tiles[MAX_EXPERTS];

uint expert_of(sort_args p, uint i)
{
    return min(p.choices.v[i / p.n_used * p.choice_stride + i % p.n_used].expert, p.n_experts - 1);
}

void main()
{
    sort_args p = params.value;
    for (uint e = THREAD; e < p.n_experts; e += SIZE)
        counts[e] = 0;
    barrier();
    for (uint i = THREAD; i < p.n; i += SIZE)
        atomicAdd(counts[expert_of(p, i)], 1);
    barrier();
    if (THREAD == 0) {
        uint at = 0, tile = 0;
        for (uint e = 0; e < p.n_experts; e++) {
            starts[e] = at;
            first_tiles[e] = tile;
            at += counts[e];
            tile += (counts[e] + p.tile - 1) / p.tile;
        }
    }
    barrier();
    for (uint e = THREAD; e < p.n_experts; e += SIZE) {
        uint n = (counts[e] + p.tile - 1) / p.tile;
        for (uint k = 0; k < n; k++) {
            uint to = 3 * (first_tiles[e] + k);
            p.tiles.v[to] = e;
            p.tiles.v[to + 1] = starts[e] + k * p.tile;
            p.tiles.v[to + 2] = min(p.tile, counts[e] - k * p.tile);
        }
        if (e + 1 == p.n_experts)
            for (uint k = first_tiles[e] + n; k < p.n_tiles; k++)
                p.tiles.v[3 * k + 2] = 0;
    }
    barrier();
    for (uint i = THREAD; i < p.n; i += SIZE)
        p.order.v[atomicAdd(starts[expert_of(p, i)], 1)] = i;
}
