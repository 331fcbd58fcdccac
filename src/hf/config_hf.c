/* Reading a model's hyperparameters from config.json, each one checked against its range. */
#include "hf/config_hf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "hf/config_json.h"

/* Which layers are local. */
typedef enum window_rule {
    WINDOW_NEVER,  /* sliding_window is not used */
    WINDOW_ALWAYS, /* every layer, if there is a window */
    WINDOW_FLAG,   /* if use_sliding_window: layers from max_window_layers on */
    WINDOW_PERIOD, /* all but each n-th layer */
} window_rule;

typedef struct family {
    const char *model_type;
    const char *class_name;   /* in "architectures", for configs without a model_type */
    const char *architecture; /* in GGUF files */
    hf_family_id id;
    bool is_permuted;
    window_rule rule;
    int period;
    const char *activation; /* the only one that these models are computed with */
} family;

/* clang-format off */
static const family families[] = {
    {"llama",       "LlamaForCausalLM",    "llama",    HF_LLAMA,    true,  WINDOW_NEVER,  0, "silu"},
    {"mistral",     "MistralForCausalLM",  "llama",    HF_LLAMA,    true,  WINDOW_ALWAYS, 0, "silu"},
    {"mixtral",     "MixtralForCausalLM",  "llama",    HF_MIXTRAL,  true,  WINDOW_ALWAYS, 0, "silu"},
    {"granite",     "GraniteForCausalLM",  "granite",  HF_LLAMA,    true,  WINDOW_NEVER,  0, "silu"},
    {"smollm3",     "SmolLM3ForCausalLM",  "smollm3",  HF_LLAMA,    true,  WINDOW_FLAG,   0, "silu"},
    {"qwen2",       "Qwen2ForCausalLM",    "qwen2",    HF_QWEN,     false, WINDOW_FLAG,   0, "silu"},
    {"qwen3",       "Qwen3ForCausalLM",    "qwen3",    HF_QWEN,     false, WINDOW_FLAG,   0, "silu"},
    {"qwen3_moe",   "Qwen3MoeForCausalLM", "qwen3moe", HF_QWEN3MOE, false, WINDOW_FLAG,   0, "silu"},
    {"gemma2",      "Gemma2ForCausalLM",   "gemma2",   HF_GEMMA,    false, WINDOW_PERIOD, 2, "gelu_pytorch_tanh"},
    {"gemma3_text", "Gemma3ForCausalLM",   "gemma3",   HF_GEMMA,    false, WINDOW_PERIOD, 6, "gelu_pytorch_tanh"},
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3", HF_GEMMA, false, WINDOW_PERIOD, 6, "gelu_pytorch_tanh"},
    {"phi3",        "Phi3ForCausalLM",     "phi3",     HF_PHI3,     false, WINDOW_ALWAYS, 0, "silu"},
    {"olmo2",       "Olmo2ForCausalLM",    "olmo2",    HF_OLMO2,    false, WINDOW_NEVER,  0, "silu"},
    {"gpt_oss",     "GptOssForCausalLM",   "gpt-oss",  HF_GPT_OSS,  false, WINDOW_PERIOD, 2, "silu"},
};
/* clang-format on */

static bool is(const family *f, const char *architecture)
{
    return strcmp(f->architecture, architecture) == 0;
}

static lace_status find_family(const source *s, const family **out)
{
    const char *type = json_string_value(source_get(s, "model_type"));
    const char *name = json_string_value(json_array_get(source_get(s, "architectures"), 0));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const family *f = &families[i];
        if (type ? strcmp(type, f->model_type) == 0 : name && strcmp(name, f->class_name) == 0) {
            *out = f;
            return LACE_OK;
        }
    }
    if (!type && !name)
        return source_fail(s, LACE_E_META, "model_type", "is missing");
    return error_set(s->err, LACE_E_UNSUPPORTED,
                     "config.json: %s: is \"%.64s\", which lace does not know",
                     type ? "model_type" : "architectures", type ? type : name);
}

/* ---- Groups of values ------------------------------------------------------------------------ */

