/* hf/config_hf.c: config.json of every architecture, in both spellings, and impossible ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_read.h"
#include "formats/weights.h"
#include "hf/config_hf.h"
#include "data.h"
#include "golden_file.h"
#include "tap.h"

static json_t *json_of(const char *source)
{
    json_t *json = NULL;
    lace_error err;
    if (!CHECK(json_read((span){(const uint8_t *)source, strlen(source)}, 0, &json, &err) ==
               LACE_OK))
        tap_note("%s", err.text);
    return json;
}

/* A llama with more keys, of which the last ones win over the first. */
static json_t *llama_with(const char *more)
{
    json_t *base = json_of("{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,"
                           "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                           "\"intermediate_size\":128,\"vocab_size\":320,\"rms_norm_eps\":1e-6,"
                           "\"max_position_embeddings\":256}");
    json_t *other = json_of(more);
    json_object_update(base, other);
    json_decref(other);
    return base;
}

static hf_config read_with(const char *more)
{
    hf_config c;
    lace_error err;
    json_t *json = llama_with(more);
    if (!CHECK(hf_config_read(json, &c, &err) == LACE_OK))
        tap_note("%s: %s", more, err.text);
    json_decref(json);
    return c;
}

static void refuse(const char *more, lace_status expected, const char *key)
{
    hf_config c;
    lace_error err;
    json_t *json = llama_with(more);
    lace_status status = hf_config_read(json, &c, &err);
    if (!CHECK(status == expected && strstr(err.text, key)))
        tap_note("%s: %s", more, status ? err.text : "was read");
    json_decref(json);
}

/* ---- Real configs ---------------------------------------------------------------------------- */

/* The same numbers from config.json and from the metadata that llama.cpp's converter made of it. */
static void golden_config_equals_its_gguf(void *arg)
{
    const char *name = arg;
    char *directory = golden_path(name, ""), *file = golden_path(name, "model.gguf");
    weights *hf = NULL, *gg = NULL;
    lace_error err;
    static hf_config h;
    model_config g, *c = &h.model;
    CHECK(weights_open(directory, &hf, &err) == LACE_OK);
    if (!CHECK(hf && hf_config_read(weights_config(hf), &h, &err) == LACE_OK))
        tap_note("%s", err.text);
    CHECK(c->has_layer_kinds && c->rope.is_neox);
    if (file && CHECK(weights_open(file, &gg, &err) == LACE_OK) &&
        CHECK(config_from_gguf(weights_gguf(gg), &g, &err) == LACE_OK)) {
        CHECK(strcmp(c->architecture, g.architecture) == 0);
        CHECK(c->n_layers == g.n_layers && c->n_embd == g.n_embd && c->n_ff == g.n_ff);
        CHECK(c->n_heads == g.n_heads && c->n_kv_heads == g.n_kv_heads);
        CHECK(c->head_dim == g.head_dim && c->n_vocab == g.n_vocab && c->n_context == g.n_context);
        CHECK((float)c->norm_eps == (float)g.norm_eps);
        CHECK(c->rope.n_dims == g.rope.n_dims && c->rope.base == g.rope.base);
        CHECK(c->rope.scaling == g.rope.scaling && c->rope.factor == g.rope.factor);
        CHECK(c->rope.yarn_beta_fast == g.rope.yarn_beta_fast);
        CHECK(c->rope.attention_factor == g.rope.attention_factor);
        if (c->rope.scaling == ROPE_YARN || strcmp(name, "phi3") == 0)
            CHECK(c->rope.original_context == g.rope.original_context);
        if (strcmp(name, "mistral") != 0) /* the converter does not write its window */
            CHECK(c->window == g.window);
        CHECK(c->n_experts == g.n_experts && c->n_experts_used == g.n_experts_used);
        CHECK(c->n_ff_expert == g.n_ff_expert && c->routing.norms == g.routing.norms);
        CHECK((float)c->residual_scale == (float)g.residual_scale);
        CHECK((float)c->logit_scale == (float)g.logit_scale);
        CHECK((float)c->embedding_scale == (float)g.embedding_scale);
        CHECK(c->attention_softcap == g.attention_softcap && c->final_softcap == g.final_softcap);
        if (strncmp(name, "gemma", 5) != 0) /* where the key is not written */
            CHECK((float)c->attention_scale == (float)g.attention_scale);
    }
    weights_close(hf);
    weights_close(gg);
    free(directory);
    free(file);
}

