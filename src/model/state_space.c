/* State spaces and short convolutions: their keys, weights and steps. */
#include "model/state_space.h"

#include <math.h>
#include <string.h>

#include "base/numbers.h"

/* b or c of all groups, and what is convolved: x, b, c. */
static int64_t bc_width(const ssm_config *c)
{
    return (int64_t)c->n_groups * c->n_state;
}

static int64_t conv_width(const ssm_config *c)
{
    return c->n_inner + 2 * bc_width(c);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

lace_status read_state_space(const config_source *s, model_config *c)
{
    ssm_config *ssm = &c->ssm;
    TRY(config_need_int(s, "ssm.conv_kernel", 2, CONFIG_MAX_TAPS, &ssm->n_taps));
    TRY(config_need_int(s, "ssm.inner_size", 1, CONFIG_MAX_WIDTH, &ssm->n_inner));
    TRY(config_need_int(s, "ssm.state_size", 1, CONFIG_MAX_STATE, &ssm->n_state));
    TRY(config_need_int(s, "ssm.time_step_rank", 1, CONFIG_MAX_HEADS, &ssm->n_heads));
    TRY(config_need_int(s, "ssm.group_count", 1, ssm->n_heads, &ssm->n_groups));
    if (ssm->n_inner % ssm->n_heads != 0)
        return config_bad(s, "ssm.time_step_rank", LACE_E_META, "does not divide ssm.inner_size");
    if (ssm->n_heads % ssm->n_groups != 0)
        return config_bad(s, "ssm.group_count", LACE_E_META, "does not divide ssm.time_step_rank");
    ssm->dt_max = INFINITY;
    return LACE_OK;
}

/* ---- State ----------------------------------------------------------------------------------- */

static uint64_t conv_bytes(const ssm_config *c)
{
    return round_up(conv_state_bytes(conv_width(c), c->n_taps), 64);
}

static uint64_t scan_bytes(const ssm_config *c)
{
    return scan_state_bytes(c->n_heads, c->n_inner / c->n_heads, c->n_state);
}

void state_space_state(const model_config *c, layer_state *out)
{
    out->kind |= STATE_RECURRENT;
    out->n_bytes = conv_bytes(&c->ssm) + scan_bytes(&c->ssm);
}

void short_conv_state(const model_config *c, layer_state *out)
{
    out->kind = STATE_RECURRENT;
    out->n_bytes = conv_state_bytes(c->n_embd, c->ssm.n_taps);
}

/* ---- Binding --------------------------------------------------------------------------------- */

/* A part of a vector that may not be there. */
static const float *from(const float *vector, int64_t at)
{
    return vector ? vector + at : NULL;
}

/* What a matrix makes may be multiplied with factors; those of x, b and c go into the taps. */
static lace_status scale_taps(model *m, model_ssm *l, lace_error *err)
{
    const ssm_config *c = &m->config.ssm;
    const double *by = m->config.mup.ssm;
    int64_t n = conv_width(c);
    if (by[1] == 1 && by[2] == 1 && by[3] == 1)
        return LACE_OK;
    float *scaled = arena_alloc(&m->memory, (size_t)(n * c->n_taps), sizeof *scaled);
    if (!scaled)
        return error_nomem(err, "the taps of a convolution");
    for (int64_t i = 0; i < n * c->n_taps; i++) {
        int64_t channel = i / c->n_taps - c->n_inner;
        scaled[i] = (float)(l->taps[i] * by[channel < 0 ? 1 : channel < bc_width(c) ? 2 : 3]);
    }
    l->taps = scaled;
    return LACE_OK;
}

lace_status bind_state_space(model *m, int i, bool needs_norm, lace_error *err)
{
    const ssm_config *c = &m->config.ssm;
    model_ssm *l = &m->layers[i].ssm;
    const char *name = "blk.%d.ssm_in.weight";
    int64_t n_embd = m->config.n_embd, n_conv = conv_width(c),
            all = c->n_inner + n_conv + c->n_heads;
    const float *bias;
    TRY(bind_rows(m, &l->gate, all, 0, c->n_inner, n_embd, err, name, i));
    TRY(bind_rows(m, &l->in, all, c->n_inner, n_conv, n_embd, err, name, i));
    TRY(bind_rows(m, &l->dt, all, c->n_inner + n_conv, c->n_heads, n_embd, err, name, i));
    TRY(bind_matrix(m, &l->out, n_embd, c->n_inner, err, "blk.%d.ssm_out.weight", i));
    TRY(bind_optional(m, &bias, all, err, "blk.%d.ssm_in.bias", i));
    l->gate_bias = bias;
    l->in_bias = from(bias, c->n_inner);
    l->dt_bias_in = from(bias, c->n_inner + n_conv);
    TRY(bind_optional(m, &l->out_bias, n_embd, err, "blk.%d.ssm_out.bias", i));
    TRY(bind_vector(m, &l->taps, n_conv * c->n_taps, err, "blk.%d.ssm_conv1d.weight", i));
    TRY(bind_optional(m, &l->taps_bias, n_conv, err, "blk.%d.ssm_conv1d.bias", i));
    TRY(bind_vector(m, &l->a, c->n_heads, err, "blk.%d.ssm_a", i));
    TRY(bind_vector(m, &l->d, c->n_heads, err, "blk.%d.ssm_d", i));
    TRY(bind_vector(m, &l->dt_bias, c->n_heads, err, "blk.%d.ssm_dt.bias", i));
    if (needs_norm || bind_has(m, "blk.%d.ssm_norm.weight", i))
        TRY(bind_vector(m, &l->norm, c->n_inner, err, "blk.%d.ssm_norm.weight", i));
    return scale_taps(m, l, err);
}

lace_status bind_short_conv(model *m, int i, lace_error *err)
{
    model_ssm *l = &m->layers[i].ssm;
    const char *name = "blk.%d.shortconv.in_proj.weight";
    int64_t n = m->config.n_embd;
    const float *bias;
    TRY(bind_rows(m, &l->in_gate, 3 * n, 0, n, n, err, name, i));
    TRY(bind_rows(m, &l->gate, 3 * n, n, n, n, err, name, i));
    TRY(bind_rows(m, &l->in, 3 * n, 2 * n, n, n, err, name, i));
    TRY(bind_matrix(m, &l->out, n, n, err, "blk.%d.shortconv.out_proj.weight", i));
    TRY(bind_optional(m, &bias, 3 * n, err, "blk.%d.shortconv.in_proj.bias", i));
    l->in_gate_bias = bias;
    l->gate_bias = from(bias, n);
    l->in_bias = from(bias, 2 * n);
    TRY(bind_optional(m, &l->out_bias, n, err, "blk.%d.shortconv.out_proj.bias", i));
    TRY(bind_vector(m, &l->taps, n * m->config.ssm.n_taps, err, "blk.%d.shortconv.conv.weight", i));
    return bind_optional(m, &l->taps_bias, n, err, "blk.%d.shortconv.conv.bias", i);
}

/* ---- Building -------------------------------------------------------------------------------- */

/* The convolution and the state behind it, of what the input matrix made. */
static value build_scan(const model *m, plan *p, int i, value in, value dt,
                        const layer_memory *memory)
{
    const ssm_config *c = &m->config.ssm;
    const model_ssm *l = &m->layers[i].ssm;
    int64_t bc = bc_width(c);
    recurrent_layer past =
        recurrent_part(&memory[i].recurrent, 0, conv_state_bytes(conv_width(c), c->n_taps));
    recurrent_layer state = recurrent_part(&memory[i].recurrent, conv_bytes(c), scan_bytes(c));
    conv_params conv = {
        .weight = l->taps, .bias = l->taps_bias, .n_taps = c->n_taps, .is_silu = true};
    scan_params scan = {.a = l->a,
                        .d = l->d,
                        .dt_bias = l->dt_bias,
                        .dt_min = (float)c->dt_min,
                        .dt_max = (float)c->dt_max,
                        .n_heads = c->n_heads,
                        .head_dim = c->n_inner / c->n_heads,
                        .n_groups = c->n_groups,
                        .n_state = c->n_state};
    value xbc = plan_conv(p, in, &past, &conv);
    return plan_scan(p, plan_slice(p, xbc, 0, c->n_inner), plan_slice(p, xbc, c->n_inner, bc),
                     plan_slice(p, xbc, c->n_inner + bc, bc), dt, &state, &scan);
}

/* In groups, each with weights of its own. */
static value norm_groups(const model *m, plan *p, value y, const float *scales)
{
    const ssm_config *c = &m->config.ssm;
    int32_t n_groups = c->norms_all ? 1 : c->n_groups;
    norm_params norm = {.kind = OP_RMS_NORM,
                        .scales = scales,
                        .is_wide = n_groups > 1,
                        .group = c->n_inner / n_groups,
                        .eps = m->config.norm_eps};
    return scales ? plan_norm(p, y, &norm) : y;
}

value build_state_space(const model *m, plan *p, int i, value n, const layer_memory *memory)
{
    const mup_config *by = &m->config.mup;
    const model_ssm *l = &m->layers[i].ssm;
    bool norms_first = m->config.ssm.norms_first;
    value gate = plan_linear(p, n, &l->gate, l->gate_bias, (float)(by->ssm_in * by->ssm[0]));
    value in = plan_linear(p, n, &l->in, l->in_bias, (float)by->ssm_in);
    value dt = plan_linear(p, n, &l->dt, l->dt_bias_in, (float)(by->ssm_in * by->ssm[4]));
    value y = build_scan(m, p, i, in, dt, memory);
    if (norms_first)
        y = norm_groups(m, p, y, l->norm);
    y = plan_glu(p, GLU_SILU, gate, y);
    if (!norms_first)
        y = norm_groups(m, p, y, l->norm);
    return plan_linear(p, y, &l->out, l->out_bias, (float)by->ssm_out);
}

value build_short_conv(const model *m, plan *p, int i, value n, const layer_memory *memory)
{
    const model_ssm *l = &m->layers[i].ssm;
    conv_params conv = {.weight = l->taps, .bias = l->taps_bias, .n_taps = m->config.ssm.n_taps};
    value in_gate = plan_linear(p, n, &l->in_gate, l->in_gate_bias, 1);
    value gate = plan_linear(p, n, &l->gate, l->gate_bias, 1);
    value in = plan_linear(p, n, &l->in, l->in_bias, 1);
    value y = plan_conv(p, plan_mul(p, in, in_gate), &memory[i].recurrent, &conv);
    return plan_linear(p, plan_mul(p, y, gate), &l->out, l->out_bias, 1);
}
