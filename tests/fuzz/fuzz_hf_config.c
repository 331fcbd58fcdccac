/*
 * Fuzzing config.json: whatever the text is, reading says no or gives numbers that may be divided
 * by and used as sizes.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "hf/config_hf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(lace_status status, const lace_error *err)
{
    if (err->status != status || err->text[0] == 0 || strchr(err->text, '\n'))
        abort();
}

static void check_config(const hf_config *h)
{
    const model_config *c = &h->model;
    if (c->n_layers < 1 || c->n_layers > CONFIG_MAX_LAYERS || c->n_embd < 2 || c->n_vocab < 1 ||
        c->n_ff < 1 || c->n_context < 1 || c->n_kv_heads < 1 || c->n_heads % c->n_kv_heads != 0 ||
        c->head_dim < 2 || c->rope.n_dims < 2 || c->rope.n_dims > c->head_dim ||
        c->n_experts_used > c->n_experts || c->rope.original_context < 1)
        abort();
    if (!(c->norm_eps > 0) || !(c->rope.base >= 2) || !(c->rope.factor > 0) ||
        !isfinite(c->rope.attention_factor) || !isfinite(c->attention_scale))
        abort();
    for (int32_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].is_local && c->window == 0)
            abort();
    for (int32_t i = 0; h->has_rope_factors && i < c->rope.n_dims / 2; i++)
        if (!(h->rope_factors[i] > 0))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json;
    lace_error err = {0};
    lace_status status = json_read((span){data, size}, 0, &json, &err);
    if (status != LACE_OK) {
        check_error(status, &err);
        return 0;
    }
    hf_config config;
    if (json_is_object(json)) {
        status = hf_config_read(json, &config, &err);
        if (status != LACE_OK)
            check_error(status, &err);
        else
            check_config(&config);
    }
    json_decref(json);
    return 0;
}
