/* The vocabulary in the metadata of a GGUF file. */
#include "vocab/vocab_gguf.h"

#include <ctype.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

static const size_t MAX_VOCAB_BYTES = (size_t)1 << 32;

/* The getters say LACE_E_META; here it is the vocabulary that is wrong. */
static lace_status vocab_status(lace_status status, lace_error *err)
{
    if (status == LACE_E_META) {
        status = LACE_E_VOCAB;
        if (err)
            err->status = status;
    }
    return status;
}

#define TRY_META(call) TRY(vocab_status((call), err))

/* ---- Kinds ----------------------------------------------------------------------------------- */

/* What a model of tokenizer implies where the file is silent. Ids are -1: none. */
typedef struct model_kind {
    const char *name; /* tokenizer.ggml.model */
    vocab_kind kind;
    const char *pre; /* its only pre-tokenizer, or NULL */
    int32_t bos, eos, unk;
    bool add_bos, add_eos, add_sep, add_space_prefix;
} model_kind;

/* clang-format off */
static const model_kind kinds[] = {
    {"gpt2",   VOCAB_BPE,       NULL,     -1, -1, -1, .add_bos = false},
    {"gemma4", VOCAB_BPE,       "gemma4", -1, -1, -1, .add_bos = true},
    {"llama",  VOCAB_SPM,       NULL,      1,  2,  0, .add_bos = true, .add_space_prefix = true},
    {"bert",   VOCAB_WORDPIECE, NULL,     -1, -1, -1, .add_bos = true, .add_sep = true},
    {"t5",     VOCAB_UNIGRAM,   NULL,     -1,  1,  2, .add_eos = true},
};
/* clang-format on */

static const model_kind *find_kind(text name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (text_is(name, kinds[i].name))
            return &kinds[i];
    return NULL;
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

static lace_status read_texts(const gguf *g, const char *key, arena *memory, const text **out,
                              size_t *n_out, lace_error *err)
{
    const gguf_value *array = NULL;
    TRY_META(gguf_get_array(g, key, GGUF_STRING, &array, err));
    if (!array || array->n_items == 0)
        return error_set(err, LACE_E_VOCAB, "%s: %s", key, array ? "empty" : "missing");
    text *texts = arena_alloc(memory, array->n_items, sizeof *texts);
    if (!texts)
        return error_nomem(err, key);
    gguf_array_texts(array, texts);
    *out = texts;
    *n_out = array->n_items;
    return LACE_OK;
}

/* An array with one item of 4 bytes per token, or NULL if the file has none. */
static lace_status find_items(const gguf *g, const char *key, gguf_type type, size_t n_tokens,
                              const gguf_value **out, lace_error *err)
{
    TRY_META(gguf_get_array(g, key, type, out, err));
    if (*out && (*out)->n_items != n_tokens)
        return error_set(err, LACE_E_VOCAB, "%s: has %llu items, expected %zu", key,
                         (unsigned long long)(*out)->n_items, n_tokens);
    return LACE_OK;
}

static lace_status read_scores(const gguf *g, arena *memory, vocab *v, lace_error *err)
{
    const gguf_value *array = gguf_find(g, KEY("scores"));
    bool is_int = array && array->type == GGUF_ARRAY && array->item_type == GGUF_I32;
    TRY(find_items(g, KEY("scores"), is_int ? GGUF_I32 : GGUF_F32, v->n_tokens, &array, err));
    if (!array)
        return LACE_OK;
    float *scores = arena_alloc(memory, v->n_tokens, sizeof *scores);
    if (!scores)
        return error_nomem(err, KEY("scores"));
    for (size_t i = 0; i < v->n_tokens; i++)
        scores[i] = is_int ? (float)(int32_t)load_u32(array->bytes.data + 4 * i)
                           : load_f32(array->bytes.data + 4 * i);
    v->scores = scores;
    return LACE_OK;
}

static lace_status read_types(const gguf *g, arena *memory, vocab *v, lace_error *err)
{
    const gguf_value *array = gguf_find(g, KEY("token_type"));
    bool is_unsigned = array && array->type == GGUF_ARRAY && array->item_type == GGUF_U32;
    TRY(find_items(g, KEY("token_type"), is_unsigned ? GGUF_U32 : GGUF_I32, v->n_tokens, &array,
                   err));
    if (!array)
        return LACE_OK;
    int32_t *types = arena_alloc(memory, v->n_tokens, sizeof *types);
    if (!types)
        return error_nomem(err, KEY("token_type"));
    for (size_t i = 0; i < v->n_tokens; i++) {
        types[i] = (int32_t)load_u32(array->bytes.data + 4 * i);
        if (types[i] < TOKEN_NORMAL || types[i] > TOKEN_BYTE)
            return error_set(err, LACE_E_VOCAB, KEY("token_type") "[%zu]: is %lld, expected 1 to 6",
                             i, is_unsigned ? (long long)(uint32_t)types[i] : (long long)types[i]);
    }
    v->types = types;
    return LACE_OK;
}

static lace_status read_charsmap(const gguf *g, vocab *v, lace_error *err)
{
    const gguf_value *value = gguf_find(g, KEY("precompiled_charsmap"));
    if (!value)
        return LACE_OK;
    if (value->type != GGUF_ARRAY || (value->item_type != GGUF_U8 && value->item_type != GGUF_I8))
        return error_set(err, LACE_E_VOCAB,
                         KEY("precompiled_charsmap") ": expected an array of u8");
    v->precompiled_charsmap = value->bytes;
    return LACE_OK;
}

/* ---- Ids and flags --------------------------------------------------------------------------- */

static lace_status read_id(const gguf *g, const char *key, size_t n_tokens, int32_t *id,
                           lace_error *err)
{
    int64_t value = -1;
    bool is_found = false;
    TRY_META(gguf_get_int(g, key, INT64_MIN, INT64_MAX, &value, &is_found, err));
    if (!is_found) {
        if (*id >= 0 && (size_t)*id >= n_tokens)
            *id = -1; /* a default that this vocabulary is too small for */
        return LACE_OK;
    }
    if (value == -1 || value == UINT32_MAX)
        *id = -1;
    else if (value < 0 || (uint64_t)value >= n_tokens)
        return error_set(err, LACE_E_VOCAB, "%s: is %lld, expected less than %zu", key,
                         (long long)value, n_tokens);
    else
        *id = (int32_t)value;
    return LACE_OK;
}

static lace_status read_ids(const gguf *g, arena *memory, vocab *v, lace_error *err)
{
    /* Tokens besides EOS and EOT after which nothing more of an answer comes. */
    static const char *const end_keys[] = {
        KEY("eom_token_id"),
        KEY("fim_pad_token_id"),
        KEY("fim_rep_token_id"),
        KEY("fim_sep_token_id"),
    };
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {KEY("bos_token_id"), &v->bos},       {KEY("eos_token_id"), &v->eos},
        {KEY("eot_token_id"), &v->eot},       {KEY("unknown_token_id"), &v->unk},
        {KEY("seperator_token_id"), &v->sep}, {KEY("padding_token_id"), &v->pad},
        {KEY("cls_token_id"), &v->cls},       {KEY("mask_token_id"), &v->mask},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        TRY(read_id(g, ids[i].key, v->n_tokens, ids[i].id, err));
    TRY(read_id(g, KEY("separator_token_id"), v->n_tokens, &v->sep, err));
    int32_t *ends = arena_alloc(memory, sizeof end_keys / sizeof *end_keys, sizeof *ends);
    if (!ends)
        return error_nomem(err, "the vocabulary");
    for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
        int32_t id = -1;
        TRY(read_id(g, end_keys[i], v->n_tokens, &id, err));
        if (id >= 0)
            ends[v->n_ends++] = id;
    }
    v->ends = ends;
    return LACE_OK;
}

