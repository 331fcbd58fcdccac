/* Hugging Face directories of Mamba-2, and what other families with its state spaces share. */
#include "hf/family_mamba.h"

#include <math.h>

/* clang-format off */
const mamba_keys mamba2_keys =
    {"conv_kernel",  "state_size",     "num_heads",       "head_dim",       "n_groups",       NULL,          128, 128, 8};
const mamba_keys mamba_nemotron_keys =
    {"conv_kernel",  "ssm_state_size", "mamba_num_heads", "mamba_head_dim", "n_groups",       NULL,          128, 128, 8};
const mamba_keys mamba_d_keys =
    {"mamba_d_conv", "mamba_d_state",  "mamba_n_heads",   "mamba_d_head",   "mamba_n_groups", "mamba_d_ssm", 128, 256, 1};
/* clang-format on */

float mamba_decay(float a_log)
{
    return -expf(a_log);
}

lace_status read_mamba(const source *s, const mamba_keys *keys, model_config *c)
{
    ssm_config *ssm = &c->ssm;
    int32_t head_dim = 64;
    bool is_auto = json_is_string(source_get(s, keys->head_dim)), has_inner = false;
    *ssm = (ssm_config){.n_taps = 4,
                        .n_heads = keys->default_heads,
                        .n_state = keys->default_state,
                        .n_groups = keys->default_groups,
                        .dt_max = INFINITY};
    TRY(source_int(s, keys->n_taps, 2, CONFIG_MAX_TAPS, &ssm->n_taps, NULL));
    TRY(source_int(s, keys->n_state, 1, CONFIG_MAX_STATE, &ssm->n_state, NULL));
    TRY(source_int(s, keys->n_heads, 1, CONFIG_MAX_HEADS, &ssm->n_heads, NULL));
    TRY(source_int(s, keys->n_groups, 1, ssm->n_heads, &ssm->n_groups, NULL));
    if (ssm->n_heads % ssm->n_groups != 0)
        return source_fail(s, LACE_E_META, keys->n_groups, "does not divide the number of heads");
    if (keys->n_inner)
        TRY(source_int(s, keys->n_inner, 1, CONFIG_MAX_WIDTH, &ssm->n_inner, &has_inner));
    if (is_auto && !has_inner) /* twice the width of the model */
        ssm->n_inner = 2 * c->n_embd;
    if (!is_auto) {
        TRY(source_int(s, keys->head_dim, 1, CONFIG_MAX_HEAD_DIM, &head_dim, NULL));
        if (has_inner && (int64_t)ssm->n_heads * head_dim != ssm->n_inner)
            return source_fail(s, LACE_E_META, keys->n_inner, "is not heads x values of a head");
        ssm->n_inner = ssm->n_heads * head_dim;
    }
    if (ssm->n_inner % ssm->n_heads != 0)
        return source_fail(s, LACE_E_META, keys->n_heads, "does not divide the inner width");
    return LACE_OK;
}

/* A pair of numbers, of which the second is often Infinity, which is no number of JSON. */
lace_status read_time_step_limit(const source *s, model_config *c)
{
    const json_t *limit = source_get(s, "time_step_limit");
    if (!limit)
        return LACE_OK;
    const json_t *low = json_array_get(limit, 0), *high = json_array_get(limit, 1);
    if (json_array_size(limit) != 2 || !json_is_number(low) || json_number_value(low) < 0 ||
        (json_is_number(high) && json_number_value(high) <= json_number_value(low)))
        return source_fail(s, LACE_E_META, "time_step_limit", "expected two rising numbers");
    c->ssm.dt_min = json_number_value(low);
    if (json_is_number(high))
        c->ssm.dt_max = json_number_value(high);
    return LACE_OK;
}

/* ---- Mamba-2 --------------------------------------------------------------------------------- */

/* clang-format off */
static const name_row mamba2_ends[] = {
    COPY("embeddings.weight", "token_embd.weight"),
    COPY("norm_f.weight", "output_norm.weight"),
};

static const name_row mamba2_rows[] = {
    COPY("norm.weight", "attn_norm.weight"),
    MAMBA_ROWS("mixer."),
};
/* clang-format on */

static lace_status read_mamba2(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    c->n_ff = 0;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i] = (layer_config){.kind = LAYER_RECURRENT};
    TRY(read_mamba(s, &mamba2_keys, c));
    return read_time_step_limit(s, c);
}

const hf_family family_mamba2 = {.layers = NAME_TABLE(mamba2_rows),
                                 .ends = NAME_TABLE(mamba2_ends),
                                 .lacks = HF_LACKS_HEADS | HF_LACKS_FFN | HF_LACKS_CONTEXT,
                                 .read = read_mamba2};
