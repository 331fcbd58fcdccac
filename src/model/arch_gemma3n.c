/*
 * Gemma 3n: layers as those of Gemma 4's small models, but around them several residual streams
 * (AltUp, arXiv 2301.13310). A layer reads one of them, after all were predicted from each other,
 * and what it gives out corrects all. Beside attention lies a product of low rank (LAuReL), and the
 * gates of the first layers are cut off.
 */
#include <math.h>
#include <stdio.h>

#include "model/config_source.h"
#include "model/gemma_parts.h"

/* ---- The numbers ----------------------------------------------------------------------------- */

enum { MAX_STREAMS = 16 };

/* Deviations for each layer; -inf: the layer has no cutoff. */
static lace_status read_cutoffs(const config_source *s, model_config *c)
{
    static const char name[] = "activation_sparsity_scale";
    const gguf_value *v = gguf_find(s->g, config_key_of(s, name).text);
    if (!v)
        return LACE_OK;
    if (v->type != GGUF_ARRAY || v->item_type != GGUF_F32 || v->n_items != (uint64_t)c->n_layers)
        return config_bad(s, name, LACE_E_META, "expected a float for each layer");
    for (int32_t i = 0; i < c->n_layers; i++) {
        double x = (double)load_f32(v->bytes.data + 4 * (size_t)i);
        c->layers[i].has_cutoff = x != -INFINITY;
        c->layers[i].cutoff = c->layers[i].has_cutoff ? x : 0;
        if (c->layers[i].has_cutoff && !(x >= -100 && x <= 100))
            return config_bad(s, name, LACE_E_META, "expected -inf, or -100 to 100");
    }
    return LACE_OK;
}

static lace_status read(const config_source *s, model_config *c)
{
    TRY(gemma_read_layers(s, c));
    TRY(read_cutoffs(s, c));
    if (c->n_embd_layer == 0)
        return config_bad(s, "embedding_length_per_layer_input", LACE_E_META,
                          "expected more than 0");
    TRY(config_need_int(s, "altup.num_inputs", 2, MAX_STREAMS, &c->n_streams));
    return config_int(s, "altup.active_idx", 0, c->n_streams - 1, &c->active_stream, NULL);
}

/* ---- Binding --------------------------------------------------------------------------------- */

static lace_status bind_streams(model *m, lace_error *err)
{
    int64_t n_embd = m->config.n_embd, n = m->config.n_streams - 1;
    TRY(bind_stack(m, &m->streams_in, n, 0, n, n_embd, n_embd, err, "altup_proj.weight"));
    m->streams_out = arena_alloc(&m->memory, (size_t)n, sizeof *m->streams_out);
    if (!m->streams_out)
        return error_nomem(err, "streams");
    for (int64_t i = 0; i < n; i++)
        TRY(bind_stack(m, &m->streams_out[i], n, i, 1, n_embd, n_embd, err,
                       "altup_unembd_proj.weight"));
    return bind_ones(m, &m->ones, n + 1, err);
}

static lace_status bind_streams_of(model *m, int i, lace_error *err)
{
    int64_t n_embd = m->config.n_embd, n = m->config.n_streams;
    model_layer *l = &m->layers[i];
    TRY(bind_vector(m, &l->stream_norm, n_embd, err, "blk.%d.altup_router_norm.weight", i));
    TRY(bind_matrix(m, &l->stream_router, n, n_embd, err, "blk.%d.altup_router.weight", i));
    TRY(bind_matrix(m, &l->predict, n * n, n, err, "blk.%d.altup_predict_coef.weight", i));
    TRY(bind_matrix(m, &l->correct, n, n, err, "blk.%d.altup_correct_coef.weight", i));
    if (bind_has(m, "blk.%d.altup_correct_scale.weight", i))
        TRY(bind_table(m, &l->correct_scale, 1, n_embd, err, "blk.%d.altup_correct_scale.weight",
                       i));
    return LACE_OK;
}

/* What is added beside attention; both are added with a factor, which goes into the norm. */
static lace_status bind_low_rank(model *m, int i, lace_error *err)
{
    int64_t n_embd = m->config.n_embd;
    model_layer *l = &m->layers[i];
    char name[64];
    snprintf(name, sizeof name, "blk.%d.laurel_l.weight", i);
    const tensor *t = weights_find(m->files, name);
    int64_t rank = t && t->shape.n_dims > 1 ? t->shape.dims[1] : 1;
    TRY(bind_matrix(m, &l->low_rank_in, rank, n_embd, err, "blk.%d.laurel_l.weight", i));
    TRY(bind_matrix(m, &l->low_rank_out, n_embd, rank, err, "blk.%d.laurel_r.weight", i));
    TRY(bind_vector(m, &l->low_rank_norm, n_embd, err, "blk.%d.laurel_post_norm.weight", i));
    return gemma_scale_norm(m, &l->low_rank_norm, n_embd, sqrtf(0.5f), err);
}

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    int64_t n_embd = c->n_embd;
    TRY(bind_ends(m, err));
    TRY(gemma_bind_second(m, err));
    TRY(bind_streams(m, err));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        TRY(bind_streams_of(m, i, err));
        TRY(bind_low_rank(m, i, err));
        TRY(gemma_bind_layer(m, i, err));
        TRY(bind_vector(m, &l->ffn_post_norm, n_embd, err, "blk.%d.post_ffw_norm.weight", i));
        TRY(gemma_bind_second_of(m, i, err));
    }
    return bind_rope(m, err);
}