static void kinds_of_layers_are_read(void)
{
    hf_config c = read_with("{\"model_type\":\"mistral\",\"sliding_window\":32}");
    CHECK(c.model.window == 32 && c.model.layers[0].is_local && c.model.layers[1].is_local);
    c = read_with("{\"model_type\":\"mistral\",\"sliding_window\":null}");
    CHECK(c.model.window == 0 && !c.model.layers[0].is_local);
    c = read_with("{\"model_type\":\"qwen2\",\"sliding_window\":32,\"use_sliding_window\":false}");
    CHECK(c.model.window == 0 && !c.model.layers[1].is_local);
    c = read_with("{\"model_type\":\"qwen2\",\"sliding_window\":32,\"use_sliding_window\":true,"
                  "\"max_window_layers\":1}");
    CHECK(c.model.window == 32 && !c.model.layers[0].is_local && c.model.layers[1].is_local);
    c = read_with("{\"model_type\":\"gemma2\",\"sliding_window\":8,\"head_dim\":32,"
                  "\"hidden_act\":\"gelu_pytorch_tanh\",\"query_pre_attn_scalar\":144}");
    CHECK(c.model.layers[0].is_local && !c.model.layers[1].is_local);
    CHECK(fabs(c.model.attention_scale - 1.0 / 12) < 1e-15 && c.is_tied);
    c = read_with("{\"model_type\":\"gemma2\",\"sliding_window\":8,\"head_dim\":32,"
                  "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}");
    CHECK(!c.model.layers[0].is_local && c.model.layers[1].is_local);
    c = read_with("{\"model_type\":\"smollm3\",\"no_rope_layers\":[0,1]}");
    CHECK(c.model.layers[0].skips_rope && !c.model.layers[1].skips_rope);
    c = read_with("{\"model_type\":\"smollm3\",\"num_hidden_layers\":8}");
    CHECK(c.model.layers[3].skips_rope && c.model.layers[7].skips_rope &&
          !c.model.layers[2].skips_rope);
}

/* ---- The rotary embedding -------------------------------------------------------------------- */

static bool has_same_rope(const model_config *a, const model_config *b)
{
    return a->rope.base == b->rope.base && a->rope.n_dims == b->rope.n_dims &&
           a->rope.scaling == b->rope.scaling && a->rope.factor == b->rope.factor &&
           a->rope.original_context == b->rope.original_context &&
           a->rope_local_base == b->rope_local_base;
}

static void both_spellings_of_the_rope_mean_the_same(void)
{
    hf_config a = read_with("{\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.0,"
                            "\"rope_theta\":5000.0,\"partial_rotary_factor\":0.5}}");
    hf_config b = read_with("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
                            "\"rope_theta\":5000,\"partial_rotary_factor\":0.5}");
    CHECK(a.model.rope.base == 5000 && a.model.rope.factor == 2 && a.model.rope.n_dims == 8);
    CHECK(a.model.rope.scaling == ROPE_LINEAR);
    CHECK(has_same_rope(&a.model, &b.model));
    a = read_with("{\"model_type\":\"gemma3_text\",\"sliding_window\":8,\"rope_parameters\":{"
                  "\"full_attention\":{\"rope_theta\":1e6,\"rope_type\":\"linear\",\"factor\":8},"
                  "\"sliding_attention\":{\"rope_theta\":1e4,\"rope_type\":\"default\"}}}");
    b = read_with("{\"model_type\":\"gemma3_text\",\"sliding_window\":8,\"rope_theta\":1000000,"
                  "\"rope_local_base_freq\":10000,"
                  "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}");
    CHECK(a.model.rope.base == 1e6 && a.model.rope_local_base == 1e4 && a.model.rope.factor == 8);
    CHECK(has_same_rope(&a.model, &b.model));
}

