/* Hugging Face directories of Nemotron-H: one part in each layer. */
#include "hf/family_mamba.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
static const name_row nemotron_ends[] = {
    COPY("embeddings.weight", "token_embd.weight"),
    COPY("norm_f.weight", "output_norm.weight"),
};

static const name_row nemotron_rows[] = {
    COPY("norm.weight", "attn_norm.weight"),
    MAMBA_ROWS("mixer."),
    MADE("mixer.q_proj.weight", "attn_q.weight", RECIPE_PERMUTE_Q),
    MADE("mixer.q_proj.bias", "attn_q.bias", RECIPE_PERMUTE_Q),
    MADE("mixer.k_proj.weight", "attn_k.weight", RECIPE_PERMUTE_K),
    MADE("mixer.k_proj.bias", "attn_k.bias", RECIPE_PERMUTE_K),
    COPY("mixer.v_proj.weight", "attn_v.weight"), COPY("mixer.v_proj.bias", "attn_v.bias"),
    COPY("mixer.o_proj.weight", "attn_output.weight"),
    COPY("mixer.o_proj.bias", "attn_output.bias"),
    COPY("mixer.up_proj.weight", "ffn_up.weight"),
    COPY("mixer.down_proj.weight", "ffn_down.weight"),
};
/* clang-format on */

/* ---- Keys ------------------------------------------------------------------------------------ */

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

static lace_status read_layers(const source *s, model_config *c)
{
    const char *key =
        source_get(s, "layers_block_type") ? "layers_block_type" : "hybrid_override_pattern";
    for (int32_t i = 0; i < c->n_layers; i++) {
        layer_config *l = &c->layers[i];
        char letter = letter_of(s, i);
        if (!letter || !strchr("M*-", letter))
            return error_set(s->err, LACE_E_META,
                             "config.json: %s: layer %d: expected one of M * - or its name", key,
                             i);
        l->kind = letter == 'M' ? LAYER_RECURRENT : letter == '*' ? LAYER_ATTENTION : LAYER_FFN;
        l->skips_rope = true;
        l->n_kv_heads = l->kind == LAYER_ATTENTION ? c->n_kv_heads : 0;
        l->n_ff = l->kind == LAYER_FFN ? c->n_ff : 0;
    }
    return LACE_OK;
}

static lace_status read(const source *s, hf_config *h)
{
    static const mamba_keys keys = {.n_taps = "conv_kernel",
                                    .n_state = "ssm_state_size",
                                    .n_heads = "mamba_num_heads",
                                    .head_dim = "mamba_head_dim",
                                    .n_groups = "n_groups",
                                    .default_heads = 128,
                                    .default_state = 128,
                                    .default_groups = 8};
    model_config *c = &h->model;
    const char *act = json_string_value(source_get(s, "mlp_hidden_act"));
    if (act && strcmp(act, "relu2") != 0)
        return source_fail(s, LACE_E_UNSUPPORTED, "mlp_hidden_act", "expected \"relu2\"");
    c->has_no_rope = true;
    TRY(source_float(s, "layer_norm_epsilon", 1e-30, 0.999, &c->norm_eps, NULL));
    TRY(read_layers(s, c));
    return read_mamba(s, &keys, c);
}

static void set_defaults(model_config *c)
{
    c->head_dim = 128;
}

const hf_family family_nemotron_h = {.model_type = "nemotron_h",
                                     .class_name = "NemotronHForCausalLM",
                                     .architecture = "nemotron_h",
                                     .layers = NAME_TABLE(nemotron_rows),
                                     .ends = NAME_TABLE(nemotron_ends),
                                     .is_permuted = true,
                                     .window = WINDOW_NEVER,
                                     .set_defaults = set_defaults,
                                     .read = read};
