/* A small but complete model: its tensors. */
#include "tiny_maker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

tiny_options tiny_options_default(void)
{
    return (tiny_options){
        .architecture = "llama",
        .n_layers = 2,
        .n_embd = 16,
        .n_heads = 2,
        .n_kv_heads = 1,
        .n_ff = 32,
        .n_vocab = 320,
        .n_context = 64,
        .type = DTYPE_F16,
        .alignment = 32,
        .seed = 1,
    };
}

tiny_options tiny_options_small(void)
{
    tiny_options o = tiny_options_default();
    o.n_vocab = 64;
    return o;
}

tiny_options tiny_options_least(void)
{
    tiny_options o = tiny_options_default();
    o.n_layers = 1;
    o.n_embd = 4;
    o.n_heads = 1;
    o.n_ff = 4;
    o.n_vocab = 16;
    return o;
}

const char *const tiny_archs[] = {
#define X(name) name,
#include "tiny_archs.def"
#undef X
};

const int tiny_n_archs = sizeof tiny_archs / sizeof *tiny_archs;

bool tiny_is_latent(const char *architecture)
{
    return strcmp(architecture, "deepseek2") == 0 || strcmp(architecture, "mistral4") == 0;
}

tiny_options tiny_options_arch(const char *architecture)
{
    tiny_options o = tiny_options_least();
    o.architecture = architecture;
    o.n_layers = 2;
    o.n_embd = 8;
    o.n_heads = 2;
    o.n_ff = 8;
    static const char *const mixtures[] = {
        "qwen3moe",   "gpt-oss",      "nemotron_h_moe", "lfm2moe",  "glm4moe",   "dots1",
        "minimax-m2", "ernie4_5-moe", "hunyuan-moe",    "qwen2moe", "olmoe",     "granitemoe",
        "phimoe",     "llama4",       "deepseek2",      "mistral4", "qwen3next", "qwen35moe"};
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++)
        if (strcmp(architecture, mixtures[i]) == 0)
            o.n_experts = 4;
    if (strstr(architecture, "nemotron_h") || strcmp(architecture, "gemma3n") == 0 ||
        strcmp(architecture, "gemma4") == 0)
        o.n_layers = 3; /* one of each kind */
    return o;
}

/* ---- Weights --------------------------------------------------------------------------------- */

/* How the values of a tensor are made, packed into the pointer that the writer hands back. */
enum { IS_NORM = 1, IS_F16 = 2, IS_RATE = 4, IS_ZERO = 8, IS_ONE = 16, SEED_SHIFT = 5 };

/* A number in [-1, 1) that depends on the seed and the index only. */
static float noise(uint32_t seed, uint64_t i)
{
    uint64_t x = (seed * 0x9E3779B97F4A7C15u) ^ (i * 0xD1B54A32D192ED03u + 1);
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 32;
    return (float)(x >> 40) / (float)(1 << 23) - 1.0f;
}

/* To half precision by cutting; the values here are normal or zero. */
static uint16_t to_half(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xFF;
    if (exponent < 113)
        return (uint16_t)sign;
    return (uint16_t)(sign | (exponent - 112) << 10 | (bits >> 13 & 0x3FF));
}

static lace_status make_weights(void *user, uint64_t offset, void *out, size_t n_bytes,
                                lace_error *err)
{
    uintptr_t how = (uintptr_t)user;
    size_t width = how & IS_F16 ? 2 : 4;
    uint8_t *bytes = out;
    for (size_t i = 0; i < n_bytes / width; i++) {
        float x = noise((uint32_t)(how >> SEED_SHIFT), offset / width + i);
        /* Norms around 1, rates of forgetting below 0, matrices that keep activations near 1. */
        x = how & IS_RATE ? -0.1f - 0.1f * (x + 1) : how & IS_NORM ? 1 + 0.1f * x : 0.4f * x;
        x = how & IS_ZERO ? 0 : how & IS_ONE ? 1 : x;
        uint16_t half = to_half(x);
        memcpy(bytes + i * width, how & IS_F16 ? (void *)&half : (void *)&x, width);
    }
    return LACE_OK;
}

