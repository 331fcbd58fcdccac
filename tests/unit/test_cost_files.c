/* Time and memory of reading files, in proportion to them: valid ones, and those with one error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "compress/imatrix.h"
#include "cost.h"
#include "formats/gguf_write.h"
#include "formats/safetensors.h"
#include "hf/config_hf.h"
#include "vocab/spm_proto.h"
#include "vocab/tokenizer_json.h"
#include "vocab/vocab_gguf.h"
#include "spm_file.h"
#include "tap.h"
#include "tensor/sparse.h"
#include "tiny_hf.h"

/* ---- GGUF ------------------------------------------------------------------------------------ */

static void run_gguf(span input)
{
    gguf *g = NULL;
    tokenizer *t = NULL;
    if (gguf_parse_file(input, &g, NULL) == LACE_OK && gguf_find(g, "tokenizer.ggml.model"))
        vocab_gguf_open(g, &t, NULL);
    tokenizer_free(t);
    gguf_free(g);
}

static void finish(gguf_writer *w, buf *out)
{
    CHECK(gguf_writer_to_buf(w, out, NULL) == LACE_OK);
    gguf_writer_free(w);
}

static gguf_writer *start(void)
{
    gguf_writer *w = NULL;
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    return w;
}

static void many_keys(size_t n, buf *out)
{
    gguf_writer *w = start();
    for (size_t i = 0; i < n / 26; i++) {
        char key[32];
        snprintf(key, sizeof key, "general.%zu", i);
        gguf_writer_add_int(w, key, GGUF_U32, (int64_t)i, NULL);
    }
    finish(w, out);
}

enum { TENSOR_BYTES = 55, MAX_TENSORS_BYTES = TENSOR_BYTES * GGUF_MAX_TENSORS };

static void many_tensors(size_t n, buf *out)
{
    static const float one = 1;
    gguf_writer *w = start();
    gguf_writer_set_alignment(w, 8, NULL);
    shape s = {1, {1, 1, 1, 1}};
    for (size_t i = 0; i < n / TENSOR_BYTES; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%zu.weight", i);
        gguf_writer_add_tensor(w, text_of(name), DTYPE_F32, &s, &one, NULL);
    }
    finish(w, out);
}

/* One of many tensors begins inside of another, in the last entry of the directory. */
static void overlapping_tensors(size_t n, buf *out)
{
    many_tensors(n, out);
    gguf *g = NULL;
    if (!CHECK(gguf_parse((span){(const uint8_t *)out->data, out->size}, &g, NULL) == LACE_OK))
        return;
    text name = gguf_tensor_at(g, gguf_n_tensors(g) - 1)->name;
    memset((char *)name.data + name.size + 4 + 8 + 4, 0, 8); /* its offset */
    gguf_free(g);
}

enum vocab_shape { WORDS, LONG_WORDS, NESTED, SPECIALS };

/* A vocabulary of this model of tokenizer. */
static void add_vocab(gguf_writer *w, const char *model, enum vocab_shape kind, size_t n_bytes)
{
    size_t n = 0, capacity = n_bytes / 8 + 512, used = 0;
    text *tokens = calloc(capacity, sizeof *tokens);
    float *scores = calloc(capacity, sizeof *scores);
    int32_t *types = calloc(capacity, sizeof *types);
    char *letters = malloc(n_bytes + 4096);
    for (size_t at = 0; used < n_bytes && n < capacity; n++) {
        char *token = letters + at;
        size_t size = kind == WORDS || kind == SPECIALS ? (size_t)sprintf(token, "w%zx", n)
                      : kind == LONG_WORDS              ? n_bytes / 8
                                                        : n + 1;
        if (size > n_bytes - used && kind != WORDS && kind != SPECIALS)
            break;
        if (kind == LONG_WORDS || kind == NESTED) {
            memset(token, 'a', size);
            if (kind == LONG_WORDS)
                token[size - 1] = (char)('a' + n);
        }
        tokens[n] = (text){token, size};
        scores[n] = -(float)n;
        types[n] = kind == SPECIALS ? 3 : 1;
        at += size;
        used += size + 8 + 8;
    }
    gguf_writer_add_text(w, "tokenizer.ggml.model", text_of(model), NULL);
    gguf_writer_add_texts(w, "tokenizer.ggml.tokens", tokens, n, NULL);
    gguf_writer_add_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, n, NULL);
    gguf_writer_add_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, n, NULL);
    gguf_writer_add_texts(w, "tokenizer.ggml.merges", &(text){"a a", 3}, 1, NULL);
    free(tokens);
    free(scores);
    free(types);
    free(letters);
}