static void yarn_and_its_attention_factor_are_read(void)
{
#define YARN "\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":64"
    hf_config c = read_with("{\"rope_parameters\":{" YARN "}}");
    CHECK(c.model.rope.scaling == ROPE_YARN && c.model.rope.original_context == 64);
    CHECK(c.model.rope.attention_factor == 0 && !c.model.rope.yarn_keeps_fractions);
    CHECK(c.model.rope.yarn_beta_fast == 32 && c.model.rope.yarn_beta_slow == 1);
    c = read_with("{\"rope_parameters\":{" YARN ",\"truncate\":false,\"beta_fast\":16,"
                  "\"attention_factor\":1.5}}");
    CHECK(c.model.rope.yarn_keeps_fractions && c.model.rope.attention_factor == 1.5);
    CHECK(c.model.rope.yarn_beta_fast == 16);
    c = read_with("{\"rope_parameters\":{" YARN ",\"mscale\":1.0,\"mscale_all_dim\":0.5}}");
    CHECK(fabs(c.model.rope.attention_factor - (0.1 * log(4) + 1) / (0.05 * log(4) + 1)) < 1e-12);
#undef YARN
}

static void longrope_lists_are_read(void)
{
    hf_config c = read_with("{\"model_type\":\"phi3\",\"max_position_embeddings\":4096,"
                            "\"original_max_position_embeddings\":256,\"head_dim\":4,"
                            "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1.5],"
                            "\"long_factor\":[2,3]}}");
    CHECK(c.has_long_factors && c.short_factors[1] == 1.5f && c.long_factors[0] == 2);
    CHECK(c.model.rope.scaling == ROPE_LONGROPE && c.model.rope.original_context == 256);
    CHECK(fabs(c.model.rope.attention_factor - sqrt(1 + log(16) / log(256))) < 1e-12);
    refuse("{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}}",
           LACE_E_META, "short_factor: has 1 items, expected 8");
    refuse("{\"head_dim\":4,\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,0],"
           "\"long_factor\":[1,1]}}",
           LACE_E_META, "short_factor: item 1");
}

static void llama3_keeps_fast_and_divides_slow_frequencies(void)
{
    hf_config c = read_with("{\"head_dim\":128,\"rope_theta\":500000.0,\"rope_scaling\":{"
                            "\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                            "\"high_freq_factor\":4.0,"
                            "\"original_max_position_embeddings\":8192}}");
    CHECK(c.has_rope_factors && c.rope_factors[0] == 1 && c.rope_factors[63] == 8);
    for (int i = 1; i < 64; i++)
        CHECK(c.rope_factors[i] >= c.rope_factors[i - 1]);
    CHECK(c.model.rope.scaling == ROPE_PLAIN);
    refuse("{\"rope_scaling\":{\"type\":\"llama3\",\"low_freq_factor\":4,\"high_freq_factor\":4}}",
           LACE_E_META, "rope_scaling.high_freq_factor");
}

/* ---- Impossible ones ------------------------------------------------------------------------- */

