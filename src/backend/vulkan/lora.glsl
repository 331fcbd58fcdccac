/* What both steps of adapters share: how much a row wants of one, and values of its matrices. */
#include "common.glsl"
#include "block_values.glsl"
PARAMS(lora_args)

uint token_of(lora_args p, uint row)
{
    uint i = p.row_factor > 1 ? row / p.row_factor : row;
    return p.is_output != 0 ? p.outputs.v[i] : i;
}

float scale_of(lora_args p, uint token, lora_piece of)
{
    return p.scales.v[p.sequences.v[token] * p.n_adapters + of.adapter];
}

float value_at(words_at from, uint type, uint i)
{
    if (type == LORA_PIECE_F32)
        return uintBitsToFloat(from.v[i]);
    uint half_word = from.v[i / 2] >> 16 * (i % 2) & 0xffff;
    return type == LORA_PIECE_F16 ? float_of_half(half_word) : uintBitsToFloat(half_word << 16);
}
