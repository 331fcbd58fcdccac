/* The metadata of a converted model, as llama.cpp's converter writes it. */
#define _GNU_SOURCE
#include "compress/convert_meta.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf/hf_family.h"
#include "model/model.h"
#include "tensor/codec/unpack.h"
#include "vocab/vocab_hf.h"

/* What general.file_type says, by the type of the matrices. */
static int file_type_of(dtype type)
{
    switch (type) {
    case DTYPE_F32:
        return 0;
    case DTYPE_F16:
        return 1;
    case DTYPE_Q4_0:
        return 2;
    case DTYPE_Q8_0:
        return 7;
    default:
        return 32; /* BF16 */
    }
}

enum { FILE_TYPE_MXFP4 = 38, QUANTIZATION_VERSION = 2 };

/* ---- Names and sizes for people -------------------------------------------------------------- */

/* Lower-case words become titles, but "v2.1" and "7b" do not. */
static bool is_plain_word(const char *word, size_t n)
{
    bool has_letter = false;
    for (size_t i = 0; i < n; i++) {
        if (isupper((unsigned char)word[i]))
            return false;
        has_letter = has_letter || islower((unsigned char)word[i]);
    }
    size_t i = word[0] == 'v' && n > 1 ? 1 : 0;
    if (isdigit((unsigned char)word[0]))
        return false;
    while (i < n && (isdigit((unsigned char)word[i]) || word[i] == '.'))
        i++;
    bool is_version = word[0] == 'v' && n > 1 && i == n;
    return has_letter && !is_version;
}

void convert_title(const char *name, char *out, size_t n_out)
{
    size_t at = 0;
    while (*name) {
        size_t n = strcspn(name, "- ");
        bool is_plain = n > 0 && is_plain_word(name, n);
        if (n > 0 && at > 0 && at + 1 < n_out)
            out[at++] = ' ';
        for (size_t i = 0; i < n && at + 1 < n_out; i++) {
            bool begins = i == 0 || !isalpha((unsigned char)name[i - 1]);
            out[at++] = (char)(is_plain && begins ? toupper((unsigned char)name[i]) : name[i]);
        }
        name += n + (name[n] != 0);
    }
    out[at] = 0;
}

static void format_count(double n, char *out, size_t n_out)
{
    static const struct {
        double above, unit;
        char letter;
    } units[] = {{1e12, 1e-12, 'T'}, {1e9, 1e-9, 'B'}, {1e6, 1e-6, 'M'}, {-1, 1e-3, 'K'}};
    size_t i = 0;
    while (n <= units[i].above)
        i++;
    double scaled = n * units[i].unit;
    /* Two digits: "4.2M", "26M", "115K", "0.42K". */
    int n_decimals = rint(scaled) >= 10 ? 0 : rint(scaled) >= 1 ? 1 : 2;
    snprintf(out, n_out, "%.*f%c", n_decimals, scaled, units[i].letter);
}

/* "115K", "4x116K" (experts), "4.2M": how large the model is, into out. Returns out. */
static const char *format_size_label(hf_tensors *tensors, char out[32])
{
    double shared = 0, expert = 0;
    int64_t n_experts = 0;
    for (size_t i = 0; i < hf_tensors_count(tensors); i++) {
        const tensor *t = hf_tensors_at(tensors, i);
        bool is_expert = t->shape.n_dims == 3 && memmem(t->name.data, t->name.size, "_exps", 5);
        if (is_expert)
            n_experts = t->shape.dims[2];
        *(is_expert ? &expert : &shared) +=
            (double)t->n_values / (double)(is_expert ? t->shape.dims[2] : 1);
    }
    char count[24];
    format_count(shared + expert, count, sizeof count);
    if (n_experts > 0)
        snprintf(out, 32, "%dx%s", (int)n_experts, count);
    else
        snprintf(out, 32, "%s", count);
    return out;
}

/* ---- The keys -------------------------------------------------------------------------------- */

/* A writer and the architecture in front of its keys. The writer remembers failures. */
typedef struct keys {
    gguf_writer *w;
    const char *architecture;
    const arch *arch;
    const model_config *seen; /* the config as readers of the file complete it */
    int32_t n_predicting;     /* layers behind the others */
    int32_t period; /* all layers but each n-th have a window; 0: all have; -1: not said */
} keys;