static void what_is_missing_or_out_of_range_is_named(void)
{
    static const struct {
        const char *more, *key;
    } cases[] = {
        {"{\"num_hidden_layers\":0}", "num_hidden_layers: is 0, expected 1 to 512"},
        {"{\"num_hidden_layers\":513}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":\"2\"}", "num_hidden_layers: is a string"},
        {"{\"num_hidden_layers\":2.0}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":null}", "num_hidden_layers: is missing"},
        {"{\"hidden_size\":63}", "hidden_size: is odd"},
        {"{\"hidden_size\":2147483648}", "hidden_size"},
        {"{\"hidden_size\":66}", "hidden_size: is not a multiple"},
        {"{\"num_attention_heads\":0}", "num_attention_heads"},
        {"{\"num_key_value_heads\":0}", "num_key_value_heads"},
        {"{\"num_key_value_heads\":3}", "num_key_value_heads: does not divide"},
        {"{\"num_key_value_heads\":8}", "num_key_value_heads"},
        {"{\"head_dim\":15}", "head_dim: gives 4 heads of 15"},
        {"{\"head_dim\":2048}", "head_dim"},
        {"{\"rms_norm_eps\":0}", "rms_norm_eps"},
        {"{\"rms_norm_eps\":-1}", "rms_norm_eps"},
        {"{\"rms_norm_eps\":1e30}", "rms_norm_eps"},
        {"{\"vocab_size\":0}", "vocab_size"},
        {"{\"vocab_size\":null}", "vocab_size: is missing"},
        {"{\"max_position_embeddings\":-1}", "max_position_embeddings"},
        {"{\"intermediate_size\":0}", "intermediate_size"},
        {"{\"rope_theta\":1}", "rope_theta"},
        {"{\"rope_parameters\":[]}", "rope_parameters: expected an object"},
        {"{\"rope_scaling\":{\"type\":\"linear\"}}", "rope_scaling.factor: is missing"},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "rope_scaling.factor"},
        {"{\"partial_rotary_factor\":0.2}", "partial_rotary_factor"},
        {"{\"partial_rotary_factor\":2}", "partial_rotary_factor"},
        {"{\"tie_word_embeddings\":1}", "tie_word_embeddings: is an integer"},
        {"{\"model_type\":\"mixtral\"}", "num_experts: is missing"},
        {"{\"model_type\":\"mixtral\",\"num_local_experts\":4,\"num_experts_per_tok\":5}",
         "num_experts_per_tok"},
        {"{\"model_type\":\"gemma2\",\"sliding_window\":8,\"layer_types\":[\"full_attention\"]}",
         "layer_types: has 1 items"},
        {"{\"model_type\":\"gemma2\",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
         "sliding_window: is missing"},
        {"{\"model_type\":\"smollm3\",\"no_rope_layers\":[1,2]}", "no_rope_layers: item 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].more, LACE_E_META, cases[i].key);
}

static void what_lace_does_not_compute_is_named(void)
{
    static const struct {
        const char *more, *key;
    } cases[] = {
        {"{\"model_type\":\"lama\"}", "model_type: is \"lama\""},
        {"{\"hidden_act\":\"relu\"}", "hidden_act: is \"relu\", expected \"silu\""},
        {"{\"mlp_bias\":true}", "mlp_bias"},
        {"{\"quantization_config\":{\"quant_method\":\"hqq\"}}", "quant_method: is \"hqq\""},
        {"{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", "rope_scaling.type"},
        {"{\"model_type\":\"gemma2\",\"sliding_window\":8,"
         "\"layer_types\":[\"full_attention\",\"chunked_attention\"]}",
         "layer_types: item 1 is \"chunked_attention\""},
        {"{\"model_type\":\"qwen3_moe\",\"num_experts\":4,\"num_experts_per_tok\":2,"
         "\"moe_intermediate_size\":8,\"decoder_sparse_step\":2}",
         "decoder_sparse_step"},
        {"{\"model_type\":\"qwen3_vl_moe_text\",\"num_experts\":4,\"num_experts_per_tok\":2,"
         "\"moe_intermediate_size\":8,\"mlp_only_layers\":[0]}",
         "mlp_only_layers"},
        {"{\"model_type\":\"gpt_oss\",\"num_local_experts\":4,\"num_experts_per_tok\":2,"
         "\"swiglu_limit\":3.0}",
         "swiglu_limit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].more, LACE_E_UNSUPPORTED, cases[i].key);
    json_t *json = json_of("{}");
    hf_config c;
    lace_error err;
    CHECK(hf_config_read(json, &c, &err) == LACE_E_META && strstr(err.text, "model_type"));
    json_decref(json);
    json = json_of("{\"architectures\":[\"FooForCausalLM\"]}");
    CHECK(hf_config_read(json, &c, &err) == LACE_E_UNSUPPORTED &&
          strstr(err.text, "FooForCausalLM"));
    json_decref(json);
}

/* Keys of other families: refused by their name, unless they change nothing. */
static void keys_that_a_family_does_not_compute_are_refused(void)
{
    static const struct {
        const char *more, *key;
    } cases[] = {
        {"{\"num_local_experts\":1,\"num_experts_per_tok\":1}", "num_local_experts"},
        {"{\"model_type\":\"phi3\",\"num_experts\":4}", "num_experts"},
        {"{\"model_type\":\"qwen3\",\"num_experts\":4}", "num_experts"},
        {"{\"embedding_multiplier\":12}", "embedding_multiplier"},
        {"{\"model_type\":\"qwen2\",\"residual_multiplier\":0.2}", "residual_multiplier"},
        {"{\"logits_scaling\":8}", "logits_scaling"},
        {"{\"attention_multiplier\":0.5}", "attention_multiplier"},
        {"{\"query_pre_attn_scalar\":256}", "query_pre_attn_scalar"},
        {"{\"attn_logit_softcapping\":50}", "attn_logit_softcapping"},
        {"{\"model_type\":\"olmo2\",\"final_logit_softcapping\":30}", "final_logit_softcapping"},
        {"{\"model_type\":\"olmo2\",\"sliding_window\":8}", "sliding_window"},
        {"{\"model_type\":\"granite\",\"sliding_window\":8}", "sliding_window"},
        {"{\"no_rope_layers\":[1,0]}", "no_rope_layers"},
        {"{\"clip_qkv\":8}", "clip_qkv"},
        {"{\"clip_qkv\":\"8\"}", "clip_qkv"},
        {"{\"shared_expert_intermediate_size\":8}", "shared_expert_intermediate_size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].more, LACE_E_UNSUPPORTED, cases[i].key);
    static const char *const fine[] = {
        "{\"num_local_experts\":0,\"shared_expert_intermediate_size\":0,\"clip_qkv\":null}",
        "{\"embedding_multiplier\":1,\"logits_scaling\":1.0,\"attn_logit_softcapping\":null}",
        "{\"attention_multiplier\":0.25,\"query_pre_attn_scalar\":16}", /* heads of 16 */
        "{\"sliding_window\":8}", /* transformers does not use it in llama */
        "{\"model_type\":\"olmo2\",\"sliding_window\":1000000}",
        "{\"model_type\":\"granite\",\"sliding_window\":8,\"use_sliding_window\":false}",
        "{\"no_rope_layers\":[1,1]}",
    };
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        CHECK(read_with(fine[i]).model.n_layers > 0);
}

/* ---- State spaces and short convolutions ------------------------------------------------------ */

static void state_spaces_are_read(void)
{
    hf_config c = read_with("{\"model_type\":\"mamba2\",\"num_heads\":8,\"head_dim\":16,"
                            "\"n_groups\":2,\"state_size\":24,\"conv_kernel\":3,"
                            "\"time_step_limit\":[0.001,null]}");
    CHECK(c.model.ssm.n_inner == 128 && c.model.ssm.n_groups == 2 && c.model.ssm.n_taps == 3);
    CHECK(c.model.ssm.n_state == 24 && c.model.ssm.dt_min == 0.001 && isinf(c.model.ssm.dt_max));
    CHECK(c.model.layers[1].kind == LAYER_RECURRENT && c.model.layers[1].n_ff == 0);
    c = read_with("{\"model_type\":\"granitemoehybrid\",\"layer_types\":[\"linear_attention\","
                  "\"full_attention\"],\"mamba_n_heads\":8,\"mamba_d_head\":\"auto\","
                  "\"num_local_experts\":0,\"shared_intermediate_size\":96}");
    CHECK(c.model.ssm.n_inner == 128 && c.model.layers[0].n_ff == 96 && c.model.has_no_rope);
    CHECK(c.model.layers[0].kind == LAYER_RECURRENT && c.model.layers[0].n_kv_heads == 0);
    CHECK(c.model.layers[1].kind == LAYER_ATTENTION && c.model.layers[1].n_kv_heads == 2);
    /* Without a state space it is what GGUF files call granite. */
    c = read_with("{\"model_type\":\"granitemoehybrid\",\"layer_types\":[\"attention\","
                  "\"attention\"],\"mamba_n_heads\":8,\"num_local_experts\":0,"
                  "\"position_embedding_type\":\"rope\"}");
    CHECK(strcmp(c.model.architecture, "granite") == 0 && !c.model.layers[0].skips_rope);
    c = read_with("{\"model_type\":\"nemotron_h\",\"layers_block_type\":[\"mamba\",\"mlp\"],"
                  "\"layer_norm_epsilon\":1e-4,\"mamba_num_heads\":8,\"mamba_head_dim\":4}");
    CHECK(c.model.ssm.n_inner == 32 && c.model.norm_eps == 1e-4 && c.model.head_dim == 128);
    CHECK(c.model.layers[1].kind == LAYER_FFN && c.model.layers[0].n_ff == 0);
    c = read_with("{\"model_type\":\"falcon_h1\",\"mamba_d_ssm\":48,\"mamba_n_heads\":3,"
                  "\"mamba_d_head\":16,\"lm_head_multiplier\":0.5,\"ssm_multipliers\":"
                  "[1,2,3,4,5],\"mamba_rms_norm\":true}");
    CHECK(c.model.logit_scale == 2 && c.model.mup.ssm[4] == 5 && c.model.mup.gate == 1);
    CHECK(c.model.ssm.norms_first && c.model.ssm.n_state == 256);
    c = read_with("{\"model_type\":\"lfm2\",\"block_ff_dim\":100,\"block_multiple_of\":16,"
                  "\"block_ffn_dim_multiplier\":1.5,\"full_attn_idxs\":[1]}");
    CHECK(c.model.n_ff == 112 && c.model.ssm.n_taps == 3 && c.is_tied); /* 66, 99, 112 */
    CHECK(c.model.layers[0].kind == LAYER_RECURRENT && c.model.layers[1].kind == LAYER_ATTENTION);
    c = read_with("{\"model_type\":\"lfm2\",\"block_ff_dim\":100,"
                  "\"block_ffn_dim_multiplier\":null}");
    CHECK(c.model.n_ff == 66 && c.model.layers[0].kind == LAYER_ATTENTION);
}

static void state_spaces_that_cannot_be_are_named(void)
{
    static const struct {
        const char *more, *key;
        lace_status expected;
    } cases[] = {
        {"{\"model_type\":\"mamba2\",\"conv_kernel\":1}", "conv_kernel", LACE_E_META},
        {"{\"model_type\":\"mamba2\",\"state_size\":0}", "state_size", LACE_E_META},
        {"{\"model_type\":\"mamba2\",\"num_heads\":6,\"n_groups\":4}", "n_groups", LACE_E_META},
        {"{\"model_type\":\"mamba2\",\"num_heads\":0}", "num_heads", LACE_E_META},
        {"{\"model_type\":\"mamba2\",\"head_dim\":2000}", "head_dim", LACE_E_META},
        {"{\"model_type\":\"mamba2\",\"time_step_limit\":[1]}", "time_step_limit", LACE_E_META},
        {"{\"model_type\":\"mamba2\",\"time_step_limit\":[1,0.5]}", "time_step_limit", LACE_E_META},
        {"{\"model_type\":\"mamba2\",\"time_step_limit\":[-1,2]}", "time_step_limit", LACE_E_META},
        {"{\"model_type\":\"granitemoehybrid\",\"mamba_n_heads\":3,\"mamba_d_head\":\"auto\","
         "\"num_local_experts\":0}",
         "mamba_n_heads", LACE_E_META},
        {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":-1}", "num_local_experts",
         LACE_E_META},
        {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"shared_intermediate_"
         "size\":0}",
         "shared_intermediate_size", LACE_E_META},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M\"}",
         "hybrid_override_pattern", LACE_E_META},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"MX\"}",
         "hybrid_override_pattern", LACE_E_META},
        {"{\"model_type\":\"nemotron_h\",\"layers_block_type\":[\"mamba\",\"rwkv\"]}",
         "layers_block_type", LACE_E_META},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M-\","
         "\"mlp_hidden_act\":\"silu\"}",
         "mlp_hidden_act", LACE_E_UNSUPPORTED},
        {"{\"model_type\":\"falcon_h1\",\"mamba_d_ssm\":48,\"mamba_n_heads\":3,"
         "\"mamba_d_head\":8}",
         "mamba_d_ssm", LACE_E_META},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"ME\"}", "num_experts",
         LACE_E_META},
        {"{\"model_type\":\"lfm2_moe\",\"num_experts\":4,\"num_experts_per_tok\":2,"
         "\"num_dense_layers\":3}",
         "num_dense_layers", LACE_E_META},
        {"{\"model_type\":\"falcon_h1\",\"mlp_multipliers\":[1]}", "mlp_multipliers", LACE_E_META},
        {"{\"model_type\":\"falcon_h1\",\"ssm_multipliers\":[1,1,1,1,0]}", "ssm_multipliers",
         LACE_E_META},
        {"{\"model_type\":\"falcon_h1\",\"key_multiplier\":0}", "key_multiplier", LACE_E_META},
        {"{\"model_type\":\"falcon_h1\",\"projectors_bias\":true}", "projectors_bias",
         LACE_E_UNSUPPORTED},
        {"{\"model_type\":\"lfm2\",\"conv_L_cache\":1}", "conv_L_cache", LACE_E_META},
        {"{\"model_type\":\"lfm2\",\"full_attn_idxs\":[2]}", "full_attn_idxs", LACE_E_META},
        {"{\"model_type\":\"lfm2\",\"block_multiple_of\":0}", "block_multiple_of", LACE_E_META},
        {"{\"model_type\":\"lfm2\",\"block_ffn_dim_multiplier\":1e9}", "block_ffn_dim_multiplier",
         LACE_E_META},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].more, cases[i].expected, cases[i].key);
}

