/* model/config against metadata that is missing, of another type or out of its range. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bad_file.h"
#include "formats/gguf_write.h"
#include "model/config.h"
#include "tap.h"
#include "tiny_model.h"

/* ---- Faults in the meaning ------------------------------------------------------------------- */

enum { GONE = -1 }; /* the key is left out; else a gguf_type; */
enum { UNEQUAL_HEADS = 100, EQUAL_HEADS, SHORT_HEADS, ZERO_HEADS, LONG_TEXT, EMPTY_TEXTS };

typedef struct wrong {
    const char *id, *key; /* the key without "llama." if it begins with a dot */
    int type;
    double x;      /* numbers */
    const char *s; /* texts */
    lace_status expected;
} wrong;

#define EPS ".attention.layer_norm_rms_epsilon"
/* clang-format off */
static const wrong wrongs[] = {
    {"architecture missing", "general.architecture", GONE, 0, "", LACE_E_META},
    {"architecture empty", "general.architecture", GGUF_STRING, 0, "", LACE_E_META},
    {"architecture lama", "general.architecture", GGUF_STRING, 0, "lama", LACE_E_META},
    {"architecture LLAMA", "general.architecture", GGUF_STRING, 0, "LLAMA", LACE_E_META},
    {"architecture %s%n", "general.architecture", GGUF_STRING, 0, "%s%n", LACE_E_META},
    {"architecture ../x", "general.architecture", GGUF_STRING, 0, "../x", LACE_E_META},
    {"architecture of 64 KiB", "general.architecture", LONG_TEXT, 65536, "", LACE_E_META},
    {"architecture of 64 bytes", "general.architecture", LONG_TEXT, 64, "", LACE_E_META},
    {"architecture an array", "general.architecture", EMPTY_TEXTS, 0, "", LACE_E_META},
    {"architecture a number", "general.architecture", GGUF_U32, 1, "", LACE_E_META},
    {"block_count missing", ".block_count", GONE, 0, "", LACE_E_META},
    {"block_count 0", ".block_count", GGUF_U32, 0, "", LACE_E_META},
    {"block_count 513", ".block_count", GGUF_U32, 513, "", LACE_E_META},
    {"block_count 2^31", ".block_count", GGUF_U32, 0x1p31, "", LACE_E_META},
    {"block_count 2^32-1", ".block_count", GGUF_U32, 4294967295.0, "", LACE_E_META},
    {"block_count -1", ".block_count", GGUF_I32, -1, "", LACE_E_META},
    {"block_count 2^32+2", ".block_count", GGUF_U64, 0x1p32 + 2, "", LACE_E_META},
    {"block_count a string", ".block_count", GGUF_STRING, 0, "2", LACE_E_META},
    {"block_count a float", ".block_count", GGUF_F32, 2, "", LACE_E_META},
    {"block_count of 8 bits is fine", ".block_count", GGUF_U8, 2, "", LACE_OK},
    {"head_count missing", ".attention.head_count", GONE, 0, "", LACE_E_META},
    {"head_count 0", ".attention.head_count", GGUF_U32, 0, "", LACE_E_META},
    {"head_count 1025", ".attention.head_count", GGUF_U32, 1025, "", LACE_E_META},
    {"head_count differs by layer", ".attention.head_count", UNEQUAL_HEADS, 0, "", LACE_OK},
    {"head_count equal in all layers is fine", ".attention.head_count", EQUAL_HEADS, 0, "", LACE_OK},
    {"head_count for one layer of two", ".attention.head_count", SHORT_HEADS, 0, "", LACE_E_META},
    {"head_count an array of 0", ".attention.head_count", ZERO_HEADS, 0, "", LACE_E_META},
    {"head_count_kv 0", ".attention.head_count_kv", GGUF_U32, 0, "", LACE_E_META},
    {"head_count_kv > head_count", ".attention.head_count_kv", GGUF_U32, 8, "", LACE_E_META},
    {"head_count_kv missing is fine", ".attention.head_count_kv", GONE, 0, "", LACE_OK},
    {"head_count_kv not a divisor", ".attention.head_count_kv", GGUF_U32, 3, "", LACE_E_META},
    {"embedding_length missing", ".embedding_length", GONE, 0, "", LACE_E_META},
    {"embedding_length 0", ".embedding_length", GGUF_U32, 0, "", LACE_E_META},
    {"embedding_length odd", ".embedding_length", GGUF_U32, 17, "", LACE_E_META},
    {"embedding_length 2^31", ".embedding_length", GGUF_U32, 0x1p31, "", LACE_E_META},
    {"embedding_length 2^20+2", ".embedding_length", GGUF_U32, 0x1p20 + 2, "", LACE_E_META},
    {"embedding_length not a multiple of head_count", ".embedding_length", GGUF_U32, 18, "", LACE_E_META},
    {"heads of 3 values", ".embedding_length", GGUF_U32, 12, "", LACE_E_META},
    {"heads of 2,048 values", ".embedding_length", GGUF_U32, 8192, "", LACE_E_META},
    {"feed_forward_length missing", ".feed_forward_length", GONE, 0, "", LACE_E_META},
    {"feed_forward_length 0", ".feed_forward_length", GGUF_U32, 0, "", LACE_E_META},
    {"feed_forward_length 2^32-1", ".feed_forward_length", GGUF_U32, 4294967295.0, "", LACE_E_META},
    {"context_length missing", ".context_length", GONE, 0, "", LACE_E_META},
    {"context_length 0", ".context_length", GGUF_U32, 0, "", LACE_E_META},
    {"context_length 2^31", ".context_length", GGUF_U32, 0x1p31, "", LACE_E_META},
    {"key_length 0", ".attention.key_length", GGUF_U32, 0, "", LACE_E_META},
    {"key_length odd", ".attention.key_length", GGUF_U32, 5, "", LACE_E_META},
    {"key_length 2^31", ".attention.key_length", GGUF_U32, 0x1p31, "", LACE_E_META},
    {"key_length without value_length", ".attention.key_length", GGUF_U32, 16, "", LACE_E_UNSUPPORTED},
    {"value_length other than key_length", ".attention.value_length", GGUF_U32, 8, "", LACE_E_UNSUPPORTED},
    {"value_length 0", ".attention.value_length", GGUF_U32, 0, "", LACE_E_META},
    {"rope.dimension_count 0", ".rope.dimension_count", GGUF_U32, 0, "", LACE_E_META},
    {"rope.dimension_count odd", ".rope.dimension_count", GGUF_U32, 3, "", LACE_E_META},
    {"rope.dimension_count > head size", ".rope.dimension_count", GGUF_U32, 6, "", LACE_E_META},
    {"rope.dimension_count 2 is fine", ".rope.dimension_count", GGUF_U32, 2, "", LACE_OK},
    {"rope.dimension_count missing is fine", ".rope.dimension_count", GONE, 0, "", LACE_OK},
    {"rope.freq_base NaN", ".rope.freq_base", GGUF_F32, NAN, "", LACE_E_META},
    {"rope.freq_base +Inf", ".rope.freq_base", GGUF_F32, INFINITY, "", LACE_E_META},
    {"rope.freq_base -Inf", ".rope.freq_base", GGUF_F32, -INFINITY, "", LACE_E_META},
    {"rope.freq_base 0", ".rope.freq_base", GGUF_F32, 0, "", LACE_E_META},
    {"rope.freq_base 1", ".rope.freq_base", GGUF_F32, 1, "", LACE_E_META},
    {"rope.freq_base negative", ".rope.freq_base", GGUF_F32, -10000, "", LACE_E_META},
    {"rope.freq_base an integer", ".rope.freq_base", GGUF_U32, 10000, "", LACE_E_META},
    {"rope.freq_base missing is fine", ".rope.freq_base", GONE, 0, "", LACE_OK},
    {"rope.scaling.type unknown", ".rope.scaling.type", GGUF_STRING, 0, "ntk", LACE_E_UNSUPPORTED},
    {"rope.scaling.type a number", ".rope.scaling.type", GGUF_U32, 1, "", LACE_E_META},
    {"rope.scaling.type yarn is fine", ".rope.scaling.type", GGUF_STRING, 0, "yarn", LACE_OK},
    {"rope.scaling.factor NaN", ".rope.scaling.factor", GGUF_F32, NAN, "", LACE_E_META},
    {"rope.scaling.factor negative", ".rope.scaling.factor", GGUF_F32, -1, "", LACE_E_META},
    {"rope.scaling.factor 1e-30", ".rope.scaling.factor", GGUF_F32, 1e-30, "", LACE_E_META},
    {"rope.scaling.factor 0 means none", ".rope.scaling.factor", GGUF_F32, 0, "", LACE_OK},
    {"rope.scale_linear Inf", ".rope.scale_linear", GGUF_F32, INFINITY, "", LACE_E_META},
    {"original_context_length 0", ".rope.scaling.original_context_length", GGUF_U32, 0, "", LACE_E_META},
    {"attn_factor NaN", ".rope.scaling.attn_factor", GGUF_F32, NAN, "", LACE_E_META},
    {"yarn_beta_fast 0", ".rope.scaling.yarn_beta_fast", GGUF_F32, 0, "", LACE_E_META},
    {"yarn_beta_slow Inf", ".rope.scaling.yarn_beta_slow", GGUF_F32, INFINITY, "", LACE_E_META},
    {"eps missing", EPS, GONE, 0, "", LACE_E_META},
    {"eps 0", EPS, GGUF_F32, 0, "", LACE_E_META},
    {"eps negative", EPS, GGUF_F32, -1e-5, "", LACE_E_META},
    {"eps NaN", EPS, GGUF_F32, NAN, "", LACE_E_META},
    {"eps Inf", EPS, GGUF_F32, INFINITY, "", LACE_E_META},
    {"eps 1e30", EPS, GGUF_F32, 1e30, "", LACE_E_META},
    {"eps an integer", EPS, GGUF_U32, 0, "", LACE_E_META},
    {"eps of 64 bits is fine", EPS, GGUF_F64, 1e-5, "", LACE_OK},
    {"vocab_size 0", ".vocab_size", GGUF_U32, 0, "", LACE_E_META},
    {"vocab_size 2^31", ".vocab_size", GGUF_U32, 0x1p31, "", LACE_E_META},
    {"vocab_size missing is fine", ".vocab_size", GONE, 0, "", LACE_OK},
};
/* clang-format on */

