/* The adapters of a model, and which of them a text uses. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "model/adapters.h"

#define MOST_SCALE 1e6f

static lace_status check_scale(float scale, lace_error *err)
{
    if (fabsf(scale) <= MOST_SCALE)
        return LACE_OK;
    return error_set(err, LACE_E_ARG, "the scale of an adapter is %g, expected -%g to %g",
                     (double)scale, (double)MOST_SCALE, (double)MOST_SCALE);
}

/* Adapters are part of plans, so they come before sessions. */
static lace_status check_model(const lace_model *lm, lace_error *err)
{
    if (!lm->m)
        return error_set(err, LACE_E_ARG, "the model was opened for its vocabulary alone");
    if (lm->others)
        return error_set(err, LACE_E_UNSUPPORTED, "adapters work on one rank, not on several");
    if (lm->m->is_loaded)
        return error_set(err, LACE_E_ARG,
                         "the model has a session; adapters are added before the first one");
    return LACE_OK;
}

lace_status lace_model_add_adapter(lace_model *lm, const char *path, float scale, int32_t *out,
                                   lace_error *err)
{
    *out = -1;
    TRY(check_model(lm, err));
    TRY(check_scale(scale, err));
    size_t n = (size_t)lm->m->n_adapters;
    float *grown = mem_realloc(lm->adapter_scales, (n + 1) * sizeof *grown);
    if (!grown)
        return error_nomem(err, "an adapter");
    lm->adapter_scales = grown;
    TRY(model_add_adapter(lm->m, path, err));
    grown[n] = scale;
    *out = (int32_t)n;
    return LACE_OK;
}

size_t lace_model_adapters(const lace_model *lm, lace_adapter_info *out, size_t capacity)
{
    size_t n = lm->m ? (size_t)lm->m->n_adapters : 0;
    for (size_t i = 0; i < n && i < capacity; i++) {
        const model_adapter *a = &lm->m->adapters[i];
        out[i] = (lace_adapter_info){.name = a->name,
                                     .path = a->path,
                                     .rank = a->rank,
                                     .alpha = (float)a->alpha,
                                     .scale = lm->adapter_scales[i],
                                     .n_matrices = a->n_parts,
                                     .n_bytes = a->n_bytes};
    }
    return n;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

lace_status adapters_choose(const lace_model *lm, const lace_adapter_use *uses, int32_t n_uses,
                            float *out, lace_error *err)
{
    int32_t n = lm->m->n_adapters;
    for (int32_t i = 0; i < n; i++)
        out[i] = n_uses < 0 ? lm->adapter_scales[i] : 0;
    for (int32_t i = 0; i < n_uses; i++) {
        if (uses[i].adapter < 0 || uses[i].adapter >= n)
            return error_set(err, LACE_E_ARG, "adapter %" PRId32 ": the model has %" PRId32 "%s",
                             uses[i].adapter, n, n > 0 ? ", the first is 0" : "");
        TRY(check_scale(uses[i].scale, err));
        out[uses[i].adapter] = uses[i].scale;
    }
    return LACE_OK;
}

bool adapters_owner(const lace_model *lm, const float *scales, uint64_t owner, uint64_t *out)
{
    digest_stream *s = NULL;
    digest d;
    bool ok = true;
    *out = owner;
    for (int32_t i = 0; ok && i < lm->m->n_adapters; i++) {
        if (scales[i] == 0)
            continue;
        ok = (s || ((s = digest_stream_create()) && digest_stream_add(s, &owner, sizeof owner))) &&
             digest_stream_add(s, &lm->m->adapters[i].digest, sizeof(digest)) &&
             digest_stream_add(s, &scales[i], sizeof scales[i]);
    }
    if (ok && s) {
        ok = digest_stream_peek(s, NULL, 0, &d);
        memcpy(out, d.bytes, sizeof *out);
    }
    digest_stream_free(s);
    return ok;
}

void adapters_apply(lace_session *s, int32_t sequence, const float *scales)
{
    const float *from = scales ? scales : s->model->adapter_scales;
    size_t n = (size_t)s->runner->n_adapters;
    if (n > 0)
        memcpy(runner_adapter_scales(s->runner, sequence), from, n * sizeof *from);
}

lace_status lace_session_set_adapters(lace_session *s, int32_t sequence,
                                      const lace_adapter_use *uses, size_t n_uses, lace_error *err)
{
    float scales[MODEL_MAX_ADAPTERS];
    if (sequence < 0 || sequence >= s->options.n_sequences)
        return error_set(err, LACE_E_ARG, "sequence is %" PRId32 ", expected 0 to %" PRId32,
                         sequence, s->options.n_sequences - 1);
    if (lace_session_length(s, sequence) > 0)
        return error_set(err, LACE_E_ARG,
                         "sequence %" PRId32
                         " holds tokens that were computed with other adapters; "
                         "truncate it to 0 first",
                         sequence);
    if (n_uses > MODEL_MAX_ADAPTERS)
        return error_set(err, LACE_E_ARG, "there are more than %d adapters", MODEL_MAX_ADAPTERS);
    TRY(adapters_choose(s->model, uses, (int32_t)n_uses, scales, err));
    adapters_apply(s, sequence, scales);
    return LACE_OK;
}
