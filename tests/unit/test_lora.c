/*
 * LoRA adapters: a model with them computes what the model with merged weights does. LACE_DEVICE=cuda
 * or vulkan: on that device, too.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/merge.h"
#include "golden_file.h"
#include "lace.h"
#include "lora_kit.h"
#include "named_device.h"
#include "scratch.h"
#include "tap.h"

/* f32 throughout; sums differ in their order. Cards multiply with activations of 15 bits. */
#define TOLERANCE      1e-9
#define CARD_TOLERANCE 1e-6

enum { N_TOKENS = 40, N_SEQUENCES = 5 };

static const char *const layer_words[] = {"blk.", NULL};
static const char *const all_words[] = {"blk.", "token_embd", "output", NULL};
static const char *const hf_words[] = {"_proj", "lm_head", "embed_tokens", NULL};
static const char *const hf_layer_words[] = {"_proj", NULL};

static lace_token token_at(int i)
{
    return 3 + (i * 37 + i * i) % 300;
}

static lace_model *open_model(const char *path, const char *device)
{
    lace_model_options o = lace_model_options_default();
    lace_model *m = NULL;
    lace_error err = {0};
    o.device = device;
    if (!CHECK(lace_model_open(path, &o, &m, &err) == LACE_OK))
        tap_note("%s", err.text);
    return m;
}

static lace_session *open_session(lace_model *m)
{
    lace_session_options o = lace_session_options_default();
    lace_session *s = NULL;
    lace_error err = {0};
    o.n_context = 64;
    o.n_sequences = N_SEQUENCES;
    o.n_outputs = N_SEQUENCES * N_TOKENS;
    o.n_batch = N_SEQUENCES * N_TOKENS;
    o.n_threads = 2;
    o.kv_type = LACE_KV_F32;
    if (m && !CHECK(lace_session_create(m, &o, &s, &err) == LACE_OK))
        tap_note("%s", err.text);
    return s;
}

static int32_t add(lace_model *m, const char *path, float scale)
{
    int32_t id = -1;
    lace_error err = {0};
    if (!CHECK(m && lace_model_add_adapter(m, path, scale, &id, &err) == LACE_OK))
        tap_note("%s", err.text);
    return id;
}

/* Logits of N_TOKENS tokens of one sequence, `at_once` of them in a batch. For free(). */
static float *logits_of(lace_session *s, int32_t sequence, int at_once, int n_vocab)
{
    float *out = calloc(N_TOKENS * (size_t)n_vocab, sizeof *out);
    lace_error err = {0};
    for (int i = 0; s && i < N_TOKENS; i += at_once) {
        lace_item items[N_TOKENS];
        for (int k = 0; k < at_once; k++)
            items[k] = (lace_item){token_at(i + k), sequence, true};
        if (!CHECK(lace_session_eval(s, items, (size_t)at_once, &err) == LACE_OK))
            tap_note("%s", err.text);
        for (int k = 0; k < at_once && lace_session_logits(s, (size_t)k); k++)
            memcpy(out + (size_t)((i + k) * n_vocab), lace_session_logits(s, (size_t)k),
                   (size_t)n_vocab * sizeof *out);
    }
    return out;
}

static int vocab_of(const lace_model *m)
{
    lace_model_info info;
    lace_model_describe(m, &info);
    return info.n_vocab;
}

/* The same of a model with merged weights. */
static float *merged_logits(const weights *files, const kit_use *uses, int n_uses, int n_vocab)
{
    buf bytes = kit_merge_gguf(files, uses, n_uses);
    lace_model *m = NULL;
    CHECK(lace_model_open_memory(bytes.data, bytes.size, "merged", NULL, &m, NULL) == LACE_OK);
    lace_session *s = open_session(m);
    float *out = logits_of(s, 0, N_TOKENS, n_vocab);
    lace_session_free(s);
    lace_model_close(m);
    buf_deinit(&bytes);
    return out;
}