static const char *key_of(const keys *k, const char *name, char out[160])
{
    snprintf(out, 160, "%s.%s", k->architecture, name);
    return out;
}

static void put_int(const keys *k, const char *name, int64_t x)
{
    char key[160];
    gguf_writer_add_int(k->w, key_of(k, name, key), GGUF_U32, x, NULL);
}

static void put_float(const keys *k, const char *name, double x)
{
    char key[160];
    gguf_writer_add_float(k->w, key_of(k, name, key), GGUF_F32, x, NULL);
}

static void put_text(const keys *k, const char *name, const char *x)
{
    char key[160];
    gguf_writer_add_text(k->w, key_of(k, name, key), text_of(x), NULL);
}

static void put_bool(const keys *k, const char *name, bool x)
{
    char key[160];
    gguf_writer_add_bool(k->w, key_of(k, name, key), x, NULL);
}

/* A number of each layer, at this place in its config: once, if all layers have the same. */
static void put_layers(const keys *k, const char *name, const model_config *c, size_t field)
{
    char key[160];
    int32_t values[CONFIG_MAX_LAYERS];
    bool is_same = true;
    for (int32_t i = 0; i < c->n_layers; i++) {
        values[i] = *(const int32_t *)((const char *)&c->layers[i] + field);
        is_same = is_same && values[i] == values[0];
    }
    if (is_same)
        put_int(k, name, values[0]);
    else
        gguf_writer_add_array(k->w, key_of(k, name, key), GGUF_I32, values, (size_t)c->n_layers,
                              NULL);
}

/* Whether any layer does. */
static bool attends(const model_config *c)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].n_kv_heads > 0)
            return true;
    return false;
}

/* State spaces and short convolutions. */
static void put_recurrent(const keys *k, const model_config *c)
{
    if (c->ssm.n_heads > 0) {
        put_int(k, "ssm.conv_kernel", c->ssm.n_taps);
        put_int(k, "ssm.inner_size", c->ssm.n_inner);
        put_int(k, "ssm.state_size", c->ssm.n_state);
        put_int(k, "ssm.time_step_rank", c->ssm.n_heads);
        put_int(k, "ssm.group_count", c->ssm.n_groups);
    } else if (c->ssm.n_taps > 0) {
        put_int(k, "shortconv.l_cache", c->ssm.n_taps);
    }
    if (c->has_no_rope || strcmp(k->architecture, "granitehybrid") == 0)
        put_bool(k, "rope.scaling.finetuned", !c->has_no_rope);
}

/* Heads of local layers, layers that share keys and values, the second embedding. */
static void put_shapes(const keys *k, const model_config *c)
{
    int32_t n_shared = 0, dim = c->rope_local_dims; /* of local heads, should there be none */
    if (!(k->arch->takes & ARCH_LAYER_SHAPES))
        return;
    for (int32_t i = 0; i < c->n_layers; i++) {
        n_shared += c->layers[i].shares_kv;
        dim = c->layers[i].is_local ? c->layers[i].head_dim : dim;
    }
    put_int(k, "attention.shared_kv_layers", n_shared);
    put_int(k, "embedding_length_per_layer_input", c->n_embd_layer);
    if (c->rope_local_dims > 0) {
        put_int(k, "attention.key_length_swa", dim);
        put_int(k, "attention.value_length_swa", dim);
        put_int(k, "rope.dimension_count", c->rope.n_dims);
        put_int(k, "rope.dimension_count_swa", c->rope_local_dims);
    }
}

static void put_streams(const keys *k, const model_config *c)
{
    char key[160];
    float cutoffs[CONFIG_MAX_LAYERS];
    if (c->n_streams == 0)
        return;
    for (int32_t i = 0; i < c->n_layers; i++)
        cutoffs[i] = c->layers[i].has_cutoff ? (float)c->layers[i].cutoff : -INFINITY;
    put_int(k, "altup.active_idx", c->active_stream);
    put_int(k, "altup.num_inputs", c->n_streams);
    gguf_writer_add_array(k->w, key_of(k, "activation_sparsity_scale", key), GGUF_F32, cutoffs,
                          (size_t)c->n_layers, NULL);
}

