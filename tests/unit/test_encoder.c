/*
 * Encoders: keys and configs that are wrong, sessions that hold nothing longer than a batch, pairs
 * of texts, and embedders. That the numbers are right is for tests/golden/test_encoders.c.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "formats/gguf_write.h"
#include "hf/config_hf.h"
#include "lace.h"
#include "tap.h"
#include "tiny_model.h"

/* ---- Keys of GGUF files ---------------------------------------------------------------------- */

enum { TEXTS = 100, BOOLS }; /* arrays of x items, beside the types of GGUF */

typedef struct bad_key {
    const char *architecture, *key; /* a key that begins with a dot gets the architecture */
    int type;
    double x;
    const char *s;
    lace_status expected;
} bad_key;

/* clang-format off */
static const bad_key bad_keys[] = {
    {"bert", ".pooling_type", GGUF_U32, 5, "", LACE_E_META},
    {"bert", ".pooling_type", GGUF_I32, -1, "", LACE_E_META},
    {"bert", ".pooling_type", GGUF_STRING, 0, "mean", LACE_E_META},
    {"bert", ".pooling_type", GGUF_U32, 4, "", LACE_OK},
    {"bert", ".attention.causal", GGUF_BOOL, 1, "", LACE_E_UNSUPPORTED},
    {"bert", ".attention.causal", GGUF_STRING, 0, "no", LACE_E_META},
    {"bert", "tokenizer.ggml.token_type_count", GGUF_U32, 70000, "", LACE_E_META},
    {"bert", "tokenizer.ggml.token_type_count", GGUF_STRING, 0, "2", LACE_E_META},
    {"bert", "tokenizer.ggml.token_type_count", GGUF_U32, 3, "", LACE_E_SHAPE},
    {"bert", "tokenizer.ggml.token_type_count", GGUF_U32, 0, "", LACE_OK},
    {"bert", ".classifier.output_labels", TEXTS, 1, "", LACE_OK},
    {"bert", ".classifier.output_labels", TEXTS, 2, "", LACE_E_META},
    {"bert", ".classifier.output_labels", GGUF_U32, 1, "", LACE_E_META},
    {"bert", ".context_length", GGUF_U32, 65, "", LACE_E_SHAPE},
    {"nomic-bert", ".attention.causal", GGUF_BOOL, 1, "", LACE_E_UNSUPPORTED},
    {"nomic-bert", ".attention.sliding_window", GGUF_U32, 4, "", LACE_E_UNSUPPORTED},
    {"modern-bert", ".hidden_activation", GGUF_STRING, 0, "relu", LACE_E_UNSUPPORTED},
    {"modern-bert", ".hidden_activation", GGUF_U32, 1, "", LACE_E_META},
    {"modern-bert", ".hidden_activation", GGUF_STRING, 0, "silu", LACE_OK},
    {"modern-bert", ".attention.sliding_window", GGUF_U32, 1, "", LACE_E_META},
    {"modern-bert", ".attention.sliding_window_pattern", GGUF_U32, 0, "", LACE_E_META},
    {"modern-bert", ".attention.sliding_window_pattern", GGUF_U32, 513, "", LACE_E_META},
    {"modern-bert", ".attention.sliding_window_pattern", BOOLS, 3, "", LACE_E_META},
    {"modern-bert", ".attention.sliding_window_pattern", BOOLS, 2, "", LACE_OK},
    {"modern-bert", ".attention.sliding_window_pattern", GGUF_STRING, 0, "3", LACE_E_META},
    {"modern-bert", ".attention.layer_norm_epsilon", GGUF_F32, -1, "", LACE_E_META},
    {"modern-bert", ".attention.layer_norm_epsilon", GGUF_F32, NAN, "", LACE_E_META},
};
/* clang-format on */

