/* Rows as products read them, normed before if that is wanted: a workgroup for each. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define HAS_OWN_SIZE
#define THREADS SIZE
#include "common.glsl"
layout(constant_id = 0) const uint FORM = 0; /* as row_form of recorder.h */
layout(local_size_x_id = 1) in;
layout(constant_id = 1) const uint SIZE = 64;
#define FLOATS 0
#define HALVES 2
#include "reduce.glsl"
#include "planes.glsl"
PARAMS(form_args)

shared vec2 tops[SIZE]; /* of each thread's values: the largest, and their sum */

vec4 load(form_args p, uint x, uint i)
{
    vec4 v;
    if ((x & 3) == 0 && i + 3 < p.n_cols) /* rows lie at multiples of 64 bytes */
        return uintBitsToFloat(pieces_at(uvec2(p.x)).v[(x + i) / 4]);
    for (uint k = 0; k < 4; k++)
        v[k] = i + k < p.n_cols ? p.x.v[x + i + k] : 0.0;
    return v;
}

/* A power of two that brings the largest value to between 1 and 2. */
float unit_of(float most)
{
    uint e = (floatBitsToUint(most) >> 23) & 255;
    return uintBitsToFloat(clamp(e, 1, 253) << 23);
}

void main()
{
    form_args p = params.value;
    uint token = GROUP.x / p.n_heads, x = token * p.x_stride + GROUP.x % p.n_heads * p.x_head;
    bool norms = !IS_NULL(p.weight);
    float scale = 1.0, unit = 1.0; /* unit: what halves are multiples of */
    if (norms || FORM == HALVES) {
        float sum = 0.0, most = 0.0;
        for (uint i = 4 * THREAD; i < p.n_cols; i += 4 * SIZE) {
            vec4 v = load(p, x, i);
            sum += dot(v, v);
            for (uint k = 0; k < 4 && i + k < p.n_cols; k++)
                most = max(most, abs(norms ? v[k] * p.weight.v[i + k] : v[k]));
        }
        if (norms)
            scale = 1.0 / sqrt(group_sum(sum) / float(p.n_cols) + p.eps);
        if (FORM == HALVES)
            unit = unit_of(group_max(most) * scale);
    }
    words_at to = words_at(address_plus(uvec2(p.result), GROUP.x, 4 * p.result_stride));
    uint words = plane_words(p.n_cols);
    for (uint first = 0; first < 4 * words; first += 4 * SIZE) {
        uint i = first + 4 * THREAD;
        vec4 v = load(p, x, i);
        for (uint k = 0; norms && k < 4 && i + k < p.n_cols; k++) {
            v[k] = v[k] * scale * p.weight.v[i + k];
            p.y.v[token * p.y_stride + i + k] = v[k];
        }
        if (FORM == FLOATS) {
            for (uint k = 0; k < 4 && i < 4 * words; k++)
                to.v[i + k] = floatBitsToUint(v[k]);
            continue;
        }
        if (FORM == HALVES) {
            if (i < 4 * words) {
                to.v[i / 2] = packHalf2x16(v.xy / unit);
                to.v[i / 2 + 1] = packHalf2x16(v.zw / unit);
            }
            if (i == 0)
                to.v[2 * words] = floatBitsToUint(unit);
            continue;
        }
        float top = max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)));
        tops[THREAD].x = top;
        barrier();
        for (uint k = 0; k < 8; k++) /* eight threads have 32 columns */
            top = max(top, tops[(THREAD & ~7u) + k].x);
        tops[THREAD].y = plane_sum(v, top);
        barrier();
        if (i < 4 * words) {
            put_planes(to, i / 4, words, v, top);
            if ((THREAD & 7) == 0) {
                vec2 sums = vec2(0.0);
                for (uint k = 0; k < 8; k++)
                    sums[k / 4] += tops[THREAD + k].y;
                put_plane_sums(to, i / 32, words, top, sums);
            }
        }
        barrier(); /* the next columns may be written */
    }
}