/* Layers that predict further tokens are among the blocks. */
static void put_predicting(const keys *k)
{
    if (k->arch->takes & ARCH_NEXTN)
        put_int(k, "nextn_predict_layers", k->n_predicting);
}

static void put_sizes(const keys *k, const hf_config *h)
{
    const model_config *c = &h->model;
    put_int(k, "block_count", c->n_layers + k->n_predicting);
    if (k->n_predicting > 0 || c->n_experts > 0)
        put_predicting(k);
    put_int(k, "context_length", c->has_no_rope ? 1 << 20 : c->n_context); /* no position is far */
    put_int(k, "embedding_length", c->n_embd);
    if (c->n_ff > 0 || c->n_experts == 0)
        put_layers(k, "feed_forward_length", c, offsetof(layer_config, n_ff));
    put_layers(k, "attention.head_count", c, offsetof(layer_config, n_heads));
    if (attends(c) || c->layers[0].n_heads > 0) /* none: layers that could attend do not */
        put_layers(k, "attention.head_count_kv", c, offsetof(layer_config, n_kv_heads));
    bool is_centered = k->seen->centers_norms && strcmp(k->architecture, "phimoe") != 0;
    put_float(k, is_centered ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
              c->norm_eps); /* files of Phi-3.5-MoE call it so, too */
    if (strncmp(k->architecture, "nemotron_h", strlen("nemotron_h")) == 0)
        put_float(k, "attention.layer_norm_epsilon", c->norm_eps);
    if (attends(c) &&
        (h->has_head_dim || c->head_dim * c->n_heads != c->n_embd || c->latent.kv_rank > 0)) {
        put_int(k, "attention.key_length", c->head_dim);
        put_int(k, "attention.value_length", c->value_dim);
    }
    put_int(k, "vocab_size", c->n_vocab);
}

/* ---- Experts --------------------------------------------------------------------------------- */

/* Whether layers are attention or a feed-forward network, not both. */
static bool has_single_parts(const model_config *c)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].kind == LAYER_FFN)
            return true;
    return false;
}

/* Which layers have experts, as files say it: each step-th, behind n_dense layers without. */
static bool find_expert_layers(const model_config *c, int32_t *n_dense, int32_t *every)
{
    int32_t first = 0;
    *n_dense = 0;
    *every = 1;
    if (has_single_parts(c)) /* then their widths say it */
        return true;
    while (first < c->n_layers && !c->layers[first].has_experts)
        first++;
    for (*every = 1; *every <= c->n_layers; (*every)++)
        for (int k = 0; k < 2; k++) {
            *n_dense = k ? first : 0;
            int32_t i = 0;
            while (i < c->n_layers &&
                   c->layers[i].has_experts == (i >= *n_dense && (i + 1) % *every == 0))
                i++;
            if (i == c->n_layers)
                return true;
        }
    return false;
}

/* How experts are chosen. Files of Llama 4 and Phi-3.5-MoE leave it to their readers. */
static void put_routing(const keys *k, const route_rule *r)
{
    if (r->scores == ROUTE_MIXER || strcmp(k->architecture, "llama4") == 0)
        return;
    if (r->scores == ROUTE_SIGMOID)
        put_int(k, "expert_gating_func", 2);
    if (!r->norms || (arch_find(k->architecture)->takes & ARCH_ROUTING))
        put_bool(k, "expert_weights_norm", r->norms);
    if (r->factor != 0)
        put_float(k, "expert_weights_scale", r->factor);
    if (r->n_groups > 0) {
        put_int(k, "expert_group_count", r->n_groups);
        put_int(k, "expert_group_used_count", r->n_groups_used);
    }
}

/* After how many layers one attends: the first one that does says it; 0: none. */
static int32_t attention_interval(const model_config *c)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].kind == LAYER_ATTENTION)
            return i + 1;
    return 0;
}

static void put_delta(const keys *k, const model_config *c)
{
    const delta_config *d = &c->delta;
    int32_t interval = attention_interval(c);
    if (d->n_heads == 0)
        return;
    put_int(k, "ssm.conv_kernel", d->n_taps);
    put_int(k, "ssm.state_size", d->k_dim);
    put_int(k, "ssm.group_count", d->n_key_heads);
    put_int(k, "ssm.time_step_rank", d->n_heads);
    put_int(k, "ssm.inner_size", (int64_t)d->n_heads * d->v_dim);
    put_int(k, "full_attention_interval", interval ? interval : c->n_layers + 1);
}

