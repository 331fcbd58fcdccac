/*
 * Keys that change what is computed: in every architecture each of them acts or is refused by its
 * name, and where it has the value that changes nothing, nothing changes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_write.h"
#include "lace.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_TOKENS = 8, N_VOCAB = 16, MAX_ADDED = 3 };

/* A value to add: a number of its type, or a text. */
typedef struct added {
    const char *name; /* after the architecture; NULL: no more */
    gguf_type type;
    double x;
    const char *s;
} added;

/* The tiny model of an architecture with some keys added, or replaced. */
static buf build(const char *architecture, const added *more, int n_more)
{
    tiny_options o = tiny_options_arch(architecture);
    o.type = DTYPE_F32;
    if (strcmp(architecture, "gemma3") == 0)
        o.n_layers = 6; /* the last of which sees everything */
    buf plain = tiny_model_bytes(o), out;
    gguf *g = NULL;
    gguf_writer *w = NULL;
    buf_init(&out, 1 << 20);
    CHECK(gguf_parse((span){(const uint8_t *)plain.data, plain.size}, &g, NULL) == LACE_OK);
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    char names[MAX_ADDED][96];
    for (int k = 0; k < n_more; k++)
        snprintf(names[k], sizeof names[k], "%s.%s", architecture, more[k].name);
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        bool is_replaced = false;
        for (int k = 0; k < n_more; k++)
            is_replaced = is_replaced || text_is(gguf_value_at(g, i)->key, names[k]);
        if (!is_replaced)
            gguf_writer_add_value(w, gguf_value_at(g, i), NULL);
    }
    for (int k = 0; k < n_more; k++)
        if (more[k].type == GGUF_STRING)
            gguf_writer_add_text(w, names[k], text_of(more[k].s), NULL);
        else if (more[k].type == GGUF_BOOL)
            gguf_writer_add_bool(w, names[k], more[k].x != 0, NULL);
        else if (more[k].type == GGUF_F32)
            gguf_writer_add_float(w, names[k], GGUF_F32, more[k].x, NULL);
        else
            gguf_writer_add_int(w, names[k], more[k].type, (int64_t)more[k].x, NULL);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, NULL);
    }
    CHECK(gguf_writer_to_buf(w, &out, NULL) == LACE_OK);
    gguf_writer_free(w);
    gguf_free(g);
    buf_deinit(&plain);
    return out;
}

/* Logits of the last of a few tokens; all of them see more than the smallest window. */
static lace_status run(const char *architecture, const added *more, int n_more,
                       float logits[N_VOCAB], lace_error *err)
{
    buf file = build(architecture, more, n_more);
    lace_model *model = NULL;
    lace_session *session = NULL;
    lace_session_options o = lace_session_options_default();
    lace_item items[N_TOKENS];
    o.n_threads = 1;
    o.n_context = 16;
    o.kv_type = LACE_KV_F32;
    for (int i = 0; i < N_TOKENS; i++)
        items[i] = (lace_item){(5 * i + 3) % N_VOCAB, 0, i == N_TOKENS - 1};
    lace_status status = lace_model_open_memory(file.data, file.size, "m", NULL, &model, err);
    lace_model_info info = {0};
    if (status == LACE_OK)
        lace_model_describe(model, &info);
    o.wants_hidden = info.is_encoder;
    size_t n = (size_t)(info.is_encoder ? info.n_embd : N_VOCAB);
    if (status == LACE_OK)
        status = lace_session_create(model, &o, &session, err);
    if (status == LACE_OK)
        status = lace_session_eval(session, items, N_TOKENS, err);
    memset(logits, 0, N_VOCAB * sizeof *logits);
    if (status == LACE_OK)
        memcpy(logits, lace_session_logits(session, 0), n * sizeof *logits);
    lace_session_free(session);
    lace_model_close(model);
    buf_deinit(&file);
    return status;
}

/* The first key is the one in question; those after it are what it needs to act. */
typedef struct trial {
    added keys[MAX_ADDED];
    double neutral;       /* of the first key: changes nothing; NAN: there is none */
    const char *known_by; /* architectures that are known not to use it, though files have it */
    bool needs_experts;
} trial;

#define F32(name, x)                                                                               \
    {                                                                                              \
        name, GGUF_F32, x, NULL                                                                    \
    }
#define U32(name, x)                                                                               \
    {                                                                                              \
        name, GGUF_U32, x, NULL                                                                    \
    }
#define TEXT(name, s)                                                                              \
    {                                                                                              \
        name, GGUF_STRING, 0, s                                                                    \
    }
/* No layer of theirs knows positions. */
#define NO_ROPE  "mamba2 nemotron_h nemotron_h_moe bert"
#define ENCODERS "bert nomic-bert modern-bert"

