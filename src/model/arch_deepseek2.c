/*
 * DeepSeek V2, V2-Lite and V3, GLM-4.7-Flash and Mistral 4: latent attention, and experts behind a
 * few dense layers.
 */
#include <stdio.h>

#include "model/config_source.h"
#include "model/transformer.h"

/* Sizes of latents. Files from before keys were kept as latents have those of heads instead. */
static lace_status read_latent(const config_source *s, model_config *c)
{
    latent_config *t = &c->latent;
    int32_t head = c->head_dim;
    const int32_t turned = c->rope.n_dims;
    t->value_dim = c->value_dim;
    TRY(config_need_int(s, "attention.kv_lora_rank", 1, CONFIG_MAX_HEAD_DIM - turned, &t->kv_rank));
    TRY(config_int(s, "attention.q_lora_rank", 0, CONFIG_MAX_WIDTH, &t->q_rank, NULL));
    TRY(config_int(s, "attention.key_length_mla", 1, CONFIG_MAX_HEAD_DIM, &head, NULL));
    TRY(config_int(s, "attention.value_length_mla", 1, CONFIG_MAX_HEAD_DIM, &t->value_dim, NULL));
    if (head <= turned)
        return config_bad(s, "rope.dimension_count", LACE_E_META,
                          "leaves no values of a head that are not rotated");
    if (t->kv_rank % 2 != 0)
        return config_bad(s, "attention.kv_lora_rank", LACE_E_META,
                          "is odd, expected an even number");
    t->nope_dim = head - turned;
    config_set_latent(c);
    return LACE_OK;
}

/* In these files the multiplier is a tenth of mscale_all_dim, and cos and sin stay as they are. */
static lace_status read_mscale(const config_source *s, rope_config *r)
{
    double multiplier = 0, factor = 1;
    TRY(config_float(s, "rope.scaling.yarn_log_multiplier", 0, 1e3, &multiplier, NULL));
    TRY(config_float(s, "rope.scaling.attn_factor", 1e-3, 1e3, &factor, NULL));
    if (r->scaling != ROPE_YARN || multiplier == 0)
        return LACE_OK;
    r->yarn_mscale_all = 10 * multiplier;
    r->attention_factor = factor;
    return LACE_OK;
}

static lace_status read_mistral4(const config_source *s, model_config *c)
{
    TRY(read_latent(s, c));
    TRY(read_mscale(s, &c->rope));
    if (c->temperature_scale > 0 && c->temperature_length == 0)
        c->temperature_length = c->rope.original_context;
    c->routing.n_ranking = 2;
    c->routing.norm_more = 1e-20f;
    c->routing.norms = false;
    return config_bool(s, "expert_weights_norm", &c->routing.norms, NULL);
}

/* Whether any layer's choice of experts has a bias: files may lack the word for a sigmoid. */
static bool has_choice_bias(const config_source *s, const model_config *c)
{
    char name[64];
    for (int32_t i = 0; i < c->n_layers; i++) {
        snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", i);
        if (gguf_find_tensor(s->g, name))
            return true;
    }
    return false;
}

/* V2 has a softmax and ranks groups by their best expert; the others have a sigmoid and a bias. */
static lace_status read_deepseek2(const config_source *s, model_config *c)
{
    int32_t function = 0;
    TRY(read_mistral4(s, c));
    TRY(config_int(s, "expert_gating_func", 0, 3, &function, NULL));
    if (function == 0 && has_choice_bias(s, c))
        c->routing.scores = ROUTE_SIGMOID;
    c->routing.n_ranking = c->routing.scores == ROUTE_SIGMOID ? 2 : 1;
    return LACE_OK;
}

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = c->latent.has_halves;
    return LACE_OK;
}

#define LATENT(more, read_)                                                                        \
    .takes = ARCH_EXPERTS | ARCH_ROUTING | ARCH_VALUE_DIM | ARCH_LATENTS | (more), .read = read_,  \
    .configure = configure, .state = state_latent, .form = &llama_form

const arch arch_deepseek2 = {.name = "deepseek2", LATENT(ARCH_NEXTN, read_deepseek2)};
const arch arch_mistral4 = {.name = "mistral4", LATENT(ARCH_TEMPERATURE, read_mistral4)};
