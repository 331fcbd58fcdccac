/*
 * Hugging Face directories of GPT-2, GPT-NeoX and Falcon: q, k and v in one matrix, and names of their
 * own.
 */
#include <string.h>

#include "hf/hf_family.h"

/*
 * GPT-NeoX and Falcon have the rows of q, k and v by groups: the heads of q that share a head of k and
 * v, then that of k, then that of v. A GGUF file has all of q, then all of k, then all of v.
 */
static int64_t qkv_count(const model_config *c, int32_t layer)
{
    return config_q_width(c, layer) + 2 * config_kv_width(c, layer);
}

static int64_t qkv_source(const model_config *c, int32_t layer, int64_t row)
{
    const layer_config *l = &c->layers[layer];
    int64_t head = row / l->head_dim, in_head = row % l->head_dim;
    int64_t n_shared = l->n_heads / l->n_kv_heads, group = n_shared + 2;
    if (head < l->n_heads)
        return (head / n_shared * group + head % n_shared) * l->head_dim + in_head;
    head -= l->n_heads;
    int64_t is_value = head >= l->n_kv_heads;
    head -= is_value ? l->n_kv_heads : 0;
    return (head * group + n_shared + is_value) * l->head_dim + in_head;
}

static const row_map by_kind = {qkv_count, qkv_source};

/* clang-format off */
static const name_row gpt2_rows[] = {
    COPY("ln_1.weight", "attn_norm.weight"),
    COPY("ln_1.bias",   "attn_norm.bias"),
    MADE("attn.c_attn.weight", "attn_qkv.weight", RECIPE_TRANSPOSE),
    COPY("attn.c_attn.bias",   "attn_qkv.bias"),
    MADE("attn.c_proj.weight", "attn_output.weight", RECIPE_TRANSPOSE),
    COPY("attn.c_proj.bias",   "attn_output.bias"),
    COPY("ln_2.weight", "ffn_norm.weight"),
    COPY("ln_2.bias",   "ffn_norm.bias"),
    MADE("mlp.c_fc.weight",   "ffn_up.weight", RECIPE_TRANSPOSE),
    COPY("mlp.c_fc.bias",     "ffn_up.bias"),
    MADE("mlp.c_proj.weight", "ffn_down.weight", RECIPE_TRANSPOSE),
    COPY("mlp.c_proj.bias",   "ffn_down.bias"),
};

static const name_row gpt2_ends[] = {
    COPY("wte.weight",  "token_embd.weight"),
    COPY("wpe.weight",  "position_embd.weight"),
    COPY("ln_f.weight", "output_norm.weight"),
    COPY("ln_f.bias",   "output_norm.bias"),
};

static const name_row neox_rows[] = {
    COPY("input_layernorm.weight", "attn_norm.weight"),
    COPY("input_layernorm.bias",   "attn_norm.bias"),
    ROWS("attention.query_key_value.weight", "attn_qkv.weight", &by_kind),
    ROWS("attention.query_key_value.bias",   "attn_qkv.bias", &by_kind),
    COPY("attention.dense.weight", "attn_output.weight"),
    COPY("attention.dense.bias",   "attn_output.bias"),
    COPY("post_attention_layernorm.weight", "ffn_norm.weight"),
    COPY("post_attention_layernorm.bias",   "ffn_norm.bias"),
    COPY("mlp.dense_h_to_4h.weight", "ffn_up.weight"),
    COPY("mlp.dense_h_to_4h.bias",   "ffn_up.bias"),
    COPY("mlp.dense_4h_to_h.weight", "ffn_down.weight"),
    COPY("mlp.dense_4h_to_h.bias",   "ffn_down.bias"),
};

static const name_row neox_ends[] = {
    COPY("embed_in.weight",         "token_embd.weight"),
    COPY("final_layer_norm.weight", "output_norm.weight"),
    COPY("final_layer_norm.bias",   "output_norm.bias"),
};

static const name_row neox_heads[] = {COPY("embed_out.weight", "output.weight")};