/* What transformers assumes where a config is silent; Gemma 3's own configs rely on it. */
static void set_defaults(const family *f, model_config *c)
{
    if (!is(f, "gemma3"))
        return;
    c->n_context = 131072;
    c->n_heads = 8;
    c->n_kv_heads = 4;
    c->head_dim = 256;
    c->n_vocab = 262208;
    c->rms_eps = 1e-6;
    c->window = 4096;
    c->attention_scale = 1.0 / 16;
}

static lace_status read_sizes(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    TRY(source_need_int(s, "num_hidden_layers", 1, CONFIG_MAX_LAYERS, &c->n_layers));
    TRY(source_need_int(s, "hidden_size", 1, CONFIG_MAX_WIDTH, &c->n_embd));
    if (c->n_embd % 2 != 0)
        return source_fail(s, LACE_E_META, "hidden_size", "is odd, expected an even number");
    TRY(source_need_int(s, "max_position_embeddings", 1, CONFIG_MAX_CONTEXT, &c->n_context));
    TRY(source_need_int(s, "intermediate_size", 1, CONFIG_MAX_WIDTH, &c->n_ff));
    TRY(source_need_int(s, "num_attention_heads", 1, CONFIG_MAX_HEADS, &c->n_heads));
    if (c->n_kv_heads == 0)
        c->n_kv_heads = c->n_heads;
    TRY(source_int(s, "num_key_value_heads", 1, c->n_heads, &c->n_kv_heads, NULL));
    if (c->n_heads % c->n_kv_heads != 0)
        return source_fail(s, LACE_E_META, "num_key_value_heads",
                           "does not divide num_attention_heads");
    TRY(source_int(s, "head_dim", 1, CONFIG_MAX_HEAD_DIM, &c->head_dim, &h->has_head_dim));
    if (c->head_dim == 0) {
        if (c->n_embd % c->n_heads != 0)
            return source_fail(s, LACE_E_META, "hidden_size",
                               "is not a multiple of num_attention_heads");
        c->head_dim = c->n_embd / c->n_heads;
    }
    if (c->head_dim % 2 != 0 || c->head_dim > CONFIG_MAX_HEAD_DIM ||
        (int64_t)c->n_heads * c->head_dim > CONFIG_MAX_WIDTH)
        return error_set(s->err, LACE_E_META,
                         "config.json: %s: gives %d heads of %d values, expected an even "
                         "number up to %d, and %d in all",
                         h->has_head_dim ? "head_dim" : "hidden_size", c->n_heads, c->head_dim,
                         CONFIG_MAX_HEAD_DIM, CONFIG_MAX_WIDTH);
    TRY(source_need_float(s, "rms_norm_eps", 1e-30, 0.999, &c->rms_eps));
    return source_need_int(s, "vocab_size", 1, CONFIG_MAX_VOCAB, &c->n_vocab);
}

/* What changes the arithmetic and has only one value that lace computes. */
static lace_status check_arithmetic(const source *s, const family *f)
{
    static const char *const names[] = {"hidden_activation", "hidden_act"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *found = json_string_value(source_get(s, names[i]));
        if (found && strcmp(found, f->activation) != 0)
            return error_set(s->err, LACE_E_UNSUPPORTED,
                             "config.json: %s: is \"%.32s\", expected \"%s\"", names[i], found,
                             f->activation);
        if (found)
            break;
    }
    static const char *const flags[] = {"mlp_bias", "use_bidirectional_attention"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool value = false;
        TRY(source_bool(s, flags[i], &value));
        if (value)
            return source_fail(s, LACE_E_UNSUPPORTED, flags[i], "is true, expected false");
    }
    double limit = 7;
    TRY(source_float(s, "swiglu_limit", -1e6, 1e6, &limit, NULL));
    if (f->id == HF_GPT_OSS && limit != 7)
        return source_fail(s, LACE_E_UNSUPPORTED, "swiglu_limit", "expected 7");
    return LACE_OK;
}

