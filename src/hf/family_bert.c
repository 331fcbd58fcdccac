/*
 * Hugging Face directories of encoders: BERT, RoBERTa and XLM-RoBERTa, Nomic BERT, ModernBERT. How
 * their vectors are pooled is said by sentence-transformers, in 1_Pooling/config.json.
 */
#include "hf/hf_family.h"

#include <string.h>

/* clang-format off */
/* A norm by its two generations of names. */
#define NORM(from, to)                                                                             \
    COPY(from ".weight", to ".weight"), COPY(from ".gamma", to ".weight"),                         \
    COPY(from ".bias", to ".bias"), COPY(from ".beta", to ".bias")

static const name_row bert_rows[] = {
    WITH_BIAS("attention.self.query", "attn_q"),
    WITH_BIAS("attention.self.key", "attn_k"),
    WITH_BIAS("attention.self.value", "attn_v"),
    WITH_BIAS("attention.output.dense", "attn_output"),
    NORM("attention.output.LayerNorm", "attn_output_norm"),
    WITH_BIAS("intermediate.dense", "ffn_up"),
    WITH_BIAS("output.dense", "ffn_down"),
    NORM("output.LayerNorm", "layer_output_norm"),
};

#define BERT_EMBEDDINGS                                                                            \
    COPY("embeddings.word_embeddings.weight", "token_embd.weight"),                                \
    COPY("embeddings.token_type_embeddings.weight", "token_types.weight"),                         \
    NORM("embeddings.LayerNorm", "token_embd_norm")
#define BERT_POSITIONS COPY("embeddings.position_embeddings.weight", "position_embd.weight")

static const name_row bert_ends[] = {BERT_EMBEDDINGS, BERT_POSITIONS};

/* Behind a classifier, the pooler is its first layer. */
static const name_row bert_classifier_ends[] = {BERT_EMBEDDINGS, BERT_POSITIONS,
                                                WITH_BIAS("pooler.dense", "cls")};
static const name_row bert_heads[] = {WITH_BIAS("classifier", "cls.output")};

static const name_row roberta_heads[] = {
    WITH_BIAS("classifier.dense", "cls"),
    WITH_BIAS("classifier.out_proj", "cls.output"),
};
/* clang-format on */

/* Positions of RoBERTa begin behind that of the padding. */
static int64_t count_positions(const model_config *c, int32_t layer)
{
    return c->n_context;
}

static int64_t find_position(const model_config *c, int32_t layer, int64_t row)
{
    return row + c->encoder.first_position;
}

static const row_map roberta_positions = {.count = count_positions, .source = find_position};

static const name_row roberta_ends[] = {
    BERT_EMBEDDINGS,
    ROWS("embeddings.position_embeddings.weight", "position_embd.weight", &roberta_positions),
};

/* Heads for training, and what can be computed. */
static const char *const ignored[] = {"pooler.",
                                      "bert.pooler.",
                                      "roberta.pooler.",
                                      "cls.predictions.",
                                      "cls.seq_",
                                      "embeddings.position_ids",
                                      "lm_head.",
                                      "bert.embeddings.position_ids",
                                      "roberta.embeddings.position_ids",
                                      NULL};

/* ---- Keys ------------------------------------------------------------------------------------ */

static lace_status read_pooling(const source *s, model_config *c)
{
    static const struct {
        const char *key;
        lace_pooling pooling;
    } kinds[] = {{"pooling_mode_cls_token", LACE_POOLING_CLS},
                 {"pooling_mode_mean_tokens", LACE_POOLING_MEAN},
                 {"pooling_mode_lasttoken", LACE_POOLING_LAST}};
    const json_t *object = source_get(s, "1_Pooling");
    source pooling = {.object = object, .name = "1_Pooling", .err = s->err};
    for (size_t i = 0; json_is_object(object) && i < sizeof kinds / sizeof *kinds; i++) {
        bool is_on = false;
        TRY(source_bool(&pooling, kinds[i].key, &is_on));
        if (is_on)
            c->pooling = kinds[i].pooling;
    }
    return LACE_OK;
}