/* Of a model of bigrams: what layers add is nothing, and a token is predicted from alone. */
static uintptr_t bigram_bits(const tiny_options *o, const char *name)
{
    static const char *const zeros[] = {"attn_output.weight", "ssm_out.weight", "ffn_down"};
    for (size_t i = 0; o->is_bigram && i < sizeof zeros / sizeof *zeros; i++)
        if (strstr(name, zeros[i]))
            return IS_ZERO;
    return o->is_bigram && strstr(name, "nextn.enorm") ? IS_ONE : 0;
}

/*
 * n_of matrices (0: one) of n_in columns and n_out rows, or a norm if n_out is 0. Failures stay in
 * the writer.
 */
static void add_some(maker *m, const char *name, int n_in, int n_out, int n_of)
{
    bool is_norm = n_out == 0, is_router = strstr(name, "gate_inp") != NULL;
    bool is_f16 = !is_norm && !is_router && m->o->type == DTYPE_F16;
    shape s = {.n_dims = is_norm ? 1
                         : n_of  ? 3
                                 : 2,
               .dims = {n_in, is_norm ? 1 : n_out, n_of ? n_of : 1, 1}};
    uintptr_t how = (uintptr_t)(m->o->seed * 1000u + m->n_made++) << SEED_SHIFT |
                    (is_norm ? IS_NORM : 0) | (is_f16 ? IS_F16 : 0) |
                    (strstr(name, "ssm_a") && is_norm ? IS_RATE : 0) | bigram_bits(m->o, name);
    gguf_writer_add_tensor_from(m->w, text_of(name), is_f16 ? DTYPE_F16 : DTYPE_F32, &s,
                                make_weights, (void *)how, NULL);
}

static void add(maker *m, const char *name, int n_in, int n_out)
{
    add_some(m, name, n_in, n_out, 0);
}

int tiny_parts_of(const char *architecture)
{
    static const struct {
        const char *name;
        int parts;
    } rows[] = {
        {"qwen2", HAS_BIASES},
        {"qwen3", HAS_HEAD_NORMS},
        {"qwen3moe", HAS_HEAD_NORMS},
        {"gemma2", HAS_POST_NORMS | HAS_WINDOW | HAS_SOFTCAPS},
        {"gemma3", HAS_POST_NORMS | HAS_HEAD_NORMS | HAS_WINDOW},
        {"gemma3n", HAS_POST_NORMS | HAS_HEAD_NORMS | HAS_WINDOW | HAS_SECOND | HAS_STREAMS},
        {"gemma4", HAS_POST_NORMS | HAS_HEAD_NORMS | HAS_WINDOW | HAS_SECOND | HAS_SHAPES},
        {"phi3", IS_JOINED},
        {"olmo2", HAS_POST_NORMS | LACKS_PRE_NORMS | HAS_WIDE_NORMS},
        {"gpt-oss", HAS_BIASES | HAS_OUTPUT_BIAS | HAS_SINKS | HAS_EXPERT_BIASES | HAS_WINDOW},
        {"granite", HAS_FACTORS},
        {"granitehybrid", HAS_FACTORS},
        {"lfm2", HAS_HEAD_NORMS},
        {"command-r", LACKS_FFN_NORM},
        {"cohere2", LACKS_FFN_NORM | HAS_WINDOW},
        {"seed_oss", HAS_BIASES | HAS_OTHER_NORM},
        {"exaone4", HAS_POST_NORMS | LACKS_PRE_NORMS | HAS_HEAD_NORMS | HAS_WINDOW},
        {"apertus", HAS_HEAD_NORMS | LACKS_GATE | HAS_XIELU},
        {"arcee", LACKS_GATE},
        {"starcoder2", HAS_BIASES | HAS_OUTPUT_BIAS | LACKS_GATE},
        {"gptneox", LACKS_GATE},
        {"nemotron", LACKS_GATE},
        {"falcon", LACKS_GATE | LACKS_FFN_NORM},
        {"gpt2", LACKS_GATE | HAS_POSITIONS},
        {"phi2", HAS_BIASES | LACKS_GATE | LACKS_FFN_NORM},
        {"glm4", HAS_BIASES | HAS_POST_NORMS},
        {"hunyuan-dense", HAS_HEAD_NORMS},
        {"lfm2moe", HAS_HEAD_NORMS},
        {"qwen35", HAS_HEAD_NORMS | HAS_DELTA},
        {"qwen3next", HAS_HEAD_NORMS | HAS_DELTA | HAS_SHARED_EXPERT | HAS_SHARED_ROUTER},
        {"qwen35moe", HAS_HEAD_NORMS | HAS_DELTA | HAS_SHARED_EXPERT | HAS_SHARED_ROUTER},
        {"bert", IS_ENCODER | HAS_LATE_NORMS | LACKS_PRE_NORMS | HAS_BIASES | HAS_OUTPUT_BIAS |
                     LACKS_GATE | HAS_POSITIONS | HAS_FFN_BIASES},
        {"nomic-bert", IS_ENCODER | HAS_LATE_NORMS | LACKS_PRE_NORMS},
        {"modern-bert", IS_ENCODER | IS_JOINED | HAS_WINDOW},
        {"deepseek2", HAS_CHOICE_BIAS | HAS_SHARED_EXPERT},
        {"mistral4", HAS_SHARED_EXPERT},
        {"glm4moe",
         HAS_BIASES | HAS_HEAD_NORMS | HAS_CHOICE_BIAS | HAS_SHARED_EXPERT | HAS_OTHER_NORM},
        {"dots1", HAS_HEAD_NORMS | HAS_CHOICE_BIAS | HAS_SHARED_EXPERT},
        {"minimax-m2", HAS_WIDE_NORMS | HAS_CHOICE_BIAS},
        {"ernie4_5-moe", HAS_CHOICE_BIAS | HAS_SHARED_EXPERT},
        {"hunyuan-moe", HAS_HEAD_NORMS | HAS_SHARED_EXPERT},
        {"qwen2moe", HAS_BIASES | HAS_SHARED_EXPERT | HAS_SHARED_ROUTER},
        {"olmoe", HAS_WIDE_NORMS},
        {"granitemoe", HAS_FACTORS},
        {"phimoe", HAS_BIASES | HAS_OUTPUT_BIAS | HAS_NORM_BIASES},
        {"llama4", HAS_SHARED_EXPERT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, architecture) == 0)
            return rows[i].parts;
    return 0;
}

