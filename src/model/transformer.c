/* Parts that many architectures share: attention, feed-forward, logits. */
#include "model/transformer.h"

#include <math.h>

/* ---- Binding --------------------------------------------------------------------------------- */

const decoder_form llama_form = {.act = GLU_SILU};

/* The same, with another name of the output norm. */
static lace_status bind_named_ends(model *m, const char *norm, lace_error *err)
{
    const model_config *c = &m->config;
    TRY(bind_embedding(m, err));
    TRY(bind_optional(m, &m->output_norm_bias, c->n_embd, err, "%s.bias", norm));
    TRY(bind_optional(m, &m->output_bias, c->n_vocab, err, "output.bias"));
    return bind_vector(m, &m->output_norm, c->n_embd, err, "%s.weight", norm);
}

lace_status bind_ends(model *m, lace_error *err)
{
    return bind_named_ends(m, "output_norm", err);
}

/* Biases of q, k and v in one vector. */
static lace_status bind_joint_bias(model *m, int i, int64_t q, int64_t kv, lace_error *err)
{
    model_layer *l = &m->layers[i];
    TRY(bind_optional(m, &l->bq, q + 2 * kv, err, "blk.%d.attn_qkv.bias", i));
    if (l->bq) {
        l->bk = l->bq + q;
        l->bv = l->bq + q + kv;
    }
    return LACE_OK;
}

lace_status bind_attention(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t q = config_q_width(c, i), kv = config_kv_width(c, i);
    int64_t q_rows = c->gates_attention ? 2 * q : q;
    if (c->latent.kv_rank > 0)
        return bind_latent_attention(m, i, err);
    if (bind_has(m, "blk.%d.attn_qkv.weight", i)) {
        const char *name = "blk.%d.attn_qkv.weight";
        int64_t all = q + 2 * kv;
        TRY(bind_rows(m, &l->wq, all, 0, q, c->n_embd, err, name, i));
        TRY(bind_rows(m, &l->wk, all, q, kv, c->n_embd, err, name, i));
        TRY(bind_rows(m, &l->wv, all, q + kv, kv, c->n_embd, err, name, i));
        TRY(bind_joint_bias(m, i, q, kv, err));
    } else {
        TRY(bind_matrix(m, &l->wq, q_rows, c->n_embd, err, "blk.%d.attn_q.weight", i));
        TRY(bind_matrix(m, &l->wk, kv, c->n_embd, err, "blk.%d.attn_k.weight", i));
        TRY(bind_matrix(m, &l->wv, kv, c->n_embd, err, "blk.%d.attn_v.weight", i));
        TRY(bind_optional(m, &l->bq, q_rows, err, "blk.%d.attn_q.bias", i));
        TRY(bind_optional(m, &l->bk, kv, err, "blk.%d.attn_k.bias", i));
        TRY(bind_optional(m, &l->bv, kv, err, "blk.%d.attn_v.bias", i));
    }
    TRY(bind_matrix(m, &l->wo, c->n_embd, q, err, "blk.%d.attn_output.weight", i));
    return bind_optional(m, &l->bo, c->n_embd, err, "blk.%d.attn_output.bias", i);
}

lace_status bind_ffn(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t n_ff = c->layers[i].n_ff;
    if (bind_has(m, "blk.%d.ffn_gate.weight", i)) {
        TRY(bind_matrix(m, &l->gate, n_ff, c->n_embd, err, "blk.%d.ffn_gate.weight", i));
        TRY(bind_matrix(m, &l->up, n_ff, c->n_embd, err, "blk.%d.ffn_up.weight", i));
    } else {
        /* Both in one tensor, the gate first. */
        const char *name = "blk.%d.ffn_up.weight";
        TRY(bind_rows(m, &l->gate, 2 * n_ff, 0, n_ff, c->n_embd, err, name, i));
        TRY(bind_rows(m, &l->up, 2 * n_ff, n_ff, n_ff, c->n_embd, err, name, i));
    }
    return bind_matrix(m, &l->down, c->n_embd, n_ff, err, "blk.%d.ffn_down.weight", i);
}

/* Norms of q and k, over a head or over all of them; some have no weights. */
static lace_status bind_head_norms(model *m, int i, bool must, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    if (c->norms_turned && !c->layers[i].skips_rope) {
        TRY(bind_ones(m, &l->q_norm, c->head_dim, err));
        l->k_norm = l->q_norm;
        return LACE_OK;
    }
    bool is_short = c->norms_each_head && !c->head_norms_differ;
    int64_t q = is_short ? c->layers[i].head_dim : config_q_width(c, i);
    int64_t k = is_short ? c->layers[i].head_dim : config_kv_width(c, i);
    if (!must && !bind_has(m, "blk.%d.attn_q_norm.weight", i))
        return LACE_OK;
    TRY(bind_vector(m, &l->q_norm, q, err, "blk.%d.attn_q_norm.weight", i));
    return bind_vector(m, &l->k_norm, k, err, "blk.%d.attn_k_norm.weight", i);
}

