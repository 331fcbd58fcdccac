/*
 * Gated delta nets: keys that make no sense, what a sequence costs, tokens that are taken back, and
 * beginnings that several texts share. Their results are checked by the golden models.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_write.h"
#include "golden_file.h"
#include "hf/config_hf.h"
#include "lace.h"
#include "model/config.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_VOCAB = 16, CONTEXT = 256 };

static buf tiny_bytes(void)
{
    tiny_options o = tiny_options_arch("qwen35");
    o.n_layers = 4;
    o.n_context = CONTEXT;
    o.type = DTYPE_F32;
    return tiny_model_bytes(o);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

enum { GONE = -1, SECTIONS = -2 };

/* A key of a GGUF file, or of config.json, with a value that it must not have. */
typedef struct wrong {
    const char *key;
    int64_t value; /* or GONE; SECTIONS: an array of 4 numbers that are too many */
    lace_status expected;
} wrong;

static const wrong gguf_wrongs[] = {
    {"full_attention_interval", 0, LACE_E_META},
    {"full_attention_interval", 513, LACE_E_META},
    {"full_attention_interval", GONE, LACE_OK},
    {"ssm.conv_kernel", GONE, LACE_E_META},
    {"ssm.conv_kernel", 1, LACE_E_META},
    {"ssm.conv_kernel", 65, LACE_E_META},
    {"ssm.state_size", GONE, LACE_E_META},
    {"ssm.state_size", 0, LACE_E_META},
    {"ssm.state_size", 1025, LACE_E_META},
    {"ssm.group_count", GONE, LACE_E_META},
    {"ssm.group_count", 0, LACE_E_META},
    {"ssm.group_count", 3, LACE_E_META},
    {"ssm.time_step_rank", GONE, LACE_E_META},
    {"ssm.time_step_rank", 0, LACE_E_META},
    {"ssm.time_step_rank", 1025, LACE_E_META},
    {"ssm.inner_size", GONE, LACE_E_META},
    {"ssm.inner_size", 3, LACE_E_META},
    {"ssm.inner_size", 4096, LACE_E_META},
    {"ssm.inner_size", (int64_t)1 << 33, LACE_E_META},
    {"rope.dimension_sections", 2, LACE_E_META},
    {"rope.dimension_sections", SECTIONS, LACE_E_META},
};

static void add_wrong(gguf_writer *w, const char *key, const wrong *x)
{
    int32_t sections[4] = {1, 1, 1, 1};
    if (x->value == SECTIONS)
        gguf_writer_add_array(w, key, GGUF_I32, sections, 4, NULL);
    else if (x->value != GONE)
        gguf_writer_add_int(w, key, GGUF_U64, x->value, NULL);
}

static void wrong_keys_of_files_are_named(void)
{
    buf plain = tiny_bytes();
    gguf *g = NULL;
    CHECK(gguf_parse((span){(const uint8_t *)plain.data, plain.size}, &g, NULL) == LACE_OK);
    for (size_t i = 0; g && i < sizeof gguf_wrongs / sizeof *gguf_wrongs; i++) {
        const wrong *x = &gguf_wrongs[i];
        char key[96];
        snprintf(key, sizeof key, "qwen35.%s", x->key);
        gguf_writer *w = NULL;
        gguf *changed = NULL;
        buf b;
        buf_init(&b, 1 << 20);
        CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
        for (size_t k = 0; k < gguf_n_values(g); k++)
            if (!text_is(gguf_value_at(g, k)->key, key))
                gguf_writer_add_value(w, gguf_value_at(g, k), NULL);
        add_wrong(w, key, x);
        model_config config;
        lace_error err = {0};
        CHECK(gguf_writer_to_buf(w, &b, NULL) == LACE_OK);
        CHECK(gguf_parse((span){(const uint8_t *)b.data, b.size}, &changed, NULL) == LACE_OK);
        lace_status status = config_from_gguf(changed, &config, &err);
        if (!CHECK(status == x->expected && (status == LACE_OK || strstr(err.text, "qwen35."))))
            tap_note("%s, %d: %s", x->key, (int)x->value, err.text);
        gguf_free(changed);
        gguf_writer_free(w);
        buf_deinit(&b);
    }
    gguf_free(g);
    buf_deinit(&plain);
}

static const char plain_config[] =
    "{\"model_type\": \"qwen3_5_text\", \"hidden_size\": 8, \"intermediate_size\": 8,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
    " \"head_dim\": 4, \"vocab_size\": 16, \"max_position_embeddings\": 64,"
    " \"rms_norm_eps\": 1e-6, \"linear_num_value_heads\": 2, \"linear_num_key_heads\": 1,"
    " \"linear_key_head_dim\": 4, \"linear_value_head_dim\": 2, \"linear_conv_kernel_dim\": 2,"
    " \"full_attention_interval\": 2, \"rope_parameters\": {\"rope_type\": \"default\","
    " \"rope_theta\": 10000, \"mrope_section\": [1, 1]}}";