static void add_key(gguf_writer *w, const char *key, const bad_key *b)
{
    static const text names[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    static const uint8_t flags[] = {1, 0, 1};
    if (b->type == TEXTS)
        gguf_writer_add_texts(w, key, names, (size_t)b->x, NULL);
    else if (b->type == BOOLS)
        gguf_writer_add_array(w, key, GGUF_BOOL, flags, (size_t)b->x, NULL);
    else if (b->type == GGUF_STRING)
        gguf_writer_add_text(w, key, text_of(b->s), NULL);
    else if (b->type == GGUF_BOOL)
        gguf_writer_add_bool(w, key, b->x != 0, NULL);
    else if (b->type == GGUF_F32)
        gguf_writer_add_float(w, key, GGUF_F32, b->x, NULL);
    else
        gguf_writer_add_int(w, key, (gguf_type)b->type, (int64_t)b->x, NULL);
}

/* The tiny model with one key replaced or added; b NULL: as it is. */
static buf build(const char *architecture, const bad_key *b)
{
    tiny_options o = tiny_options_arch(architecture);
    o.type = DTYPE_F32;
    buf plain = tiny_model_bytes(o), out;
    gguf *g = NULL;
    gguf_writer *w = NULL;
    char key[96] = "";
    buf_init(&out, 1 << 20);
    if (b)
        snprintf(key, sizeof key, "%s%s", b->key[0] == '.' ? architecture : "", b->key);
    CHECK(gguf_parse((span){(const uint8_t *)plain.data, plain.size}, &g, NULL) == LACE_OK);
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    for (size_t i = 0; i < gguf_n_values(g); i++)
        if (!text_is(gguf_value_at(g, i)->key, key))
            gguf_writer_add_value(w, gguf_value_at(g, i), NULL);
    if (b)
        add_key(w, key, b);
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

static void wrong_keys_are_refused_by_their_names(void)
{
    for (size_t i = 0; i < sizeof bad_keys / sizeof *bad_keys; i++) {
        const bad_key *b = &bad_keys[i];
        buf file = build(b->architecture, b);
        lace_model *model = NULL;
        lace_error err = {0};
        lace_status status = lace_model_open_memory(file.data, file.size, "m", NULL, &model, &err);
        const char *name = b->key[0] == '.' ? b->key + 1 : b->key;
        bool is_named = b->expected != LACE_E_META || strstr(err.text, name);
        if (!CHECK(status == b->expected && is_named))
            tap_note("%s %s %g%s: %s", b->architecture, b->key, b->x, b->s, err.text);
        lace_model_close(model);
        buf_deinit(&file);
    }
}

/* ---- config.json ----------------------------------------------------------------------------- */

#define BASE                                                                                       \
    "'hidden_size':48,'num_hidden_layers':2,'num_attention_heads':3,'intermediate_size':72,"       \
    "'layer_norm_eps':1e-5,'max_position_embeddings':130,'vocab_size':320"
#define BERT   "{'model_type':'bert'," BASE
#define XLM    "{'model_type':'xlm-roberta'," BASE
#define NOMIC  "{'model_type':'nomic_bert'," BASE
#define MODERN "{'model_type':'modernbert'," BASE
#define SCORES "'architectures':['XLMRobertaForSequenceClassification'],"

static lace_status read_config(const char *quoted, hf_config *out, lace_error *err)
{
    char source[1024];
    snprintf(source, sizeof source, "%s", quoted);
    for (char *p = source; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *json = NULL;
    if (!CHECK(json_read((span){(const uint8_t *)source, strlen(source)}, 0, &json, err) ==
               LACE_OK))
        return LACE_E_JSON;
    lace_status status = hf_config_read(json, out, err);
    json_decref(json);
    return status;
}

static void wrong_configs_are_refused_by_their_keys(void)
{
    static const struct {
        const char *config, *key;
        lace_status expected;
    } bad[] = {
        {BERT ",'is_decoder':true}", "is_decoder", LACE_E_UNSUPPORTED},
        {BERT ",'position_embedding_type':'relative_key'}", "position_embedding_type",
         LACE_E_UNSUPPORTED},
        {BERT ",'hidden_act':'relu'}", "hidden_act", LACE_E_UNSUPPORTED},
        {BERT ",'type_vocab_size':-1}", "type_vocab_size", LACE_E_META},
        {BERT ",'type_vocab_size':'2'}", "type_vocab_size", LACE_E_META},
        {BERT ",'1_Pooling':{'pooling_mode_cls_token':1}}", "pooling_mode_cls_token", LACE_E_META},
        {XLM ",'pad_token_id':129}", "max_position_embeddings", LACE_E_META},
        {XLM ",'pad_token_id':-1}", "pad_token_id", LACE_E_META},
        {XLM "," SCORES "'id2label':{}}", "id2label", LACE_E_META},
        {XLM "," SCORES "'id2label':5}", "id2label", LACE_E_META},
        {XLM "," SCORES "'num_labels':0}", "num_labels", LACE_E_META},
        {NOMIC ",'causal':true}", "causal", LACE_E_UNSUPPORTED},
        {NOMIC ",'prenorm':true}", "prenorm", LACE_E_UNSUPPORTED},
        {NOMIC ",'parallel_block':true}", "parallel_block", LACE_E_UNSUPPORTED},
        {NOMIC ",'use_rms_norm':true}", "use_rms_norm", LACE_E_UNSUPPORTED},
        {NOMIC ",'rotary_emb_interleaved':true}", "rotary_emb_interleaved", LACE_E_UNSUPPORTED},
        {NOMIC ",'rotary_emb_scale_base':512}", "rotary_emb_scale_base", LACE_E_UNSUPPORTED},
        {NOMIC ",'rotary_emb_base':1}", "rotary_emb_base", LACE_E_META},
        {NOMIC ",'rotary_emb_fraction':0.06}", "rotary_emb_fraction", LACE_E_META},
        {NOMIC ",'activation_function':'gelu'}", "activation_function", LACE_E_UNSUPPORTED},
        {NOMIC ",'max_trained_positions':0}", "max_trained_positions", LACE_E_META},
        {NOMIC ",'num_experts':8}", "num_experts", LACE_E_UNSUPPORTED},
        {MODERN ",'hidden_activation':'relu'}", "hidden_activation", LACE_E_UNSUPPORTED},
        {MODERN ",'local_attention':1}", "local_attention", LACE_E_META},
        {MODERN ",'global_attn_every_n_layers':0}", "global_attn_every_n_layers", LACE_E_META},
        {MODERN ",'norm_eps':0}", "norm_eps", LACE_E_META},
        {MODERN ",'global_rope_theta':1}", "global_rope_theta", LACE_E_META},
        {MODERN ",'local_rope_theta':'x'}", "local_rope_theta", LACE_E_META},
        {MODERN ",'layer_types':['full_attention']}", "layer_types", LACE_E_META},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hf_config c;
        lace_error err = {0};
        lace_status status = read_config(bad[i].config, &c, &err);
        if (!CHECK(status == bad[i].expected && strstr(err.text, bad[i].key)))
            tap_note("%s: %s", bad[i].config, status ? err.text : "was read");
    }
}

static void configs_say_what_is_computed(void)
{
    hf_config c;
    lace_error err = {0};
    CHECK(read_config(XLM "," SCORES "'pad_token_id':1,'id2label':{'0':'a','1':'b','2':'c'}}", &c,
                      &err) == LACE_OK);
    CHECK(c.model.n_context == 128 && c.model.encoder.first_position == 2 &&
          c.model.encoder.n_classes == 3);
    CHECK(read_config(BERT ",'1_Pooling':{'pooling_mode_cls_token':false,"
                           "'pooling_mode_mean_tokens':true}}",
                      &c, &err) == LACE_OK);
    CHECK(c.model.pooling == LACE_POOLING_MEAN && c.model.encoder.n_classes == 0);
    CHECK(read_config(NOMIC ",'rotary_emb_base':1000,'max_trained_positions':64}", &c, &err) ==
          LACE_OK);
    CHECK(c.model.rope.base == 1000 && c.model.n_context == 64);
    CHECK(read_config(MODERN ",'global_attn_every_n_layers':2,'local_attention':6,"
                             "'global_rope_theta':500,'local_rope_theta':50,'norm_eps':1e-4}",
                      &c, &err) == LACE_OK);
    CHECK(!c.model.layers[0].is_local && c.model.layers[1].is_local && c.model.window == 6);
    CHECK(c.model.rope.base == 500 && c.model.rope_local_base == 50 && c.model.norm_eps == 1e-4);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

static lace_model *open_tiny(const char *architecture, buf *file)
{
    lace_model *model = NULL;
    lace_error err;
    *file = build(architecture, NULL);
    if (!CHECK(lace_model_open_memory(file->data, file->size, "m", NULL, &model, &err) == LACE_OK))
        tap_note("%s", err.text);
    return model;
}

static void logits_of_an_encoder_are_refused(void)
{
    buf file;
    lace_model *model = open_tiny("bert", &file);
    lace_session *session;
    lace_batcher *batcher;
    lace_error err;
    CHECK(lace_session_create(model, NULL, &session, &err) == LACE_E_UNSUPPORTED);
    CHECK(strstr(err.text, "encoder") != NULL);
    CHECK(lace_batcher_create(model, NULL, &batcher, &err) == LACE_E_UNSUPPORTED);
    lace_model_close(model);
    buf_deinit(&file);
    model = open_tiny("nomic-bert", &file);
    lace_session_options o = lace_session_options_default();
    o.wants_scores = true;
    CHECK(lace_session_create(model, &o, &session, &err) == LACE_E_UNSUPPORTED);
    CHECK(strstr(err.text, "head") != NULL);
    lace_model_close(model);
    buf_deinit(&file);
}

/* An eval begins anew: the second one does not see the first, and all must fit into a batch. */
static void nothing_outlives_a_batch(void)
{
    buf file;
    lace_model *model = open_tiny("modern-bert", &file);
    lace_session_options o = lace_session_options_default();
    o.wants_hidden = true;
    o.n_context = 12;
    o.n_batch = 20;
    o.n_sequences = 3;
    o.n_outputs = 20;
    lace_session *session = NULL;
    lace_error err;
    CHECK(lace_session_create(model, &o, &session, &err) == LACE_OK);
    lace_item items[24];
    float first[8];
    for (int i = 0; i < 24; i++)
        items[i] = (lace_item){.token = 3 + i % 7, .sequence = i / 12, .want_logits = i < 20};
    for (int turn = 0; turn < 3; turn++) {
        CHECK(lace_session_eval(session, items, 12, &err) == LACE_OK);
        CHECK(lace_session_length(session, 0) == 12);
        if (turn == 0)
            memcpy(first, lace_session_logits(session, 0), sizeof first);
        CHECK(memcmp(first, lace_session_logits(session, 0), sizeof first) == 0);
    }
    CHECK(lace_session_eval(session, items, 24, &err) == LACE_E_LIMIT);
    lace_session_free(session);
    lace_model_close(model);
    buf_deinit(&file);
}

/* The cache holds the tokens of a batch, not the contexts of all sequences. */
static void sequences_share_the_room_of_a_batch(void)
{
    buf file;
    lace_model *model = open_tiny("bert", &file);
    lace_session_options o = lace_session_options_default();
    lace_memory one, many;
    o.wants_hidden = true;
    o.n_context = 64;
    o.n_batch = 64;
    CHECK(lace_session_memory(model, &o, &one, NULL) == LACE_OK);
    o.n_sequences = 64;
    CHECK(lace_session_memory(model, &o, &many, NULL) == LACE_OK);
    CHECK(one.kv > 0 && many.kv <= 40 * one.kv);
    lace_model_close(model);
    buf_deinit(&file);
}

/* ---- Embedders ------------------------------------------------------------------------------- */

static double distance(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += fabs((double)a[i] - (double)b[i]);
    return sum;
}

/* The second text of a pair is told from the first. */
static void segments_and_poolings_differ(void)
{
    static const lace_token tokens[] = {5, 9, 3, 12, 7, 4};
    enum { N = 6, WIDTH = 8 };
    float out[5][WIDTH], each[N][WIDTH], score, pair;
    buf file;
    lace_model *model = open_tiny("bert", &file);
    lace_embedder *e = NULL;
    lace_error err = {0};
    CHECK(lace_embedder_create(model, NULL, &e, &err) == LACE_OK);
    lace_embed_text t = {.tokens = tokens, .n_tokens = N};
    lace_embed_text texts[] = {t, t, t, t, t, t, t};
    static const lace_pooling poolings[] = {LACE_POOLING_MODEL, LACE_POOLING_MEAN, LACE_POOLING_CLS,
                                            LACE_POOLING_LAST};
    for (int i = 0; i < 4; i++) {
        texts[i].pooling = poolings[i];
        texts[i].out = out[i];
    }
    texts[4].pooling = LACE_POOLING_NONE;
    texts[4].out = each[0];
    texts[5].pooling = texts[6].pooling = LACE_POOLING_RANK;
    texts[5].out = &score;
    texts[6].out = &pair;
    texts[6].n_first = 3;
    if (!CHECK(lace_embedder_run(e, texts, 7, &err) == LACE_OK))
        tap_note("%s", err.text);
    CHECK(distance(out[0], out[1], WIDTH) == 0);
    CHECK(distance(out[2], each[0], WIDTH) == 0 && distance(out[3], each[N - 1], WIDTH) == 0);
    CHECK(distance(out[1], out[2], WIDTH) > 1e-3 && distance(out[2], out[3], WIDTH) > 1e-3);
    for (int k = 0; k < WIDTH; k++) {
        double sum = 0;
        for (int i = 0; i < N; i++)
            sum += (double)each[i][k];
        CHECK(fabs(sum / N - (double)out[1][k]) < 1e-5);
    }
    CHECK(isfinite(score) && fabs((double)score - (double)pair) > 1e-6);
    lace_embedder_free(e);
    lace_model_close(model);
    buf_deinit(&file);
}

static void texts_that_cannot_be_are_refused(void)
{
    lace_token tokens[65] = {5, 9};
    float out[8];
    buf file;
    lace_model *model = open_tiny("nomic-bert", &file);
    lace_embedder *e = NULL;
    lace_error err = {0};
    CHECK(lace_embedder_create(model, NULL, &e, &err) == LACE_OK);
    CHECK(lace_embedder_context(e) == 64 && lace_embedder_batch(e) >= 64);
    lace_embed_text t = {.tokens = tokens, .out = out};
    CHECK(lace_embedder_run(e, &t, 1, &err) == LACE_E_ARG); /* no tokens */
    t.n_tokens = 65;
    CHECK(lace_embedder_run(e, &t, 1, &err) == LACE_E_CONTEXT);
    t.n_tokens = 2;
    t.pooling = (lace_pooling)17;
    CHECK(lace_embedder_run(e, &t, 1, &err) == LACE_E_ARG);
    t.pooling = LACE_POOLING_RANK;
    CHECK(lace_embedder_run(e, &t, 1, &err) == LACE_E_UNSUPPORTED);
    t.pooling = LACE_POOLING_MODEL;
    tokens[1] = 99;
    CHECK(lace_embedder_run(e, &t, 1, &err) == LACE_E_ARG); /* no such token */
    tokens[1] = 9;
    CHECK(lace_embedder_run(e, &t, 1, &err) == LACE_OK);
    lace_embedder_free(e);
    lace_model_close(model);
    buf_deinit(&file);
}

static int n_asked;

static bool is_unwanted(void *user)
{
    n_asked++;
    return user != NULL;
}

/* Models that are no encoders read texts longer than a batch, in pieces. */
static void long_texts_of_other_models_are_read_in_pieces(void)
{
    tiny_options to = tiny_options_default();
    to.type = DTYPE_F32;
    buf file = tiny_model_bytes(to);
    lace_model *model = NULL;
    lace_error err = {0};
    CHECK(lace_model_open_memory(file.data, file.size, "m", NULL, &model, &err) == LACE_OK);
    lace_token tokens[60];
    float whole[16], pieces[16], other[16];
    for (int i = 0; i < 60; i++)
        tokens[i] = 3 + i * 7 % 250;
    for (int turn = 0; turn < 2; turn++) {
        lace_embedder_options o = lace_embedder_options_default();
        lace_embedder *e = NULL;
        o.session.kv_type = LACE_KV_F32;
        o.session.n_batch = turn ? 16 : 64;
        CHECK(lace_embedder_create(model, &o, &e, &err) == LACE_OK);
        lace_embed_text texts[2] = {{.tokens = tokens, .n_tokens = 9, .out = other},
                                    {.tokens = tokens,
                                     .n_tokens = 60,
                                     .out = turn ? pieces : whole,
                                     .is_unwanted = is_unwanted}};
        CHECK(lace_embedder_run(e, texts, 2, &err) == LACE_OK);
        texts[1].user = &texts;
        CHECK(lace_embedder_run(e, texts, 2, &err) == (turn ? LACE_E_CANCELLED : LACE_OK));
        lace_embedder_free(e);
    }
    CHECK(n_asked > 0 && distance(whole, pieces, 16) < 1e-4);
    lace_model_close(model);
    buf_deinit(&file);
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static void pairs_are_framed_and_cut(void)
{
    tiny_options to = tiny_options_default();
    buf file = tiny_model_bytes(to);
    lace_model *model = NULL;
    lace_token a[8], b[8], pair[32];
    size_t n_a, n_b, n, n_first;
    CHECK(lace_model_open_memory(file.data, file.size, "m", NULL, &model, NULL) == LACE_OK);
    CHECK(lace_tokenize(model, "the", 3, 0, a, 8, &n_a, NULL) == LACE_OK);
    CHECK(lace_tokenize(model, "and", 3, 0, b, 8, &n_b, NULL) == LACE_OK);
    CHECK(lace_tokenize_pair(model, "the", 3, "and", 3, 0, pair, 32, &n, &n_first, NULL) ==
          LACE_OK);
    /* This vocabulary has a token before a text and none behind it. */
    CHECK(n == 1 + n_a + n_b && n_first == 1 + n_a && pair[0] == 1);
    CHECK(memcmp(pair + 1, a, n_a * sizeof *a) == 0);
    CHECK(memcmp(pair + n_first, b, n_b * sizeof *b) == 0);
    CHECK(lace_tokenize_pair(model, "the", 3, "and", 3, n - 1, pair, 32, &n, &n_first, NULL) ==
          LACE_OK);
    CHECK(n == n_a + n_b && n_first == 1 + n_a);
    lace_model_close(model);
    buf_deinit(&file);
}

int main(void)
{
    CASE(wrong_keys_are_refused_by_their_names);
    CASE(wrong_configs_are_refused_by_their_keys);
    CASE(configs_say_what_is_computed);
    CASE(logits_of_an_encoder_are_refused);
    CASE(nothing_outlives_a_batch);
    CASE(sequences_share_the_room_of_a_batch);
    CASE(segments_and_poolings_differ);
    CASE(texts_that_cannot_be_are_refused);
    CASE(long_texts_of_other_models_are_read_in_pieces);
    CASE(pairs_are_framed_and_cut);
    return tap_end();
}
