/* The plan of a model, to see which step uses which matrix. */
#include "model/outline.h"

int32_t outline_find_step(const plan *p, const weight *w)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        if (p->steps[i].op == OP_EMBED && p->steps[i].a.embed.table == w)
            return i;
        op_weight found[OP_MAX_WEIGHTS];
        int n = step_weights(&p->steps[i], found);
        for (int k = 0; k < n; k++)
            if (w >= found[k].w && w < found[k].w + found[k].n_experts)
                return i;
    }
    return -1;
}

lace_status outline_create(const model *m, plan **out, lace_error *err)
{
    states_options smallest = {.type = DTYPE_F32, .n_sequences = 1, .n_context = 1, .n_batch = 1};
    bool is_encoder = m->config.encoder.is_on;
    plan_limits limits = {.max_tokens = 1,
                          .max_outputs = 1,
                          .n_context = 1,
                          .n_workers = 1,
                          .stops_at_hidden = is_encoder,
                          .wants_scores = is_encoder && m->config.encoder.n_classes > 0};
    states *kv;
    *out = NULL;
    TRY(model_states(m, &smallest, &kv, err));
    lace_status status = plan_create(&limits, out, err);
    if (status == LACE_OK) {
        model_build(m, *out, kv->layers);
        status = plan_check(*out, err);
    }
    states_free(kv);
    return status;
}
