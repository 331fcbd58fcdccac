/* Hugging Face directories with latent attention: DeepSeek V2 and V3, GLM-4.7-Flash, Mistral 4. */
#include <string.h>

#include "hf/hf_family.h"

/* clang-format off */
static const name_row latent_rows[] = {
    COPY("self_attn.q_proj.weight", "attn_q.weight"),
    WITH_BIAS("self_attn.q_a_proj", "attn_q_a"),
    COPY("self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"),
    COPY("self_attn.q_b_proj.weight", "attn_q_b.weight"),
    WITH_BIAS("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    COPY("self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"),
    PART("self_attn.kv_b_proj.weight", "attn_k_b.weight", RECIPE_HEADS, 0, 2),
    PART("self_attn.kv_b_proj.weight", "attn_v_b.weight", RECIPE_HEADS, 1, 2),
    WITH_BIAS("self_attn.o_proj", "attn_output"),
    PRE_NORM_ROWS,
    ROUTED_ROWS,
    COPY("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
};

static const name_row predicting_rows[] = {PREDICTING_ROWS};
/* clang-format on */

static const char *const keys[] = {
    "kv_lora_rank",     "num_local_experts",     "num_experts", "n_routed_experts",
    "n_shared_experts", "first_k_dense_replace", NULL};

static lace_status read_latent(const source *s, model_config *c)
{
    latent_config *t = &c->latent;
    const int32_t most = CONFIG_MAX_HEAD_DIM / 2; /* so that a head and a latent row fit */
    int32_t turned = 0;
    bool interleaves = true;
    TRY(source_need_int(s, "qk_rope_head_dim", 2, most, &turned));
    TRY(source_need_int(s, "kv_lora_rank", 2, CONFIG_MAX_HEAD_DIM - turned, &t->kv_rank));
    TRY(source_int(s, "q_lora_rank", 0, CONFIG_MAX_WIDTH, &t->q_rank, NULL));
    TRY(source_need_int(s, "qk_nope_head_dim", 1, most, &t->nope_dim));
    TRY(source_need_int(s, "v_head_dim", 1, CONFIG_MAX_HEAD_DIM, &t->value_dim));
    TRY(source_bool(s, "rope_interleave", &interleaves));
    if (turned % 2 != 0 || t->kv_rank % 2 != 0)
        return source_fail(s, LACE_E_META, turned % 2 ? "qk_rope_head_dim" : "kv_lora_rank",
                           "is odd, expected an even number");
    t->has_halves = !interleaves;
    c->rope.n_dims = turned;
    config_set_latent(c);
    return LACE_OK;
}

/* "dense" or "sparse" for each layer, where first_k_dense_replace is not enough. */
static lace_status read_layer_kinds(const source *s, model_config *c)
{
    const json_t *kinds;
    TRY(source_layers(s, "mlp_layer_types", c->n_layers, &kinds));
    for (int32_t i = 0; kinds && i < c->n_layers; i++) {
        const char *kind = json_string_value(json_array_get(kinds, (size_t)i));
        if (!kind || (strcmp(kind, "dense") != 0 && strcmp(kind, "sparse") != 0))
            return source_fail(s, LACE_E_UNSUPPORTED, "mlp_layer_types",
                               "expected dense or sparse for each layer");
        c->layers[i].has_experts = strcmp(kind, "sparse") == 0;
    }
    return LACE_OK;
}

/* Groups count only where the method says so; weights are never normed. */
static lace_status read_deepseek_v2(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    const char *method = json_string_value(source_get(s, "topk_method"));
    c->routing = (route_rule){.scores = ROUTE_SOFTMAX};
    TRY(read_latent(s, c));
    TRY(hf_read_mixture(s, c));
    c->routing.norms = false;
    c->routing.scores = ROUTE_SOFTMAX;
    c->routing.n_ranking = 1;
    if (!method || strcmp(method, "greedy") == 0)
        c->routing.n_groups = c->routing.n_groups_used = 0;
    else if (strcmp(method, "group_limited_greedy") != 0)
        return source_fail(s, LACE_E_UNSUPPORTED, "topk_method",
                           "expected greedy or group_limited_greedy");
    return LACE_OK;
}

static lace_status read_deepseek_v3(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    c->routing = (route_rule){.scores = ROUTE_SIGMOID, .norms = true, .norm_more = 1e-20f};
    TRY(read_latent(s, c));
    TRY(hf_read_mixture(s, c));
    c->routing.scores = ROUTE_SIGMOID;
    c->routing.n_ranking = 2;
    return read_layer_kinds(s, c);
}

static lace_status read_mistral4(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    c->routing = (route_rule){.scores = ROUTE_SOFTMAX, .norms = true, .norm_more = 1e-20f};
    source rope = {.object = source_get(s, "rope_parameters"),
                   .outer = s->object,
                   .name = "rope_parameters",
                   .err = s->err};
    TRY(read_latent(s, c));
    TRY(hf_read_mixture(s, c));
    c->routing.scores = ROUTE_SOFTMAX;
    c->routing.n_ranking = 2;
    c->temperature_length = c->rope.original_context;
    return source_float(&rope, "llama_4_scaling_beta", 0, 1e3, &c->temperature_scale, NULL);
}

#define LATENT(reader)                                                                             \
    {                                                                                              \
        .layers = NAME_TABLE(latent_rows), .predicting = NAME_TABLE(predicting_rows),              \
        .lacks = HF_LACKS_HEAD_DIM, .reads = keys, .read = reader                                  \
    }

const hf_family family_deepseek_v2 = LATENT(read_deepseek_v2);
const hf_family family_deepseek_v3 = LATENT(read_deepseek_v3);
const hf_family family_mistral4 = LATENT(read_mistral4);