static const wrong json_wrongs[] = {
    {"linear_num_value_heads", 0, LACE_E_META},  {"linear_num_value_heads", 3, LACE_OK},
    {"linear_num_key_heads", 0, LACE_E_META},    {"linear_num_key_heads", 3, LACE_E_META},
    {"linear_key_head_dim", 0, LACE_E_META},     {"linear_key_head_dim", 2000, LACE_E_META},
    {"linear_value_head_dim", 0, LACE_E_META},   {"linear_value_head_dim", 2000, LACE_E_META},
    {"linear_conv_kernel_dim", 1, LACE_E_META},  {"linear_conv_kernel_dim", 65, LACE_E_META},
    {"full_attention_interval", 0, LACE_E_META}, {"full_attention_interval", 1, LACE_OK},
};

static lace_status read_json(json_t *config, model_config *out, lace_error *err)
{
    hf_config *h = calloc(1, sizeof *h);
    lace_status status = h ? hf_config_read(config, h, err) : LACE_E_NOMEM;
    *out = h ? h->model : (model_config){0};
    free(h);
    return status;
}

static void wrong_keys_of_directories_are_named(void)
{
    model_config c;
    lace_error err = {0};
    json_t *config = json_loads(plain_config, 0, NULL);
    CHECK(read_json(config, &c, &err) == LACE_OK);
    CHECK(c.layers[0].kind == LAYER_RECURRENT && c.layers[1].kind == LAYER_ATTENTION);
    CHECK(c.rope.sections[0] == 1 && c.rope.sections[1] == 1 && c.delta.v_dim == 2);
    for (size_t i = 0; i < sizeof json_wrongs / sizeof *json_wrongs; i++) {
        const wrong *x = &json_wrongs[i];
        json_t *changed = json_deep_copy(config);
        json_object_set_new(changed, x->key, json_integer(x->value));
        lace_status status = read_json(changed, &c, &err);
        if (!CHECK(status == x->expected &&
                   (status == LACE_OK || strstr(err.text, "linear_") || strstr(err.text, x->key))))
            tap_note("%s, %d: %s", x->key, (int)x->value, err.text);
        json_decref(changed);
    }
    static const char *const sections[] = {"[1, 1, 1]", "[-1]", "[1.5]", "[0, 0, 0, 0, 0]", "3"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        json_t *changed = json_deep_copy(config);
        json_object_set_new(json_object_get(changed, "rope_parameters"), "mrope_section",
                            json_loads(sections[i], JSON_DECODE_ANY, NULL));
        CHECK(read_json(changed, &c, &err) == LACE_E_META && strstr(err.text, "mrope_section"));
        json_decref(changed);
    }
    json_decref(config);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

static lace_model *model;

static lace_session *start(int32_t n_sequences, int32_t n_batch)
{
    lace_session_options o = lace_session_options_default();
    o.n_context = CONTEXT;
    o.n_sequences = n_sequences;
    o.n_batch = n_batch;
    o.n_threads = 2;
    o.kv_type = LACE_KV_F32;
    lace_session *s = NULL;
    CHECK(lace_session_create(model, &o, &s, NULL) == LACE_OK);
    return s;
}

static lace_token token_at(int32_t i)
{
    return (lace_token)((7 * i + i * i / 5 + 3) % N_VOCAB);
}

/* Tokens [from, to) of the text; logits of the last one. */
static void append(lace_session *s, int32_t sequence, int32_t from, int32_t to)
{
    lace_item items[CONTEXT];
    for (int32_t i = from; i < to; i++)
        items[i - from] = (lace_item){token_at(i), sequence, i + 1 == to};
    CHECK(lace_session_eval(s, items, (size_t)(to - from), NULL) == LACE_OK);
}

/* A text of n tokens, and a wrong one behind it that is taken back; by pieces of n_batch tokens. */
static void take_back(int32_t n, int32_t n_wrong, int32_t n_batch)
{
    lace_session *plain = start(1, 64), *s = start(2, n_batch);
    append(plain, 0, 0, n + 1);
    append(s, 0, 0, n);
    for (int32_t i = 0; i < n_wrong; i++) {
        lace_item item = {1, 0, false};
        CHECK(lace_session_eval(s, &item, 1, NULL) == LACE_OK);
    }
    CHECK(lace_session_truncate(s, 0, n, NULL) == LACE_OK && lace_session_length(s, 0) == n);
    CHECK(lace_session_fork(s, 0, 1, NULL) == LACE_OK);
    append(s, 0, n, n + 1);
    CHECK(nmse(lace_session_logits(s, 0), lace_session_logits(plain, 0), N_VOCAB) < 1e-10);
    /* The copy can be cut further, to what only the original has read. */
    CHECK(lace_session_truncate(s, 1, n - 1, NULL) == LACE_OK);
    append(s, 1, n - 1, n + 1);
    CHECK(nmse(lace_session_logits(s, 0), lace_session_logits(plain, 0), N_VOCAB) < 1e-10);
    lace_session_free(plain);
    lace_session_free(s);
}

static void tokens_are_taken_back_wherever_the_text_is_cut(void)
{
    take_back(3, 2, 1);    /* before the first snapshot */
    take_back(32, 5, 64);  /* at one */
    take_back(50, 40, 64); /* behind one that was given up since */
    take_back(150, 3, 7);
}

static void state_has_the_size_that_layers_need(void)
{
    lace_session_options o = lace_session_options_default();
    lace_memory m;
    o.n_context = CONTEXT;
    CHECK(lace_session_memory(model, &o, &m, NULL) == LACE_OK);
    /* Two layers that attend: K and V of one head of 4 values in f16. */
    CHECK(m.token_bytes == 2 * 2 * 4 * 2);
    /* Two delta nets: an input of 12 channels (in 64 bytes), and two heads of 4 x 2. */
    CHECK(m.sequence_bytes == 2 * (64 + 4 * 2 * 4 * 2));
}

/* ---- Several texts --------------------------------------------------------------------------- */

typedef struct result {
    lace_token tokens[CONTEXT];
    int n_tokens;
    int32_t n_cached;
} result;

static void on_piece(void *user, const lace_piece *p)
{
    result *r = user;
    if (p->token >= 0)
        r->tokens[r->n_tokens++] = p->token;
    r->n_cached = p->stats->n_cached;
}

static void add(lace_batcher *b, result *r, int32_t n_same, int32_t n_prompt)
{
    lace_token prompt[CONTEXT];
    lace_generation_options o = lace_generation_options_default();
    lace_generation *g = NULL;
    for (int32_t i = 0; i < n_prompt; i++)
        prompt[i] = i < n_same ? token_at(i) : token_at(i + 1);
    *r = (result){0};
    o.sampler.temperature = 0;
    o.max_tokens = 20;
    o.ignore_end = true;
    o.on_piece = on_piece;
    o.user = r;
    o.prompt = prompt;
    o.n_prompt = (size_t)n_prompt;
    CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_OK);
}

