/* How much each tensor matters. */
#include "compress/sensitivity.h"

#include "compress/codec.h"
#include "compress/trial.h"

lace_status sensitivity_measure(walk *w, const lace_token *tokens, size_t n_tokens, dtype type,
                                const quantize_made *list, double *kls,
                                bool (*report)(void *user, double done), void *user,
                                lace_error *err)
{
    trial *m;
    TRY(trial_create(w, tokens, n_tokens, SENSITIVITY_WINDOWS, &m, err));
    lace_status status = LACE_OK;
    for (size_t i = 0; i < list->n && status == LACE_OK; i++) {
        const tensor *t = weights_find(w->m->files, list->tensors[i].name);
        if (t->shape.dims[0] % codec_find(type)->n_values != 0)
            continue;
        if (!report(user, (double)i / (double)list->n))
            status = error_set(err, LACE_E_CANCELLED, "cancelled");
        if (status == LACE_OK)
            status = trial_set(m, t, type, err);
        if (status == LACE_OK)
            status = trial_measure(m, &kls[i], err);
        if (status == LACE_OK)
            status = trial_set(m, t, t->type, err);
    }
    trial_free(m);
    return status;
}
