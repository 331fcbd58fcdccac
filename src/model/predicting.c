/*
 * Layers behind the last one that predict further tokens (multi-token prediction; NextN in GGUF
 * files). One of them reads a token's embedding e and the normed hidden row h of the token before
 * it, and what comes out of the model's output matrix is a guess of the token behind:
 *
 *     x = join [norm(e), norm(h)]     one decoder layer over x     head(norm(x))
 *
 * The normed x stands for the hidden row of its token where the next guess is made. Of several such
 * layers the first is used, again and again.
 */
#include <string.h>

#include "model/transformer.h"

static lace_status bind_norms(model *m, int i, lace_error *err)
{
    size_t n = (size_t)m->config.n_embd;
    const float *of_token, *of_hidden;
    TRY(bind_vector(m, &of_token, (int64_t)n, err, "blk.%d.nextn.enorm.weight", i));
    TRY(bind_vector(m, &of_hidden, (int64_t)n, err, "blk.%d.nextn.hnorm.weight", i));
    float *both = arena_alloc(&m->memory, 2 * n, sizeof *both);
    if (!both)
        return error_nomem(err, "norms");
    memcpy(both, of_token, n * sizeof *both);
    memcpy(both + n, of_hidden, n * sizeof *both);
    m->predicting.norms = both;
    return LACE_OK;
}

static lace_status bind_own_ends(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_predicting *d = &m->predicting;
    TRY(bind_optional(m, &d->head_norm, c->n_embd, err, "blk.%d.nextn.shared_head_norm.weight", i));
    if (!d->head_norm)
        d->head_norm = m->output_norm;
    if (bind_has(m, "blk.%d.nextn.embed_tokens.weight", i))
        TRY(bind_table(m, &d->table, c->n_vocab, c->n_embd, err, "blk.%d.nextn.embed_tokens.weight",
                       i));
    if (bind_has(m, "blk.%d.nextn.shared_head_head.weight", i))
        TRY(bind_matrix(m, &d->head, c->n_vocab, c->n_embd, err,
                        "blk.%d.nextn.shared_head_head.weight", i));
    return LACE_OK;
}

static lace_status bind_all(model *m, int i, lace_error *err)
{
    const int64_t n = m->config.n_embd;
    config_set_predicting(&m->config);
    TRY(bind_matrix(m, &m->predicting.join, n, 2 * n, err, "blk.%d.nextn.eh_proj.weight", i));
    TRY(bind_norms(m, i, err));
    TRY(bind_own_ends(m, i, err));
    return m->arch->bind_layer ? m->arch->bind_layer(m, i, err)
                               : bind_decoder_layer(m, i, m->arch->form, err);
}

lace_status model_bind_predicting(model *m, lace_error *err)
{
    const int i = m->config.n_layers;
    lace_status status = LACE_OK;
    if (m->config.n_predicting == 0)
        status = error_set(err, LACE_E_UNSUPPORTED,
                           "the model has no layer that predicts further tokens (MTP)");
    else if (!bind_has(m, "blk.%d.nextn.eh_proj.weight", i))
        status = error_set(err, LACE_E_UNSUPPORTED,
                           "the layer that predicts further tokens (MTP) was left out of the file");
    else
        status = bind_all(m, i, err);
    if (status != LACE_OK)
        return error_prefix(err, status, weights_name(m->files));
    m->predicting.is_bound = true;
    return LACE_OK;
}

void model_build_predicting(const model *m, plan *p, const layer_memory *memory)
{
    const model_config *c = &m->config;
    const model_predicting *d = &m->predicting;
    const weight *table = d->table.n_rows > 0 ? &d->table : &m->table;
    const weight *head = d->head.n_rows > 0 ? &d->head : &m->output;
    norm_params norms = {.kind = OP_RMS_NORM,
                         .scales = d->norms,
                         .is_wide = true,
                         .group = c->n_embd,
                         .eps = c->norm_eps};
    value x = plan_embed_beside(p, table, (float)c->embedding_scale);
    angles turn = build_angles(m, p);
    x = plan_linear(p, plan_norm(p, x, &norms), &d->join, NULL, 1);
    x = build_decoder_layer(m, p, c->n_layers, x, turn, memory, m->arch->form);
    p->layer = -1;
    value hidden = build_norm(m, p, plan_gather(p, x), d->head_norm);
    plan_hidden(p, hidden);
    plan_result(p, plan_linear(p, hidden, head, NULL, (float)(1 / c->logit_scale)));
}
