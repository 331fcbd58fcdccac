/* A small but complete model. */
#include "tiny_model.h"

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

/* Latent attention, experts behind a dense layer, and one that every token goes through. */
static bool is_latent(const char *architecture)
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
enum { IS_NORM = 1, IS_F16 = 2, IS_RATE = 4, SEED_SHIFT = 3 };

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
        uint16_t half = to_half(x);
        memcpy(bytes + i * width, how & IS_F16 ? (void *)&half : (void *)&x, width);
    }
    return LACE_OK;
}

typedef struct maker {
    gguf_writer *w;
    const tiny_options *o;
    uint32_t n_made;
} maker;

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
                    (strstr(name, "ssm_a") && is_norm ? IS_RATE : 0);
    gguf_writer_add_tensor_from(m->w, text_of(name), is_f16 ? DTYPE_F16 : DTYPE_F32, &s,
                                make_weights, (void *)how, NULL);
}

static void add(maker *m, const char *name, int n_in, int n_out)
{
    add_some(m, name, n_in, n_out, 0);
}

/* What the layers of an architecture have beside or instead of llama's. */
enum {
    HAS_BIASES = 1,          /* q, k, v */
    HAS_HEAD_NORMS = 2,      /* q, k, each head */
    HAS_WIDE_NORMS = 4,      /* q, k, all heads */
    HAS_POST_NORMS = 8,      /* after attention and feed-forward */
    LACKS_PRE_NORMS = 16,    /* before them */
    IS_JOINED = 32,          /* q, k, v and gate, up in one tensor each */
    HAS_SINKS = 64,          /* and the norm before the experts under another name */
    HAS_OUTPUT_BIAS = 128,   /* of attention */
    HAS_EXPERT_BIASES = 256, /* and of the router */
    HAS_WINDOW = 512,
    HAS_SOFTCAPS = 1024,
    HAS_FACTORS = 2048,
    LACKS_GATE = 1 << 12,     /* of the feed-forward part */
    LACKS_FFN_NORM = 1 << 13, /* one norm for both parts */
    HAS_POSITIONS = 1 << 14,  /* learned ones */
    HAS_XIELU = 1 << 15,
    HAS_OTHER_NORM = 1 << 16, /* the norm before the feed-forward part has another name */
    HAS_DELTA = 1 << 24,      /* every other layer is a delta net's; attention is gated */
    IS_ENCODER = 1 << 17,     /* without output matrix */
    HAS_LATE_NORMS = 1 << 18, /* of what attention and feed-forward were added to, with biases */
    HAS_FFN_BIASES = 1 << 19,
    HAS_CHOICE_BIAS = 1 << 20, /* of the router */
    HAS_SHARED_EXPERT = 1 << 21,
    HAS_SHARED_ROUTER = 1 << 22,
    HAS_NORM_BIASES = 1 << 23,
    HAS_SECOND = 1 << 25,  /* a second embedding; the first layer is local, two others are not */
    HAS_SHAPES = 1 << 26,  /* larger heads in local layers; the second layer has no v */
    HAS_STREAMS = 1 << 27, /* two residual streams, and gates that are cut off */
};

static int parts_of(const char *architecture)
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

enum { Q_RANK = 4, KV_RANK = 4, NOPE_DIM = 4, LATENT_V_DIM = 6 };

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
    int n_ff = o->n_ff / 2;
    add_part(m, layer, "ffn_gate_shexp.weight", o->n_embd, n_ff, 0);
    add_part(m, layer, "ffn_up_shexp.weight", o->n_embd, n_ff, 0);
    add_part(m, layer, "ffn_down_shexp.weight", n_ff, o->n_embd, 0);
    if (parts & HAS_SHARED_ROUTER)
        add_part(m, layer, "ffn_gate_inp_shexp.weight", o->n_embd, 1, 0);
}

/* ---- A second embedding and streams ---------------------------------------------------------- */

enum { N_SECOND = 4, N_STREAMS = 2, LOW_RANK = 2 };

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

enum { N_TAPS = 3, N_STATE = 2, N_GROUPS = 2, N_STATE_HEADS = 4 };

/* What the layers of an architecture are, by letters: M state space, C convolution, * attention, -
 * feed-forward, H the first three at once; NULL: all have attention and feed-forward parts. */