static void add_wrong(gguf_writer *w, const char *key, const wrong *x)
{
    uint32_t heads[2] = {4, x->type == UNEQUAL_HEADS ? 2 : 4};
    if (x->type == ZERO_HEADS)
        heads[1] = 0;
    char *filler = calloc(1, 65537);
    memset(filler, 'a', 65536);
    if (x->type == GONE)
        ;
    else if (x->type >= UNEQUAL_HEADS && x->type <= ZERO_HEADS)
        gguf_writer_add_array(w, key, GGUF_U32, heads, x->type == SHORT_HEADS ? 1 : 2, NULL);
    else if (x->type == LONG_TEXT)
        gguf_writer_add_text(w, key, (text){filler, (size_t)x->x}, NULL);
    else if (x->type == EMPTY_TEXTS)
        gguf_writer_add_texts(w, key, NULL, 0, NULL);
    else if (x->type == GGUF_STRING)
        gguf_writer_add_text(w, key, text_of(x->s), NULL);
    else if (x->type == GGUF_F32 || x->type == GGUF_F64)
        gguf_writer_add_float(w, key, (gguf_type)x->type, x->x, NULL);
    else
        gguf_writer_add_int(w, key, (gguf_type)x->type, (int64_t)x->x, NULL);
    free(filler);
}