#define VOCAB(name, model, kind)                                                                   \
    static void name(size_t n, buf *out)                                                           \
    {                                                                                              \
        gguf_writer *w = start();                                                                  \
        add_vocab(w, model, kind, n);                                                              \
        finish(w, out);                                                                            \
    }
VOCAB(bpe_words, "gpt2", WORDS)
VOCAB(bpe_specials, "gpt2", SPECIALS)
VOCAB(bpe_long_words, "gpt2", LONG_WORDS)
VOCAB(spm_words, "llama", WORDS)
VOCAB(spm_nested, "llama", NESTED)
VOCAB(wordpiece_words, "bert", WORDS)
VOCAB(unigram_words, "t5", WORDS)
VOCAB(unigram_long_words, "t5", LONG_WORDS)
VOCAB(unigram_nested, "t5", NESTED)

/* ---- Safetensors ----------------------------------------------------------------------------- */

static void run_safetensors(span input)
{
    safetensors *st = NULL;
    safetensors_parse(input, &st, NULL);
    safetensors_free(st);
}

static void add_tensors(size_t n, const char *start_of_names, const char *last, buf *out)
{
    buf header;
    buf_init(&header, (size_t)1 << 28);
    size_t i = 0;
    for (; header.size < n; i++)
        buf_printf(&header,
                   "%c\"%s%zu\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                   i ? ',' : '{', start_of_names, i, i, i + 1);
    buf_append_text(&header, last);
    buf_append(&header, "}", 2);
    st_raw(header.data, i, out);
    buf_deinit(&header);
}

static void tensors(size_t n, buf *out)
{
    add_tensors(n, "model.layers.", "", out);
}

/* An error in the last tensor, whose place is looked for in a text that is full of its name. */
static void an_error_at_the_end(size_t n, buf *out)
{
    char *letters = calloc(n + 1, 1);
    buf header;
    memset(letters, 'a', n);
    buf_init(&header, (size_t)1 << 28);
    buf_printf(&header, "{\"__metadata__\":{\"x\":\"%s\"},\"%.200s\":{\"dtype\":\"I9\"}}", letters,
               letters);
    buf_append(&header, "", 1);
    st_raw(header.data, 1, out);
    buf_deinit(&header);
    free(letters);
}

static void tensors_and_a_fault(size_t n, buf *out)
{
    add_tensors(n, "a", ",\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}", out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void run_json(span input)
{
    json_t *json = NULL;
    json_read_large(input, 0, (uint64_t)1 << 30, &json, NULL);
    json_decref(json);
}

static void repeat(buf *out, size_t n, const char *begin, const char *middle, const char *end)
{
    buf_append_text(out, begin);
    while (out->size < n)
        buf_append_text(out, middle);
    buf_append_text(out, end);
}

static void json_numbers(size_t n, buf *out)
{
    repeat(out, n, "[1", ",1", "]");
}

static void json_arrays(size_t n, buf *out)
{
    repeat(out, n, "[[]", ",[]", "]");
}

static void json_text(size_t n, buf *out)
{
    repeat(out, n, "[\"", "\\u00e9", "\"]");
}

static void json_members(size_t n, buf *out)
{
    buf_append_text(out, "{\"a\":1");
    for (size_t i = 0; out->size < n; i++)
        buf_printf(out, ",\"%zu\":1", i);
    buf_append_text(out, ",\"a\":1}"); /* twice: an error at the end */
}

/* ---- Tokenizers of directories --------------------------------------------------------------- */

static void run_tokenizer_json(span input)
{
    json_t *json = NULL;
    arena memory;
    hf_vocab h;
    tokenizer *t = NULL;
    arena_init(&memory, (size_t)1 << 31);
    if (json_read_large(input, 0, (uint64_t)1 << 30, &json, NULL) == LACE_OK &&
        tokenizer_json_read(json, &memory, &h, NULL) == LACE_OK)
        tokenizer_create(&h.v, &t, NULL);
    tokenizer_free(t);
    arena_deinit(&memory);
    json_decref(json);
}

#define BYTE_LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}"

static void json_bpe(size_t n, buf *out)
{
    buf_append_text(out, "{" BYTE_LEVEL
                         ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"1\":1,\"a1\":2");
    size_t i = 3;
    for (; out->size < n / 2; i++)
        buf_printf(out, ",\"a%zu\":%zu", i, i);
    buf_append_text(out, "},\"merges\":[\"a 1\"");
    while (out->size < n)
        buf_append_text(out, ",\"a 1\"");
    buf_append_text(out, "]}}");
}

/* a, aa, aaa, ...: tokens, and the merges that lead to them. */
static void json_nested(size_t n, buf *out)
{
    size_t most = 1;
    while (most * most < n)
        most++;
    char *letters = calloc(most + 1, 1);
    memset(letters, 'a', most);
    buf_append_text(out, "{" BYTE_LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0");
    for (size_t i = 1; i < most; i++)
        buf_printf(out, ",\"%.*s\":%zu", (int)(i + 1), letters, i);
    buf_append_text(out, "},\"merges\":[\"a a\"");
    for (size_t i = 2; i < most; i++)
        buf_printf(out, ",\"%.*s a\"", (int)i, letters);
    buf_append_text(out, "]}}");
    free(letters);
}

static void json_added(size_t n, buf *out)
{
    buf_append_text(out, "{" BYTE_LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},"
                         "\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":\"<x>\"}");
    for (size_t i = 2; out->size < n; i++)
        buf_printf(out, ",{\"id\":%zu,\"content\":\"<%zx>\",\"special\":true}", i, i);
    buf_append_text(out, "]}");
}

static void json_unigram(size_t n, buf *out)
{
    buf_append_text(out, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0]");
    for (size_t i = 1; out->size < n; i++)
        buf_printf(out, ",[\"w%zx\",-%zu.5]", i, i);
    buf_append_text(out, "]}}");
}

static void json_wordpiece(size_t n, buf *out)
{
    buf_append_text(out, "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{"
                         "\"[UNK]\":0");
    for (size_t i = 1; out->size < n; i++)
        buf_printf(out, ",\"##%zx\":%zu", i, i);
    buf_append_text(out, "}},\"normalizer\":{\"type\":\"BertNormalizer\"},"
                         "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}");
}

static void run_proto(span input)
{
    arena memory;
    vocab v;
    tokenizer *t = NULL;
    arena_init(&memory, (size_t)1 << 31);
    if (spm_proto_read(input, &memory, &v, NULL) == LACE_OK)
        tokenizer_create(&v, &t, NULL);
    tokenizer_free(t);
    arena_deinit(&memory);
}

static void proto_pieces(size_t n, buf *out)
{
    buf piece;
    buf_init(&piece, 4096);
    for (size_t i = 0; out->size < n; i++) {
        char name[32];
        int size = snprintf(name, sizeof name, i ? "w%zx" : "<unk>", i);
        buf_clear(&piece);
        proto_bytes(&piece, 1, name, (size_t)size);
        if (i == 0)
            proto_number(&piece, 3, 2);
        proto_bytes(out, 1, piece.data, piece.size);
    }
    buf_deinit(&piece);
}

/* ---- The rest -------------------------------------------------------------------------------- */

static void run_config(span input)
{
    json_t *json = NULL;
    static hf_config c;
    if (json_read(input, 0, &json, NULL) == LACE_OK)
        hf_config_read(json, &c, NULL);
    json_decref(json);
}

static void config_layers(size_t n, buf *out)
{
    repeat(out, n,
           "{\"model_type\":\"gemma2\",\"hidden_size\":64,\"num_hidden_layers\":2,"
           "\"num_attention_heads\":4,\"intermediate_size\":8,\"vocab_size\":8,"
           "\"rms_norm_eps\":1e-6,\"max_position_embeddings\":8,\"no_rope_layers\":[1",
           ",1", "]}");
}

static void run_sparse(span input)
{
    sparse s;
    sparse_parse(input, &s, NULL);
}

static void sparse_csr(size_t n, buf *out)
{
    enum { COLS = 1024 };
    int64_t n_rows = (int64_t)(n / (COLS * 2)) + 1; /* half of the columns, four bytes each */
    float *values = calloc((size_t)n_rows * COLS, sizeof *values);
    for (int64_t i = 0; i < n_rows * COLS; i += 2)
        values[i] = 1;
    sparse_source s = {.n_rows = n_rows, .n_cols = COLS, .values = values};
    CHECK(sparse_write(SPARSE_CSR, &s, out, NULL) == LACE_OK);
    free(values);
}

static void run_imatrix(span input)
{
    imatrix *m = NULL;
    imatrix_parse(input, &m, NULL);
    imatrix_free(m);
}

static void imatrix_entries(size_t n, buf *out)
{
    static const float ones[32] = {1, 1};
    gguf_writer *w = start();
    gguf_writer_add_text(w, "general.type", text_of("imatrix"), NULL);
    for (size_t i = 0; i < n / 300; i++) {
        char name[64];
        shape sums = {2, {32, 1, 1, 1}}, counts = {2, {1, 1, 1, 1}};
        snprintf(name, sizeof name, "blk.%zu.x.in_sum2", i);
        gguf_writer_add_tensor(w, text_of(name), DTYPE_F32, &sums, ones, NULL);
        snprintf(name, sizeof name, "blk.%zu.x.counts", i);
        gguf_writer_add_tensor(w, text_of(name), DTYPE_F32, &counts, ones, NULL);
    }
    finish(w, out);
}

/* clang-format off */
static const cost_subject subjects[] = {
    {"gguf: many keys", many_keys, run_gguf, 0, 0},
    {"gguf: many tensors", many_tensors, run_gguf, MAX_TENSORS_BYTES, 0},
    {"gguf: many tensors, the last overlaps", overlapping_tensors, run_gguf, MAX_TENSORS_BYTES, 0},
    {"gguf: bpe, many tokens", bpe_words, run_gguf, 0, 0},
    {"gguf: bpe, special tokens", bpe_specials, run_gguf, 0, 0},
    {"gguf: bpe, long tokens", bpe_long_words, run_gguf, 0, 0},
    {"gguf: spm, many tokens", spm_words, run_gguf, 0, 0},
    {"gguf: spm, tokens in tokens", spm_nested, run_gguf, 0, 0},
    {"gguf: wordpiece, many tokens", wordpiece_words, run_gguf, 0, 0},
    {"gguf: unigram, many tokens", unigram_words, run_gguf, 0, 0},
    {"gguf: unigram, long tokens", unigram_long_words, run_gguf, 0, 0},
    {"gguf: unigram, tokens in tokens", unigram_nested, run_gguf, 0, 0},
    {"safetensors: many tensors", tensors, run_safetensors, 0, 0},
    {"safetensors: an error whose place is hard to find", an_error_at_the_end, run_safetensors, 0, 0},
    {"safetensors: many tensors, an overlap", tensors_and_a_fault, run_safetensors, 0, 0},
    {"json: numbers", json_numbers, run_json, 0, 0},
    {"json: arrays", json_arrays, run_json, 0, 0},
    {"json: a text of escapes", json_text, run_json, 0, 0},
    {"json: members, one twice", json_members, run_json, 0, 0},
    {"tokenizer.json: bpe", json_bpe, run_tokenizer_json, 0, 0},
    {"tokenizer.json: bpe, tokens in tokens", json_nested, run_tokenizer_json, 0, 0},
    {"tokenizer.json: added tokens", json_added, run_tokenizer_json, 0, 0},
    {"tokenizer.json: unigram", json_unigram, run_tokenizer_json, 0, 0},
    {"tokenizer.json: wordpiece", json_wordpiece, run_tokenizer_json, 0, 0},
    {"tokenizer.model: pieces", proto_pieces, run_proto, 0, 0},
    {"config.json: a long list", config_layers, run_config, 0, 0},
    {"sparse: csr", sparse_csr, run_sparse, 0, 0},
    {"imatrix: many entries", imatrix_entries, run_imatrix, 0, 0},
};
/* clang-format on */

int main(void)
{
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        cost_check(&subjects[i]);
    return tap_end();
}