static lace_status read_factors(const source *s, const family *f, model_config *c)
{
    TRY(source_float(s, "attn_logit_softcapping", 0, 1e6, &c->attention_softcap, NULL));
    TRY(source_float(s, "final_logit_softcapping", 0, 1e6, &c->final_softcap, NULL));
    if (is(f, "granite")) {
        TRY(source_float(s, "attention_multiplier", 1e-6, 1e6, &c->attention_scale, NULL));
        TRY(source_float(s, "embedding_multiplier", 1e-6, 1e6, &c->embedding_scale, NULL));
        TRY(source_float(s, "residual_multiplier", 1e-6, 1e6, &c->residual_scale, NULL));
        TRY(source_float(s, "logits_scaling", 1e-6, 1e6, &c->logit_scale, NULL));
    }
    if (f->id == HF_GEMMA) {
        double scalar = 0;
        bool found;
        TRY(source_float(s, "query_pre_attn_scalar", 1e-3, 1e6, &scalar, &found));
        if (found)
            c->attention_scale = 1 / sqrt(scalar);
    }
    return LACE_OK;
}

static lace_status read_experts(const source *s, const family *f, model_config *c)
{
    if (f->id != HF_MIXTRAL && f->id != HF_QWEN3MOE && f->id != HF_GPT_OSS)
        return LACE_OK;
    bool found;
    TRY(source_int(s, "num_local_experts", 1, CONFIG_MAX_EXPERTS, &c->n_experts, &found));
    if (!found)
        TRY(source_need_int(s, "num_experts", 1, CONFIG_MAX_EXPERTS, &c->n_experts));
    TRY(source_need_int(s, "num_experts_per_tok", 1, c->n_experts, &c->n_experts_used));
    c->n_ff_expert = c->n_ff;
    if (f->id != HF_QWEN3MOE)
        return LACE_OK;
    TRY(source_need_int(s, "moe_intermediate_size", 1, CONFIG_MAX_WIDTH, &c->n_ff_expert));
    c->norms_experts = false;
    TRY(source_bool(s, "norm_topk_prob", &c->norms_experts));
    int32_t step = 1;
    TRY(source_int(s, "decoder_sparse_step", 1, CONFIG_MAX_LAYERS, &step, NULL));
    if (step != 1)
        return source_fail(s, LACE_E_UNSUPPORTED, "decoder_sparse_step", "expected 1");
    if (json_array_size(source_get(s, "mlp_only_layers")) > 0)
        return source_fail(s, LACE_E_UNSUPPORTED, "mlp_only_layers", "expected none");
    return LACE_OK;
}

/* ---- Kinds of layers ------------------------------------------------------------------------- */

/* An array with an item for each layer; NULL if the key is absent. */
static lace_status get_layers(const source *s, const char *key, int32_t n_layers,
                              const json_t **out)
{
    *out = source_get(s, key);
    if (*out && (!json_is_array(*out) || json_array_size(*out) != (size_t)n_layers))
        return error_set(s->err, LACE_E_META,
                         "config.json: %s: has %zu items, expected one for each of %d layers", key,
                         json_array_size(*out), n_layers);
    return LACE_OK;
}

static lace_status read_layer_types(const source *s, const json_t *types, model_config *c)
{
    for (int32_t i = 0; i < c->n_layers; i++) {
        const char *name = json_string_value(json_array_get(types, (size_t)i));
        bool is_local = name && strcmp(name, "sliding_attention") == 0;
        if (!is_local && (!name || strcmp(name, "full_attention") != 0))
            return error_set(s->err, LACE_E_UNSUPPORTED,
                             "config.json: layer_types: item %d is \"%.32s\", expected "
                             "full_attention or sliding_attention",
                             i, name ? name : "");
        if (is_local && c->window == 0)
            return source_fail(s, LACE_E_META, "sliding_window",
                               "is missing, layer_types needs it");
        c->is_local[i] = is_local;
    }
    return LACE_OK;
}

