/* Products with a matrix, or with those of experts or heads: a thread for each row of it and TOKENS tokens. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "block_values.glsl"
layout(constant_id = 1) const uint TOKENS = 1;
PARAMS(matmul_args)

void main()
{
    matmul_args p = params.value;
    uint row = GROUP.x * THREADS + THREAD, first = GROUP.y * TOKENS, head = GROUP.z;
    if (row >= p.n_rows)
        return;
    words_at matrix = p.matrix;
    uint bias = row;
    float scale = p.scale;
    if (!IS_NULL(p.choices)) {
        expert_choice c = p.choices.v[first / p.n_used * p.choice_stride + first % p.n_used];
        matrix = p.matrices.v[c.expert];
        bias += c.expert * p.n_rows;
        scale *= p.weighs != 0 ? c.weight : 1.0;
    } else if (!IS_NULL(p.matrices)) {
        matrix = p.matrices.v[head];
    }
    words_at from = words_at(address_plus(uvec2(matrix), row, p.row_bytes));
    uint n = min(TOKENS, p.n_tokens - first), x = first / p.x_divisor * p.x_stride + head * p.x_head;
    float sums[TOKENS];
    for (uint t = 0; t < TOKENS; t++)
        sums[t] = 0.0;
    for (uint i = 0; i < p.n_cols; i++) {
        float w = block_value(from, 0, i);
        for (uint t = 0; t < TOKENS; t++)
            sums[t] += w * p.x.v[x + min(t, n - 1) * p.x_stride + i];
    }
    float more = IS_NULL(p.bias) ? 0.0 : p.bias.v[bias];
    uint y = first * p.out_stride + head * p.out_head + row;
    for (uint t = 0; t < n; t++) {
        uint at = y + t * p.out_stride;
        p.result.v[at] = (p.adds != 0 ? p.result.v[at] : 0.0) + scale * sums[t] + more;
    }
}