/* A file with one key replaced. */
static buf rebuild(const gguf *seed, const char *key, const wrong *x)
{
    gguf_writer *w;
    buf b;
    lace_error err;
    buf_init(&b, 1 << 22);
    CHECK(gguf_writer_create(&w, &err) == LACE_OK);
    for (size_t i = 0; i < gguf_n_values(seed); i++)
        if (!text_is(gguf_value_at(seed, i)->key, key))
            gguf_writer_add_value(w, gguf_value_at(seed, i), NULL);
    add_wrong(w, key, x);
    for (size_t i = 0; i < gguf_n_tensors(seed); i++) {
        const tensor *t = gguf_tensor_at(seed, i);
        gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, NULL);
    }
    if (!CHECK(gguf_writer_to_buf(w, &b, &err) == LACE_OK))
        tap_note("%s", err.text);
    gguf_writer_free(w);
    return b;
}

static void run_wrong(void *arg)
{
    const wrong *x = arg;
    char key[128];
    snprintf(key, sizeof key, "%s%s", x->key[0] == '.' ? "llama" : "", x->key);
    buf b = rebuild(bad_seed_gguf, key, x);
    gguf *g = NULL;
    model_config config;
    lace_error err = {0};
    double start = bad_cpu_ms();
    CHECK(gguf_parse((span){(uint8_t *)b.data, b.size}, &g, &err) == LACE_OK);
    lace_status status = config_from_gguf(g, &config, &err);
    CHECK(bad_cpu_ms() - start <= 100);
    if (!CHECK(status == x->expected) && status != LACE_OK)
        tap_note("%s", err.text);
    if (status != LACE_OK) {
        model_config empty = {0};
        CHECK(memcmp(&config, &empty, sizeof config) == 0);
        CHECK(err.status == status && !strchr(err.text, '\n'));
        bool names_key = strstr(err.text, x->key) || strstr(err.text, "lama.block_count");
        if (!CHECK(names_key || strstr(err.text, "at byte ")))
            tap_note("%s", err.text);
    }
    gguf_free(g);
    buf_deinit(&b);
}