/* ---- Building -------------------------------------------------------------------------------- */

/* Means of squares below this count as this, where streams get the magnitude of the first. */
static const float least_square = 1e-5f;

/* What x says of how streams are mixed. */
static value route_streams(const model *m, plan *p, int i, value x)
{
    const model_layer *l = &m->layers[i];
    value n = build_norm(m, p, x, l->stream_norm);
    value logits = plan_linear(p, n, &l->stream_router, NULL, 1 / (float)m->config.n_embd);
    return plan_act(p, GLU_TANH, logits);
}

/* Attention, and what lies beside it: (x + attention + n + a product of low rank) / sqrt(2). */
static value attend(const model *m, plan *p, int i, value x, angles turn,
                    const layer_memory *memory)
{
    const model_layer *l = &m->layers[i];
    float half = sqrtf(0.5f);
    value n = build_norm(m, p, x, l->attn_norm);
    value low = plan_linear(p, n, &l->low_rank_in, NULL, 1);
    value y = build_norm(m, p, plan_linear(p, low, &l->low_rank_out, NULL, 1), l->low_rank_norm);
    value a = gemma_attention(m, p, i, n, turn, memory);
    y = plan_add(p, y, build_norm(m, p, a, l->attn_post_norm), half);
    y = plan_add(p, y, n, half);
    return plan_add(p, y, x, half);
}

static value feed_forward(const model *m, plan *p, int i, value n)
{
    const layer_config *kind = &m->config.layers[i];
    const model_layer *l = &m->layers[i];
    value gate = plan_linear(p, n, &l->gate, NULL, 1);
    value up = plan_linear(p, n, &l->up, NULL, 1);
    if (kind->has_cutoff)
        gate = plan_cutoff(p, gate, (float)kind->cutoff);
    return plan_linear(p, plan_glu(p, GLU_GELU_TANH, gate, up), &l->down, NULL, 1);
}

/* All streams behind the first get what layer i makes of its part of the second embedding. */
static void add_second(const model *m, plan *p, int i, value second, value streams)
{
    const model_config *c = &m->config;
    const model_layer *l = &m->layers[i];
    int64_t width = c->n_embd;
    value x = plan_slice(p, streams, c->active_stream * width, width);
    if (l->correct_scale.n_rows > 0) /* every token takes the one row */
        x = plan_mul(p, x, plan_embed_known(p, &l->correct_scale, 1));
    value more = gemma_second_of(m, p, i, second, x);
    for (int32_t k = 1; k < c->n_streams; k++)
        plan_add(p, plan_slice(p, streams, k * width, width), more, 1);
}

/* The mean of all streams, those behind the first with its magnitude. */
static value join(const model *m, plan *p, value streams)
{
    const model_config *c = &m->config;
    int64_t width = c->n_embd;
    float share = 1 / (float)c->n_streams;
    value first = plan_slice(p, streams, 0, width), sum = -1;
    for (int32_t k = 1; k < c->n_streams; k++) {
        value x = plan_slice(p, streams, k * width, width);
        x = plan_linear(p, x, &m->streams_out[k - 1], NULL, 1);
        x = plan_match(p, x, first, share, least_square);
        sum = k == 1 ? x : plan_add(p, sum, x, 1);
    }
    return plan_add(p, sum, first, share);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    const model_config *c = &m->config;
    int64_t width = c->n_embd;
    value x = plan_embed(p, &m->table, (float)c->embedding_scale);
    value second = gemma_second(m, p, x);
    angles turn = build_angles(m, p);
    value others = plan_linear(p, x, &m->streams_in, NULL, 1);
    value streams = plan_match_behind(p, others, x, least_square);
    for (int i = 0; i < c->n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        x = plan_slice(p, streams, c->active_stream * width, width);
        value shares = plan_linear(p, route_streams(m, p, i, x), &l->predict, NULL, 1);
        streams = plan_mix(p, streams, streams, shares, width);
        x = plan_slice(p, streams, c->active_stream * width, width);
        value y = attend(m, p, i, x, turn, memory);
        value f = feed_forward(m, p, i, build_norm(m, p, y, l->ffn_norm));
        y = plan_add(p, y, build_norm(m, p, f, l->ffn_post_norm), 1);
        shares = plan_linear(p, route_streams(m, p, i, y), &l->correct, m->ones, 1);
        y = plan_add(p, y, x, -1); /* what the prediction did not know */
        streams = plan_mix(p, streams, y, shares, width);
        add_second(m, p, i, second, streams);
    }
    p->layer = -1;
    build_logits(m, p, join(m, p, streams));
}

const arch arch_gemma3n = GEMMA_ARCH("gemma3n", ARCH_STREAMS);