static const char *kinds_of(const char *architecture)
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
    const char *architecture = m->o->architecture, *kinds = kinds_of(architecture);
    char kind = kinds ? kinds[(size_t)layer % strlen(kinds)] : '*';
    if (is_latent(architecture))
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
    int parts = parts_of(o->architecture), n = o->n_experts;
    if (!add_mixer(m, layer, parts))
        return;
    if (layer == 0 && (strcmp(o->architecture, "lfm2moe") == 0 ||
                       strcmp(o->architecture, "glm4moe") == 0 || is_latent(o->architecture)))
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

/* ---- Vocabulary ------------------------------------------------------------------------------ */

enum { N_SPECIAL = 3, N_BYTES = 256, TOKEN_BYTES = 16 };

/* Types of tokens in GGUF files. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_BYTE = 6 };

/* The pieces, best first: "\342\226\201" is the mark that stands for a space. */
/* clang-format off */
static const char *const pieces[] = {
    "\342\226\201", "e", "t", "a", "o", "n", "i", "s", "h", "r", "d", "l", "u", "c", "m", "w", "f",
    "g", "y", "p", "b", "v", "k", ".", ",", "x", "j", "q", "z", "0", "1", "2", "3",
    "he", "th", "in", "er", "an", "re", "on", "the", "nd", "ing", "and", "or", "en", "ed", "it", "is",
    "ou", "at", "es", "\342\226\201t", "\342\226\201a", "\342\226\201the", "\342\226\201s",
    "\342\226\201w", "\342\226\201o", "\342\226\201h", "\342\226\201i", "\303\251",
};
/* clang-format on */

static void add_vocab(maker *m)
{
    int n = m->o->n_vocab, n_pieces = (int)(sizeof pieces / sizeof pieces[0]);
    /* Few tokens: half of what the special ones leave is for bytes. */
    int n_bytes = n >= N_SPECIAL + N_BYTES + 1 ? N_BYTES : (n - N_SPECIAL) / 2;
    char(*names)[TOKEN_BYTES] = calloc((size_t)n, sizeof *names);
    text *tokens = calloc((size_t)n, sizeof *tokens);
    float *scores = calloc((size_t)n, sizeof *scores);
    int32_t *types = calloc((size_t)n, sizeof *types);
    for (int i = 0; names && tokens && scores && types && i < n; i++) {
        static const char *const special[N_SPECIAL] = {"<unk>", "<s>", "</s>"};
        int piece = i - N_SPECIAL - n_bytes;
        types[i] = TOKEN_NORMAL;
        if (i < N_SPECIAL) {
            strcpy(names[i], special[i]);
            types[i] = i == 0 ? TOKEN_UNKNOWN : TOKEN_CONTROL;
        } else if (piece < 0) {
            snprintf(names[i], TOKEN_BYTES, "<0x%02X>", (unsigned)(i - N_SPECIAL) & 0xFF);
            types[i] = TOKEN_BYTE;
        } else if (piece < n_pieces) {
            strcpy(names[i], pieces[piece]);
            scores[i] = (float)-piece;
        } else {
            snprintf(names[i], TOKEN_BYTES, "w%d", piece);
            scores[i] = (float)-piece;
        }
        if (m->o->has_infill && i >= n - 3) {
            static const char *const words[3] = {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"};
            strcpy(names[i], words[i - (n - 3)]);
            types[i] = TOKEN_CONTROL;
        }
        tokens[i] = text_of(names[i]);
    }
    gguf_writer_add_text(m->w, "tokenizer.ggml.model", text_of("llama"), NULL);
    gguf_writer_add_texts(m->w, "tokenizer.ggml.tokens", tokens, (size_t)n, NULL);
    gguf_writer_add_array(m->w, "tokenizer.ggml.scores", GGUF_F32, scores, (size_t)n, NULL);
    gguf_writer_add_array(m->w, "tokenizer.ggml.token_type", GGUF_I32, types, (size_t)n, NULL);
    gguf_writer_add_int(m->w, "tokenizer.ggml.unknown_token_id", GGUF_U32, 0, NULL);
    gguf_writer_add_int(m->w, "tokenizer.ggml.bos_token_id", GGUF_U32, 1, NULL);
    gguf_writer_add_int(m->w, "tokenizer.ggml.eos_token_id", GGUF_U32, 2, NULL);
    gguf_writer_add_bool(m->w, "tokenizer.ggml.add_bos_token", true, NULL);
    free(names);
    free(tokens);
    free(scores);
    free(types);
}

/* ---------------------------------------------------------------------------------------------- */

static void put_int(maker *m, const char *name, int value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->architecture, name);
    gguf_writer_add_int(m->w, key, GGUF_U32, value, NULL);
}