static void put_experts(const keys *k, const model_config *c, hf_tensors *tensors)
{
    int32_t n_dense, every;
    if (c->n_experts == 0)
        return;
    put_int(k, "expert_count", c->n_experts);
    put_int(k, "expert_used_count", c->n_experts_used);
    if (strcmp(k->architecture, "llama") != 0)
        put_int(k, "expert_feed_forward_length", c->n_ff_expert);
    put_routing(k, &c->routing);
    if (c->n_experts_shared > 0)
        put_int(k, "expert_shared_count", c->n_experts_shared);
    for (size_t i = 0; i < hf_tensors_count(tensors); i++) {
        const tensor *t = hf_tensors_at(tensors, i);
        static const char end[] = ".ffn_up_shexp.weight";
        size_t n = sizeof end - 1;
        if (t->name.size > n && memcmp(t->name.data + t->name.size - n, end, n) == 0) {
            put_int(k, "expert_shared_feed_forward_length", t->shape.dims[1]);
            break;
        }
    }
    if (find_expert_layers(c, &n_dense, &every) && (n_dense > 0 || every > 1)) {
        put_int(k, "leading_dense_block_count", n_dense);
        put_int(k, "interleave_moe_layer_step", every);
    }
    if (c->n_latent > 0)
        put_int(k, "moe_latent_size", c->n_latent);
}

/* ---- Latent attention ------------------------------------------------------------------------ */

static void put_latent(const keys *k, const model_config *c)
{
    const latent_config *t = &c->latent;
    if (t->kv_rank == 0)
        return;
    if (t->q_rank > 0)
        put_int(k, "attention.q_lora_rank", t->q_rank);
    put_int(k, "attention.kv_lora_rank", t->kv_rank);
    put_int(k, "attention.key_length_mla", t->nope_dim + c->rope.n_dims);
    put_int(k, "attention.value_length_mla", t->value_dim);
}

/* ---------------------------------------------------------------------------------------------- */

/* Phi-3 and Phi-3.5-MoE. */
static bool is_phi3(const keys *k)
{
    return strcmp(k->architecture, "phi3") == 0 || strcmp(k->architecture, "phimoe") == 0;
}

static void put_rope(const keys *k, const hf_config *h)
{
    const rope_config *r = &h->model.rope;
    if (!attends(&h->model))
        return;
    put_float(k, "rope.freq_base", r->base);
    if (r->sections[0] > 0) {
        char key[160];
        gguf_writer_add_array(k->w, key_of(k, "rope.dimension_sections", key), GGUF_I32,
                              r->sections, 4, NULL);
    }
    if (h->model.rope_local_base > 0)
        put_float(k, "rope.freq_base_swa", h->model.rope_local_base);
    bool is_put = h->model.rope_local_dims > 0; /* by put_shapes */
    if (!is_put && (h->family->is_permuted || is_phi3(k) || r->n_dims != h->model.head_dim ||
                    strcmp(k->architecture, "llama4") == 0))
        put_int(k, "rope.dimension_count", r->n_dims);
    if (r->scaling == ROPE_LINEAR || r->scaling == ROPE_YARN) {
        put_text(k, "rope.scaling.type", r->scaling == ROPE_YARN ? "yarn" : "linear");
        put_float(k, "rope.scaling.factor", r->factor);
    }
    if (r->scaling == ROPE_YARN) {
        put_float(k, "rope.scaling.yarn_beta_fast", r->yarn_beta_fast);
        put_float(k, "rope.scaling.yarn_beta_slow", r->yarn_beta_slow);
        /* In a file the factor multiplies what the method prescribes; but of latents, cos and sin. */
        if (r->yarn_mscale_all != 0 && h->model.latent.kv_rank > 0) {
            put_float(k, "rope.scaling.yarn_log_multiplier", 0.1 * r->yarn_mscale_all);
            if (r->attention_factor != 0 && r->attention_factor != 1)
                put_float(k, "rope.scaling.attn_factor", r->attention_factor);
        } else if (r->attention_factor != 0)
            put_float(k, "rope.scaling.attn_factor",
                      r->attention_factor / (r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1));
    }
    if (r->scaling == ROPE_LONGROPE) {
        /* Files of Phi-3 have the tensors and no type. */
        if (!is_phi3(k))
            put_text(k, "rope.scaling.type", "longrope");
        put_float(k, "rope.scaling.attn_factor", r->attention_factor);
    }
    if (r->scaling == ROPE_YARN || r->scaling == ROPE_LONGROPE || is_phi3(k))
        put_int(k, "rope.scaling.original_context_length", r->original_context);
}