/* A tensor of a layer; n_of as in add_some. */
static void add_part(maker *m, int layer, const char *name, int n_in, int n_out, int n_of)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    add_some(m, full, n_in, n_out, n_of);
}

/* A delta net: two heads of two values that share a key of four, behind two taps. */
static void add_delta_net(maker *m, int layer)
{
    enum { HEADS = 2, KEY = 4, VALUE = 2, TAPS = 2 };
    int n_embd = m->o->n_embd, width = 2 * KEY + HEADS * VALUE;
    add_part(m, layer, "attn_qkv.weight", n_embd, width, 0);
    add_part(m, layer, "attn_gate.weight", n_embd, HEADS * VALUE, 0);
    if (strcmp(m->o->architecture, "qwen3next") == 0) {
        add_part(m, layer, "ssm_ba.weight", n_embd, 2 * HEADS, 0);
    } else {
        add_part(m, layer, "ssm_alpha.weight", n_embd, HEADS, 0);
        add_part(m, layer, "ssm_beta.weight", n_embd, HEADS, 0);
    }
    add_part(m, layer, "ssm_conv1d.weight", TAPS, width, 0);
    add_part(m, layer, "ssm_a", HEADS, 0, 0);
    add_part(m, layer, "ssm_dt.bias", HEADS, 0, 0);
    add_part(m, layer, "ssm_norm.weight", VALUE, 0, 0);
    add_part(m, layer, "ssm_out.weight", HEADS * VALUE, n_embd, 0);
}