static const name_row falcon_rows[] = {
    COPY("input_layernorm.weight", "attn_norm.weight"),
    COPY("input_layernorm.bias",   "attn_norm.bias"),
    COPY("ln_attn.weight",         "attn_norm_2.weight"),
    COPY("ln_attn.bias",           "attn_norm_2.bias"),
    COPY("ln_mlp.weight",          "attn_norm.weight"),
    COPY("ln_mlp.bias",            "attn_norm.bias"),
    COPY("post_attention_layernorm.weight", "ffn_norm.weight"),
    COPY("post_attention_layernorm.bias",   "ffn_norm.bias"),
    ROWS("self_attention.query_key_value.weight", "attn_qkv.weight", &by_kind),
    ROWS("self_attention.query_key_value.bias",   "attn_qkv.bias", &by_kind),
    COPY("self_attention.dense.weight", "attn_output.weight"),
    COPY("self_attention.dense.bias",   "attn_output.bias"),
    COPY("mlp.dense_h_to_4h.weight", "ffn_up.weight"),
    COPY("mlp.dense_h_to_4h.bias",   "ffn_up.bias"),
    COPY("mlp.dense_4h_to_h.weight", "ffn_down.weight"),
    COPY("mlp.dense_4h_to_h.bias",   "ffn_down.bias"),
};

static const name_row falcon_ends[] = {
    COPY("word_embeddings.weight", "token_embd.weight"),
    COPY("ln_f.weight",            "output_norm.weight"),
    COPY("ln_f.bias",              "output_norm.bias"),
};
/* clang-format on */

/* A flag that must be off, and a text that must be this. */
static lace_status refuse_flag(const source *s, const char *key)
{
    bool is_on = false;
    TRY(source_bool(s, key, &is_on));
    return is_on ? source_fail(s, LACE_E_UNSUPPORTED, key, "is true, expected false") : LACE_OK;
}

static lace_status expect_text(const source *s, const char *key, const char *expected)
{
    const char *found = json_string_value(source_get(s, key));
    if (found && strcmp(found, expected) != 0)
        return error_set(s->err, LACE_E_UNSUPPORTED,
                         "config.json: %s: is \"%.32s\", expected \"%s\"", key, found, expected);
    return LACE_OK;
}

static lace_status read_gpt2(const source *s, hf_config *h)
{
    TRY(expect_text(s, "activation_function", "gelu_new"));
    TRY(refuse_flag(s, "scale_attn_by_inverse_layer_idx"));
    return refuse_flag(s, "add_cross_attention");
}

static lace_status read_neox(const source *s, hf_config *h)
{
    h->model.is_parallel = true;
    return source_bool(s, "use_parallel_residual", &h->model.is_parallel);
}

static void set_falcon_defaults(model_config *c)
{
    c->n_context = 2048;
}

/* One head of k and v, whatever num_kv_heads says, unless the decoder is the newer one. */
static lace_status read_falcon(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    bool is_new = false, is_multi = true;
    TRY(refuse_flag(s, "alibi"));
    TRY(expect_text(s, "activation", "gelu"));
    TRY(source_bool(s, "new_decoder_architecture", &is_new));
    TRY(source_bool(s, "multi_query", &is_multi));
    if (!is_new)
        c->n_kv_heads = is_multi ? 1 : c->n_heads;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].n_kv_heads = c->n_kv_heads;
    return LACE_OK;
}

const hf_family family_gpt2 = {.layers = NAME_TABLE(gpt2_rows),
                               .layer_start = "h.",
                               .ends = NAME_TABLE(gpt2_ends),
                               .is_tied = true,
                               .lacks = HF_LACKS_FFN,
                               .read = read_gpt2,
                               .activation = HF_ANY_ACTIVATION};
const hf_family family_gpt_neox = {.layers = NAME_TABLE(neox_rows),
                                   .ends = NAME_TABLE(neox_ends),
                                   .heads = NAME_TABLE(neox_heads),
                                   .activation = "gelu",
                                   .read = read_neox};
const hf_family family_falcon = {.layers = NAME_TABLE(falcon_rows),
                                 .layer_start = "h.",
                                 .ends = NAME_TABLE(falcon_ends),
                                 .is_tied = true,
                                 .lacks = HF_LACKS_FFN,
                                 .set_defaults = set_falcon_defaults,
                                 .read = read_falcon,
                                 .activation = HF_ANY_ACTIVATION};
