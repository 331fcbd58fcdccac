/* A small but complete model: its vocabulary and its keys. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiny_maker.h"

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

void tiny_add_vocab(maker *m)
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
    const char *kinds = tiny_kinds_of(o->architecture);
    int32_t heads[64] = {0}, widths[64] = {0};
    bool has_one_part = strstr(o->architecture, "nemotron") != NULL;
    bool is_mamba = strcmp(o->architecture, "mamba2") == 0;
    for (int i = 0; kinds && i < o->n_layers && i < 64; i++) {
        char kind = kinds[(size_t)i % strlen(kinds)];
        heads[i] = kind == '*' || kind == 'H' ? o->n_kv_heads : 0;
        widths[i] = kind == '-' || !has_one_part ? o->n_ff : 0;
    }
    put_int(m, "attention.head_count", is_mamba ? 0 : o->n_heads);
    bool is_delta = tiny_parts_of(o->architecture) & HAS_DELTA;
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

void tiny_add_config(maker *m)
{
    const tiny_options *o = m->o;
    int parts = tiny_parts_of(o->architecture);
    gguf_writer_add_text(m->w, "general.architecture", text_of(o->architecture), NULL);
    gguf_writer_add_text(m->w, "general.name", text_of("tiny"), NULL);
    put_int(m, "block_count", o->n_layers + o->n_predicting);
    if (o->n_predicting)
        put_int(m, "nextn_predict_layers", o->n_predicting);
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
    if (tiny_is_latent(o->architecture))
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