static void add_attention(maker *m, int layer, int parts)
{
    const tiny_options *o = m->o;
    int head_dim = o->n_embd / o->n_heads, norm = parts & HAS_HEAD_NORMS ? 1 : 0;
    if (parts & HAS_SHAPES && layer == 0)
        head_dim *= 2;
    int n_q = o->n_heads * head_dim, n_kv = o->n_kv_heads * head_dim;
    if (!(parts & LACKS_PRE_NORMS))
        add_part(m, layer, "attn_norm.weight", o->n_embd, 0, 0);
    if (parts & IS_JOINED) {
        add_part(m, layer, "attn_qkv.weight", o->n_embd, n_q + 2 * n_kv, 0);
    } else {
        add_part(m, layer, "attn_q.weight", o->n_embd, parts & HAS_DELTA ? 2 * n_q : n_q, 0);
        add_part(m, layer, "attn_k.weight", o->n_embd, n_kv, 0);
        if (!(parts & HAS_SHAPES) || layer != 1)
            add_part(m, layer, "attn_v.weight", o->n_embd, n_kv, 0);
    }
    add_part(m, layer, "attn_output.weight", n_q, o->n_embd, 0);
    if (parts & HAS_BIASES) {
        add_part(m, layer, "attn_q.bias", n_q, 0, 0);
        add_part(m, layer, "attn_k.bias", n_kv, 0, 0);
        add_part(m, layer, "attn_v.bias", n_kv, 0, 0);
    }
    if (parts & HAS_OUTPUT_BIAS)
        add_part(m, layer, "attn_output.bias", o->n_embd, 0, 0);
    if (parts & HAS_SINKS)
        add_part(m, layer, "attn_sinks.weight", o->n_heads, 0, 0);
    if (parts & (HAS_HEAD_NORMS | HAS_WIDE_NORMS)) {
        add_part(m, layer, "attn_q_norm.weight", norm ? head_dim : n_q, 0, 0);
        add_part(m, layer, "attn_k_norm.weight", norm ? head_dim : n_kv, 0, 0);
    }
    if (parts & HAS_NORM_BIASES)
        add_part(m, layer, "attn_norm.bias", o->n_embd, 0, 0);
    if (parts & (HAS_POST_NORMS | HAS_SINKS | HAS_OTHER_NORM))
        add_part(m, layer, "post_attention_norm.weight", o->n_embd, 0, 0);
}

/* The rotated part of a head is as long as a head of others. */
static void add_latent_attention(maker *m, int layer)
{
    const tiny_options *o = m->o;
    int turned = o->n_embd / o->n_heads;
    add_part(m, layer, "attn_norm.weight", o->n_embd, 0, 0);
    add_part(m, layer, "attn_q_a.weight", o->n_embd, Q_RANK, 0);
    add_part(m, layer, "attn_q_a_norm.weight", Q_RANK, 0, 0);
    add_part(m, layer, "attn_q_b.weight", Q_RANK, o->n_heads * (NOPE_DIM + turned), 0);
    add_part(m, layer, "attn_kv_a_mqa.weight", o->n_embd, KV_RANK + turned, 0);
    add_part(m, layer, "attn_kv_a_norm.weight", KV_RANK, 0, 0);
    add_part(m, layer, "attn_k_b.weight", NOPE_DIM, KV_RANK, o->n_heads);
    add_part(m, layer, "attn_v_b.weight", KV_RANK, LATENT_V_DIM, o->n_heads);
    add_part(m, layer, "attn_output.weight", o->n_heads * LATENT_V_DIM, o->n_embd, 0);
}

static void add_expert_biases(maker *m, int layer)
{
    const tiny_options *o = m->o;
    add_part(m, layer, "ffn_gate_inp.bias", o->n_experts, 0, 0);
    add_part(m, layer, "ffn_gate_exps.bias", o->n_ff, o->n_experts, 0);
    add_part(m, layer, "ffn_up_exps.bias", o->n_ff, o->n_experts, 0);
    add_part(m, layer, "ffn_down_exps.bias", o->n_embd, o->n_experts, 0);
}