static lace_status read_encoder(const source *s, model_config *c)
{
    TRY(source_int(s, "type_vocab_size", 0, CONFIG_MAX_SEGMENTS, &c->encoder.n_segments, NULL));
    return read_pooling(s, c);
}

/* Classes of a head: transformers counts the names, and has two without any. */
static lace_status read_classes(const source *s, model_config *c)
{
    const json_t *labels = source_get(s, "id2label");
    c->encoder.n_classes = 2;
    TRY(source_int(s, "num_labels", 1, CONFIG_MAX_CLASSES, &c->encoder.n_classes, NULL));
    if (!labels)
        return LACE_OK;
    size_t n = json_object_size(labels);
    if (n < 1 || n > CONFIG_MAX_CLASSES)
        return source_fail(s, LACE_E_META, "id2label", "expected an object with a name or more");
    c->encoder.n_classes = (int32_t)n;
    return LACE_OK;
}

static lace_status read_bert(const source *s, hf_config *h)
{
    TRY(source_expect_bool(s, "is_decoder", false));
    TRY(source_expect_text(s, "position_embedding_type", "absolute"));
    for (int32_t i = 0; i < h->model.n_layers; i++)
        h->model.layers[i].skips_rope = true;
    return read_encoder(s, &h->model);
}

static lace_status read_bert_classifier(const source *s, hf_config *h)
{
    TRY(read_bert(s, h));
    return read_classes(s, &h->model);
}

static lace_status read_roberta(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    int32_t padding = 1;
    TRY(read_bert(s, h));
    TRY(source_int(s, "pad_token_id", 0, CONFIG_MAX_CONTEXT, &padding, NULL));
    c->encoder.first_position = padding + 1;
    if (c->n_context <= c->encoder.first_position)
        return source_fail(s, LACE_E_META, "max_position_embeddings",
                           "leaves no positions behind that of pad_token_id");
    c->n_context -= c->encoder.first_position;
    c->rope.original_context = c->n_context;
    return LACE_OK;
}

static lace_status read_roberta_classifier(const source *s, hf_config *h)
{
    TRY(read_roberta(s, h));
    return read_classes(s, &h->model);
}

#define BERT                                                                                       \
    .layers = NAME_TABLE(bert_rows), .layer_start = "encoder.layer.", .ignores = ignored,          \
    .activation = "gelu"

const hf_family family_bert = {BERT, .ends = NAME_TABLE(bert_ends), .read = read_bert};
const hf_family family_bert_classifier = {BERT, .ends = NAME_TABLE(bert_classifier_ends),
                                          .heads = NAME_TABLE(bert_heads),
                                          .read = read_bert_classifier};
const hf_family family_roberta = {BERT, .ends = NAME_TABLE(roberta_ends), .read = read_roberta};
const hf_family family_roberta_classifier = {BERT, .ends = NAME_TABLE(roberta_ends),
                                             .heads = NAME_TABLE(roberta_heads),
                                             .read = read_roberta_classifier};

/* ---- Nomic BERT ------------------------------------------------------------------------------ */

/* clang-format off */
static const name_row nomic_rows[] = {
    WITH_BIAS("attn.Wqkv", "attn_qkv"),
    WITH_BIAS("attn.out_proj", "attn_output"),
    WITH_BIAS("mlp.fc11", "ffn_up"),
    WITH_BIAS("mlp.fc12", "ffn_gate"),
    WITH_BIAS("mlp.fc2", "ffn_down"),
    NORM("norm1", "attn_output_norm"),
    NORM("norm2", "layer_output_norm"),
};

static const name_row nomic_ends[] = {
    COPY("embeddings.word_embeddings.weight", "token_embd.weight"),
    COPY("embeddings.token_type_embeddings.weight", "token_types.weight"),
    NORM("emb_ln", "token_embd_norm"),
};
/* clang-format on */

