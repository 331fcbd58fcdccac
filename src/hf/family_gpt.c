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
    WITH_BIAS("ln_1", "attn_norm"),
    MADE("attn.c_attn.weight", "attn_qkv.weight", RECIPE_TRANSPOSE),
    COPY("attn.c_attn.bias",   "attn_qkv.bias"),
    MADE("attn.c_proj.weight", "attn_output.weight", RECIPE_TRANSPOSE),
    COPY("attn.c_proj.bias",   "attn_output.bias"),
    WITH_BIAS("ln_2", "ffn_norm"),
    MADE("mlp.c_fc.weight",   "ffn_up.weight", RECIPE_TRANSPOSE),
    COPY("mlp.c_fc.bias",     "ffn_up.bias"),
    MADE("mlp.c_proj.weight", "ffn_down.weight", RECIPE_TRANSPOSE),
    COPY("mlp.c_proj.bias",   "ffn_down.bias"),
};

static const name_row gpt2_ends[] = {
    COPY("wte.weight",  "token_embd.weight"),
    COPY("wpe.weight",  "position_embd.weight"),
    WITH_BIAS("ln_f", "output_norm"),
};

static const name_row neox_rows[] = {
    WITH_BIAS("input_layernorm", "attn_norm"),
    ROWS("attention.query_key_value.weight", "attn_qkv.weight", &by_kind),
    ROWS("attention.query_key_value.bias",   "attn_qkv.bias", &by_kind),
    WITH_BIAS("attention.dense", "attn_output"),
    WITH_BIAS("post_attention_layernorm", "ffn_norm"),
    WITH_BIAS("mlp.dense_h_to_4h", "ffn_up"),
    WITH_BIAS("mlp.dense_4h_to_h", "ffn_down"),
};

static const name_row neox_ends[] = {
    COPY("embed_in.weight",         "token_embd.weight"),
    WITH_BIAS("final_layer_norm", "output_norm"),
};

static const name_row neox_heads[] = {COPY("embed_out.weight", "output.weight")};

static const name_row falcon_rows[] = {
    WITH_BIAS("input_layernorm", "attn_norm"),
    WITH_BIAS("ln_attn", "attn_norm_2"),
    WITH_BIAS("ln_mlp", "attn_norm"),
    WITH_BIAS("post_attention_layernorm", "ffn_norm"),
    ROWS("self_attention.query_key_value.weight", "attn_qkv.weight", &by_kind),
    ROWS("self_attention.query_key_value.bias",   "attn_qkv.bias", &by_kind),
    WITH_BIAS("self_attention.dense", "attn_output"),
    WITH_BIAS("mlp.dense_h_to_4h", "ffn_up"),
    WITH_BIAS("mlp.dense_4h_to_h", "ffn_down"),
};

static const name_row falcon_ends[] = {
    COPY("word_embeddings.weight", "token_embd.weight"),
    WITH_BIAS("ln_f", "output_norm"),
};
/* clang-format on */

static lace_status read_gpt2(const source *s, hf_config *h)
{
    TRY(source_expect_text(s, "activation_function", "gelu_new"));
    TRY(source_expect_bool(s, "scale_attn_by_inverse_layer_idx", false));
    return source_expect_bool(s, "add_cross_attention", false);
}

/* Heads share no keys, whatever num_key_value_heads says. */
static lace_status read_neox(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    c->n_kv_heads = c->n_heads;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].n_kv_heads = c->n_heads;
    c->is_parallel = true;
    return source_bool(s, "use_parallel_residual", &c->is_parallel);
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
    TRY(source_expect_bool(s, "alibi", false));
    TRY(source_expect_text(s, "activation", "gelu"));
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
