/* What Gemma 3n and 4 have in common. */
#include "model/gemma_parts.h"

#include <math.h>

#include "model/config_source.h"

/* ---- The numbers ----------------------------------------------------------------------------- */

lace_status gemma_read_layers(const config_source *s, model_config *c)
{
    static const char shared[] = "attention.shared_kv_layers";
    static const char width[] = "embedding_length_per_layer_input";
    int32_t n_shared = 0;
    if (!c->has_window_pattern)
        return config_bad(s, "attention.sliding_window_pattern", LACE_E_META, "is missing");
    TRY(config_int(s, shared, 0, c->n_layers - 1, &n_shared, NULL));
    TRY(config_int(s, width, 0, CONFIG_MAX_WIDTH / c->n_layers, &c->n_embd_layer, NULL));
    return config_share_kv(c, n_shared)
               ? LACE_OK
               : config_bad(s, shared, LACE_E_META,
                            "a layer has no earlier one of its kind and shape to share with");
}

lace_status gemma_configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    c->attention_scale = 1;
    c->embedding_scale = sqrt(c->n_embd);
    if (c->rope_local_base == 0)
        c->rope_local_base = c->rope.base;
    return LACE_OK;
}

void gemma_state(const model_config *c, int32_t layer, layer_state *out)
{
    if (c->layers[layer].shares_kv)
        out->shares = config_kv_layer(c, layer);
}

/* ---- Attention ------------------------------------------------------------------------------- */

/*
 * q, k, v and o of layer i and the norms of their heads; of v that has no weights. A layer that
 * shares has no k and v, whatever is in the file. Where there is no v, it is k before its norm.
 */
static lace_status bind_projections(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t q = config_q_width(c, i), kv = config_kv_width(c, i), dim = c->layers[i].head_dim;
    TRY(bind_matrix(m, &l->wq, q, c->n_embd, err, "blk.%d.attn_q.weight", i));
    TRY(bind_vector(m, &l->q_norm, dim, err, "blk.%d.attn_q_norm.weight", i));
    TRY(bind_matrix(m, &l->wo, c->n_embd, q, err, "blk.%d.attn_output.weight", i));
    if (c->layers[i].shares_kv)
        return LACE_OK;
    TRY(bind_matrix(m, &l->wk, kv, c->n_embd, err, "blk.%d.attn_k.weight", i));
    if (bind_has(m, "blk.%d.attn_v.weight", i))
        TRY(bind_matrix(m, &l->wv, kv, c->n_embd, err, "blk.%d.attn_v.weight", i));
    TRY(bind_vector(m, &l->k_norm, dim, err, "blk.%d.attn_k_norm.weight", i));
    return bind_ones(m, &l->v_norm, dim, err);
}

lace_status gemma_bind_layer(model *m, int i, lace_error *err)
{
    model_layer *l = &m->layers[i];
    int64_t n = m->config.n_embd;
    TRY(bind_vector(m, &l->attn_norm, n, err, "blk.%d.attn_norm.weight", i));
    TRY(bind_projections(m, i, err));
    TRY(bind_vector(m, &l->attn_post_norm, n, err, "blk.%d.post_attention_norm.weight", i));
    TRY(bind_vector(m, &l->ffn_norm, n, err, "blk.%d.ffn_norm.weight", i));
    return bind_ffn(m, i, err);
}

/* k and v of the normed input into the cache; k turned by the same angles as q. */
static void write_kv(const model *m, plan *p, int i, value k, value v, value turn,
                     const rope_params *rope, const layer_memory *memory)
{
    const layer_config *kind = &m->config.layers[i];
    k = plan_rope(p, k, turn, rope, kind->n_kv_heads, kind->head_dim);
    plan_kv_write(p, k, v, &memory[i].kv);
}