static void put_float(maker *m, const char *name, double value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->architecture, name);
    gguf_writer_add_float(m->w, key, GGUF_F32, value, NULL);
}

static void put_array(maker *m, const char *name, const int32_t *values)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->architecture, name);
    gguf_writer_add_array(m->w, key, GGUF_I32, values, (size_t)m->o->n_layers, NULL);
}

/* Sizes that layers of different kinds have or lack. */
static void put_kinds(maker *m)
{
    const tiny_options *o = m->o;
    const char *kinds = kinds_of(o->architecture);
    int32_t heads[64] = {0}, widths[64] = {0};
    bool has_one_part = strstr(o->architecture, "nemotron") != NULL;
    bool is_mamba = strcmp(o->architecture, "mamba2") == 0;
    for (int i = 0; kinds && i < o->n_layers && i < 64; i++) {
        char kind = kinds[(size_t)i % strlen(kinds)];
        heads[i] = kind == '*' || kind == 'H' ? o->n_kv_heads : 0;
        widths[i] = kind == '-' || !has_one_part ? o->n_ff : 0;
    }
    put_int(m, "attention.head_count", is_mamba ? 0 : o->n_heads);
    bool is_delta = parts_of(o->architecture) & HAS_DELTA;
    if (!kinds || is_mamba || is_delta) {
        put_int(m, "attention.head_count_kv", is_mamba ? 0 : o->n_kv_heads);
        put_int(m, "feed_forward_length", is_mamba ? 0 : o->n_ff);
        if (!kinds || is_delta)
            return;
    } else {
        put_array(m, "attention.head_count_kv", heads);
        put_array(m, "feed_forward_length", widths);
    }
    if (strchr(kinds, 'C')) {
        put_int(m, "shortconv.l_cache", N_TAPS);
        return;
    }
    put_int(m, "ssm.conv_kernel", N_TAPS);
    put_int(m, "ssm.inner_size", 2 * o->n_embd);
    put_int(m, "ssm.state_size", N_STATE);
    put_int(m, "ssm.time_step_rank", N_STATE_HEADS);
    put_int(m, "ssm.group_count", N_GROUPS);
}

static void put_latent(maker *m)
{
    int turned = m->o->n_embd / m->o->n_heads;
    char key[96];
    put_int(m, "attention.key_length", KV_RANK + turned);
    put_int(m, "attention.value_length", KV_RANK);
    put_int(m, "attention.q_lora_rank", Q_RANK);
    put_int(m, "attention.kv_lora_rank", KV_RANK);
    put_int(m, "attention.key_length_mla", NOPE_DIM + turned);
    put_int(m, "attention.value_length_mla", LATENT_V_DIM);
    put_int(m, "leading_dense_block_count", 1);
    snprintf(key, sizeof key, "%s.expert_weights_norm", m->o->architecture);
    gguf_writer_add_bool(m->w, key, true, NULL);
}

/* Which layers are local, and what they have. */
static void put_shapes(maker *m, int parts)
{
    char key[96];
    uint8_t is_local[64] = {1};
    float cutoffs[64];
    for (int i = 0; i < 64; i++)
        cutoffs[i] = i == 1 ? 0.5f : -INFINITY;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", m->o->architecture);
    gguf_writer_add_array(m->w, key, GGUF_BOOL, is_local, (size_t)m->o->n_layers, NULL);
    put_int(m, "embedding_length_per_layer_input", N_SECOND);
    if (parts & HAS_SHAPES) {
        put_int(m, "attention.key_length_swa", 2 * m->o->n_embd / m->o->n_heads);
        put_int(m, "attention.value_length_swa", 2 * m->o->n_embd / m->o->n_heads);
    }
    if (parts & HAS_STREAMS) {
        put_int(m, "altup.num_inputs", N_STREAMS);
        snprintf(key, sizeof key, "%s.activation_sparsity_scale", m->o->architecture);
        gguf_writer_add_array(m->w, key, GGUF_F32, cutoffs, (size_t)m->o->n_layers, NULL);
    }
}