static void put_factors(const keys *k, const hf_config *h)
{
    const model_config *c = &h->model;
    if ((c->window > 0 && !c->windows_are_chunks) || is_phi3(k))
        put_int(k, "attention.sliding_window", c->window);
    if (c->window > 0 && (k->arch->takes & ARCH_PATTERN)) {
        char key[160];
        uint8_t is_local[CONFIG_MAX_LAYERS];
        for (int32_t i = 0; i < c->n_layers; i++)
            is_local[i] = c->layers[i].is_local;
        gguf_writer_add_array(k->w, key_of(k, "attention.sliding_window_pattern", key), GGUF_BOOL,
                              is_local, (size_t)c->n_layers, NULL);
    }
    if (k->period >= 0)
        put_int(k, "attention.sliding_window_pattern", k->period);
    if (k->arch->takes & ARCH_PARALLEL)
        put_bool(k, "use_parallel_residual", c->is_parallel);
    if (c->attention_scale != 0)
        put_float(k, "attention.scale", c->attention_scale);
    if (c->attention_softcap != 0)
        put_float(k, "attn_logit_softcapping", c->attention_softcap);
    if (c->final_softcap != 0)
        put_float(k, "final_logit_softcapping", c->final_softcap);
    if (strncmp(k->architecture, "granite", strlen("granite")) == 0) {
        put_float(k, "embedding_scale", c->embedding_scale);
        put_float(k, "residual_scale", c->residual_scale);
        put_float(k, "logit_scale", c->logit_scale);
    } else if ((k->arch->takes & ARCH_FACTORS) && c->logit_scale != 1) {
        put_float(k, "logit_scale", c->logit_scale);
    }
    if (c->temperature_scale != 0 && !c->windows_are_chunks) {
        put_float(k, "attention.temperature_scale", c->temperature_scale);
        put_int(k, "attention.temperature_length", c->temperature_length);
    }
}

/* ---------------------------------------------------------------------------------------------- */

bool convert_is_meta(const tensor *t)
{
    return memmem(t->name.data, t->name.size, ".xielu.", strlen(".xielu.")) != NULL;
}

/* The four numbers of each layer's activation, which are tensors in directories. */
static void put_xielu(gguf_writer *w, int32_t n_layers, hf_tensors *tensors)
{
    static const char *const names[] = {"alpha_p", "alpha_n", "beta", "eps"};
    for (int k = 0; k < 4; k++) {
        float values[CONFIG_MAX_LAYERS];
        int32_t n = 0;
        char key[32], end[40];
        snprintf(key, sizeof key, "xielu.%s", names[k]);
        snprintf(end, sizeof end, ".%s", key);
        for (size_t i = 0; i < hf_tensors_count(tensors) && n < n_layers; i++) {
            const tensor *t = hf_tensors_at(tensors, i);
            uint8_t bytes[16];
            if (t->name.size < strlen(end) || t->n_values != 1 || t->n_bytes > sizeof bytes ||
                memcmp(t->name.data + t->name.size - strlen(end), end, strlen(end)) != 0)
                continue;
            hf_tensors_make(tensors, i, 0, 1, bytes);
            unpack_row(t->type, bytes, 1, &values[n++]);
        }
        if (n == n_layers)
            gguf_writer_add_array(w, key, GGUF_F32, values, (size_t)n, NULL);
    }
}

/* The n of which all layers but each n-th have a window: 0, where all have; -1: there is none. */
static int32_t window_period(const model_config *c)
{
    for (int32_t n = 0; n <= c->n_layers; n++) {
        int32_t i = 0;
        while (i < c->n_layers && c->layers[i].is_local == (n == 0 || (i + 1) % n != 0))
            i++;
        if (i == c->n_layers)
            return n;
    }
    return -1;
}

