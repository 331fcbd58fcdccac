/* Short causal convolution: a thread for each channel takes the tokens in their order, each with the state of its sequence. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
PARAMS(conv_args)

void main()
{
    conv_args p = params.value;
    uint c = GROUP.x * THREADS + THREAD, n_past = p.n_taps - 1;
    if (c >= p.width)
        return;
    for (uint t = 0; t < p.n_tokens; t++) {
        floats_at past = floats_at(address_plus(uvec2(p.state), p.slots.v[t], p.slot_bytes));
        float x = p.x.v[t * p.x_stride + c], sum = IS_NULL(p.bias) ? 0.0 : p.bias.v[c];
        for (uint k = 0; k < n_past; k++)
            sum += p.weight.v[c * p.n_taps + k] * past.v[k * p.width + c];
        sum += p.weight.v[c * p.n_taps + n_past] * x;
        for (uint k = 0; k + 1 < n_past; k++)
            past.v[k * p.width + c] = past.v[(k + 1) * p.width + c];
        past.v[(n_past - 1) * p.width + c] = x;
        p.y.v[t * p.y_stride + c] = p.is_silu != 0 ? sum * sigmoid(sum) : sum;
    }
}
