/* The gated delta net: its sizes, its weights, its steps. */
#include "model/delta_net.h"

#include "base/numbers.h"

lace_status delta_net_read(const config_source *s, delta_config *out)
{
    int32_t inner = 0;
    TRY(config_need_int(s, "ssm.conv_kernel", 2, 64, &out->n_taps));
    TRY(config_need_int(s, "ssm.state_size", 1, CONFIG_MAX_HEAD_DIM, &out->k_dim));
    TRY(config_need_int(s, "ssm.group_count", 1, CONFIG_MAX_HEADS, &out->n_key_heads));
    TRY(config_need_int(s, "ssm.time_step_rank", 1, CONFIG_MAX_HEADS, &out->n_heads));
    TRY(config_need_int(s, "ssm.inner_size", 1, CONFIG_MAX_WIDTH, &inner));
    if (out->n_heads % out->n_key_heads != 0)
        return config_bad(s, "ssm.time_step_rank", LACE_E_META,
                          "is not a multiple of ssm.group_count");
    out->v_dim = inner / out->n_heads;
    if (inner % out->n_heads != 0 || out->v_dim > CONFIG_MAX_HEAD_DIM)
        return config_bad(s, "ssm.inner_size", LACE_E_META,
                          "is not ssm.time_step_rank heads of up to 1024 values");
    return LACE_OK;
}

lace_status bind_delta_net(model *m, int i, lace_error *err)
{
    const delta_config *d = &m->config.delta;
    delta_layer *l = &m->layers[i].delta;
    int64_t n = d->n_heads, width = config_delta_width(d), out = n * d->v_dim;
    int64_t n_embd = m->config.n_embd;
    TRY(bind_matrix(m, &l->qkv, width, n_embd, err, "blk.%d.attn_qkv.weight", i));
    TRY(bind_matrix(m, &l->gate, out, n_embd, err, "blk.%d.attn_gate.weight", i));
    if (bind_has(m, "blk.%d.ssm_ba.weight", i)) {
        TRY(bind_matrix(m, &l->beta_decay, 2 * n, n_embd, err, "blk.%d.ssm_ba.weight", i));
    } else {
        TRY(bind_matrix(m, &l->decay, n, n_embd, err, "blk.%d.ssm_alpha.weight", i));
        TRY(bind_matrix(m, &l->beta, n, n_embd, err, "blk.%d.ssm_beta.weight", i));
    }
    TRY(bind_vector(m, &l->conv, width * d->n_taps, err, "blk.%d.ssm_conv1d.weight", i));
    TRY(bind_vector(m, &l->rate, n, err, "blk.%d.ssm_a", i));
    TRY(bind_vector(m, &l->bias, n, err, "blk.%d.ssm_dt.bias", i));
    TRY(bind_vector(m, &l->norm, d->v_dim, err, "blk.%d.ssm_norm.weight", i));
    return bind_matrix(m, &l->out, n_embd, out, err, "blk.%d.ssm_out.weight", i);
}

static uint64_t conv_bytes(const delta_config *d)
{
    return conv_state_bytes(config_delta_width(d), d->n_taps);
}

/* Behind the convolution's state, which vectors like to find at a multiple of 64. */
static uint64_t heads_at(const delta_config *d)
{
    return round_up(conv_bytes(d), 64);
}

layer_state delta_net_state(const delta_config *d)
{
    uint64_t heads = delta_state_bytes(d->n_heads, d->k_dim, d->v_dim);
    return (layer_state){.kind = STATE_RECURRENT, .shares = -1, .n_bytes = heads_at(d) + heads};
}

value build_delta_net(const model *m, plan *p, int i, value n, const layer_memory *memory)
{
    const delta_config *d = &m->config.delta;
    const delta_layer *l = &m->layers[i].delta;
    const recurrent_layer *state = &memory[i].recurrent;
    recurrent_layer past = recurrent_part(state, 0, conv_bytes(d));
    recurrent_layer heads =
        recurrent_part(state, heads_at(d), delta_state_bytes(d->n_heads, d->k_dim, d->v_dim));
    conv_params conv = {.weight = l->conv, .n_taps = d->n_taps, .is_silu = true};
    delta_params rule = {.rate = l->rate,
                         .bias = l->bias,
                         .n_heads = d->n_heads,
                         .n_key_heads = d->n_key_heads,
                         .k_dim = d->k_dim,
                         .v_dim = d->v_dim,
                         .is_tiled = d->is_tiled};
    norm_params norm = {
        .kind = OP_RMS_NORM, .scales = l->norm, .group = d->v_dim, .eps = m->config.norm_eps};
    value qkv = plan_linear(p, n, &l->qkv, NULL, 1), gate = plan_linear(p, n, &l->gate, NULL, 1);
    value decay, beta;
    if (l->beta_decay.n_rows > 0) {
        int32_t each = d->n_heads / d->n_key_heads;
        value both = plan_linear(p, n, &l->beta_decay, NULL, 1);
        beta = plan_pick(p, both, each, 2 * each, 0);
        decay = plan_pick(p, both, each, 2 * each, each);
    } else {
        beta = plan_linear(p, n, &l->beta, NULL, 1);
        decay = plan_linear(p, n, &l->decay, NULL, 1);
    }
    qkv = plan_conv(p, qkv, &past, &conv);
    value y = plan_norm(p, plan_delta(p, qkv, decay, beta, &heads, &rule), &norm);
    return plan_linear(p, plan_glu(p, GLU_SILU, gate, y), &l->out, NULL, 1);
}
