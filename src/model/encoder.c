/* Encoders: what BERT and its kin share. */
#include "model/encoder.h"

#include <stdio.h>

#include "model/config_source.h"

enum { STEM_BYTES = 96 };

/* ---- Keys ------------------------------------------------------------------------------------ */

static lace_status read_causal(const config_source *s)
{
    bool is_causal = false;
    TRY(config_bool(s, "attention.causal", &is_causal, NULL));
    return is_causal ? config_bad(s, "attention.causal", LACE_E_UNSUPPORTED,
                                  "is true, expected false: tokens of an encoder see all others")
                     : LACE_OK;
}

/* Classes are what the head has rows for; files may name them. */
static lace_status read_classes(const config_source *s, encoder_config *e)
{
    const tensor *scores = gguf_find_tensor(s->g, "cls.output.weight");
    if (!scores)
        return LACE_OK;
    int64_t n = scores->shape.n_dims > 1 ? scores->shape.dims[1] : 1;
    if (n < 1 || n > CONFIG_MAX_CLASSES)
        return error_set(s->err, LACE_E_SHAPE,
                         "tensor cls.output.weight: has %lld rows, expected 1 to %d", (long long)n,
                         CONFIG_MAX_CLASSES);
    e->n_classes = (int32_t)n;
    const char *key = "classifier.output_labels";
    const gguf_value *labels = gguf_find(s->g, config_key_of(s, key).text);
    if (labels && (labels->type != GGUF_ARRAY || labels->item_type != GGUF_STRING))
        return config_bad(s, key, LACE_E_META, "expected an array of strings");
    if (labels && labels->n_items != (uint64_t)n)
        return config_bad(s, key, LACE_E_META, "has not as many items as cls.output.weight rows");
    return LACE_OK;
}

lace_status encoder_read(const config_source *s, model_config *c)
{
    int64_t n_segments = 0;
    TRY(read_causal(s));
    TRY(gguf_get_int(s->g, "tokenizer.ggml.token_type_count", 0, CONFIG_MAX_SEGMENTS, &n_segments,
                     NULL, s->err));
    c->encoder.n_segments = (int32_t)n_segments;
    return read_classes(s, &c->encoder);
}

/* ---- Binding --------------------------------------------------------------------------------- */

lace_status encoder_bind_norm(model *m, encoder_norm *out, int layer, const char *name,
                              lace_error *err)
{
    char stem[STEM_BYTES];
    if (layer < 0)
        snprintf(stem, sizeof stem, "%s", name);
    else
        snprintf(stem, sizeof stem, "blk.%d.%s", layer, name);
    TRY(bind_vector(m, &out->scales, m->config.n_embd, err, "%s.weight", stem));
    return bind_optional(m, &out->bias, m->config.n_embd, err, "%s.bias", stem);
}

/* Token types: where no key says how many there are, as many as the table has rows. */
static lace_status bind_segments(model *m, lace_error *err)
{
    encoder_config *e = &m->config.encoder;
    const tensor *t = weights_find(m->files, "token_types.weight");
    if (!t) {
        e->n_segments = 0;
        return LACE_OK;
    }
    int64_t n = e->n_segments ? e->n_segments : t->shape.n_dims > 1 ? t->shape.dims[1] : 1;
    e->n_segments = n < CONFIG_MAX_SEGMENTS ? (int32_t)n : CONFIG_MAX_SEGMENTS;
    return bind_table(m, &m->encoder->segments, n, m->config.n_embd, err, "token_types.weight");
}

static lace_status bind_head(model *m, lace_error *err)
{
    encoder_parts *e = m->encoder;
    int64_t n_embd = m->config.n_embd, n = m->config.encoder.n_classes;
    if (n == 0)
        return LACE_OK;
    TRY(bind_matrix(m, &e->scores, n, n_embd, err, "cls.output.weight"));
    TRY(bind_optional(m, &e->scores_bias, n, err, "cls.output.bias"));
    if (!bind_has(m, "cls.weight"))
        return LACE_OK;
    TRY(bind_matrix(m, &e->head, n_embd, n_embd, err, "cls.weight"));
    return bind_optional(m, &e->head_bias, n_embd, err, "cls.bias");
}

lace_status encoder_bind_layer(model *m, int i, const encoder_form *f, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    encoder_layer *e = &m->encoder->layers[i];
    int64_t n_ff = c->layers[i].n_ff;
    TRY(bind_attention(m, i, err));
    /* The first layer reads what was normed already. */
    bool has_attn_norm = i > 0 || !f->norms_before || bind_has(m, "blk.0.attn_norm.weight");
    if (has_attn_norm)
        TRY(encoder_bind_norm(m, &e->attn, i, f->norms_before ? "attn_norm" : "attn_output_norm",
                              err));
    TRY(encoder_bind_norm(m, &e->ffn, i, f->norms_before ? "ffn_norm" : "layer_output_norm", err));
    TRY(bind_optional(m, &e->down_bias, c->n_embd, err, "blk.%d.ffn_down.bias", i));
    if (f->is_gated) {
        TRY(bind_ffn(m, i, err));
        if (!bind_has(m, "blk.%d.ffn_gate.weight", i)) { /* both in one tensor, the gate first */
            TRY(bind_optional(m, &e->gate_bias, 2 * n_ff, err, "blk.%d.ffn_up.bias", i));
            e->up_bias = e->gate_bias ? e->gate_bias + n_ff : NULL;
            return LACE_OK;
        }
        TRY(bind_optional(m, &e->gate_bias, n_ff, err, "blk.%d.ffn_gate.bias", i));
    } else {
        TRY(bind_matrix(m, &l->up, n_ff, c->n_embd, err, "blk.%d.ffn_up.weight", i));
        TRY(bind_matrix(m, &l->down, c->n_embd, n_ff, err, "blk.%d.ffn_down.weight", i));
    }
    return bind_optional(m, &e->up_bias, n_ff, err, "blk.%d.ffn_up.bias", i);
}