/* Contexts beyond what it was trained with would need another rotation. */
static lace_status read_nomic(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    double part = 1;
    TRY(source_expect_bool(s, "causal", false));
    TRY(source_expect_bool(s, "prenorm", false));
    TRY(source_expect_bool(s, "parallel_block", false));
    TRY(source_expect_bool(s, "rotary_emb_interleaved", false));
    TRY(source_expect_bool(s, "use_rms_norm", false));
    TRY(source_expect_text(s, "activation_function", "swiglu"));
    if (source_get(s, "rotary_emb_scale_base"))
        return source_fail(s, LACE_E_UNSUPPORTED, "rotary_emb_scale_base", "is not null");
    if (!source_get(s, "rope_parameters"))
        TRY(source_float(s, "rotary_emb_base", 2, 1e15, &c->rope.base, NULL));
    TRY(source_float(s, "rotary_emb_fraction", 1e-6, 1, &part, NULL));
    c->rope.n_dims = (int32_t)(c->head_dim * part);
    if (c->rope.n_dims < 2 || c->rope.n_dims % 2 != 0)
        return source_fail(s, LACE_E_META, "rotary_emb_fraction",
                           "expected an even number of rotated values, 2 or more");
    TRY(source_int(s, "max_trained_positions", 1, c->n_context, &c->n_context, NULL));
    return read_encoder(s, c);
}

const hf_family family_nomic_bert = {.layers = NAME_TABLE(nomic_rows),
                                     .layer_start = "encoder.layers.",
                                     .ends = NAME_TABLE(nomic_ends),
                                     .ignores = ignored,
                                     .read = read_nomic};

/* ---- ModernBERT ------------------------------------------------------------------------------ */

/* clang-format off */
static const name_row modern_rows[] = {
    WITH_BIAS("attn.Wqkv", "attn_qkv"),
    WITH_BIAS("attn.Wo", "attn_output"),
    NORM("attn_norm", "attn_norm"),
    WITH_BIAS("mlp.Wi", "ffn_up"),
    WITH_BIAS("mlp.Wo", "ffn_down"),
    NORM("mlp_norm", "ffn_norm"),
};

static const name_row modern_ends[] = {
    COPY("embeddings.tok_embeddings.weight", "token_embd.weight"),
    NORM("embeddings.norm", "token_embd_norm"),
    NORM("final_norm", "output_norm"),
};
/* clang-format on */

static const char *const modern_ignored[] = {"head.", "decoder.", "classifier.", NULL};

static const char *const modern_keys[] = {"mlp_bias", NULL}; /* its tensors say it */

static void set_modern_defaults(model_config *c)
{
    c->n_context = 8192;
    c->window = 128;
    c->rope.base = 160000;
    c->rope_local_base = 10000;
    c->norm_eps = 1e-5;
}

static lace_status read_modern(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    int32_t interval = 3;
    const char *activation = json_string_value(source_get(s, "hidden_activation"));
    c->encoder.has_swiglu = activation && strcmp(activation, "silu") == 0;
    if (activation && !c->encoder.has_swiglu && strcmp(activation, "gelu") != 0)
        return source_fail(s, LACE_E_UNSUPPORTED, "hidden_activation", "expected gelu or silu");
    TRY(source_float(s, "norm_eps", 1e-30, 0.999, &c->norm_eps, NULL));
    c->window = 128;
    TRY(source_int(s, "local_attention", 2, CONFIG_MAX_CONTEXT, &c->window, NULL));
    TRY(source_int(s, "global_attn_every_n_layers", 1, CONFIG_MAX_LAYERS, &interval, NULL));
    for (int32_t i = 0; !source_get(s, "layer_types") && i < c->n_layers; i++)
        c->layers[i].is_local = i % interval != 0;
    if (!source_get(s, "rope_parameters")) {
        TRY(source_float(s, "global_rope_theta", 2, 1e15, &c->rope.base, NULL));
        TRY(source_float(s, "local_rope_theta", 2, 1e15, &c->rope_local_base, NULL));
    }
    return read_encoder(s, c);
}

const hf_family family_modernbert = {.layers = NAME_TABLE(modern_rows),
                                     .ends = NAME_TABLE(modern_ends),
                                     .window = WINDOW_ALWAYS,
                                     .ignores = modern_ignored,
                                     .reads = modern_keys,
                                     .set_defaults = set_modern_defaults,
                                     .read = read_modern,
                                     .activation = HF_ANY_ACTIVATION};