static bool has_windows_of(const model_config *a, const model_config *b)
{
    for (int32_t i = 0; i < a->n_layers; i++)
        if (a->layers[i].is_local != b->layers[i].is_local)
            return false;
    return true;
}

/* As the file's reader completes it; has_pattern: the file says which layers have a window. */
static lace_status complete_as(const model_config *c, bool has_pattern, model_config *out,
                               lace_error *err)
{
    const arch *a = arch_find(c->architecture);
    *out = *c;
    out->has_layer_kinds = false;
    out->has_window_pattern = has_pattern;
    out->rope.yarn_keeps_fractions = false;
    for (int32_t i = 0; i < out->n_layers; i++) {
        out->layers[i].is_local = out->has_window_pattern && c->layers[i].is_local;
        out->layers[i].skips_rope = false;
    }
    return a->configure ? a->configure(out, err) : LACE_OK;
}

/* The config as a reader of the GGUF file completes it: by what it knows of the architecture. */
static lace_status complete(const model_config *c, model_config *out, int32_t *period,
                            lace_error *err)
{
    unsigned takes = arch_find(c->architecture)->takes;
    *period = -1;
    TRY(complete_as(c, (takes & ARCH_PATTERN) != 0, out, err));
    if (!(takes & ARCH_PERIOD) || c->window == 0 || has_windows_of(c, out))
        return LACE_OK;
    *period = window_period(c);
    return *period < 0 ? LACE_OK : complete_as(c, true, out, err);
}

/* key: what a file cannot say; NULL: it says all. */
static lace_status check_said(const model_config *c, const char *key, lace_error *err)
{
    return key ? error_set(err, LACE_E_UNSUPPORTED,
                           "config.json: %s: a GGUF file of architecture %s cannot say it", key,
                           c->architecture)
               : LACE_OK;
}

/* What no key says of state spaces. */
static lace_status check_state_space(const model_config *c, lace_error *err)
{
    bool has_limits = c->ssm.n_heads > 0 && (c->ssm.dt_min > 0 || isfinite(c->ssm.dt_max));
    const char *key = has_limits           ? "time_step_limit"
                      : c->ssm.norms_first ? "mamba_norm_before_gate"
                      : c->ssm.norms_all   ? "mamba_n_groups"
                                           : NULL;
    return check_said(c, key, err);
}

/* What no key says of experts, and of Llama 4's attention. */
static lace_status check_experts(const model_config *c, const model_config *seen, lace_error *err)
{
    int32_t n_dense, every;
    const route_rule *r = &c->routing;
    bool is_ernie = strcmp(c->architecture, "ernie4_5-moe") == 0;
    bool is_chunked = c->windows_are_chunks;
    const char *key = is_ernie && r->norm_least != 1e-12f              ? "moe_norm_min"
                      : r->scores == ROUTE_MIXER && r->jitter != 0.01f ? "router_jitter_noise"
                      : is_chunked && c->window != seen->window        ? "attention_chunk_size"
                      : is_chunked && c->temperature_length != seen->temperature_length
                          ? "floor_scale"
                      : is_chunked && c->temperature_scale != seen->temperature_scale ? "attn_scale"
                      : c->norms_turned != seen->norms_turned ? "use_qk_norm"
                      : c->n_experts > 0 && !find_expert_layers(c, &n_dense, &every)
                          ? "the layers that have experts"
                          : NULL;
    return check_said(c, key, err);
}

