/*
 * Layers of different shapes: heads of two sizes, layers that share keys and values, and a second
 * embedding whose table stays in the file. The golden models say whether the numbers are right.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "formats/weights.h"
#include "hf/config_json.h"
#include "lace.h"
#include "model/model.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_model.h"

/* ---- GGUF files ------------------------------------------------------------------------------ */

/* A tiny model, with so many layers that share; NULL on failure. */
static model *open_tiny(const char *architecture, int n_shared)
{
    tiny_options o = tiny_options_arch(architecture);
    gguf_writer *w = NULL;
    weights *files = NULL;
    model *m = NULL;
    lace_error err = {0};
    char key[96];
    o.type = DTYPE_F32;
    CHECK(tiny_model_create(&o, &w, &err) == LACE_OK);
    snprintf(key, sizeof key, "%s.attention.shared_kv_layers", architecture);
    gguf_writer_add_int(w, key, GGUF_U32, n_shared, NULL);
    bool ok = gguf_writer_to_file(w, scratch_path("m.gguf"), NULL, NULL, &err) == LACE_OK &&
              weights_open(scratch_path("m.gguf"), &files, &err) == LACE_OK &&
              model_create(files, "cpu", &(device_options){0}, &m, &err) == LACE_OK;
    if (!CHECK(ok))
        tap_note("%s", err.text);
    gguf_writer_free(w);
    return m;
}

static uint64_t state_bytes(const model *m)
{
    states_options o = {.type = DTYPE_F32, .n_sequences = 1, .n_context = 64, .n_batch = 8};
    states *s = NULL;
    uint64_t n = 0;
    if (CHECK(m && model_states(m, &o, &s, NULL) == LACE_OK))
        n = states_bytes(s);
    states_free(s);
    return n;
}

static void layers_that_share_keep_nothing(void)
{
    static const char *const names[] = {"gemma3n", "gemma4"};
    CHECK(scratch_create() != NULL);
    for (size_t i = 0; i < 2; i++) {
        model *own = open_tiny(names[i], 0);
        uint64_t all = state_bytes(own);
        model_free(own); /* a file that is open has no other in its place on Windows */
        model *shared = open_tiny(names[i], 1);
        uint64_t less = state_bytes(shared);
        /* Two positions' pages of one KV head of 4 values, K and V, for the last layer. */
        uint64_t one = 2 * 4 * sizeof(float) * 64;
        if (!CHECK(all == less + one))
            tap_note("%s: %llu and %llu", names[i], (unsigned long long)all,
                     (unsigned long long)less);
        CHECK(shared && config_kv_layer(&shared->config, 2) == 1 &&
              shared->layers[2].wk.n_rows == 0);
        model_free(shared);
    }
    scratch_remove();
}

static void the_second_embedding_stays_in_the_file(void)
{
    CHECK(scratch_create() != NULL);
    model *m = open_tiny("gemma4", 0);
    const tensor *t = m ? weights_find(m->files, "per_layer_token_embd.weight") : NULL;
    pool *workers = NULL;
    CHECK(pool_create(1, &workers, NULL) == LACE_OK);
    if (CHECK(m && t && model_load(m, workers, NULL, NULL, NULL) == LACE_OK))
        CHECK(m->second_table.data == t->data && m->second_table.offset == WEIGHT_IN_PLACE);
    pool_free(workers);
    model_free(m);
    scratch_remove();
}

/* ---- config.json ----------------------------------------------------------------------------- */

static lace_status read_json(const char *type, const char *more, hf_config *out, lace_error *err)
{
    char base[1024];
    json_t *json = NULL, *other = NULL;
    snprintf(base, sizeof base,
             "{\"model_type\":\"%s\",\"hidden_size\":64,\"num_hidden_layers\":4,"
             "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
             "\"intermediate_size\":32,\"vocab_size\":320,\"num_kv_shared_layers\":0,"
             "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
             "\"full_attention\"]}",
             type);
    CHECK(json_read((span){(const uint8_t *)base, strlen(base)}, 0, &json, err) == LACE_OK);
    CHECK(json_read((span){(const uint8_t *)more, strlen(more)}, 0, &other, err) == LACE_OK);
    json_object_update(json, other);
    json_decref(other);
    lace_status status = hf_config_read(json, out, err);
    json_decref(json);
    return status;
}