lace_status encoder_create_parts(model *m, lace_error *err)
{
    encoder_parts *e = m->encoder = arena_alloc(&m->memory, 1, sizeof *e);
    size_t n = (size_t)m->config.n_layers;
    if (!e || !(e->layers = arena_alloc(&m->memory, n, sizeof *e->layers)))
        return error_nomem(err, "an encoder");
    return LACE_OK;
}

lace_status encoder_bind(model *m, const encoder_form *f, lace_error *err)
{
    const model_config *c = &m->config;
    TRY(encoder_create_parts(m, err));
    encoder_parts *e = m->encoder;
    TRY(bind_input(m, err));
    if (f->has_positions)
        TRY(bind_table(m, &e->positions, c->n_context, c->n_embd, err, "position_embd.weight"));
    else
        TRY(bind_rope(m, err));
    TRY(bind_segments(m, err));
    TRY(encoder_bind_norm(m, &e->embedding, -1, "token_embd_norm", err));
    if (f->norms_before)
        TRY(encoder_bind_norm(m, &e->output, -1, "output_norm", err));
    for (int i = 0; i < c->n_layers; i++)
        TRY(encoder_bind_layer(m, i, f, err));
    return bind_head(m, err);
}

void encoder_state(const model_config *c, int32_t layer, layer_state *out)
{
    out->window = 0;
}

/* ---- Building -------------------------------------------------------------------------------- */

value encoder_build_norm(const model *m, plan *p, value x, const encoder_norm *n)
{
    norm_params norm = {.kind = OP_LAYER_NORM,
                        .scales = n->scales,
                        .bias = n->bias,
                        .group = m->config.n_embd,
                        .eps = m->config.norm_eps};
    return n->scales ? plan_norm(p, x, &norm) : x;
}

static value build_input(const model *m, plan *p, const encoder_form *f)
{
    const encoder_parts *e = m->encoder;
    value x = plan_embed(p, &m->table, 1);
    if (f->has_positions)
        x = plan_add(p, x, plan_lookup(p, &e->positions, EMBED_BY_POSITION), 1);
    if (e->segments.n_rows > 0)
        x = plan_add(p, x, plan_lookup(p, &e->segments, EMBED_BY_SEGMENT), 1);
    return encoder_build_norm(m, p, x, &e->embedding);
}

static value build_feed_forward(const model *m, plan *p, int i, value n, const encoder_form *f)
{
    const model_layer *l = &m->layers[i];
    const encoder_layer *e = &m->encoder->layers[i];
    value gate = f->is_gated ? plan_linear(p, n, &l->gate, e->gate_bias, 1) : -1;
    value up = plan_linear(p, n, &l->up, e->up_bias, 1);
    up = f->is_gated ? plan_glu(p, f->activation, gate, up) : plan_act(p, f->activation, up);
    return plan_linear(p, up, &l->down, e->down_bias, 1);
}

static void build_result(const model *m, plan *p, value x)
{
    const encoder_parts *e = m->encoder;
    x = encoder_build_norm(m, p, plan_gather(p, x), &e->output);
    if (p->limits.wants_scores) {
        if (e->head.n_rows > 0)
            x = plan_act(p, GLU_TANH, plan_linear(p, x, &e->head, e->head_bias, 1));
        x = plan_linear(p, x, &e->scores, e->scores_bias, 1);
    }
    plan_result(p, x);
}

value encoder_build_layer(const model *m, plan *p, int i, value x, angles turn,
                          const layer_memory *memory, const encoder_form *f)
{
    const encoder_layer *e = &m->encoder->layers[i];
    const encoder_norm none = {0};
    const encoder_norm *attn_in = f->norms_before ? &e->attn : &none;
    const encoder_norm *ffn_in = f->norms_before ? &e->ffn : &none;
    const encoder_norm *attn_out = f->norms_before ? &none : &e->attn;
    const encoder_norm *ffn_out = f->norms_before ? &none : &e->ffn;
    p->layer = i;
    value n = encoder_build_norm(m, p, x, attn_in);
    x = plan_add(p, x, build_attention(m, p, i, n, turn, memory), 1);
    x = encoder_build_norm(m, p, x, attn_out);
    n = encoder_build_norm(m, p, x, ffn_in);
    x = plan_add(p, x, build_feed_forward(m, p, i, n, f), 1);
    return encoder_build_norm(m, p, x, ffn_out);
}

void encoder_build(const model *m, plan *p, const layer_memory *memory, const encoder_form *f)
{
    value x = build_input(m, p, f);
    angles turn = {-1, -1};
    if (!f->has_positions)
        turn = build_angles(m, p);
    for (int i = 0; i < m->config.n_layers; i++)
        x = encoder_build_layer(m, p, i, x, turn, memory, f);
    p->layer = -1;
    build_result(m, p, x);
}
