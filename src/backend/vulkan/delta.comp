/* The gated delta rule: a thread for each column of a head takes the tokens in their order, each with the state of its sequence. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
PARAMS(delta_args)

/* What makes the length of k_dim values 1. */
float unit(delta_args p, uint at)
{
    float sum = p.eps;
    for (uint i = 0; i < p.k_dim; i++)
        sum += p.qkv.v[at + i] * p.qkv.v[at + i];
    return 1.0 / sqrt(sum);
}

void main()
{
    delta_args p = params.value;
    uint c = GROUP.x * THREADS + THREAD, h = GROUP.y;
    uint key = p.is_tiled != 0 ? h % p.n_key_heads : h / (p.n_heads / p.n_key_heads);
    if (c >= p.v_dim)
        return;
    for (uint t = 0; t < p.n_tokens; t++) {
        floats_at state = floats_at(address_plus(uvec2(p.state), p.slots.v[t], p.slot_bytes));
        uint q = t * p.qkv_stride + key * p.k_dim, k = q + p.n_key_heads * p.k_dim;
        uint v = t * p.qkv_stride + 2 * p.n_key_heads * p.k_dim + h * p.v_dim + c;
        uint s = h * p.k_dim * p.v_dim + c;
        float q_unit = unit(p, q) / sqrt(float(p.k_dim)), k_unit = unit(p, k);
        float decay = exact_exp(p.rate.v[h] * softplus(p.a.v[t * p.a_stride + h] + p.bias.v[h]));
        float beta = sigmoid(p.b.v[t * p.b_stride + h]);
        float seen = 0.0, sum = 0.0;
        for (uint i = 0; i < p.k_dim; i++)
            seen += p.qkv.v[k + i] * state.v[s + i * p.v_dim];
        float learned = beta * (p.qkv.v[v] - k_unit * decay * seen);
        for (uint i = 0; i < p.k_dim; i++) {
            float x = decay * state.v[s + i * p.v_dim] + k_unit * p.qkv.v[k + i] * learned;
            state.v[s + i * p.v_dim] = x;
            sum += p.qkv.v[q + i] * x;
        }
        p.result.v[t * p.out_stride + h * p.v_dim + c] = q_unit * sum;
    }
}
