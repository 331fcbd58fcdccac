/* What the layers of a model remember of sequences, as its architecture says. */
#include "base/mem.h"
#include "model/model.h"

/* A rank has whole heads, if there are enough for everybody; rows that all heads share it has all. */
static void cut_heads(const ranks *r, layer_state *l)
{
    if (!(l->kind & STATE_PAGED) || l->v_in_k || l->n_heads < r->shares.n_ranks)
        return;
    l->n_total = l->n_heads;
    l->n_heads = (int32_t)(rank_begin(&r->shares, l->n_total, r->shares.rank + 1) -
                           rank_begin(&r->shares, l->n_total, r->shares.rank));
}

lace_status model_states(const model *m, const states_options *options, states **out,
                         lace_error *err)
{
    const model_config *c = &m->config;
    int32_t n_layers = c->n_layers + m->predicting.is_bound;
    *out = NULL;
    layer_state *layers = mem_calloc((size_t)n_layers, sizeof *layers);
    if (!layers)
        return error_nomem(err, "the KV cache's layers");
    for (int32_t i = 0; i < n_layers; i++) {
        const layer_config *l = &c->layers[i];
        int32_t window = l->is_local ? c->window : 0;
        if (l->kind == LAYER_ATTENTION)
            layers[i] = layer_state_paged(l->n_kv_heads, l->head_dim, l->head_dim, window);
        if (m->arch->state)
            m->arch->state(c, i, &layers[i]);
        layers[i].device = model_layer_device(m, i);
        if (m->ranks)
            cut_heads(m->ranks, &layers[i]);
    }
    lace_status status = states_create(layers, n_layers, options, out, err);
    mem_free(layers);
    return status;
}