static lace_batcher *start_batcher(int32_t n_sequences, bool use_prefixes)
{
    lace_batcher_options o = lace_batcher_options_default();
    lace_batcher *b = NULL;
    lace_error err = {0};
    o.session.n_context = CONTEXT;
    o.session.n_sequences = n_sequences;
    o.session.n_batch = 64;
    o.session.n_threads = 2;
    o.use_prefixes = use_prefixes;
    if (!CHECK(lace_batcher_create(model, &o, &b, &err) == LACE_OK))
        tap_note("%s", err.text);
    return b;
}

static void finish(lace_batcher *b)
{
    while (lace_batcher_step(b))
        continue;
}

static bool is_same(const result *a, const result *b)
{
    return a->n_tokens == b->n_tokens && a->n_tokens == 20 &&
           memcmp(a->tokens, b->tokens, sizeof(lace_token) * (size_t)a->n_tokens) == 0;
}

static void a_known_beginning_is_not_computed_again_and_changes_nothing(void)
{
    enum { SAME = 100, PROMPT = 120 };
    result first, second, third, alone;
    lace_batcher *b = start_batcher(2, true), *fresh = start_batcher(1, false);
    if (!b || !fresh)
        return;
    add(b, &first, SAME, PROMPT);
    finish(b);
    add(b, &second, SAME, PROMPT);
    finish(b);
    CHECK(first.n_cached == 0 && second.n_cached >= 96 && is_same(&first, &second));
    add(b, &third, SAME - 1, PROMPT); /* another text from there on */
    finish(b);
    add(fresh, &alone, SAME - 1, PROMPT);
    finish(fresh);
    tap_note("of %d tokens %d and %d were known", PROMPT, second.n_cached, third.n_cached);
    CHECK(third.n_cached >= 32 && is_same(&third, &alone));
    lace_batcher_free(b);
    lace_batcher_free(fresh);
}

int main(void)
{
    CASE(wrong_keys_of_files_are_named);
    CASE(wrong_keys_of_directories_are_named);
    buf file = tiny_bytes();
    lace_error err = {0};
    if (lace_model_open_memory(file.data, file.size, "tiny", NULL, &model, &err) == LACE_OK) {
        CASE(tokens_are_taken_back_wherever_the_text_is_cut);
        CASE(state_has_the_size_that_layers_need);
        CASE(a_known_beginning_is_not_computed_again_and_changes_nothing);
    } else {
        tap_note("%s", err.text);
        tap_case("the_tiny_model_opens", abort);
    }
    lace_model_close(model);
    buf_deinit(&file);
    return tap_end();
}