static hf_config read_ok(const char *type, const char *more)
{
    hf_config h = {0};
    lace_error err = {0};
    if (!CHECK(read_json(type, more, &h, &err) == LACE_OK))
        tap_note("%s: %s", more, err.text);
    return h;
}

static void heads_of_full_layers_are_said_in_two_ways(void)
{
    hf_config a = read_ok("gemma4", "{\"global_head_dim\":32,\"attention_k_eq_v\":true,"
                                    "\"num_global_key_value_heads\":1}");
    hf_config b = read_ok(
        "gemma4_text", "{\"per_layer_config\":{\"1\":{\"head_dim\":32,\"num_key_value_heads\":1},"
                       "\"3\":{\"head_dim\":32,\"num_key_value_heads\":1}}}");
    for (int i = 0; i < 4; i++) {
        CHECK(a.model.layers[i].head_dim == (i % 2 ? 32 : 16));
        CHECK(a.model.layers[i].n_kv_heads == (i % 2 ? 1 : 2));
        CHECK(a.model.layers[i].head_dim == b.model.layers[i].head_dim &&
              a.model.layers[i].n_kv_heads == b.model.layers[i].n_kv_heads);
    }
    CHECK(a.model.rope.n_dims == 32 && a.model.rope_local_dims == 16);
    CHECK(a.model.rope.base == 1e6 && a.model.rope_local_base == 1e4);
    CHECK(a.has_rope_factors && a.rope_factors[3] == 1 && a.rope_factors[4] == 1e30f);
    /* Without attention_k_eq_v the number of heads does not count. */
    a = read_ok("gemma4", "{\"global_head_dim\":32,\"num_global_key_value_heads\":1}");
    CHECK(a.model.layers[1].n_kv_heads == 2);
}

static void a_proportional_rope_turns_the_first_pairs(void)
{
    hf_config h =
        read_ok("gemma4", "{\"global_head_dim\":32,\"rope_parameters\":{\"full_attention\":"
                          "{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,"
                          "\"rope_theta\":500000},\"sliding_attention\":"
                          "{\"rope_type\":\"default\",\"rope_theta\":7000}}}");
    CHECK(h.has_rope_factors && h.model.rope.n_dims == 32);
    for (int i = 0; i < 16; i++)
        CHECK(h.rope_factors[i] == (i < 4 ? 1 : 1e30f));
    CHECK(h.model.rope.base == 500000 && h.model.rope_local_base == 7000);
}

static void layers_at_the_end_share_and_may_be_wider(void)
{
    hf_config h = read_ok("gemma4", "{\"num_kv_shared_layers\":2,\"use_double_wide_mlp\":true}");
    for (int i = 0; i < 4; i++) {
        CHECK(h.model.layers[i].shares_kv == (i >= 2));
        CHECK(config_kv_layer(&h.model, i) == i % 2);
        CHECK(h.model.layers[i].n_ff == (i >= 2 ? 64 : 32));
    }
    CHECK(h.model.n_ff == 64);
}

static void a_share_of_gates_is_so_many_deviations(void)
{
    hf_config h = read_ok("gemma3n_text", "{\"activation_sparsity_pattern\":[0.95,0.5,0,0.025],"
                                          "\"intermediate_size\":[8,16,24,32]}");
    static const double expected[] = {1.6448536269514722, 0, 0, -1.9599639845400545};
    for (int i = 0; i < 4; i++) {
        CHECK(fabs(h.model.layers[i].cutoff - expected[i]) < 1e-6);
        CHECK(h.model.layers[i].has_cutoff == (i != 2));
        CHECK(h.model.layers[i].n_ff == 8 * (i + 1));
    }
    CHECK(h.model.n_ff == 32 && h.model.n_streams == 4 && h.model.final_softcap == 30);
}

