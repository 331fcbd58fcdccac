/* Hugging Face directories of Nemotron-H: one part in each layer. */
#include "hf/family_mamba.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
static const name_row nemotron_ends[] = {
    COPY("embeddings.weight", "token_embd.weight"),
    COPY("norm_f.weight", "output_norm.weight"),
};

#define NEMOTRON_ROWS                                                                              \
    COPY("norm.weight", "attn_norm.weight"),                                                       \
    MAMBA_ROWS("mixer."),                                                                          \
    MADE("mixer.q_proj.weight", "attn_q.weight", RECIPE_PERMUTE_Q),                             \
    MADE("mixer.q_proj.bias", "attn_q.bias", RECIPE_PERMUTE_Q),                                 \
    MADE("mixer.k_proj.weight", "attn_k.weight", RECIPE_PERMUTE_K),                             \
    MADE("mixer.k_proj.bias", "attn_k.bias", RECIPE_PERMUTE_K),                                 \
    WITH_BIAS("mixer.v_proj", "attn_v"),        \
    WITH_BIAS("mixer.o_proj", "attn_output"),                                                 \
    COPY("mixer.up_proj.weight", "ffn_up.weight"),                                                 \
    COPY("mixer.down_proj.weight", "ffn_down.weight")

static const name_row dense_rows[] = {NEMOTRON_ROWS};

static const name_row moe_rows[] = {
    NEMOTRON_ROWS,
    MADE("mixer.experts.*.up_proj.weight", "ffn_up_exps.weight", RECIPE_STACK),
    MADE("mixer.experts.*.down_proj.weight", "ffn_down_exps.weight", RECIPE_STACK),
    COPY("mixer.experts.up_proj", "ffn_up_exps.weight"),
    COPY("mixer.experts.down_proj", "ffn_down_exps.weight"),
    COPY("mixer.gate.weight", "ffn_gate_inp.weight"),
    COPY("mixer.gate.e_score_correction_bias", "exp_probs_b.bias"),
    COPY("mixer.fc1_latent_proj.weight", "ffn_latent_down.weight"),
    COPY("mixer.fc2_latent_proj.weight", "ffn_latent_up.weight"),
    COPY("mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
    COPY("mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
};
/* clang-format on */

/* ---- Keys ------------------------------------------------------------------------------------ */

static const char *const nemotron_keys[] = {"n_routed_experts", "n_shared_experts", NULL};

static const hf_family nemotron_moe;

/* A layer by its letter in hybrid_override_pattern; 0: it is none. */
static char letter_of(const source *s, int32_t layer)
{
    static const struct {
        const char *name;
        char letter;
    } names[] = {{"mamba", 'M'}, {"linear_attention", 'M'}, {"attention", '*'},
                 {"moe", 'E'},   {"full_attention", '*'},   {"mlp", '-'}};
    const json_t *list = source_get(s, "layers_block_type");
    if (!list) {
        const char *pattern = json_string_value(source_get(s, "hybrid_override_pattern"));
        return pattern && strlen(pattern) > (size_t)layer ? pattern[layer] : 0;
    }
    const char *name = json_string_value(json_array_get(list, (size_t)layer));
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0)
            return names[i].letter;
    return 0;
}

static lace_status read_layers(const source *s, model_config *c, bool *has_experts)
{
    const char *key =
        source_get(s, "layers_block_type") ? "layers_block_type" : "hybrid_override_pattern";
    for (int32_t i = 0; i < c->n_layers; i++) {
        layer_config *l = &c->layers[i];
        char letter = letter_of(s, i);
        if (!letter || !strchr("M*E-", letter))
            return error_set(s->err, LACE_E_META,
                             "config.json: %s: layer %d: expected one of M * E - or its name", key,
                             i);
        l->kind = letter == 'M' ? LAYER_RECURRENT : letter == '*' ? LAYER_ATTENTION : LAYER_FFN;
        l->has_experts = letter == 'E';
        l->skips_rope = true;
        l->n_kv_heads = l->kind == LAYER_ATTENTION ? c->n_kv_heads : 0;
        l->n_ff = l->kind == LAYER_FFN ? c->n_ff : 0;
        *has_experts = *has_experts || l->has_experts;
    }
    return LACE_OK;
}

static lace_status read_experts(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    h->family = &nemotron_moe;
    snprintf(c->architecture, sizeof c->architecture, "nemotron_h_moe");
    c->routing = (route_rule){.scores = ROUTE_SIGMOID, .norms = true, .norm_more = 1e-20f};
    TRY(hf_read_mixture(s, c));
    TRY(source_need_int(s, "moe_shared_expert_intermediate_size", 1, CONFIG_MAX_WIDTH,
                        &c->n_ff_shared));
    TRY(source_int(s, "moe_latent_size", 1, CONFIG_MAX_WIDTH, &c->n_latent, NULL));
    for (int32_t i = 0; i < c->n_layers; i++) {
        c->layers[i].has_experts = letter_of(s, i) == 'E';
        if (c->layers[i].has_experts)
            c->layers[i].n_ff = c->n_ff_expert;
    }
    return LACE_OK;
}

static lace_status read(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    const char *act = json_string_value(source_get(s, "mlp_hidden_act"));
    bool has_experts = false;
    if (act && strcmp(act, "relu2") != 0)
        return source_fail(s, LACE_E_UNSUPPORTED, "mlp_hidden_act", "expected \"relu2\"");
    c->has_no_rope = true;
    TRY(source_float(s, "layer_norm_epsilon", 1e-30, 0.999, &c->norm_eps, NULL));
    TRY(read_layers(s, c, &has_experts));
    TRY(read_mamba(s, &mamba_nemotron_keys, c));
    return has_experts ? read_experts(s, h) : LACE_OK;
}

static void set_defaults(model_config *c)
{
    c->head_dim = 128;
}

#define NEMOTRON(rows)                                                                             \
    {                                                                                              \
        .layers = NAME_TABLE(rows), .ends = NAME_TABLE(nemotron_ends), .is_permuted = true,        \
        .activation = HF_ANY_ACTIVATION, .reads = nemotron_keys, .set_defaults = set_defaults,     \
        .read = read                                                                               \
    }

const hf_family family_nemotron_h = NEMOTRON(dense_rows);
static const hf_family nemotron_moe = NEMOTRON(moe_rows);