/* Keys that only together are wrong. */
static void vocab_size_comes_from_tokens_or_embedding(void)
{
    static const struct {
        bool has_tokens, has_embedding;
        lace_status expected;
    } cases[] = {{true, true, LACE_OK}, {false, true, LACE_OK}, {false, false, LACE_E_VOCAB}};
    for (size_t i = 0; i < 3; i++) {
        gguf_writer *w;
        gguf *g = NULL;
        buf b;
        lace_error err;
        model_config config;
        buf_init(&b, 1 << 22);
        CHECK(gguf_writer_create(&w, &err) == LACE_OK);
        for (size_t k = 0; k < gguf_n_values(bad_seed_gguf); k++) {
            const gguf_value *v = gguf_value_at(bad_seed_gguf, k);
            if (!text_is(v->key, "llama.vocab_size") &&
                (cases[i].has_tokens || !text_is(v->key, "tokenizer.ggml.tokens")))
                gguf_writer_add_value(w, v, NULL);
        }
        const tensor *t = gguf_find_tensor(bad_seed_gguf, "token_embd.weight");
        if (cases[i].has_embedding)
            gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, NULL);
        CHECK(gguf_writer_to_buf(w, &b, &err) == LACE_OK);
        CHECK(gguf_parse((span){(uint8_t *)b.data, b.size}, &g, &err) == LACE_OK);
        CHECK(config_from_gguf(g, &config, &err) == cases[i].expected);
        CHECK(cases[i].expected != LACE_OK || config.n_vocab == 64);
        gguf_free(g);
        gguf_writer_free(w);
        buf_deinit(&b);
    }
}

/* ---- Keys of single architectures ------------------------------------------------------------- */

typedef struct own_wrong {
    const char *architecture, *key;
    int type;
    double x;
} own_wrong;

