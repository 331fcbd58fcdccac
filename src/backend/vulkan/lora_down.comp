/* The few values that each row's adapters make of it: a workgroup for each row and some of these. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "lora.glsl"
#include "reduce.glsl"

void main()
{
    lora_args p = params.value;
    uint row = GROUP.x, token = token_of(p, row), padded = (p.n_in + 31) / 32 * 32;
    for (uint k = 0; k < p.n_pieces; k++) {
        lora_piece of = p.pieces.v[k];
        if (scale_of(p, token, of) == 0.0)
            continue;
        for (uint r = GROUP.y; r < of.rank; r += gl_NumWorkGroups.y) {
            float sum = 0.0;
            if (p.is_table != 0) {
                int id = int(p.tokens.v[token]);
                sum = THREAD == 0 && id >= 0 ? value_at(of.down, of.type, uint(id) * of.rank + r)
                                             : 0.0;
            } else {
                for (uint i = THREAD; i < p.n_in; i += THREADS)
                    sum += value_at(of.down, of.type, r * padded + i) *
                           p.x.v[row * p.x_stride + i];
            }
            sum = group_sum(sum);
            if (THREAD == 0)
                p.y.v[row * p.y_stride + of.first + r] = sum;
        }
    }
}