value gemma_attention(const model *m, plan *p, int i, value n, angles turn,
                      const layer_memory *memory)
{
    const model_config *c = &m->config;
    const layer_config *kind = &c->layers[i];
    const model_layer *l = &m->layers[i];
    bool is_local = kind->is_local && c->window > 0;
    const rope_params *rope = kind->is_local ? &m->rope_local : &m->rope;
    value table = kind->is_local ? turn.local : turn.all, k = -1, v = -1;
    norm_params norm = {.kind = OP_RMS_NORM, .group = kind->head_dim, .eps = c->norm_eps};
    attend_params params = {.n_heads = kind->n_heads,
                            .scale = (float)c->attention_scale,
                            .window = is_local ? c->window : 0,
                            .softcap = (float)c->attention_softcap};
    value q = plan_linear(p, n, &l->wq, NULL, 1);
    if (!kind->shares_kv) {
        value raw = plan_linear(p, n, &l->wk, NULL, 1);
        v = l->wv.n_rows > 0 ? plan_linear(p, n, &l->wv, NULL, 1) : raw;
        norm.scales = l->k_norm;
        k = plan_norm(p, raw, &norm);
        norm.scales = l->v_norm;
        v = plan_norm(p, v, &norm);
    }
    norm.scales = l->q_norm;
    q = plan_norm(p, q, &norm);
    q = plan_rope(p, q, table, rope, kind->n_heads, kind->head_dim);
    if (!kind->shares_kv)
        write_kv(m, p, i, k, v, table, rope, memory);
    value a = plan_attend(p, q, &memory[i].kv, &params);
    return plan_linear(p, a, &l->wo, NULL, 1);
}

/* ---- The second embedding -------------------------------------------------------------------- */

lace_status gemma_bind_second(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    int64_t width = (int64_t)c->n_layers * c->n_embd_layer;
    if (width == 0)
        return LACE_OK;
    /* Some have no rows for the last tokens, which stand for pictures and sound. */
    const tensor *table = weights_find(m->files, "per_layer_token_embd.weight");
    int64_t n_rows = table && table->shape.dims[1] < c->n_vocab ? table->shape.dims[1] : c->n_vocab;
    TRY(bind_table(m, &m->second_table, n_rows, width, err, "per_layer_token_embd.weight"));
    TRY(bind_matrix(m, &m->second_proj, width, c->n_embd, err, "per_layer_model_proj.weight"));
    return bind_vector(m, &m->second_norm, c->n_embd_layer, err, "per_layer_proj_norm.weight");
}

lace_status gemma_bind_second_of(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    if (c->n_embd_layer == 0)
        return LACE_OK;
    TRY(bind_matrix(m, &l->second_gate, c->n_embd_layer, c->n_embd, err, "blk.%d.inp_gate.weight",
                    i));
    TRY(bind_matrix(m, &l->second_proj, c->n_embd, c->n_embd_layer, err, "blk.%d.proj.weight", i));
    return bind_vector(m, &l->second_norm, c->n_embd, err, "blk.%d.post_norm.weight", i);
}

value gemma_second(const model *m, plan *p, value x)
{
    const model_config *c = &m->config;
    float half = sqrtf(0.5f); /* of the sum of two */
    if (c->n_embd_layer == 0)
        return -1;
    norm_params norm = {.kind = OP_RMS_NORM,
                        .scales = m->second_norm,
                        .group = c->n_embd_layer,
                        .eps = c->norm_eps};
    value of_token = plan_embed_known(p, &m->second_table, half * sqrtf((float)c->n_embd_layer));
    value of_first = plan_linear(p, x, &m->second_proj, NULL, 1 / sqrtf((float)c->n_embd));
    return plan_add(p, of_token, plan_norm(p, of_first, &norm), half);
}

value gemma_second_of(const model *m, plan *p, int i, value second, value x)
{
    const model_layer *l = &m->layers[i];
    int64_t width = m->config.n_embd_layer;
    value gate = plan_linear(p, x, &l->second_gate, NULL, 1);
    value part = plan_slice(p, second, i * width, width);
    value taken = plan_glu(p, GLU_GELU_TANH, gate, part);
    return build_norm(m, p, plan_linear(p, taken, &l->second_proj, NULL, 1), l->second_norm);
}

lace_status gemma_scale_norm(model *m, const float **scales, int64_t n, float by, lace_error *err)
{
    float *scaled = arena_alloc(&m->memory, (size_t)n, sizeof *scaled);
    if (!scaled)
        return error_nomem(err, "a norm");
    for (int64_t i = 0; i < n; i++)
        scaled[i] = by * (*scales)[i];
    *scales = scaled;
    return LACE_OK;
}