static void defaults_are_those_of_transformers(void)
{
    json_t *json = json_of("{\"model_type\":\"gemma3\",\"text_config\":{\"hidden_size\":2560,"
                           "\"intermediate_size\":10240,\"num_hidden_layers\":34,"
                           "\"sliding_window\":1024,\"rope_scaling\":{\"factor\":8.0,"
                           "\"rope_type\":\"linear\"}}}"); /* as in Gemma 3 4B */
    hf_config c;
    lace_error err;
    if (!CHECK(hf_config_read(json, &c, &err) == LACE_OK))
        tap_note("%s", err.text);
    CHECK(strcmp(c.model.architecture, "gemma3") == 0 && c.model.n_heads == 8);
    CHECK(c.model.n_kv_heads == 4 && c.model.head_dim == 256 && c.model.n_vocab == 262208);
    CHECK(c.model.rope.base == 1e6 && c.model.rope.factor == 8 && c.model.window == 1024);
    CHECK(c.model.layers[4].is_local && !c.model.layers[5].is_local &&
          c.model.attention_scale == 0.0625);
    json_decref(json);
    hf_config moe = read_with("{\"model_type\":\"qwen3_moe\",\"num_experts\":4,"
                              "\"num_experts_per_tok\":2,\"moe_intermediate_size\":8}");
    CHECK(!moe.model.routing.norms && moe.model.n_ff_expert == 8);
    moe = read_with(
        "{\"model_type\":\"qwen3_vl_moe_text\",\"num_experts\":4,\"norm_topk_prob\":false,"
        "\"num_experts_per_tok\":2,\"moe_intermediate_size\":8}");
    CHECK(moe.model.routing.norms && moe.model.n_ff_expert == 8); /* the reference always does */
    CHECK(!read_with("{\"num_key_value_heads\":null}").is_tied);
    CHECK(read_with("{\"num_key_value_heads\":null}").model.n_kv_heads == 4);
}

int main(void)
{
    golden_each("config_of_%s_equals_its_gguf", golden_config_equals_its_gguf);
    CASE(kinds_of_layers_are_read);
    CASE(both_spellings_of_the_rope_mean_the_same);
    CASE(yarn_and_its_attention_factor_are_read);
    CASE(longrope_lists_are_read);
    CASE(llama3_keeps_fast_and_divides_slow_frequencies);
    CASE(what_is_missing_or_out_of_range_is_named);
    CASE(what_lace_does_not_compute_is_named);
    CASE(keys_that_a_family_does_not_compute_are_refused);
    CASE(state_spaces_are_read);
    CASE(state_spaces_that_cannot_be_are_named);
    CASE(defaults_are_those_of_transformers);
    return tap_end();
}
