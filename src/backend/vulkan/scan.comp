/* State spaces: a thread for each column of a head takes the tokens in their order, each with the state of its sequence. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
PARAMS(scan_args)

void main()
{
    scan_args p = params.value;
    uint column = GROUP.x * THREADS + THREAD, h = GROUP.y, group = h / p.group_heads * p.n_state;
    if (column >= p.head_dim)
        return;
    for (uint t = 0; t < p.n_tokens; t++) {
        floats_at state = floats_at(address_plus(uvec2(p.state), p.slots.v[t], p.slot_bytes));
        float dt = softplus(p.dt.v[t * p.dt_stride + h] + p.dt_bias.v[h]);
        dt = clamp(dt, p.dt_min, p.dt_max);
        float decay = exact_exp(dt * p.a.v[h]);
        float x = p.x.v[t * p.x_stride + h * p.head_dim + column], sum = p.d.v[h] * x;
        for (uint i = 0; i < p.n_state; i++) {
            uint at = (h * p.n_state + i) * p.head_dim + column;
            float s = decay * state.v[at] + p.b.v[t * p.b_stride + group + i] * (dt * x);
            state.v[at] = s;
            sum += p.c.v[t * p.c_stride + group + i] * s;
        }
        p.result.v[t * p.out_stride + h * p.head_dim + column] = sum;
    }
}
