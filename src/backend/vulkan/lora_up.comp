/* y += what a row's adapters make of the few values in x: some workgroups for each row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "lora.glsl"

void main()
{
    lora_args p = params.value;
    uint row = GROUP.x, token = token_of(p, row);
    for (uint k = 0; k < p.n_pieces; k++) {
        lora_piece of = p.pieces.v[k];
        float scale = scale_of(p, token, of);
        if (scale == 0.0)
            continue;
        for (uint c = FIRST_COLUMN; c < p.n_out; c += NEXT_COLUMN) {
            uint at = c / LORA_PIECE_PANEL * of.rank * LORA_PIECE_PANEL + c % LORA_PIECE_PANEL;
            float sum = 0.0;
            for (uint r = 0; r < of.rank; r++)
                sum += value_at(of.up, of.type, at + r * LORA_PIECE_PANEL) *
                       p.x.v[row * p.x_stride + of.first + r];
            p.y.v[row * p.y_stride + c] += sum * (scale * of.factor * p.scale);
        }
    }
}