#define DELTA_NETS "qwen3next qwen35 qwen35moe"

/* Their tensors say whether there are shared experts, and their scores are sigmoids. */
#define OWN_EXPERTS "nemotron_h_moe lfm2moe deepseek2"

/* The tiny ones have shared experts, whose width is that of their tensors whatever a key says. */
#define SHARED_EXPERTS "glm4moe dots1 ernie4_5-moe hunyuan-moe qwen2moe llama4 qwen3next qwen35moe"

/* Scores are sigmoids, weights are not normed: without a key, or always. */
#define SIGMOIDS   "glm4moe dots1 minimax-m2 llama4"
#define NOT_NORMED "qwen2moe olmoe phimoe llama4"

/* clang-format off */
static const trial trials[] = {
    {{U32("expert_count", 1), U32("expert_used_count", 1)}, 0, "", false},
    {{U32("attention.sliding_window", 2)}, 64, "qwen2 qwen3 qwen3moe", false},
    {{F32("rope.freq_base_swa", 3), U32("attention.sliding_window", 2)}, 10000, "qwen2 qwen3 qwen3moe", false},
    {{F32("embedding_scale", 2)}, 1, "", false},
    {{F32("residual_scale", 2)}, 1, "", false},
    {{F32("logit_scale", 3)}, 1, "", false},
    {{F32("attention.scale", 2)}, 0.5, "", false},
    {{F32("attn_logit_softcapping", 0.1)}, 0, "", false},
    {{F32("final_logit_softcapping", 0.1)}, 0, "", false},
    {{F32("rope.freq_base", 30)}, 10000, NO_ROPE, false},
    {{U32("rope.dimension_count", 2)}, 4, NO_ROPE, false},
    {{F32("rope.scaling.factor", 7)}, 1, NO_ROPE, false},
    {{F32("rope.scale_linear", 7)}, 1, NO_ROPE, false},
    {{TEXT("rope.scaling.type", "yarn"), F32("rope.scaling.factor", 9)}, NAN, NO_ROPE, false},
    {{TEXT("rope.scaling.type", "longrope")}, NAN, NO_ROPE, false},
    {{F32("rope.scaling.attn_factor", 3)}, 1, NO_ROPE, false},
    {{F32("rope.scaling.yarn_ext_factor", 0.5), TEXT("rope.scaling.type", "yarn"), F32("rope.scaling.factor", 9)}, 1, "", false},
    {{F32("rope.scaling.yarn_attn_factor", 0.5), TEXT("rope.scaling.type", "yarn"), F32("rope.scaling.factor", 9)}, NAN, "", false},
    {{F32("rope.scaling.alpha", 1000)}, 0, "", false},
    {{U32("rope.dimension_sections", 2)}, 0, "", false},
    {{{"attention.causal", GGUF_BOOL, 0, NULL}}, 1, ENCODERS, false},
    {{F32("attention.clamp_kqv", 0.1)}, 0, "", false},
    {{F32("attention.max_alibi_bias", 8)}, 0, "", false},
    {{U32("attention.q_lora_rank", 2)}, 0, "", false},
    {{U32("attention.kv_lora_rank", 2)}, 0, "", false},
    {{U32("attention.shared_kv_layers", 1)}, 0, "", false},
    {{U32("attention.key_length_swa", 2)}, 4, "", false},
    {{U32("attention.value_length_swa", 2)}, 4, "", false},
    {{U32("rope.dimension_count_swa", 2)}, 4, "", false},
    {{U32("embedding_length_per_layer_input", 2)}, 0, "", false},
    {{U32("altup.num_inputs", 4)}, 0, "", false},
    {{F32("activation_sparsity_scale", 2)}, 0, "", false},
    {{U32("attention.temperature_length", 2), F32("attention.temperature_scale", 0.5)}, 0, "", false},
    {{F32("attention.temperature_scale", 0.5), U32("attention.temperature_length", 2)}, 0, "", false},
    {{F32("attention.output_scale", 0.1)}, 1, "", false},
    {{U32("full_attention_interval", 4)}, 0, "", false},
    {{U32("nextn_predict_layers", 1)}, 0, "", false},
    {{{"swin_norm", GGUF_BOOL, 1, NULL}}, 0, "", false},
    {{U32("ssm.state_size", 16)}, 0, "", false},
    {{U32("attention.sliding_window_pattern", 1), U32("attention.sliding_window", 2)}, NAN, "qwen2 qwen3 qwen3moe", false},
    {{U32("expert_used_count", 1)}, 2, "", true},
    {{{"expert_weights_norm", GGUF_BOOL, 0, NULL}}, 1, NOT_NORMED, true},
    {{U32("expert_shared_count", 1)}, 0, OWN_EXPERTS " " SHARED_EXPERTS, true},
    {{U32("expert_shared_feed_forward_length", 8)}, 0, OWN_EXPERTS " minimax-m2 olmoe granitemoe " SHARED_EXPERTS, true},
    {{U32("expert_group_count", 2)}, 1, "", true},
    {{F32("expert_weights_scale", 2.5)}, 1, "", true},
    {{U32("expert_gating_func", 2)}, 1, OWN_EXPERTS " " SIGMOIDS, true},
    {{U32("leading_dense_block_count", 1)}, 0, "nemotron_h_moe " DELTA_NETS, true},
    {{U32("moe_every_n_layers", 2)}, 1, "", true},
};
/* clang-format on */