/* clang-format off */
static const own_wrong own_wrongs[] = {
    {"mamba2", "ssm.conv_kernel", GONE, 0}, {"mamba2", "ssm.conv_kernel", GGUF_U32, 1},
    {"mamba2", "ssm.conv_kernel", GGUF_U32, 65}, {"mamba2", "ssm.conv_kernel", GGUF_F32, 4},
    {"mamba2", "ssm.inner_size", GONE, 0}, {"mamba2", "ssm.inner_size", GGUF_U32, 0},
    {"mamba2", "ssm.inner_size", GGUF_U32, 0x1p31}, {"mamba2", "ssm.inner_size", GGUF_U32, 18},
    {"mamba2", "ssm.state_size", GONE, 0}, {"mamba2", "ssm.state_size", GGUF_U32, 0},
    {"mamba2", "ssm.state_size", GGUF_U32, 4097}, {"mamba2", "ssm.state_size", GGUF_I32, -1},
    {"mamba2", "ssm.time_step_rank", GONE, 0}, {"mamba2", "ssm.time_step_rank", GGUF_U32, 0},
    {"mamba2", "ssm.time_step_rank", GGUF_U32, 1025}, {"mamba2", "ssm.time_step_rank", GGUF_U32, 3},
    {"mamba2", "ssm.group_count", GONE, 0}, {"mamba2", "ssm.group_count", GGUF_U32, 0},
    {"mamba2", "ssm.group_count", GGUF_U32, 3}, {"mamba2", "ssm.group_count", GGUF_U32, 5},
    {"granitehybrid", "ssm.group_count", GONE, 0}, {"falcon-h1", "ssm.state_size", GONE, 0},
    {"granitehybrid", "rope.scaling.finetuned", GGUF_U32, 1},
    {"nemotron_h", "ssm.conv_kernel", GONE, 0},
    {"nemotron_h_moe", "moe_latent_size", GGUF_U32, 0x1p31},
    {"nemotron_h_moe", "moe_latent_size", GGUF_F32, 4},
    {"gemma4", "attention.key_length_swa", GGUF_U32, 0}, {"gemma4", "attention.key_length_swa", GGUF_U32, 3},
    {"gemma4", "attention.key_length_swa", GGUF_U32, 1026}, {"gemma4", "attention.key_length_swa", GGUF_F32, 2},
    {"gemma4", "attention.value_length_swa", GGUF_U32, 0}, {"gemma4", "attention.value_length_swa", GGUF_I32, -2},
    {"gemma4", "rope.dimension_count_swa", GGUF_U32, 1}, {"gemma4", "rope.dimension_count_swa", GGUF_U32, 10},
    {"gemma4", "rope.dimension_count_swa", GGUF_U32, 3},
    {"gemma4", "attention.sliding_window_pattern", GONE, 0},
    {"gemma4", "attention.shared_kv_layers", GGUF_U32, 3}, {"gemma4", "attention.shared_kv_layers", GGUF_U32, 2},
    {"gemma4", "embedding_length_per_layer_input", GGUF_U32, 0x1p31}, {"gemma4", "embedding_length_per_layer_input", GGUF_F32, 4},
    {"gemma3n", "embedding_length_per_layer_input", GONE, 0}, {"gemma3n", "embedding_length_per_layer_input", GGUF_I32, -1},
    {"gemma3n", "attention.sliding_window_pattern", GONE, 0}, {"gemma3n", "attention.shared_kv_layers", GGUF_U32, 2},
    {"gemma3n", "altup.num_inputs", GONE, 0}, {"gemma3n", "altup.num_inputs", GGUF_U32, 1},
    {"gemma3n", "altup.num_inputs", GGUF_U32, 17}, {"gemma3n", "altup.active_idx", GGUF_U32, 2},
    {"gemma3n", "altup.active_idx", GGUF_I32, -1}, {"gemma3n", "activation_sparsity_scale", GGUF_F32, 1},
    {"gemma3n", "activation_sparsity_scale", GGUF_U32, 1},
    {"lfm2", "shortconv.l_cache", GONE, 0}, {"lfm2", "shortconv.l_cache", GGUF_U32, 1},
    {"lfm2", "shortconv.l_cache", GGUF_U32, 65}, {"lfm2", "shortconv.l_cache", GGUF_I32, -3},
    {"dots1", "expert_count", GGUF_U32, 4097}, {"dots1", "expert_count", GGUF_I32, -1},
    {"dots1", "expert_used_count", GONE, 0}, {"dots1", "expert_used_count", GGUF_U32, 0},
    {"dots1", "expert_used_count", GGUF_U32, 5}, {"dots1", "expert_used_count", GGUF_F32, 2},
    {"dots1", "expert_feed_forward_length", GGUF_U32, 0}, {"dots1", "expert_feed_forward_length", GGUF_U32, 0x1p31},
    {"dots1", "expert_shared_count", GGUF_I32, -1}, {"dots1", "expert_shared_count", GGUF_U32, 4097},
    {"dots1", "expert_gating_func", GGUF_U32, 4}, {"dots1", "expert_gating_func", GGUF_I32, -1},
    {"dots1", "expert_gating_func", GGUF_F32, 2}, {"dots1", "expert_weights_norm", GGUF_U32, 1},
    {"dots1", "expert_weights_scale", GGUF_F32, NAN}, {"dots1", "expert_weights_scale", GGUF_F32, -1},
    {"dots1", "expert_weights_scale", GGUF_F32, 1e7}, {"dots1", "expert_weights_scale", GGUF_U32, 2},
    {"dots1", "expert_group_count", GGUF_U32, 2}, {"dots1", "expert_group_count", GGUF_U32, 3},
    {"dots1", "expert_group_count", GGUF_U32, 5}, {"dots1", "expert_group_count", GGUF_I32, -1},
    {"dots1", "expert_group_used_count", GGUF_U32, 5}, {"dots1", "expert_group_used_count", GGUF_I32, -2},
    {"dots1", "leading_dense_block_count", GGUF_I32, -1}, {"dots1", "leading_dense_block_count", GGUF_U32, 513},
    {"llama4", "interleave_moe_layer_step", GGUF_U32, 513}, {"llama4", "interleave_moe_layer_step", GGUF_I32, -1},
    {"glm4moe", "nextn_predict_layers", GGUF_U32, 2}, {"glm4moe", "nextn_predict_layers", GGUF_I32, -1},
    {"glm4moe", "nextn_predict_layers", GGUF_F32, 1}, {"qwen35", "nextn_predict_layers", GGUF_U32, 2},
    {"qwen35moe", "nextn_predict_layers", GGUF_I32, -1}, {"qwen3next", "nextn_predict_layers", GGUF_U32, 0x1p31},
    {"deepseek2", "nextn_predict_layers", GGUF_U32, 2}, {"deepseek2", "nextn_predict_layers", GGUF_F32, 1},
    {"glm4moe", "expert_gating_func", GGUF_U32, 9},
    {"deepseek2", "attention.kv_lora_rank", GONE, 0}, {"deepseek2", "attention.kv_lora_rank", GGUF_U32, 0},
    {"deepseek2", "attention.kv_lora_rank", GGUF_U32, 1022}, {"deepseek2", "attention.kv_lora_rank", GGUF_U32, 5},
    {"deepseek2", "attention.kv_lora_rank", GGUF_F32, 4}, {"deepseek2", "attention.q_lora_rank", GGUF_I32, -1},
    {"deepseek2", "attention.q_lora_rank", GGUF_U32, 0x1p31}, {"deepseek2", "attention.key_length_mla", GGUF_U32, 0},
    {"deepseek2", "attention.key_length_mla", GGUF_U32, 1025}, {"deepseek2", "attention.value_length_mla", GGUF_U32, 0},
    {"deepseek2", "attention.value_length_mla", GGUF_U32, 1025}, {"deepseek2", "rope.scaling.yarn_log_multiplier", GGUF_F32, -1},
    {"mistral4", "attention.kv_lora_rank", GONE, 0}, {"mistral4", "attention.temperature_scale", GGUF_F32, -1},
    {"mistral4", "attention.temperature_scale", GGUF_U32, 1}, {"mistral4", "attention.temperature_length", GGUF_I32, -1},
};
/* clang-format on */