static lace_status read_windows(const source *s, const family *f, model_config *c)
{
    const json_t *types;
    int32_t first = 28, period = f->period; /* Qwen2's default */
    bool is_used = f->rule != WINDOW_FLAG;
    TRY(source_int(s, "sliding_window", 0, CONFIG_MAX_CONTEXT, &c->window, NULL));
    TRY(source_bool(s, "use_sliding_window", &is_used));
    if (f->rule == WINDOW_NEVER || !is_used)
        c->window = 0;
    TRY(get_layers(s, "layer_types", c->n_layers, &types));
    if (types)
        return read_layer_types(s, types, c);
    TRY(source_int(s, "max_window_layers", 0, INT32_MAX, &first, NULL));
    TRY(source_int(s, "sliding_window_pattern", 1, CONFIG_MAX_LAYERS, &period, NULL));
    for (int32_t i = 0; c->window > 0 && i < c->n_layers; i++)
        c->is_local[i] = f->rule == WINDOW_ALWAYS   ? true
                         : f->rule == WINDOW_PERIOD ? (i + 1) % period != 0
                                                    : f->id == HF_QWEN3MOE || i >= first;
    return LACE_OK;
}

static lace_status read_skipped(const source *s, const family *f, model_config *c)
{
    const json_t *kept;
    int32_t interval = 4;
    if (!is(f, "smollm3"))
        return LACE_OK;
    TRY(get_layers(s, "no_rope_layers", c->n_layers, &kept));
    TRY(source_int(s, "no_rope_layer_interval", 1, INT32_MAX, &interval, NULL));
    for (int32_t i = 0; i < c->n_layers; i++) {
        const json_t *item = json_array_get(kept, (size_t)i);
        json_int_t value = json_integer_value(item);
        if (kept && (!json_is_integer(item) || (value != 0 && value != 1)))
            return error_set(s->err, LACE_E_META,
                             "config.json: no_rope_layers: item %d: expected 0 or 1", i);
        c->skips_rope[i] = kept ? value == 0 : (i + 1) % interval == 0;
    }
    return LACE_OK;
}

/* A GGUF file only says how wide the window is; its readers know the rest from the architecture. */
static bool has_default_kinds(const family *f, const model_config *c)
{
    bool is_smollm3 = is(f, "smollm3");
    for (int32_t i = 0; i < c->n_layers; i++) {
        bool is_local = f->rule == WINDOW_PERIOD   ? (i + 1) % f->period != 0
                        : f->rule == WINDOW_ALWAYS ? c->window > 0
                                                   : false;
        if (c->is_local[i] != is_local || c->skips_rope[i] != (is_smollm3 && (i + 1) % 4 == 0))
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- */

lace_status hf_config_read(const json_t *config, hf_config *out, lace_error *err)
{
    memset(out, 0, sizeof *out);
    source s = {.object = config, .err = err};
    const family *f = NULL;
    hf_config h = {.model = config_default()};
    model_config *c = &h.model;
    TRY(find_family(&s, &f));
    /* Models that also see keep the numbers of their language part in an object. */
    const json_t *inner = json_object_get(config, "text_config");
    if (json_is_object(inner))
        s = (source){.object = inner, .outer = config, .err = err};
    snprintf(c->architecture, sizeof c->architecture, "%s", f->architecture);
    h.family = f->id;
    h.is_permuted = f->is_permuted;
    set_defaults(f, c);
    TRY(read_sizes(&s, &h));
    TRY(check_arithmetic(&s, f));
    TRY(hf_quant_read(&s, &h.quant));
    if (h.quant.method == HF_QUANT_MXFP4 && f->id != HF_GPT_OSS)
        return source_fail(&s, LACE_E_UNSUPPORTED, "quantization_config",
                           "is mxfp4, which lace reads only for gpt-oss");
    TRY(hf_rope_read(&s, &h));
    TRY(read_factors(&s, f, c));
    TRY(read_experts(&s, f, c));
    TRY(read_windows(&s, f, c));
    TRY(read_skipped(&s, f, c));
    TRY(hf_check_keys(&s, &h));
    c->has_layer_kinds = true;
    h.has_default_kinds = has_default_kinds(f, c);
    /* Gemma's output matrix is never its own, even if a file has one. */
    h.is_tied = f->id == HF_GEMMA;
    TRY(source_bool(&s, "tie_word_embeddings", &h.is_tied));
    *out = h;
    return LACE_OK;
}
