/* A small but complete llama model. */
#include "tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

tiny_options tiny_options_default(void)
{
    return (tiny_options){
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

/* ---- Weights --------------------------------------------------------------------------------- */

/* How the values of a tensor are made, packed into the pointer that the writer hands back. */
enum { IS_NORM = 1, IS_F16 = 2, SEED_SHIFT = 2 };

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
        /* Norms around 1, matrices of a size that keeps activations near 1. */
        x = how & IS_NORM ? 1 + 0.1f * x : 0.4f * x;
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
                    (is_norm ? IS_NORM : 0) | (is_f16 ? IS_F16 : 0);
    gguf_writer_add_tensor_from(m->w, text_of(name), is_f16 ? DTYPE_F16 : DTYPE_F32, &s,
                                make_weights, (void *)how, NULL);
}

static void add(maker *m, const char *name, int n_in, int n_out)
{
    add_some(m, name, n_in, n_out, 0);
}

static void add_layer(maker *m, int layer)
{
    const tiny_options *o = m->o;
    int head_dim = o->n_embd / o->n_heads;
    int n_q = o->n_heads * head_dim, n_kv = o->n_kv_heads * head_dim;
    const struct {
        const char *name;
        int n_in, n_out, is_of_experts;
    } tensors[] = {
        {"attn_norm", o->n_embd, 0, 0},      {"attn_q", o->n_embd, n_q, 0},
        {"attn_k", o->n_embd, n_kv, 0},      {"attn_v", o->n_embd, n_kv, 0},
        {"attn_output", n_q, o->n_embd, 0},  {"ffn_norm", o->n_embd, 0, 0},
        {"ffn_gate", o->n_embd, o->n_ff, 1}, {"ffn_up", o->n_embd, o->n_ff, 1},
        {"ffn_down", o->n_ff, o->n_embd, 1},
    };
    char name[64];
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        bool is_many = tensors[i].is_of_experts && o->n_experts;
        snprintf(name, sizeof name, "blk.%d.%s%s.weight", layer, tensors[i].name,
                 is_many ? "_exps" : "");
        add_some(m, name, tensors[i].n_in, tensors[i].n_out, is_many ? o->n_experts : 0);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
    if (o->n_experts)
        add(m, name, o->n_embd, o->n_experts);
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

static void add_config(maker *m)
{
    const tiny_options *o = m->o;
    const struct {
        const char *key;
        int value;
    } numbers[] = {
        {"llama.block_count", o->n_layers},
        {"llama.context_length", o->n_context},
        {"llama.embedding_length", o->n_embd},
        {"llama.feed_forward_length", o->n_ff},
        {"llama.attention.head_count", o->n_heads},
        {"llama.attention.head_count_kv", o->n_kv_heads},
        {"llama.rope.dimension_count", o->n_embd / o->n_heads},
        {"llama.vocab_size", o->n_vocab},
    };
    gguf_writer_add_text(m->w, "general.architecture", text_of("llama"), NULL);
    gguf_writer_add_text(m->w, "general.name", text_of("tiny"), NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        gguf_writer_add_int(m->w, numbers[i].key, GGUF_U32, numbers[i].value, NULL);
    if (o->n_experts) {
        gguf_writer_add_int(m->w, "llama.expert_count", GGUF_U32, o->n_experts, NULL);
        gguf_writer_add_int(m->w, "llama.expert_used_count", GGUF_U32, 2, NULL);
    }
    gguf_writer_add_float(m->w, "llama.attention.layer_norm_rms_epsilon", GGUF_F32, 1e-5, NULL);
    gguf_writer_add_float(m->w, "llama.rope.freq_base", GGUF_F32, 10000, NULL);
}

lace_status tiny_model_create(const tiny_options *options, gguf_writer **out, lace_error *err)
{
    TRY(gguf_writer_create(out, err));
    maker m = {*out, options, 0};
    gguf_writer_set_alignment(m.w, options->alignment, NULL);
    add_config(&m);
    add_vocab(&m);
    add(&m, "token_embd.weight", options->n_embd, options->n_vocab);
    for (int i = 0; i < options->n_layers; i++)
        add_layer(&m, i);
    add(&m, "output_norm.weight", options->n_embd, 0);
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