static void own_keys_of_architectures_are_checked(void)
{
    for (size_t i = 0; i < sizeof own_wrongs / sizeof *own_wrongs; i++) {
        const own_wrong *o = &own_wrongs[i];
        wrong x = {.type = o->type, .x = o->x, .s = ""};
        buf seed = tiny_model_bytes(tiny_options_arch(o->architecture));
        gguf *good = NULL, *bad = NULL;
        lace_error err = {0};
        model_config config;
        char key[128];
        snprintf(key, sizeof key, "%s.%s", o->architecture, o->key);
        CHECK(gguf_parse((span){(uint8_t *)seed.data, seed.size}, &good, &err) == LACE_OK);
        CHECK(config_from_gguf(good, &config, &err) == LACE_OK);
        buf b = rebuild(good, key, &x);
        CHECK(gguf_parse((span){(uint8_t *)b.data, b.size}, &bad, &err) == LACE_OK);
        if (!CHECK(config_from_gguf(bad, &config, &err) == LACE_E_META) ||
            !CHECK(strstr(err.text, strncmp(o->key, "ssm.", 4) == 0 ? "ssm." : o->key)))
            tap_note("%s %g: %s", key, o->x, err.text);
        gguf_free(good);
        gguf_free(bad);
        buf_deinit(&seed);
        buf_deinit(&b);
    }
}

int main(void)
{
    if (!bad_seed_create())
        return 1;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++)
        tap_case_arg(wrongs[i].id, run_wrong, (void *)&wrongs[i]);
    CASE(vocab_size_comes_from_tokens_or_embedding);
    CASE(own_keys_of_architectures_are_checked);
    bad_seed_free();
    return tap_end();
}