static lace_status read_flags(const gguf *g, vocab *v, lace_error *err)
{
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {
        {KEY("add_bos_token"), &v->add_bos},
        {KEY("add_eos_token"), &v->add_eos},
        {KEY("add_space_prefix"), &v->add_space_prefix},
        {KEY("remove_extra_whitespaces"), &v->remove_extra_whitespaces},
        {KEY("normalizer.lowercase"), &v->lowercase},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        TRY_META(gguf_get_bool(g, flags[i].key, flags[i].flag, NULL, err));
    v->strip_accents = v->lowercase;
    TRY_META(gguf_get_bool(g, KEY("normalizer.strip_accents"), &v->strip_accents, NULL, err));
    if (v->kind == VOCAB_WORDPIECE)
        TRY_META(gguf_get_bool(g, KEY("add_sep_token"), &v->add_sep, NULL, err));
    return LACE_OK;
}

/* BERT's special tokens have names when their ids are not given. */
static void find_bert_ids(vocab *v)
{
    const struct {
        const char *name;
        int32_t *id;
    } ids[] = {{"[CLS]", &v->cls}, {"[SEP]", &v->sep}, {"[UNK]", &v->unk}, {"[PAD]", &v->pad}};
    for (size_t k = 0; k < sizeof ids / sizeof *ids; k++)
        for (size_t i = 0; *ids[k].id < 0 && i < v->n_tokens; i++)
            if (text_is(v->tokens[i], ids[k].name))
                *ids[k].id = (int32_t)i;
}

/* ---- How special tokens are found in text ---------------------------------------------------- */

static bool contains(text t, const char *what)
{
    size_t n = strlen(what);
    for (size_t i = 0; i + n <= t.size; i++) {
        size_t k = 0;
        while (k < n && tolower((unsigned char)t.data[i + k]) == what[k])
            k++;
        if (k == n)
            return true;
    }
    return false;
}

/* GGUF does not carry the flags of added tokens; those that matter are known
 * by the model's name. */
static lace_status set_token_flags(const gguf *g, arena *memory, vocab *v, lace_error *err)
{
    text name = {"", 0};
    TRY_META(gguf_get_text(g, "general.name", &name, NULL, err));
    bool is_phi3 = contains(name, "phi-3") || contains(name, "phi3");
    bool is_jina = contains(v->pre, "jina-v2");
    bool is_modern_bert = contains(name, "modern-bert");
    if (!is_phi3 && !is_jina && !is_modern_bert)
        return LACE_OK;
    uint8_t *flags = arena_alloc(memory, v->n_tokens, 1);
    if (!flags)
        return error_nomem(err, "the vocabulary");
    for (size_t i = 0; i < v->n_tokens; i++) {
        text t = v->tokens[i];
        bool is_special =
            v->types && v->types[i] >= TOKEN_UNKNOWN && v->types[i] <= TOKEN_USER_DEFINED;
        bool is_plain = text_is(t, "<unk>") || text_is(t, "<s>") || text_is(t, "<|endoftext|>");
        if (is_phi3 && is_special && !is_plain)
            flags[i] |= TOKEN_RSTRIP;
        if ((is_jina && text_is(t, "<mask>")) || (is_modern_bert && text_is(t, "[MASK]")))
            flags[i] |= TOKEN_LSTRIP;
    }
    v->flags = flags;
    return LACE_OK;
}

/* ---- All together ---------------------------------------------------------------------------- */

static lace_status read_pre(const gguf *g, const model_kind *kind, vocab *v, lace_error *err)
{
    text pre = text_of("default");
    TRY_META(gguf_get_text(g, KEY("pre"), &pre, NULL, err));
    if (kind->pre)
        pre = text_of(kind->pre);
    const pre_tokenizer *p = pre_tokenizer_find(pre);
    if (!p)
        return error_set(err, LACE_E_VOCAB, KEY("pre") ": \"%.*s\" is not known", text_width(pre),
                         pre.data);
    v->pre = pre;
    v->ignore_merges = p->ignore_merges;
    v->is_byte_level = !p->is_raw;
    v->add_bos = v->add_bos || p->add_bos;
    return LACE_OK;
}

lace_status vocab_gguf_read(const gguf *g, arena *memory, vocab *out, lace_error *err)
{
    text name = {"", 0};
    bool is_found = false;
    TRY_META(gguf_get_text(g, KEY("model"), &name, &is_found, err));
    const model_kind *kind = find_kind(name);
    if (!is_found)
        return error_set(err, LACE_E_VOCAB, KEY("model") ": missing");
    if (!kind)
        return error_set(err, LACE_E_VOCAB, KEY("model") ": \"%.*s\" is not known",
                         text_width(name), name.data);
    *out = vocab_default(kind->kind);
    out->bos = kind->bos;
    out->eos = kind->eos;
    out->unk = kind->unk;
    out->add_bos = kind->add_bos;
    out->add_eos = kind->add_eos;
    out->add_sep = kind->add_sep;
    out->add_space_prefix = kind->add_space_prefix;
    TRY(read_texts(g, KEY("tokens"), memory, &out->tokens, &out->n_tokens, err));
    TRY(read_scores(g, memory, out, err));
    TRY(read_types(g, memory, out, err));
    if (kind->kind == VOCAB_BPE) {
        TRY(read_texts(g, KEY("merges"), memory, &out->merges, &out->n_merges, err));
        TRY(read_pre(g, kind, out, err));
    }
    TRY(read_ids(g, memory, out, err));
    TRY(read_flags(g, out, err));
    if (kind->kind == VOCAB_BPE)
        out->add_space_prefix = false; /* readers of such files ignore the key */
    if (kind->kind == VOCAB_WORDPIECE)
        find_bert_ids(out);
    if (kind->kind == VOCAB_UNIGRAM)
        TRY(read_charsmap(g, out, err));
    return set_token_flags(g, memory, out, err);
}

lace_status vocab_gguf_open(const gguf *g, tokenizer **out, lace_error *err)
{
    *out = NULL;
    text name = {"", 0};
    TRY_META(gguf_get_text(g, KEY("model"), &name, NULL, err));
    if (text_is(name, "none") || text_is(name, "no_vocab"))
        return LACE_OK;
    arena memory;
    arena_init(&memory, MAX_VOCAB_BYTES);
    vocab v;
    lace_status status = vocab_gguf_read(g, &memory, &v, err);
    if (status == LACE_OK)
        status = tokenizer_create(&v, out, err);
    arena_deinit(&memory);
    return status;
}