static int count(const trial *t)
{
    int n = 0;
    while (n < MAX_ADDED && t->keys[n].name)
        n++;
    return n;
}

static bool lists(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; (p = strstr(p, name)); p += n)
        if ((p == names || p[-1] == ' ') && (p[n] == 0 || p[n] == ' '))
            return true;
    return false;
}

/* Keys that the tiny models have already, or whose neutral value follows from heads. */
static bool is_tried(const trial *t, const char *architecture)
{
    static const struct {
        const char *start, *architectures;
    } own[] = {{"ssm.", "mamba2 granitehybrid nemotron_h nemotron_h_moe falcon-h1 " DELTA_NETS},
               {"full_attention_interval", DELTA_NETS},
               {"rope.dimension_sections", DELTA_NETS},
               {"attention.scale", "mamba2 deepseek2 gemma4"},
               {"rope.dimension_count", "mamba2 deepseek2"},
               {"attention.q_lora", "deepseek2"},
               {"attention.kv_lora", "deepseek2"},
               {"attention.key_length_swa", "mamba2 gemma4 gemma3n deepseek2"},
               {"attention.value_length_swa", "mamba2 gemma4 gemma3n deepseek2"},
               {"rope.dimension_count_swa", "gemma4 gemma3n"},
               {"attention.sliding_window_pattern", "gemma4"},
               {"embedding_length_per", "gemma4 gemma3n"},
               {"altup", "gemma3n"},
               {"activation_sparsity", "gemma3n"},
               {"rope.", "gpt2"}, /* it has learned positions */
               {"leading_dense", "lfm2moe glm4moe deepseek2"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strncmp(t->keys[0].name, own[i].start, strlen(own[i].start)) == 0 &&
            lists(own[i].architectures, architecture))
            return false;
    return !t->needs_experts || tiny_options_arch(architecture).n_experts > 0;
}

/* The key acts, or is refused by its name (experts also by the tensors that they would need). */
static void check_trial(const char *architecture, const trial *t)
{
    float without[N_VOCAB], with[N_VOCAB];
    lace_error err = {0};
    char key[128];
    int n = count(t);
    bool is_refused_without = run(architecture, t->keys + 1, n - 1, without, &err) != LACE_OK;
    lace_status status = run(architecture, t->keys, n, with, &err);
    snprintf(key, sizeof key, "%s.%s", architecture, t->keys[0].name);
    if (status != LACE_OK) {
        bool is_named = strstr(err.text, t->keys[0].name) || strstr(err.text, "rope_factors") ||
                        strstr(err.text, ".ffn_") || is_refused_without;
        if (!CHECK(
                is_named && !strstr(err.text, "E_META") &&
                (status == LACE_E_UNSUPPORTED || status == LACE_E_META || status == LACE_E_SHAPE)))
            tap_note("%s: %s", key, err.text);
        return;
    }
    bool changes = memcmp(with, without, sizeof with) != 0;
    if (!CHECK(changes != lists(t->known_by, architecture)))
        tap_note("%s: accepted, and %s", key, changes ? "acts" : "does nothing");
}

/* What changes nothing must be accepted: real files carry such keys. */
static void check_neutral(const char *architecture, const trial *t)
{
    float without[N_VOCAB], with[N_VOCAB];
    lace_error err = {0};
    added keys[MAX_ADDED];
    memcpy(keys, t->keys, sizeof keys);
    keys[0].x = t->neutral;
    /* The tiny gemmas, granites and others have a value of their own, which acts. */
    bool has_own = lists("gemma2 gemma3 gemma3n gemma4 granite granitehybrid gpt-oss cohere2 "
                         "exaone4 granitemoe modern-bert " OWN_EXPERTS " " SIGMOIDS " " NOT_NORMED,
                         architecture);
    if (strcmp(keys[0].name, "attention.causal") == 0 && lists(ENCODERS, architecture))
        return; /* they are never causal */
    if (run(architecture, keys + 1, count(t) - 1, without, &err) != LACE_OK)
        return;
    if (!CHECK(run(architecture, keys, count(t), with, &err) == LACE_OK))
        tap_note("%s.%s: %s", architecture, t->keys[0].name, err.text);
    else if (!has_own)
        CHECK(memcmp(with, without, sizeof with) == 0);
}

static void keys_act_or_are_refused(void *arg)
{
    const char *architecture = arg;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        if (is_tried(&trials[i], architecture))
            check_trial(architecture, &trials[i]);
}

static void neutral_values_change_nothing(void *arg)
{
    const char *architecture = arg;
    bool has_experts = tiny_options_arch(architecture).n_experts > 0;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        bool is_of_experts = strncmp(trials[i].keys[0].name, "expert_count", 12) == 0;
        if (!isnan(trials[i].neutral) && is_tried(&trials[i], architecture) &&
            !(is_of_experts && has_experts))
            check_neutral(architecture, &trials[i]);
    }
}