/* A feed-forward part without a gate. */
static lace_status bind_mlp(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t n_ff = c->layers[i].n_ff;
    TRY(bind_matrix(m, &l->up, n_ff, c->n_embd, err, "blk.%d.ffn_up.weight", i));
    TRY(bind_optional(m, &l->b_up, n_ff, err, "blk.%d.ffn_up.bias", i));
    TRY(bind_matrix(m, &l->down, c->n_embd, n_ff, err, "blk.%d.ffn_down.weight", i));
    return bind_optional(m, &l->b_down, c->n_embd, err, "blk.%d.ffn_down.bias", i);
}

static lace_status bind_norms(model *m, int i, const decoder_form *form, lace_error *err)
{
    const int64_t n = m->config.n_embd;
    model_layer *l = &m->layers[i];
    if (!form->lacks_norms) {
        TRY(bind_vector(m, &l->attn_norm, n, err, "blk.%d.attn_norm.weight", i));
        TRY(bind_optional(m, &l->attn_norm_bias, n, err, "blk.%d.attn_norm.bias", i));
    }
    if (!form->lacks_norms && !(m->config.is_parallel && form->shares_norm)) {
        const char *name = form->ffn_norm ? form->ffn_norm : "ffn_norm";
        TRY(bind_vector(m, &l->ffn_norm, n, err, "blk.%d.%s.weight", i, name));
        TRY(bind_optional(m, &l->ffn_norm_bias, n, err, "blk.%d.%s.bias", i, name));
    }
    if (!form->has_post_norms)
        return LACE_OK;
    TRY(bind_vector(m, &l->attn_post_norm, n, err, "blk.%d.post_attention_norm.weight", i));
    return bind_vector(m, &l->ffn_post_norm, n, err, "blk.%d.post_ffw_norm.weight", i);
}

/* Attention, or what a recurrent layer has in its place. */
static lace_status bind_mixer(model *m, int i, const decoder_form *form, lace_error *err)
{
    model_layer *l = &m->layers[i];
    if (m->config.layers[i].kind == LAYER_RECURRENT && form->bind_mixer)
        return form->bind_mixer(m, i, err);
    TRY(bind_attention(m, i, err));
    if (form->has_sinks)
        TRY(bind_vector(m, &l->sinks, m->config.n_heads, err, "blk.%d.attn_sinks.weight", i));
    return bind_head_norms(m, i, form->has_head_norms, err);
}

/* A feed-forward network, or experts with those that are shared beside them. */
static lace_status bind_network(model *m, int i, const decoder_form *form, lace_error *err)
{
    if (form->lacks_gate)
        return bind_mlp(m, i, err);
    if (!m->config.layers[i].has_experts)
        return bind_ffn(m, i, err);
    TRY(bind_moe(m, i, err));
    return bind_shared_experts(m, i, true, err);
}

lace_status bind_decoder_layer(model *m, int i, const decoder_form *form, lace_error *err)
{
    TRY(bind_norms(m, i, form, err));
    TRY(bind_mixer(m, i, form, err));
    return bind_network(m, i, form, err);
}

lace_status bind_decoder(model *m, const decoder_form *form, lace_error *err)
{
    TRY(bind_named_ends(m, form->output_norm ? form->output_norm : "output_norm", err));
    for (int i = 0; i < m->config.n_layers; i++)
        TRY(bind_decoder_layer(m, i, form, err));
    return bind_rope(m, err);
}

lace_status bind_rope(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    const float *factors, *short_factors, *long_factors;
    int64_t n = c->rope.n_dims / 2;
    TRY(bind_optional(m, &factors, n, err, "rope_freqs.weight"));
    TRY(bind_optional(m, &short_factors, n, err, "rope_factors_short.weight"));
    TRY(bind_optional(m, &long_factors, n, err, "rope_factors_long.weight"));
    if (c->rope.scaling == ROPE_LONGROPE && !short_factors && !long_factors)
        return error_set(err, LACE_E_META,
                         "tensors rope_factors_short.weight and rope_factors_long.weight "
                         "are missing: rope.scaling.type is longrope");
    TRY(rope_prepare(&c->rope, short_factors ? short_factors : factors, &m->memory, &m->rope, err));
    if (long_factors)
        TRY(rope_prepare(&c->rope, long_factors, &m->memory, &m->rope_long, err));
    m->rope_local = m->rope;
    if (c->rope_local_base > 0) {
        rope_config local = c->rope;
        local.base = c->rope_local_base;
        local.n_dims = c->rope_local_dims > 0 ? c->rope_local_dims : local.n_dims;
        local.scaling = ROPE_PLAIN;
        local.attention_factor = 0;
        TRY(rope_prepare(&local, NULL, &m->memory, &m->rope_local, err));
    }
    return LACE_OK;
}