static void add_late_norms(maker *m, int layer)
{
    static const char *const names[] = {"attn_output_norm.weight", "attn_output_norm.bias",
                                        "layer_output_norm.weight", "layer_output_norm.bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_part(m, layer, names[i], m->o->n_embd, 0, 0);
}

/* What encoders have outside of layers. */
static void add_encoder_ends(maker *m, int parts)
{
    const tiny_options *o = m->o;
    add(m, "token_embd_norm.weight", o->n_embd, 0);
    if (parts & HAS_LATE_NORMS) {
        add(m, "token_embd_norm.bias", o->n_embd, 0);
        add(m, "token_types.weight", o->n_embd, 2);
    } else {
        add(m, "output_norm.weight", o->n_embd, 0);
    }
    if (parts & HAS_POSITIONS) {
        add(m, "cls.weight", o->n_embd, o->n_embd);
        add(m, "cls.bias", o->n_embd, 0);
        add(m, "cls.output.weight", o->n_embd, 1);
        add(m, "cls.output.bias", 1, 0);
    }
}

static void add_shared_expert(maker *m, int layer, int parts)
{
    const tiny_options *o = m->o;
    int n_ff = o->n_ff_shared ? o->n_ff_shared : o->n_ff / 2;
    add_part(m, layer, "ffn_gate_shexp.weight", o->n_embd, n_ff, 0);
    add_part(m, layer, "ffn_up_shexp.weight", o->n_embd, n_ff, 0);
    add_part(m, layer, "ffn_down_shexp.weight", n_ff, o->n_embd, 0);
    if (parts & HAS_SHARED_ROUTER)
        add_part(m, layer, "ffn_gate_inp_shexp.weight", o->n_embd, 1, 0);
}

/* ---- A second embedding and streams ---------------------------------------------------------- */

static void add_second(maker *m, int layer, int parts)
{
    int n = m->o->n_embd;
    add_part(m, layer, "inp_gate.weight", n, N_SECOND, 0);
    add_part(m, layer, "proj.weight", N_SECOND, n, 0);
    add_part(m, layer, "post_norm.weight", n, 0, 0);
    if (parts & HAS_SHAPES)
        add_part(m, layer, "layer_output_scale.weight", 1, 0, 0);
    if (!(parts & HAS_STREAMS))
        return;
    add_part(m, layer, "altup_router_norm.weight", n, 0, 0);
    add_part(m, layer, "altup_router.weight", n, N_STREAMS, 0);
    add_part(m, layer, "altup_predict_coef.weight", N_STREAMS, N_STREAMS * N_STREAMS, 0);
    add_part(m, layer, "altup_correct_coef.weight", N_STREAMS, N_STREAMS, 0);
    add_part(m, layer, "altup_correct_scale.weight", n, 0, 0);
    add_part(m, layer, "laurel_l.weight", n, LOW_RANK, 0);
    add_part(m, layer, "laurel_r.weight", LOW_RANK, n, 0);
    add_part(m, layer, "laurel_post_norm.weight", n, 0, 0);
}

static void add_second_ends(maker *m, int parts)
{
    int n = m->o->n_embd, width = m->o->n_layers * N_SECOND;
    if (parts & HAS_SECOND) {
        add_some(m, "per_layer_token_embd.weight", width, m->o->n_vocab, 0);
        add_some(m, "per_layer_model_proj.weight", n, width, 0);
        add_some(m, "per_layer_proj_norm.weight", N_SECOND, 0, 0);
    }
    if (parts & HAS_STREAMS) {
        add_some(m, "altup_proj.weight", n, n, N_STREAMS - 1);
        add_some(m, "altup_unembd_proj.weight", n, n, N_STREAMS - 1);
    }
}

/* ---- Layers with a state space or a short convolution ---------------------------------------- */

const char *tiny_kinds_of(const char *architecture)
{
    static const struct {
        const char *name, *kinds;
    } rows[] = {{"mamba2", "MM"},          {"granitehybrid", "M*"}, {"nemotron_h", "M-*"},
                {"nemotron_h_moe", "M-*"}, {"falcon-h1", "HH"},     {"lfm2", "C*"},
                {"lfm2moe", "C*"},         {"qwen35", "D*"},        {"qwen3next", "D*"},
                {"qwen35moe", "D*"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, architecture) == 0)
            return rows[i].kinds;
    return NULL;
}

static void add_state_space(maker *m, int layer)
{
    int n = m->o->n_embd, inner = 2 * n, conv = inner + 2 * N_GROUPS * N_STATE;
    add_part(m, layer, "ssm_in.weight", n, inner + conv + N_STATE_HEADS, 0);
    add_part(m, layer, "ssm_out.weight", inner, n, 0);
    add_part(m, layer, "ssm_conv1d.weight", N_TAPS * conv, 0, 0);
    add_part(m, layer, "ssm_conv1d.bias", conv, 0, 0);
    add_part(m, layer, "ssm_a", N_STATE_HEADS, 0, 0);
    add_part(m, layer, "ssm_d", N_STATE_HEADS, 0, 0);
    add_part(m, layer, "ssm_dt.bias", N_STATE_HEADS, 0, 0);
    add_part(m, layer, "ssm_norm.weight", inner, 0, 0);
}

static void add_short_conv(maker *m, int layer)
{
    int n = m->o->n_embd;
    add_part(m, layer, "shortconv.in_proj.weight", n, 3 * n, 0);
    add_part(m, layer, "shortconv.out_proj.weight", n, n, 0);
    add_part(m, layer, "shortconv.conv.weight", N_TAPS * n, 0, 0);
}

/* Nemotron's: no gate, and a narrower width for experts. */
static void add_squared(maker *m, int layer, bool has_experts)
{
    int n = m->o->n_embd, n_ff = m->o->n_ff, latent = n / 2;
    if (!has_experts) {
        add_part(m, layer, "ffn_up.weight", n, n_ff, 0);
        add_part(m, layer, "ffn_down.weight", n_ff, n, 0);
        return;
    }
    add_part(m, layer, "ffn_gate_inp.weight", n, m->o->n_experts, 0);
    add_part(m, layer, "exp_probs_b.bias", m->o->n_experts, 0, 0);
    add_part(m, layer, "ffn_latent_down.weight", n, latent, 0);
    add_part(m, layer, "ffn_latent_up.weight", latent, n, 0);
    add_part(m, layer, "ffn_up_exps.weight", latent, n_ff, m->o->n_experts);
    add_part(m, layer, "ffn_down_exps.weight", n_ff, latent, m->o->n_experts);
    add_part(m, layer, "ffn_up_shexp.weight", n, n_ff, 0);
    add_part(m, layer, "ffn_down_shexp.weight", n_ff, n, 0);
}

/* What stands in the place of attention. Returns whether the layer's feed-forward part is to come. */
static bool add_mixer(maker *m, int layer, int parts)
{
    const char *architecture = m->o->architecture, *kinds = tiny_kinds_of(architecture);
    char kind = kinds && layer < m->o->n_layers ? kinds[(size_t)layer % strlen(kinds)] : '*';
    if (tiny_is_latent(architecture))
        add_latent_attention(m, layer);
    else if (kind == '*' || kind == 'H')
        add_attention(m, layer, parts);
    else
        add_part(m, layer, "attn_norm.weight", m->o->n_embd, 0, 0);
    if (kind == 'M' || kind == 'H')
        add_state_space(m, layer);
    if (kind == 'C')
        add_short_conv(m, layer);
    if (kind == 'D')
        add_delta_net(m, layer);
    if (kind == '-')
        add_squared(m, layer, m->o->n_experts > 0);
    return !kinds || (strcmp(architecture, "mamba2") != 0 && !strstr(architecture, "nemotron"));
}

static void add_layer(maker *m, int layer)
{
    const tiny_options *o = m->o;
    int parts = tiny_parts_of(o->architecture), n = o->n_experts;
    if (!add_mixer(m, layer, parts))
        return;
    if (layer == 0 && (strcmp(o->architecture, "lfm2moe") == 0 ||
                       strcmp(o->architecture, "glm4moe") == 0 || tiny_is_latent(o->architecture)))
        n = 0;
    if (parts & HAS_DELTA)
        add_part(m, layer, "post_attention_norm.weight", o->n_embd, 0, 0);
    else if (!(parts & (LACKS_PRE_NORMS | HAS_SINKS | LACKS_FFN_NORM | HAS_OTHER_NORM)))
        add_part(m, layer,
                 strcmp(o->architecture, "falcon-h1") == 0 ? "ffn_norm" : "ffn_norm.weight",
                 o->n_embd, 0, 0);
    if (parts & HAS_LATE_NORMS)
        add_late_norms(m, layer);
    if (parts & HAS_FFN_BIASES) {
        add_part(m, layer, "ffn_up.bias", o->n_ff, 0, 0);
        add_part(m, layer, "ffn_down.bias", o->n_embd, 0, 0);
    }
    if (parts & IS_JOINED) {
        add_part(m, layer, "ffn_up.weight", o->n_embd, 2 * o->n_ff, 0);
    } else {
        if (!(parts & LACKS_GATE))
            add_part(m, layer, n ? "ffn_gate_exps.weight" : "ffn_gate.weight", o->n_embd, o->n_ff,
                     n);
        add_part(m, layer, n ? "ffn_up_exps.weight" : "ffn_up.weight", o->n_embd, o->n_ff, n);
    }
    add_part(m, layer, n ? "ffn_down_exps.weight" : "ffn_down.weight", o->n_ff, o->n_embd, n);
    if (n)
        add_part(m, layer, "ffn_gate_inp.weight", o->n_embd, n, 0);
    if (n && parts & HAS_EXPERT_BIASES)
        add_expert_biases(m, layer);
    if (n && parts & HAS_CHOICE_BIAS)
        add_part(m, layer, "exp_probs_b.bias", n, 0, 0);
    if (n && parts & HAS_SHARED_EXPERT)
        add_shared_expert(m, layer, parts);
    if (parts & HAS_NORM_BIASES)
        add_part(m, layer, "ffn_norm.bias", o->n_embd, 0, 0);
    if (parts & HAS_POST_NORMS)
        add_part(m, layer, "post_ffw_norm.weight", o->n_embd, 0, 0);
    if (parts & HAS_SECOND)
        add_second(m, layer, parts);
}

/* A matrix that takes the first half of a row: of a token and a hidden row, the token. */
static lace_status make_first_half(void *user, uint64_t offset, void *out, size_t n_bytes,
                                   lace_error *err)
{
    const uint64_t width = 2 * (uint64_t)(uintptr_t)user;
    float *x = out;
    for (size_t i = 0; i < n_bytes / 4; i++) {
        uint64_t at = offset / 4 + i;
        x[i] = at / width == at % width;
    }
    return LACE_OK;
}

/* A layer that predicts further tokens. */
static void add_predicting(maker *m, int layer)
{
    const tiny_options *o = m->o;
    char name[64];
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", layer);
    if (o->is_bigram)
        gguf_writer_add_tensor_from(m->w, text_of(name), DTYPE_F32,
                                    &(shape){2, {2 * o->n_embd, o->n_embd, 1, 1}}, make_first_half,
                                    (void *)(uintptr_t)o->n_embd, NULL);
    else
        add(m, name, 2 * o->n_embd, o->n_embd);
    add_part(m, layer, "nextn.enorm.weight", o->n_embd, 0, 0);
    add_part(m, layer, "nextn.hnorm.weight", o->n_embd, 0, 0);
    if (!o->is_bigram)
        add_part(m, layer, "nextn.shared_head_norm.weight", o->n_embd, 0, 0);
    add_layer(m, layer);
}

lace_status tiny_model_create(const tiny_options *options, gguf_writer **out, lace_error *err)
{
    TRY(gguf_writer_create(out, err));
    maker m = {*out, options, 0};
    gguf_writer_set_alignment(m.w, options->alignment, NULL);
    tiny_add_config(&m);
    tiny_add_vocab(&m);
    add(&m, "token_embd.weight", options->n_embd, options->n_vocab);
    if (tiny_parts_of(options->architecture) & HAS_POSITIONS)
        add(&m, "position_embd.weight", options->n_embd, options->n_context);
    add_second_ends(&m, tiny_parts_of(options->architecture));
    for (int i = 0; i < options->n_layers; i++)
        add_layer(&m, i);
    int parts = tiny_parts_of(options->architecture);
    if (parts & IS_ENCODER) {
        add_encoder_ends(&m, parts);
        return LACE_OK;
    }
    bool is_lfm2 = strncmp(options->architecture, "lfm2", 4) == 0;
    add(&m, is_lfm2 ? "token_embd_norm.weight" : "output_norm.weight", options->n_embd, 0);
    if (tiny_parts_of(options->architecture) & HAS_NORM_BIASES)
        add(&m, "output_norm.bias", options->n_embd, 0);
    if (!options->is_tied)
        add(&m, "output.weight", options->n_embd, options->n_vocab);
    for (int i = 0; i < options->n_predicting; i++)
        add_predicting(&m, options->n_layers + i);
    return LACE_OK;
}

lace_status tiny_model_build(const tiny_options *options, buf *out, lace_error *err)
{
    gguf_writer *w = NULL;
    TRY(tiny_model_create(options, &w, err));
    lace_status status = gguf_writer_to_buf(w, out, err);
    gguf_writer_free(w);
    return status;
}

buf tiny_model_bytes(tiny_options options)
{
    buf b;
    lace_error err;
    buf_init(&b, 1 << 24);
    if (!CHECK(tiny_model_build(&options, &b, &err) == LACE_OK))
        tap_note("%s", err.text);
    return b;
}