/* Exactly what was found: it once crashed every verb. */
static void phi3_with_an_expert_is_refused_by_the_key(void)
{
    static const char *const others[] = {"phi3",  "gemma2", "gemma3",  "olmo2",
                                         "qwen2", "qwen3",  "granite", "smollm3"};
    const added keys[] = {U32("expert_count", 1), U32("expert_used_count", 1)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        float logits[N_VOCAB];
        lace_error err = {0};
        char name[64];
        snprintf(name, sizeof name, "%s.expert_count: is 1", others[i]);
        CHECK(run(others[i], keys, 2, logits, &err) == LACE_E_UNSUPPORTED);
        if (!CHECK(strstr(err.text, name) != NULL))
            tap_note("%s", err.text);
    }
}

/* The pattern of windows as a list is taken, if it has an item for each layer. */
static void a_list_of_local_layers_is_taken(void)
{
    static const uint8_t own[2] = {1, 0};
    for (size_t n = 1; n <= 2; n++) {
        tiny_options o = tiny_options_arch("gemma2");
        gguf_writer *w = NULL;
        buf file;
        lace_model *model = NULL;
        lace_error err = {0};
        buf_init(&file, 1 << 20);
        CHECK(tiny_model_create(&o, &w, NULL) == LACE_OK);
        gguf_writer_add_array(w, "gemma2.attention.sliding_window_pattern", GGUF_BOOL, own, n,
                              NULL);
        CHECK(gguf_writer_to_buf(w, &file, NULL) == LACE_OK);
        lace_status status = lace_model_open_memory(file.data, file.size, "m", NULL, &model, &err);
        CHECK(status == (n == 2 ? LACE_OK : LACE_E_META));
        CHECK(n == 2 || strstr(err.text, "sliding_window_pattern"));
        lace_model_close(model);
        gguf_writer_free(w);
        buf_deinit(&file);
    }
}

/* What the fuzzer of loading begins with is a model of every architecture that runs. */
static void seeds_of_the_load_fuzzer_run(void)
{
    static const char *const others[] = {"mixtral", "q8_0", "q4_0", "csr", "m4", "n24"};
    enum { N_OTHERS = sizeof others / sizeof *others };
    for (int i = 0; i < tiny_n_archs + N_OTHERS; i++) {
        const char *name = i < tiny_n_archs ? tiny_archs[i] : others[i - tiny_n_archs];
        char path[128];
        lace_model *model = NULL;
        lace_session *session = NULL;
        lace_session_options o = lace_session_options_default();
        lace_item item = {1, 0, true};
        lace_error err = {0};
        o.n_threads = 1;
        o.n_context = 8;
        snprintf(path, sizeof path, "tests/fuzz/corpus/load/%s.gguf", name);
        lace_model_info info = {0};
        bool ok = lace_model_open(path, NULL, &model, &err) == LACE_OK;
        if (ok)
            lace_model_describe(model, &info);
        o.wants_hidden = info.is_encoder;
        ok = ok && lace_session_create(model, &o, &session, &err) == LACE_OK &&
             lace_session_eval(session, &item, 1, &err) == LACE_OK;
        if (!CHECK(ok))
            tap_note("%s: %s", path, err.text);
        lace_session_free(session);
        lace_model_close(model);
    }
}

int main(void)
{
    for (int i = 0; i < tiny_n_archs; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s: keys_act_or_are_refused", tiny_archs[i]);
        tap_case_arg(name, keys_act_or_are_refused, (void *)tiny_archs[i]);
        snprintf(name, sizeof name, "%s: neutral_values_change_nothing", tiny_archs[i]);
        tap_case_arg(name, neutral_values_change_nothing, (void *)tiny_archs[i]);
    }
    CASE(seeds_of_the_load_fuzzer_run);
    CASE(phi3_with_an_expert_is_refused_by_the_key);
    CASE(a_list_of_local_layers_is_taken);
    return tap_end();
}