static bool are_close(const float *found, const float *expected, int n_vocab)
{
    double error = nmse(found, expected, N_TOKENS * (size_t)n_vocab);
    if (error <= (named_device() ? CARD_TOLERANCE : TOLERANCE))
        return true;
    tap_note("nmse %g", error);
    return false;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

typedef struct form {
    const char *model, *architecture, *device;
    int rank;
    float alpha;
    dtype type;
    const char *const *words;
} form;

static void equals_merged(void *arg)
{
    const form *f = arg;
    static const float scales[] = {1, 0.37f};
    char *path = golden_path(f->model, "model.gguf");
    weights *files = NULL;
    kit_adapter k;
    scratch_create();
    const char *file = scratch_path("adapter.gguf");
    CHECK(path && weights_open(path, &files, NULL) == LACE_OK);
    kit_make(&k, files, f->words, f->rank, f->alpha, f->type, 7);
    kit_write_gguf(&k, f->architecture, file);
    for (int i = 0; i < 2; i++) {
        lace_model *m = open_model(path, f->device);
        CHECK(add(m, file, scales[i]) == 0); /* what texts use that are told nothing */
        int n_vocab = vocab_of(m);
        lace_session *s = open_session(m);
        float *want = merged_logits(files, &(kit_use){&k, scales[i]}, 1, n_vocab);
        float *whole = logits_of(s, 0, N_TOKENS, n_vocab);
        float *single = logits_of(s, 1, 1, n_vocab);
        CHECK(are_close(whole, want, n_vocab));
        CHECK(are_close(single, want, n_vocab));
        free(want);
        free(whole);
        free(single);
        lace_session_free(s);
        lace_model_close(m);
    }
    kit_free(&k);
    weights_close(files);
    scratch_remove();
    free(path);
}

static void merged_cases(void)
{
    static const form forms[] = {
        {"llama", "llama", "cpu", 1, 2, DTYPE_F32, all_words},
        {"llama", "llama", "cpu", 4, 8, DTYPE_F32, all_words},
        {"llama", "llama", "cpu", 7, 3, DTYPE_F16, layer_words},
        {"llama", "llama", "cpu", 64, 16, DTYPE_BF16, layer_words},
        {"llama", "llama", "ref", 5, 8, DTYPE_F32, all_words},
        {"llama", "llama", "ref:1", 5, 8, DTYPE_F32, all_words},
        {"qwen3", "qwen3", "cpu", 16, 16, DTYPE_F32, all_words},
        {"gemma2", "gemma2", "cpu", 3, 4, DTYPE_F32, layer_words},
        {"granite", "granite", "cpu", 8, 4, DTYPE_F32,
         all_words}, /* factors of residuals, logits */
        {"olmo2", "olmo2", "cpu", 8, 4, DTYPE_F32, layer_words},
        {"phi4-partial", "phi3", "cpu", 6, 12, DTYPE_F32, layer_words}, /* q, k, v in one tensor */
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *f = &forms[i];
        char name[128];
        form copy = *f;
        if (named_device() && strcmp(f->device, "cpu") == 0)
            copy.device = named_device();
        snprintf(name, sizeof name, "%s_%s_rank_%d_type_%d_equals_merged", f->model, copy.device,
                 f->rank, f->type);
        tap_case_arg(name, equals_merged, &copy);
    }
}

/* ---- Several at once ------------------------------------------------------------------------- */

enum { N_ADAPTERS = 3 };

/* Two adapters, none, a third with a scale below 0, and two at once: one of each in every batch. */
static const float mixes[N_SEQUENCES][N_ADAPTERS] = {
    {1, 0, 0}, {0, 0.37f, 0}, {0, 0, 0}, {0, 0, -0.5f}, {0.5f, 0, 2}};

static void set_mix(lace_session *s, int32_t sequence)
{
    lace_adapter_use uses[N_ADAPTERS];
    size_t n = 0;
    for (int32_t a = 0; a < N_ADAPTERS; a++)
        if (mixes[sequence][a] != 0)
            uses[n++] = (lace_adapter_use){a, mixes[sequence][a]};
    CHECK(lace_session_set_adapters(s, sequence, uses, n, NULL) == LACE_OK);
}

/* All sequences in each batch, token by token in turn; some tokens more than others at a time. */
static void eval_mixed(lace_session *s, float *out[N_SEQUENCES], int n_vocab)
{
    int done[N_SEQUENCES] = {0};
    for (bool goes_on = true; goes_on;) {
        lace_item items[N_SEQUENCES * N_TOKENS];
        int whose[N_SEQUENCES * N_TOKENS], position[N_SEQUENCES * N_TOKENS];
        size_t n = 0;
        goes_on = false;
        for (int i = 0; i < N_SEQUENCES; i++)
            for (int k = 0; k <= i && done[i] < N_TOKENS; k++) {
                whose[n] = i;
                position[n] = done[i];
                items[n++] = (lace_item){token_at(done[i]++), i, true};
                goes_on = true;
            }
        if (n == 0)
            break;
        CHECK(lace_session_eval(s, items, n, NULL) == LACE_OK);
        for (size_t k = 0; k < n; k++)
            memcpy(out[whose[k]] + (size_t)(position[k] * n_vocab), lace_session_logits(s, k),
                   (size_t)n_vocab * sizeof(float));
    }
}

static void mixed_batches_equal_merged_weights(void *arg)
{
    const char *device = arg;
    char *path = golden_path("llama", "model.gguf");
    weights *files = NULL;
    kit_adapter k[N_ADAPTERS];
    scratch_create();
    CHECK(path && weights_open(path, &files, NULL) == LACE_OK);
    lace_model *m = open_model(path, device), *plain = open_model(path, device);
    static const int ranks[N_ADAPTERS] = {8, 3, 17};
    for (int a = 0; a < N_ADAPTERS; a++) {
        char name[32];
        snprintf(name, sizeof name, "%d.gguf", a);
        kit_make(&k[a], files, a == 1 ? layer_words : all_words, ranks[a], 8, DTYPE_F32,
                 100 + (uint32_t)a);
        kit_write_gguf(&k[a], "llama", scratch_path(name));
        CHECK(add(m, scratch_path(name), 0) == a);
    }
    int n_vocab = vocab_of(m);
    lace_session *s = open_session(m), *base = open_session(plain);
    float *out[N_SEQUENCES];
    for (int32_t i = 0; i < N_SEQUENCES; i++) {
        out[i] = calloc(N_TOKENS * (size_t)n_vocab, sizeof(float));
        set_mix(s, i);
    }
    eval_mixed(s, out, n_vocab);
    for (int i = 0; i < N_SEQUENCES; i++) {
        kit_use uses[N_ADAPTERS];
        for (int a = 0; a < N_ADAPTERS; a++)
            uses[a] = (kit_use){&k[a], mixes[i][a]};
        float *want = merged_logits(files, uses, N_ADAPTERS, n_vocab);
        CHECK(are_close(out[i], want, n_vocab));
        free(want);
    }
    /* A text without adapters has the bits of a model without any, in the same batches. */
    float *same[N_SEQUENCES];
    for (int i = 0; i < N_SEQUENCES; i++)
        same[i] = calloc(N_TOKENS * (size_t)n_vocab, sizeof(float));
    eval_mixed(base, same, n_vocab);
    bool has_same_bits = memcmp(same[2], out[2], N_TOKENS * (size_t)n_vocab * sizeof(float)) == 0;
    /* Cards fuse other steps where those of adapters stand between them, and round elsewhere. */
    CHECK(has_same_bits || (named_device() && are_close(out[2], same[2], n_vocab)));
    CHECK(memcmp(same[0], out[0], N_TOKENS * (size_t)n_vocab * sizeof(float)) != 0);
    for (int i = 0; i < N_SEQUENCES; i++) {
        free(out[i]);
        free(same[i]);
    }
    lace_session_free(s);
    lace_session_free(base);
    lace_model_close(m);
    lace_model_close(plain);
    for (int a = 0; a < N_ADAPTERS; a++)
        kit_free(&k[a]);
    weights_close(files);
    scratch_remove();
    free(path);
}

static void sessions_refuse_what_cannot_be(void)
{
    char *path = golden_path("llama", "model.gguf");
    weights *files = NULL;
    kit_adapter k;
    lace_error err = {0};
    int32_t id;
    scratch_create();
    CHECK(weights_open(path, &files, NULL) == LACE_OK);
    kit_make(&k, files, layer_words, 2, 2, DTYPE_F32, 1);
    kit_write_gguf(&k, "llama", scratch_path("a.gguf"));
    lace_model *m = open_model(path, "cpu");
    CHECK(lace_model_add_adapter(m, scratch_path("a.gguf"), NAN, &id, &err) == LACE_E_ARG);
    CHECK(add(m, scratch_path("a.gguf"), 1) == 0);
    lace_adapter_info info;
    CHECK(lace_model_adapters(m, &info, 1) == 1);
    CHECK(info.rank == 2 && info.alpha == 2 && info.scale == 1 && strcmp(info.name, "a.gguf") == 0);
    lace_session *s = open_session(m);
    CHECK(lace_model_add_adapter(m, scratch_path("a.gguf"), 1, &id, &err) == LACE_E_ARG &&
          id == -1);
    lace_adapter_use use = {1, 1};
    CHECK(lace_session_set_adapters(s, 0, &use, 1, &err) == LACE_E_ARG);
    CHECK(strstr(err.text, "adapter 1"));
    use = (lace_adapter_use){0, INFINITY};
    CHECK(lace_session_set_adapters(s, 0, &use, 1, &err) == LACE_E_ARG);
    CHECK(lace_session_set_adapters(s, N_SEQUENCES, NULL, 0, &err) == LACE_E_ARG);
    lace_item item = {5, 0, true};
    CHECK(lace_session_eval(s, &item, 1, &err) == LACE_OK);
    CHECK(lace_session_set_adapters(s, 0, NULL, 0, &err) == LACE_E_ARG);
    CHECK(lace_session_truncate(s, 0, 0, &err) == LACE_OK);
    CHECK(lace_session_set_adapters(s, 0, NULL, 0, &err) == LACE_OK);
    lace_session_free(s);
    lace_model_close(m);
    CHECK(lace_model_open(scratch_path("a.gguf"), NULL, &m, &err) == LACE_E_META);
    CHECK(strstr(err.text, "is an adapter, no model"));
    kit_free(&k);
    weights_close(files);
    scratch_remove();
    free(path);
}

/* ---- PEFT ------------------------------------------------------------------------------------ */

/* Logits of a model with an adapter of scale 1. */
static float *adapted(const char *model, const char *adapter, int *n_vocab)
{
    lace_model *m = open_model(model, "cpu");
    add(m, adapter, 1);
    *n_vocab = vocab_of(m);
    lace_session *s = open_session(m);
    float *out = logits_of(s, 0, N_TOKENS, *n_vocab);
    lace_session_free(s);
    lace_model_close(m);
    return out;
}

static float *plain_logits(const char *model, int n_vocab)
{
    lace_model *m = open_model(model, "cpu");
    lace_session *s = open_session(m);
    float *out = logits_of(s, 0, N_TOKENS, n_vocab);
    lace_session_free(s);
    lace_model_close(m);
    return out;
}

/* An adapter of a directory fits the directory, and the GGUF file that was made of it. */
static void peft_equals_merged(void *arg)
{
    const char *model = arg;
    char *directory = golden_path(model, ""), *file = golden_path(model, "model.gguf");
    weights *files = NULL;
    kit_adapter k;
    int n_vocab = 0;
    scratch_create();
    CHECK(weights_open(directory, &files, NULL) == LACE_OK);
    /* Where the output matrix is the embedding again, merging would change both. */
    bool is_tied = !weights_find(files, "lm_head.weight");
    kit_make(&k, files, is_tied ? hf_layer_words : hf_words, 6, 9, DTYPE_F32, 3);
    kit_write_peft(&k, "\"use_rslora\": false, ", scratch_path("peft"));
    kit_merge_directory(directory, files, &(kit_use){&k, 1}, 1, scratch_path("merged"));
    float *of_directory = adapted(directory, scratch_path("peft"), &n_vocab);
    float *of_file = adapted(file, scratch_path("peft/adapter_model.safetensors"), &n_vocab);
    float *want = plain_logits(scratch_path("merged"), n_vocab);
    CHECK(are_close(of_directory, want, n_vocab));
    CHECK(are_close(of_file, want, n_vocab));
    free(of_directory);
    free(of_file);
    free(want);
    kit_free(&k);
    weights_close(files);
    kit_remove(scratch_path("peft"));
    kit_remove(scratch_path("merged"));
    scratch_remove();
    free(directory);
    free(file);
}

/* With rank-stabilized scaling, the factor is alpha / sqrt(rank); alphas may have patterns. */
static void peft_factors_are_those_of_its_config(void)
{
    char *directory = golden_path("llama", "");
    weights *files = NULL;
    kit_adapter k;
    int n_vocab = 0;
    scratch_create();
    CHECK(weights_open(directory, &files, NULL) == LACE_OK);
    kit_make(&k, files, hf_words, 4, 6, DTYPE_F32, 4);
    kit_write_peft(&k, "\"use_rslora\": true, ", scratch_path("peft"));
    kit_merge_directory(directory, files, &(kit_use){&k, 2}, 1, scratch_path("merged"));
    float *found = adapted(directory, scratch_path("peft"), &n_vocab);
    float *want = plain_logits(scratch_path("merged"), n_vocab);
    CHECK(are_close(found, want, n_vocab));
    free(found);
    free(want);
    kit_remove(scratch_path("peft"));
    kit_remove(scratch_path("merged"));
    kit_write_peft(&k, "\"alpha_pattern\": {\"q_proj\": 12, \"model.layers.1.mlp.up_proj\": 3}, ",
                   scratch_path("peft"));
    for (int i = 0; i < k.n_pairs; i++) {
        bool is_q = strstr(k.pairs[i].name, "q_proj") != NULL;
        bool is_up = strstr(k.pairs[i].name, "layers.1.mlp.up_proj") != NULL;
        for (int64_t j = 0; j < k.rank * k.pairs[i].n_out; j++)
            k.pairs[i].b[j] *= is_q ? 2.0f : is_up ? 0.5f : 1.0f;
    }
    kit_merge_directory(directory, files, &(kit_use){&k, 1}, 1, scratch_path("merged"));
    found = adapted(directory, scratch_path("peft"), &n_vocab);
    want = plain_logits(scratch_path("merged"), n_vocab);
    CHECK(are_close(found, want, n_vocab));
    free(found);
    free(want);
    kit_free(&k);
    weights_close(files);
    kit_remove(scratch_path("peft"));
    kit_remove(scratch_path("merged"));
    scratch_remove();
    free(directory);
}

/* An adapter that llama.cpp made, for the directory: rows of q and k are put back. */
static void gguf_adapter_fits_a_directory(void)
{
    char *directory = golden_path("llama", ""), *file = golden_path("llama", "model.gguf");
    weights *files = NULL;
    kit_adapter k;
    int n_vocab = 0;
    scratch_create();
    CHECK(weights_open(file, &files, NULL) == LACE_OK);
    kit_make(&k, files, all_words, 5, 5, DTYPE_F32, 5);
    kit_write_gguf(&k, "llama", scratch_path("a.gguf"));
    float *found = adapted(directory, scratch_path("a.gguf"), &n_vocab);
    float *want = merged_logits(files, &(kit_use){&k, 1}, 1, n_vocab);
    CHECK(are_close(found, want, n_vocab));
    free(found);
    free(want);
    kit_free(&k);
    weights_close(files);
    kit_remove(scratch_path("peft"));
    kit_remove(scratch_path("merged"));
    scratch_remove();
    free(directory);
    free(file);
}

/* ---- Merging --------------------------------------------------------------------------------- */

/* A merged file computes what the model with the adapter does. Where the output matrix is the
 * embedding again, both are written. */
static void merging_keeps_what_is_computed(void *arg)
{
    const char *model = arg;
    char *file = golden_path(model, "model.gguf");
    weights *files = NULL;
    kit_adapter k;
    merge_result made;
    lace_error err = {0};
    int n_vocab = 0;
    scratch_create();
    CHECK(weights_open(file, &files, NULL) == LACE_OK);
    kit_make(&k, files, all_words, 5, 5, DTYPE_F32, 8);
    kit_write_gguf(&k, model, scratch_path("a.gguf"));
    if (!CHECK(merge_adapter(file, scratch_path("a.gguf"), scratch_path("m.gguf"), NULL, &made,
                             &err) == LACE_OK))
        tap_note("%s", err.text);
    CHECK((int)made.n_merged == k.n_pairs);
    float *want = adapted(file, scratch_path("a.gguf"), &n_vocab);
    float *found = plain_logits(scratch_path("m.gguf"), n_vocab);
    CHECK(are_close(found, want, n_vocab));
    free(want);
    free(found);
    kit_free(&k);
    weights_close(files);
    scratch_remove();
    free(file);
}

/* ---- Bad files ------------------------------------------------------------------------------- */

/* How a good adapter is spoiled, and what is said of it. */
typedef struct spoiling {
    const char *name;
    void (*spoil)(kit_adapter *k);
    const char *architecture;
    lace_status status;
    const char *says;
} spoiling;

static void nothing(kit_adapter *k)
{
    CHECK(k->n_pairs > 0);
}

static void shorten(kit_adapter *k)
{
    k->pairs[2].n_in--;
}

static void rename_tensor(kit_adapter *k)
{
    strcpy(k->pairs[1].name, "blk.7.attn_q.weight");
}

static void put_nan(kit_adapter *k)
{
    k->pairs[0].b[3] = NAN;
}

static void put_infinity(kit_adapter *k)
{
    k->pairs[3].a[0] = INFINITY;
}

static void refuses(void *arg)
{
    const spoiling *x = arg;
    char *path = golden_path("llama", "model.gguf");
    weights *files = NULL;
    kit_adapter k;
    lace_error err = {0};
    int32_t id = 0;
    scratch_create();
    CHECK(weights_open(path, &files, NULL) == LACE_OK);
    kit_make(&k, files, layer_words, 4, 4, DTYPE_F32, 9);
    x->spoil(&k);
    kit_write_gguf(&k, x->architecture, scratch_path("bad.gguf"));
    lace_model *m = open_model(path, "cpu");
    lace_status status = lace_model_add_adapter(m, scratch_path("bad.gguf"), 1, &id, &err);
    if (!CHECK(status == x->status && strstr(err.text, x->says) && !strchr(err.text, '\n')))
        tap_note("%d %s", status, err.text);
    CHECK(id == -1 && lace_model_adapters(m, NULL, 0) == 0);
    /* The model is as before. */
    int n_vocab = vocab_of(m);
    lace_session *s = open_session(m);
    float *found = logits_of(s, 0, N_TOKENS, n_vocab), *want = plain_logits(path, n_vocab);
    CHECK(memcmp(found, want, N_TOKENS * (size_t)n_vocab * sizeof *want) == 0);
    free(found);
    free(want);
    lace_session_free(s);
    lace_model_close(m);
    kit_free(&k);
    weights_close(files);
    scratch_remove();
    free(path);
}

static void bad_files(void)
{
    static const spoiling all[] = {
        {"another_architecture_is_refused", nothing, "qwen3", LACE_E_META, "architecture qwen3"},
        {"a_matrix_of_another_shape_is_refused", shorten, "llama", LACE_E_SHAPE, "another model"},
        {"a_tensor_that_the_model_lacks_is_refused", rename_tensor, "llama", LACE_E_META,
         "the model has no tensor blk.7.attn_q.weight"},
        {"nan_is_refused", put_nan, "llama", LACE_E_NUMERIC, "not finite"},
        {"infinity_is_refused", put_infinity, "llama", LACE_E_NUMERIC, "not finite"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        spoiling copy = all[i];
        tap_case_arg(all[i].name, refuses, &copy);
    }
}

/* A file with these tensors alone, f32 of zeros; its message. */
static bool says(const char *first, shape a, const char *second, shape b, lace_status status,
                 const char *part)
{
    static const float zeros[1 << 17];
    char *path = golden_path("llama", "model.gguf");
    gguf_writer *w = NULL;
    lace_error err = {0};
    int32_t id;
    scratch_create();
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    gguf_writer_add_text(w, "general.type", text_of("adapter"), NULL);
    gguf_writer_add_text(w, "general.architecture", text_of("llama"), NULL);
    gguf_writer_add_text(w, "adapter.type", text_of("lora"), NULL);
    gguf_writer_add_tensor(w, text_of(first), DTYPE_F32, &a, zeros, NULL);
    if (second)
        gguf_writer_add_tensor(w, text_of(second), DTYPE_F32, &b, zeros, NULL);
    CHECK(gguf_writer_to_file(w, scratch_path("x.gguf"), NULL, NULL, NULL) == LACE_OK);
    gguf_writer_free(w);
    lace_model *m = open_model(path, "cpu");
    lace_status found = lace_model_add_adapter(m, scratch_path("x.gguf"), 1, &id, &err);
    bool ok = found == status && strstr(err.text, part);
    if (!ok)
        tap_note("%d %s", found, err.text);
    lace_model_close(m);
    scratch_remove();
    free(path);
    return ok;
}

static void odd_tensors_are_named(void)
{
    const char *a = "blk.0.attn_q.weight.lora_a", *b = "blk.0.attn_q.weight.lora_b";
    shape fits_a = {2, {64, 2, 1, 1}}, fits_b = {2, {2, 64, 1, 1}};
    CHECK(says(a, fits_a, NULL, fits_b, LACE_E_META, "lora_b, is missing"));
    CHECK(says(b, fits_b, NULL, fits_a, LACE_E_META, "lora_a, is missing"));
    CHECK(says(a, fits_a, b, (shape){2, {3, 64, 1, 1}}, LACE_E_SHAPE, "the rank 3"));
    CHECK(says(a, (shape){2, {64, 1025, 1, 1}}, b, (shape){2, {1025, 64, 1, 1}}, LACE_E_UNSUPPORTED,
               "the rank is 1025, expected 1 to 1024"));
    CHECK(says(a, (shape){3, {64, 2, 2, 1}}, b, (shape){3, {2, 64, 2, 1}}, LACE_E_UNSUPPORTED,
               "experts"));
    CHECK(says("blk.0.attn_q.weight", fits_a, NULL, fits_a, LACE_E_UNSUPPORTED,
               "is no matrix of a LoRA adapter"));
}

static void peft_that_is_not_lora_is_refused(void)
{
    static const char *const bad[] = {
        "\"use_dora\": true, ", "\"modules_to_save\": [\"lm_head\"], ",
        "\"layer_replication\": [[0, 1]], ", "\"alpha_pattern\": {\"^q.*\": 3}, "};
    char *directory = golden_path("llama", "");
    weights *files = NULL;
    kit_adapter k;
    lace_error err = {0};
    int32_t id;
    scratch_create();
    CHECK(weights_open(directory, &files, NULL) == LACE_OK);
    kit_make(&k, files, hf_words, 2, 2, DTYPE_F32, 6);
    lace_model *m = open_model(directory, "cpu");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kit_write_peft(&k, bad[i], scratch_path("peft"));
        CHECK(lace_model_add_adapter(m, scratch_path("peft"), 1, &id, &err) == LACE_E_UNSUPPORTED);
        CHECK(strstr(err.text, "adapter_config.json"));
    }
    strcpy(k.pairs[0].name, "model.layers.9.mlp.up_proj.weight");
    kit_write_peft(&k, "", scratch_path("peft"));
    CHECK(lace_model_add_adapter(m, scratch_path("peft"), 1, &id, &err) == LACE_E_META);
    CHECK(strstr(err.text, "layers.9.mlp.up_proj"));
    CHECK(lace_model_add_adapter(m, scratch_path(""), 1, &id, &err) == LACE_E_IO);
    lace_model_close(m);
    kit_free(&k);
    weights_close(files);
    kit_remove(scratch_path("peft"));
    scratch_remove();
    free(directory);
}

int main(void)
{
    static const char *const peft_models[] = {"llama", "qwen3", "gemma2", "phi4-partial",
                                              "smollm3"};
    if (!named_device_opens())
        return tap_end();
    merged_cases();
    tap_case_arg("mixed_batches_equal_merged_weights_on_cpu", mixed_batches_equal_merged_weights,
                 "cpu");
    tap_case_arg("mixed_batches_equal_merged_weights_on_ref", mixed_batches_equal_merged_weights,
                 "ref");
    tap_case_arg("mixed_batches_equal_merged_weights_on_a_late_device",
                 mixed_batches_equal_merged_weights, "ref:1");
    if (named_device())
        tap_case_arg("mixed_batches_equal_merged_weights_on_LACE_DEVICE",
                     mixed_batches_equal_merged_weights, (void *)(uintptr_t)named_device());
    CASE(sessions_refuse_what_cannot_be);
    for (size_t i = 0; i < sizeof peft_models / sizeof *peft_models; i++) {
        char name[64];
        snprintf(name, sizeof name, "peft_of_%s_equals_merged", peft_models[i]);
        tap_case_arg(name, peft_equals_merged, (void *)(uintptr_t)peft_models[i]);
    }
    CASE(peft_factors_are_those_of_its_config);
    CASE(gguf_adapter_fits_a_directory);
    tap_case_arg("merging_keeps_what_is_computed", merging_keeps_what_is_computed, "llama");
    tap_case_arg("merging_a_tied_model_unties_it", merging_keeps_what_is_computed, "smollm3");
    bad_files();
    CASE(odd_tensors_are_named);
    CASE(peft_that_is_not_lora_is_refused);
    return tap_end();
}