static void add_config(maker *m)
{
    const tiny_options *o = m->o;
    int parts = parts_of(o->architecture);
    gguf_writer_add_text(m->w, "general.architecture", text_of(o->architecture), NULL);
    gguf_writer_add_text(m->w, "general.name", text_of("tiny"), NULL);
    put_int(m, "block_count", o->n_layers);
    put_int(m, "context_length", o->n_context);
    put_int(m, "embedding_length", o->n_embd);
    put_kinds(m);
    if (strcmp(o->architecture, "mamba2") != 0)
        put_int(m, "rope.dimension_count", o->n_embd / o->n_heads);
    put_int(m, "vocab_size", o->n_vocab);
    if (o->n_experts) {
        put_int(m, "expert_count", o->n_experts);
        put_int(m, "expert_used_count", 2);
        if (strcmp(o->architecture, "nemotron_h_moe") == 0)
            put_int(m, "moe_latent_size", o->n_embd / 2);
        if (strcmp(o->architecture, "lfm2moe") == 0 || strcmp(o->architecture, "glm4moe") == 0) {
            put_int(m, "leading_dense_block_count", 1);
            put_int(m, "expert_gating_func", 2);
        }
    }
    if (is_latent(o->architecture))
        put_latent(m);
    put_float(m, "attention.layer_norm_rms_epsilon", 1e-5);
    put_float(m, "rope.freq_base", 10000);
    if (parts & HAS_WINDOW)
        put_int(m, "attention.sliding_window", 4);
    if (parts & HAS_XIELU) {
        static const float numbers[4][64] = {
            {0.5f, 0.2f}, {-1, -0.5f}, {0.5f, 0.4f}, {-1e-6f, -1e-6f}};
        static const char *const xielu[4] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta",
                                             "xielu.eps"};
        for (int i = 0; i < 4; i++)
            gguf_writer_add_array(m->w, xielu[i], GGUF_F32, numbers[i], (size_t)o->n_layers, NULL);
    }
    if (parts & HAS_SECOND)
        put_shapes(m, parts);
    if (parts & HAS_SOFTCAPS) {
        put_float(m, "attn_logit_softcapping", 50);
        put_float(m, "final_logit_softcapping", 30);
    }
    if (parts & HAS_DELTA) {
        put_int(m, "full_attention_interval", 2);
        put_int(m, "ssm.conv_kernel", 2);
        put_int(m, "ssm.state_size", 4);
        put_int(m, "ssm.group_count", 1);
        put_int(m, "ssm.time_step_rank", 2);
        put_int(m, "ssm.inner_size", 4);
    }
    if (parts & HAS_FACTORS) {
        put_float(m, "embedding_scale", 3);
        put_float(m, "residual_scale", 0.5);
        put_float(m, "logit_scale", 2);
        put_float(m, "attention.scale", 0.25);
    }
    if (parts & IS_ENCODER) {
        char key[96];
        snprintf(key, sizeof key, "%s.attention.causal", o->architecture);
        gguf_writer_add_bool(m->w, key, false, NULL);
    }
    if (parts & HAS_LATE_NORMS)
        gguf_writer_add_int(m->w, "tokenizer.ggml.token_type_count", GGUF_U32, 2, NULL);
}

lace_status tiny_model_create(const tiny_options *options, gguf_writer **out, lace_error *err)
{
    TRY(gguf_writer_create(out, err));
    maker m = {*out, options, 0};
    gguf_writer_set_alignment(m.w, options->alignment, NULL);
    add_config(&m);
    add_vocab(&m);
    add(&m, "token_embd.weight", options->n_embd, options->n_vocab);
    if (parts_of(options->architecture) & HAS_POSITIONS)
        add(&m, "position_embd.weight", options->n_embd, options->n_context);
    add_second_ends(&m, parts_of(options->architecture));
    for (int i = 0; i < options->n_layers; i++)
        add_layer(&m, i);
    int parts = parts_of(options->architecture);
    if (parts & IS_ENCODER) {
        add_encoder_ends(&m, parts);
        return LACE_OK;
    }
    bool is_lfm2 = strncmp(options->architecture, "lfm2", 4) == 0;
    add(&m, is_lfm2 ? "token_embd_norm.weight" : "output_norm.weight", options->n_embd, 0);
    if (parts_of(options->architecture) & HAS_NORM_BIASES)
        add(&m, "output_norm.bias", options->n_embd, 0);
    if (!options->is_tied)
        add(&m, "output.weight", options->n_embd, options->n_vocab);
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