/* ---- Building -------------------------------------------------------------------------------- */

/* The rotation of layers that see everything, for the contexts of this plan. */
static const rope_params *global_rope(const model *m, const plan *p)
{
    bool is_long =
        m->rope_long.frequencies && p->limits.n_context > m->config.rope.original_context;
    return is_long ? &m->rope_long : &m->rope;
}

angles build_angles(const model *m, plan *p)
{
    angles a;
    a.all = a.local = plan_rope_table(p, global_rope(m, p));
    if (m->config.rope_local_base > 0)
        a.local = plan_rope_table(p, &m->rope_local);
    return a;
}

/* The norm of this model: all but what it multiplies and adds. */
static norm_params norm_of(const model *m, int64_t group)
{
    return (norm_params){.kind = m->config.centers_norms ? OP_LAYER_NORM : OP_RMS_NORM,
                         .group = group,
                         .eps = m->config.norm_eps};
}

/* Heads of q or k, each by itself or all together. */
static value norm_heads(const model *m, plan *p, value x, const float *scales, int64_t head_dim)
{
    if (!scales || p->status != LACE_OK)
        return x;
    norm_params norm = norm_of(m, m->config.norms_each_head ? head_dim : p->values[x].width);
    norm.scales = scales;
    norm.is_wide = m->config.head_norms_differ;
    return plan_norm(p, x, &norm);
}

value build_attention(const model *m, plan *p, int i, value n, angles turn,
                      const layer_memory *memory)
{
    const model_config *c = &m->config;
    const layer_config *kind = &c->layers[i];
    const model_layer *l = &m->layers[i];
    if (c->latent.kv_rank > 0)
        return build_latent_attention(m, p, i, n, turn, memory);
    bool is_local = kind->is_local && c->window > 0;
    attend_params params = {
        .n_heads = kind->n_heads,
        .scale =
            c->attention_scale > 0 ? (float)c->attention_scale : 1 / sqrtf((float)kind->head_dim),
        .window = !is_local || c->windows_are_chunks ? 0
                  : c->encoder.is_on                 ? c->window / 2 + 1
                                                     : c->window,
        .ahead = is_local && c->encoder.is_on ? c->window / 2 : 0,
        .chunk = is_local && c->windows_are_chunks ? c->window : 0,
        .softcap = (float)c->attention_softcap,
        .sinks = l->sinks,
    };
    value q = plan_linear(p, n, &l->wq, l->bq, 1);
    value k = plan_linear(p, n, &l->wk, l->bk, 1);
    value v = plan_linear(p, n, &l->wv, l->bv, 1), gate = -1;
    if (c->gates_attention) {
        int32_t dim = kind->head_dim;
        gate = plan_pick(p, q, dim, 2 * dim, dim);
        q = plan_pick(p, q, dim, 2 * dim, 0);
    }
    if (!c->norms_after_rope) {
        q = norm_heads(m, p, q, l->q_norm, kind->head_dim);
        k = norm_heads(m, p, k, l->k_norm, kind->head_dim);
    }
    if (!kind->skips_rope) {
        const rope_params *rope = is_local ? &m->rope_local : global_rope(m, p);
        value table = is_local ? turn.local : turn.all;
        q = plan_rope(p, q, table, rope, kind->n_heads, kind->head_dim);
        k = plan_rope(p, k, table, rope, kind->n_kv_heads, kind->head_dim);
    }
    if (c->norms_after_rope) {
        q = norm_heads(m, p, q, l->q_norm, kind->head_dim);
        k = norm_heads(m, p, k, l->k_norm, kind->head_dim);
    }
    plan_kv_write(p, k, v, &memory[i].kv); /* right behind the ropes, which can be fused with it */
    if (c->temperature_scale != 0 && (kind->skips_rope || !c->temperature_skips_turned))
        q = plan_temperature(p, q, (float)c->temperature_scale, c->temperature_offset,
                             c->temperature_length);
    value a = plan_attend(p, q, &memory[i].kv, &params);
    if (c->gates_attention)
        a = plan_glu(p, GLU_SIGMOID, gate, a);
    return plan_linear(p, a, &l->wo, l->bo, 1);
}