/* What readers of GGUF files assume, because no key says it. */
static lace_status check_expressible(const hf_config *h, const model_config *seen, lace_error *err)
{
    model_config told = h->model; /* as who runs the directory completes it */
    const model_config *c = &told;
    const arch *a = arch_find(c->architecture);
    if (a->configure)
        TRY(a->configure(&told, err));
    for (int32_t i = 0; i < c->n_layers; i++)
        if ((!convert_is_encoder(c) && (c->layers[i].is_local && c->window > 0) !=
                                           (seen->layers[i].is_local && seen->window > 0)) ||
            c->layers[i].skips_rope != seen->layers[i].skips_rope)
            return error_set(err, LACE_E_UNSUPPORTED,
                             "config.json: layer_types, no_rope_layers: a GGUF file of "
                             "architecture %s cannot say which layers differ",
                             h->model.architecture);
    int32_t interval = c->delta.n_heads > 0 ? attention_interval(c) : 0;
    for (int32_t i = 0; interval > 0 && i < c->n_layers; i++)
        if ((c->layers[i].kind == LAYER_ATTENTION) != ((i + 1) % interval == 0))
            return error_set(err, LACE_E_UNSUPPORTED,
                             "config.json: layer_types: a GGUF file of architecture %s has layers "
                             "that attend at equal distances only",
                             h->model.architecture);
    if (c->latent.has_halves)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "config.json: rope_interleave: a GGUF file of architecture %s has no key "
                         "for it",
                         h->model.architecture);
    if (c->rope.scaling == ROPE_YARN &&
        c->rope.yarn_keeps_fractions != seen->rope.yarn_keeps_fractions)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "config.json: truncate: a GGUF file of architecture %s has no key for it",
                         h->model.architecture);
    TRY(check_experts(c, seen, err));
    return check_state_space(c, err);
}

/* The title of the directory's own name, "." and links resolved. */
static void title_of(const char *directory, char *out, size_t n_out)
{
    char path[PATH_MAX];
    const char *slash = realpath(directory, path) ? strrchr(path, '/') : NULL;
    convert_title(slash ? slash + 1 : directory, out, n_out);
}

int convert_file_type(hf_tensors *tensors, dtype type)
{
    bool has_mxfp4 = false;
    for (size_t i = 0; i < hf_tensors_count(tensors); i++)
        has_mxfp4 = has_mxfp4 || hf_tensors_at(tensors, i)->type == DTYPE_MXFP4;
    return has_mxfp4 && type != DTYPE_Q8_0 ? FILE_TYPE_MXFP4 : file_type_of(type);
}

lace_status convert_add_meta(const char *directory, const hf_config *config, hf_tensors *tensors,
                             int file_type, gguf_writer *w, lace_error *err)
{
    model_config seen;
    int32_t period;
    TRY(complete(&config->model, &seen, &period, err));
    TRY(check_expressible(config, &seen, err));
    keys k = {w,     config->model.architecture,       arch_find(config->model.architecture),
              &seen, hf_tensors_n_predicting(tensors), period};
    char title[256], label[32];
    title_of(directory, title, sizeof title);
    gguf_writer_add_text(w, "general.architecture", text_of(k.architecture), NULL);
    gguf_writer_add_text(w, "general.type", text_of("model"), NULL);
    gguf_writer_add_text(w, "general.name", text_of(title), NULL);
    gguf_writer_add_text(w, "general.size_label", text_of(format_size_label(tensors, label)), NULL);
    gguf_writer_add_int(w, "general.file_type", GGUF_U32, file_type, NULL);
    gguf_writer_add_int(w, "general.quantization_version", GGUF_U32, QUANTIZATION_VERSION, NULL);
    put_sizes(&k, config);
    put_experts(&k, &config->model, tensors);
    put_recurrent(&k, &config->model);
    put_delta(&k, &config->model);
    put_latent(&k, &config->model);
    put_shapes(&k, &config->model);
    put_streams(&k, &config->model);
    if (strcmp(k.architecture, "bert") != 0)
        put_rope(&k, config);
    put_factors(&k, config);
    put_xielu(w, config->model.n_layers, tensors);
    return convert_is_encoder(&config->model) ? convert_add_encoder(&config->model, w, err)
                                              : LACE_OK;
}

lace_status convert_add_vocab(const char *directory, const weights *files, int32_t n_vocab,
                              gguf_writer *w, lace_error *err)
{
    hf_tokenizer *t = NULL;
    lace_status status = hf_tokenizer_open(directory, weights_config(files), &t, err);
    if (status == LACE_OK && t)
        status = hf_tokenizer_to_gguf(t, (size_t)n_vocab, w, err);
    bool has_vocab = t != NULL;
    hf_tokenizer_close(t);
    if (status != LACE_OK)
        return error_prefix(err, status, directory);
    if (has_vocab)
        return LACE_OK;
    return gguf_writer_add_text(w, "tokenizer.ggml.model", text_of("none"), err);
}
