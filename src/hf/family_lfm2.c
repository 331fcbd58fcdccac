/* Hugging Face directories of LFM2 and its MoE form. */
#include "hf/hf_family.h"

#include <math.h>

/* clang-format off */
static const name_row lfm2_ends[] = {
    COPY("embed_tokens.weight", "token_embd.weight"),
    COPY("embedding_norm.weight", "token_embd_norm.weight"),
};

#define LFM2_ROWS                                                                                  \
    COPY("operator_norm.weight", "attn_norm.weight"),                                              \
    COPY("ffn_norm.weight", "ffn_norm.weight"),                                                    \
    COPY("self_attn.q_proj.weight", "attn_q.weight"),                                              \
    COPY("self_attn.k_proj.weight", "attn_k.weight"),                                              \
    COPY("self_attn.v_proj.weight", "attn_v.weight"),                                              \
    COPY("self_attn.out_proj.weight", "attn_output.weight"),                                       \
    COPY("self_attn.q_layernorm.weight", "attn_q_norm.weight"),                                    \
    COPY("self_attn.k_layernorm.weight", "attn_k_norm.weight"),                                    \
    SHAPED("conv.conv.weight", "shortconv.conv.weight", SHAPE_SQUEEZED),                           \
    COPY("conv.conv.bias", "shortconv.conv.bias"),                                                 \
    WITH_BIAS("conv.in_proj", "shortconv.in_proj"),                                           \
    WITH_BIAS("conv.out_proj", "shortconv.out_proj"),                                         \
    COPY("feed_forward.w1.weight", "ffn_gate.weight"),                                             \
    COPY("feed_forward.w2.weight", "ffn_down.weight"),                                             \
    COPY("feed_forward.w3.weight", "ffn_up.weight")

static const name_row lfm2_rows[] = {LFM2_ROWS};

static const name_row lfm2_moe_rows[] = {
    LFM2_ROWS,
    MADE("feed_forward.experts.*.w1.weight", "ffn_gate_exps.weight", RECIPE_STACK),
    MADE("feed_forward.experts.*.w2.weight", "ffn_down_exps.weight", RECIPE_STACK),
    MADE("feed_forward.experts.*.w3.weight", "ffn_up_exps.weight", RECIPE_STACK),
    PART("feed_forward.experts.gate_up_proj", "ffn_gate_exps.weight", RECIPE_HALVE, 0, 2),
    PART("feed_forward.experts.gate_up_proj", "ffn_up_exps.weight", RECIPE_HALVE, 1, 2),
    COPY("feed_forward.experts.down_proj", "ffn_down_exps.weight"),
    COPY("feed_forward.gate.weight", "ffn_gate_inp.weight"),
    COPY("feed_forward.expert_bias", "exp_probs_b.bias"),
};
/* clang-format on */

/* ---- Keys ------------------------------------------------------------------------------------ */

static const char *const lfm2_keys[] = {"layer_types", "num_experts", NULL};

/* Which layers attend, where layer_types does not say it: all, or those of a list. */
static lace_status read_attending(const source *s, model_config *c)
{
    bool attends[CONFIG_MAX_LAYERS];
    if (source_get(s, "layer_types") || !source_get(s, "full_attn_idxs"))
        return LACE_OK;
    TRY(source_layer_list(s, "full_attn_idxs", c->n_layers, attends));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].kind = attends[i] ? LAYER_ATTENTION : LAYER_RECURRENT;
    return LACE_OK;
}

static lace_status read_layers(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    c->ssm.n_taps = 3;
    TRY(source_int(s, "conv_L_cache", 2, CONFIG_MAX_TAPS, &c->ssm.n_taps, NULL));
    TRY(source_bool(s, "tie_embedding", &h->is_tied));
    TRY(read_attending(s, c));
    for (int32_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].kind == LAYER_RECURRENT)
            c->layers[i].n_kv_heads = 0;
    return LACE_OK;
}

/* Two thirds of what the config says, times a factor and rounded up unless that is null. */
static lace_status read_width(const source *s, model_config *c)
{
    bool adjusts = true;
    double factor = 1;
    int32_t multiple = 256;
    TRY(source_int(s, "block_ff_dim", 1, CONFIG_MAX_WIDTH, &c->n_ff, NULL));
    TRY(source_bool(s, "block_auto_adjust_ff_dim", &adjusts));
    TRY(source_float(s, "block_ffn_dim_multiplier", 1e-3, 1e3, &factor, NULL));
    TRY(source_int(s, "block_multiple_of", 1, CONFIG_MAX_WIDTH, &multiple, NULL));
    if (adjusts) {
        double width = floor(factor * floor(2.0 * c->n_ff / 3));
        bool rounds = !json_is_null(json_object_get(s->object, "block_ffn_dim_multiplier"));
        double rounded = rounds ? ceil(width / multiple) * multiple : width;
        if (!(rounded >= 1 && rounded <= CONFIG_MAX_WIDTH))
            return source_fail(s, LACE_E_META, "block_multiple_of",
                               "makes a feed-forward part of an impossible width");
        c->n_ff = (int32_t)rounded;
    }
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].n_ff = c->n_ff;
    return LACE_OK;
}

static lace_status read_lfm2(const source *s, hf_config *h)
{
    TRY(read_layers(s, h));
    return read_width(s, &h->model);
}

static lace_status read_lfm2_moe(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    int32_t n_dense = 2;
    TRY(read_layers(s, h));
    c->routing = (route_rule){.scores = ROUTE_SIGMOID, .norms = true, .norm_more = 1e-6f};
    TRY(hf_read_mixture(s, c));
    TRY(source_int(s, "num_dense_layers", 0, c->n_layers, &n_dense, NULL));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].has_experts = i >= n_dense;
    return LACE_OK;
}

const hf_family family_lfm2 = {FAMILY(lfm2_rows, lfm2_keys, read_lfm2),
                               .ends = NAME_TABLE(lfm2_ends), .is_tied = true,
                               .lacks = HF_LACKS_FFN, .activation = HF_ANY_ACTIVATION};
const hf_family family_lfm2_moe = {FAMILY(lfm2_moe_rows, lfm2_keys, read_lfm2_moe),
                                   .ends = NAME_TABLE(lfm2_ends), .is_tied = true,
                                   .activation = HF_ANY_ACTIVATION};