value build_ffn(const model *m, plan *p, int i, value n, glu_kind kind)
{
    const model_layer *l = &m->layers[i];
    value gate = plan_linear(p, n, &l->gate, NULL, 1);
    value up = plan_linear(p, n, &l->up, NULL, 1);
    return plan_linear(p, plan_glu(p, kind, gate, up), &l->down, NULL, 1);
}

value build_norm_with(const model *m, plan *p, value x, const float *scales, const float *bias)
{
    norm_params norm = norm_of(m, m->config.n_embd);
    norm.scales = scales;
    norm.bias = bias;
    return plan_norm(p, x, &norm);
}

value build_norm(const model *m, plan *p, value x, const float *scales)
{
    return build_norm_with(m, p, x, scales, NULL);
}

value build_residual(const model *m, plan *p, value x, value y, const float *scales)
{
    if (scales)
        y = build_norm(m, p, y, scales);
    return plan_add(p, x, y, (float)m->config.residual_scale);
}

void build_logits(const model *m, plan *p, value x)
{
    const model_config *c = &m->config;
    value last;
    p->layer = -1;
    if (p->limits.gives_hidden) { /* the same values, normed before the rows are chosen */
        value hidden = build_norm_with(m, p, x, m->output_norm, m->output_norm_bias);
        plan_hidden(p, hidden);
        last = plan_gather(p, hidden);
    } else {
        last = build_norm_with(m, p, plan_gather(p, x), m->output_norm, m->output_norm_bias);
    }
    if (p->limits.stops_at_hidden) {
        plan_result(p, last);
        return;
    }
    value logits = plan_linear(p, last, &m->output, m->output_bias, (float)(1 / c->logit_scale));
    if (c->final_softcap > 0)
        logits = plan_softcap(p, logits, (float)c->final_softcap);
    plan_result(p, logits);
}

/* A feed-forward part with or without a gate. */
static value build_part(const model *m, plan *p, int i, value n, const decoder_form *form)
{
    const model_layer *l = &m->layers[i];
    if (!form->lacks_gate)
        return build_ffn(m, p, i, n, form->act);
    value up = plan_linear(p, n, &l->up, l->b_up, 1);
    up = form->is_xielu ? plan_xielu(p, up, &l->xielu) : plan_act(p, form->act, up);
    return plan_linear(p, up, &l->down, l->b_down, 1);
}

static value norm_before(const model *m, plan *p, value x, const float *scales, const float *bias)
{
    return scales ? build_norm_with(m, p, x, scales, bias) : x;
}

value build_decoder_layer(const model *m, plan *p, int i, value x, angles turn,
                          const layer_memory *memory, const decoder_form *form)
{
    const model_layer *l = &m->layers[i];
    bool is_recurrent = m->config.layers[i].kind == LAYER_RECURRENT && form->build_mixer;
    p->layer = i;
    value n = norm_before(m, p, x, l->attn_norm, l->attn_norm_bias);
    value a = is_recurrent ? form->build_mixer(m, p, i, n, memory)
                           : build_attention(m, p, i, n, turn, memory);
    /* Parallel parts read x before either is added. */
    if (m->config.is_parallel) {
        value other = l->ffn_norm ? norm_before(m, p, x, l->ffn_norm, l->ffn_norm_bias) : n;
        value f = build_part(m, p, i, other, form);
        x = build_residual(m, p, x, a, l->attn_post_norm);
        return build_residual(m, p, x, f, l->ffn_post_norm);
    }
    x = build_residual(m, p, x, a, l->attn_post_norm);
    n = norm_before(m, p, x, l->ffn_norm, l->ffn_norm_bias);
    return m->config.layers[i].has_experts
               ? build_moe(m, p, i, x, n, form->act)
               : build_residual(m, p, x, build_part(m, p, i, n, form), l->ffn_post_norm);
}

void build_decoder(const model *m, plan *p, const layer_memory *memory, const decoder_form *form)
{
    value x = plan_embed(p, &m->table, (float)m->config.embedding_scale);
    if (m->positions.n_rows > 0)
        x = plan_add(p, x, plan_lookup(p, &m->positions, EMBED_BY_POSITION), 1);
    angles turn = m->config.has_no_rope ? (angles){-1, -1} : build_angles(m, p);
    for (int i = 0; i < m->config.n_layers; i++) {
        x = build_decoder_layer(m, p, i, x, turn, memory, form);
        if (i < p->limits.n_deep)
            x = plan_add_given(p, x, (int64_t)(i + 1) * m->config.n_embd);
    }
    build_logits(m, p, x);
}

void model_build(const model *m, plan *p, const layer_memory *memory)
{
    if (m->arch->build)
        m->arch->build(m, p, memory);
    else
        build_decoder(m, p, memory, m->arch->form);
}