static void bad_values_are_named(void)
{
    static const struct {
        const char *type, *more, *key;
        lace_status status;
    } cases[] = {
        {"gemma4", "{\"global_head_dim\":0}", "global_head_dim", LACE_E_META},
        {"gemma4", "{\"global_head_dim\":33}", "per_layer_config", LACE_E_META},
        {"gemma4", "{\"num_global_key_value_heads\":5}", "num_global_key_value_heads", LACE_E_META},
        {"gemma4", "{\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3}",
         "per_layer_config", LACE_E_META},
        {"gemma4", "{\"per_layer_config\":[]}", "per_layer_config", LACE_E_META},
        {"gemma4", "{\"per_layer_config\":{\"4\":{}}}", "per_layer_config", LACE_E_META},
        {"gemma4", "{\"per_layer_config\":{\"x\":{}}}", "per_layer_config", LACE_E_META},
        {"gemma4", "{\"per_layer_config\":{\"1\":8}}", "per_layer_config", LACE_E_META},
        {"gemma4", "{\"per_layer_config\":{\"1\":{\"head_dim\":32}}}", "per_layer_config",
         LACE_E_META},
        {"gemma4", "{\"per_layer_config\":{\"1\":{\"head_dim\":0}}}", "head_dim", LACE_E_META},
        {"gemma4", "{\"per_layer_config\":{\"1\":{\"rms_norm_eps\":1}}}", "rms_norm_eps",
         LACE_E_UNSUPPORTED},
        {"gemma4", "{\"use_bidirectional_attention\":\"all\"}", "use_bidirectional_attention",
         LACE_E_UNSUPPORTED},
        {"gemma4", "{\"num_kv_shared_layers\":4}", "num_kv_shared_layers", LACE_E_META},
        {"gemma4", "{\"num_kv_shared_layers\":3}", "num_kv_shared_layers", LACE_E_META},
        {"gemma4", "{\"hidden_size_per_layer_input\":-1}", "hidden_size_per_layer", LACE_E_META},
        {"gemma4", "{\"enable_moe_block\":true}", "num_experts", LACE_E_META},
        {"gemma4", "{\"enable_moe_block\":true,\"num_experts\":4,\"top_k_experts\":5}",
         "top_k_experts", LACE_E_META},
        {"gemma4", "{\"enable_moe_block\":true,\"num_experts\":4,\"top_k_experts\":2}",
         "moe_intermediate_size", LACE_E_META},
        {"gemma4",
         "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\","
         "\"partial_rotary_factor\":2}}}",
         "partial_rotary_factor", LACE_E_META},
        {"gemma3n", "{\"intermediate_size\":[1,2]}", "intermediate_size", LACE_E_META},
        {"gemma3n", "{\"intermediate_size\":[1,2,3,0]}", "intermediate_size", LACE_E_META},
        {"gemma3n", "{\"intermediate_size\":0}", "intermediate_size", LACE_E_META},
        {"gemma3n", "{\"activation_sparsity_pattern\":[1,0,0,0]}", "activation_sparsity_pattern",
         LACE_E_META},
        {"gemma3n", "{\"activation_sparsity_pattern\":[\"\",0,0,0]}", "activation_sparsity_pattern",
         LACE_E_META},
        {"gemma3n", "{\"activation_sparsity_pattern\":[0]}", "activation_sparsity_pattern",
         LACE_E_META},
        {"gemma3n", "{\"altup_num_inputs\":1}", "altup_num_inputs", LACE_E_META},
        {"gemma3n", "{\"altup_active_idx\":4}", "altup_active_idx", LACE_E_META},
        {"gemma3n", "{\"altup_correct_scale\":false}", "altup_correct_scale", LACE_E_UNSUPPORTED},
        {"gemma3n", "{\"num_kv_shared_layers\":3}", "num_kv_shared_layers", LACE_E_META},
        {"gemma3n", "{\"hidden_size_per_layer_input\":0}", "hidden_size_per_layer", LACE_E_META},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_config h;
        lace_error err = {0};
        lace_status status = read_json(cases[i].type, cases[i].more, &h, &err);
        if (!CHECK(status == cases[i].status && strstr(err.text, cases[i].key)))
            tap_note("%s: %s", cases[i].more, status ? err.text : "was read");
    }
}

int main(void)
{
    CASE(layers_that_share_keep_nothing);
    CASE(the_second_embedding_stays_in_the_file);
    CASE(heads_of_full_layers_are_said_in_two_ways);
    CASE(a_proportional_rope_turns_the_first_pairs);
    CASE(layers_at_the_end_share_and_may_be_wider);
    CASE(a_share_of_gates_is_so_many_deviations);
    CASE(bad_values_are_named);
    return tap_end();
}
