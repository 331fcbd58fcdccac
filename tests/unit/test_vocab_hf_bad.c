/* Tokenizers of Hugging Face directories that are wrong: each says which field, none does harm. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "vocab/spm_proto.h"
#include "vocab/vocab_hf.h"
#include "scratch.h"
#include "spm_file.h"
#include "tap.h"

enum { MAX_MEMORY = 1 << 24 };

/* Replaces ' by " in place. */
static char *requote(char *quoted)
{
    for (char *c = quoted; *c; c++)
        *c = (char)(*c == '\'' ? '"' : *c);
    return quoted;
}

/* JSON to a tokenizer, which is thrown away. */
static lace_status read_json(const char *bytes, size_t n, lace_error *err)
{
    json_t *json = NULL;
    arena memory;
    hf_vocab h;
    tokenizer *t = NULL;
    arena_init(&memory, MAX_MEMORY);
    lace_status status = json_read((span){(const uint8_t *)bytes, n}, 0, &json, err);
    if (status == LACE_OK)
        status = tokenizer_json_read(json, &memory, &h, err);
    if (status == LACE_OK)
        status = tokenizer_create(&h.v, &t, err);
    tokenizer_free(t);
    arena_deinit(&memory);
    json_decref(json);
    return status;
}

static lace_status read_proto(const buf *bytes, size_t n, lace_error *err)
{
    arena memory;
    vocab v;
    tokenizer *t = NULL;
    arena_init(&memory, MAX_MEMORY);
    /* A copy of exactly this size, so that a sanitizer sees a read past the end. */
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, bytes->data, n);
    lace_status status = spm_proto_read((span){copy, n}, &memory, &v, err);
    if (status == LACE_OK)
        status = tokenizer_create(&v, &t, err);
    tokenizer_free(t);
    arena_deinit(&memory);
    free(copy);
    return status;
}

#define VOCAB  "'vocab':{'h':0,'i':1,'hi':2}"
#define MERGES "'merges':['h i']"
#define BYTES  "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false}"
#define BPE    "'model':{'type':'BPE'," VOCAB "," MERGES "}"
#define MARK   "\xE2\x96\x81"
#define META   "'pre_tokenizer':{'type':'Metaspace'}"
#define BERT   "'pre_tokenizer':{'type':'BertPreTokenizer'}"

static const char valid[] =
    "{" BPE "," BYTES ",'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'}]},"
    "'added_tokens':[{'id':3,'content':'<s>','special':true,'lstrip':false}],"
    "'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}},"
    "{'Sequence':{'id':'A'}}],'special_tokens':{'<s>':{'ids':[3]}}}}";

static void valid_file_is_read(void)
{
    char *copy = requote(strdup(valid));
    lace_error err = {0};
    if (!CHECK(read_json(copy, strlen(copy), &err) == LACE_OK))
        tap_note("%s", err.text);
    free(copy);
}

static void cut_tokenizer_json_is_refused_at_every_byte(void)
{
    char *copy = requote(strdup(valid));
    size_t n = strlen(copy);
    for (size_t i = 0; i < n; i++) {
        lace_error err = {0};
        char *cut = strndup(copy, i);
        lace_status status = read_json(cut, i, &err);
        CHECK(status != LACE_OK && err.status == status && err.text[0]);
        free(cut);
    }
    free(copy);
}

static void impossible_fields_are_named(void)
{
    static const struct {
        const char *json, *words; /* the message holds these */
    } cases[] = {
        {"[]", "expected an object"},
        {"{}", "model: is missing"},
        {"{'model':[]}", "model: is an array"},
        {"{'model':{'type':'WordLevel'," VOCAB "}}", "model.type: \"WordLevel\""},
        {"{'model':{'type':3," VOCAB "}}", "type: is an integer"},
        {"{'model':{'type':'BPE'," MERGES "}," BYTES "}", "model.vocab: is missing"},
        {"{'model':{'type':'BPE','vocab':{}," MERGES "}," BYTES "}", "model.vocab: has 0 tokens"},
        {"{'model':{'type':'BPE','vocab':{'h':'0'}," MERGES "}," BYTES "}", "\"h\": is a string"},
        {"{'model':{'type':'BPE','vocab':{'h':-1,'i':0}," MERGES "}," BYTES "}", "id -1"},
        {"{'model':{'type':'BPE','vocab':{'h':0,'i':0}," MERGES "}," BYTES "}",
         "id 0 is given to two tokens: \"h\""},
        {"{'model':{'type':'BPE','vocab':{'h':9000000}," MERGES "}," BYTES "}",
         "ids up to 9000000"},
        {"{'model':{'type':'BPE'," VOCAB "}," BYTES "}", "model.merges: is missing"},
        {"{'model':{'type':'BPE'," VOCAB ",'merges':['h x']}," BYTES "}", "\"x\" is not a token"},
        {"{'model':{'type':'BPE'," VOCAB ",'merges':['i h']}," BYTES "}", "\"ih\" is not a token"},
        {"{'model':{'type':'BPE'," VOCAB ",'merges':['hi']}," BYTES "}", "item 0: \"hi\""},
        {"{'model':{'type':'BPE'," VOCAB ",'merges':['h i h']}," BYTES "}", "item 0: \"h i h\""},
        {"{'model':{'type':'BPE'," VOCAB ",'merges':[['h']]}," BYTES "}", "expected two tokens"},
        {"{'model':{'type':'BPE'," VOCAB ",'merges':[['h',1]]}," BYTES "}", "expected two tokens"},
        {"{'model':{'type':'BPE','dropout':0.5," VOCAB "," MERGES "}," BYTES "}", "model.dropout"},
        {"{'model':{'type':'BPE','end_of_word_suffix':'</w>'," VOCAB "," MERGES "}," BYTES "}",
         "end_of_word_suffix: \"</w>\""},
        {"{'model':{'type':'BPE','unk_token':'?'," VOCAB "," MERGES "}," BYTES "}", "\"?\" is no"},
        {"{'model':{'type':'BPE','ignore_merges':1," VOCAB "," MERGES "}," BYTES "}",
         "ignore_merges: is an integer"},
        {"{'model':{'type':'BPE','fuse_unk':true,'unk_token':'h'," VOCAB "," MERGES "}," BYTES "}",
         "fuse_unk: true"},
        {"{" BPE "}", "pre_tokenizer: expected ByteLevel"},
        {"{" BPE "," BYTES ",'added_tokens':{}}", "added_tokens: is an object"},
        {"{" BPE "," BYTES ",'added_tokens':[{'id':3}]}", "added_tokens: item 0"},
        {"{" BPE "," BYTES ",'added_tokens':[{'id':1,'content':'x'}]}", "\"i\" and \"x\""},
        {"{" BPE "," BYTES ",'added_tokens':[{'id':3,'content':'hi'}]}", "two ids: 2 and 3"},
        {"{" BPE "," BYTES ",'added_tokens':[{'id':3,'content':''}]}", "id 3 is empty"},
        {"{" BPE "," BYTES ",'added_tokens':[{'id':3,'content':'x','special':0}]}",
         "special: is an integer"},
        {"{" BPE "," BYTES ",'normalizer':{'type':'Lowercase'}}", "normalizer.type: \"Lowercase\""},
        {"{" BPE "," BYTES ",'normalizer':{'type':'Sequence'}}", "normalizers: is missing"},
        {"{" BPE "," BYTES ",'normalizer':7}", "normalizer: is an integer"},
        {"{" BPE "," BYTES ",'normalizer':{'type':'Prepend','prepend':'x'}}", "prepend: \"x\""},
        {"{" BPE "," BYTES ",'normalizer':{'type':'Prepend','prepend':'" MARK "'}}",
         "the pre-tokenizer is ByteLevel"},
        {"{" BPE "," BYTES ",'normalizer':{'type':'Replace','pattern':{'Regex':'a'},"
         "'content':'b'}}",
         "\"a\" by \"b\""},
        {"{" BPE "," BYTES ",'normalizer':{'type':'Replace','content':'b'}}", "expected String"},
        {"{" BPE ",'pre_tokenizer':{'type':'UnicodeScripts'}}", "\"UnicodeScripts\""},
        {"{" BPE ",'pre_tokenizer':{'type':'Split','pattern':{'String':'a'},'behavior':"
         "'MergedWithNext'}}",
         "behavior: \"MergedWithNext\""},
        {"{" BPE ",'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'ByteLevel'},"
         "{'type':'Digits'}]}}",
         "type: \"Digits\""},
        {"{" BPE ",'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':"
         "{'Regex':'('},'behavior':'Isolated'},{'type':'ByteLevel','add_prefix_space':false}]}}",
         "regex \"(\""},
        {"{" BPE ",'pre_tokenizer':{'type':'Metaspace','replacement':'_'}}", "replacement: \"_\""},
        {"{" BPE ",'pre_tokenizer':{'type':'Metaspace','prepend_scheme':'last'}}", "\"last\""},
        {"{" BPE "," BYTES ",'post_processor':{'type':'X'}}", "post_processor.type: \"X\""},
        {"{" BPE "," BYTES ",'post_processor':{'type':'TemplateProcessing','single':[]}}",
         "has no Sequence"},
        {"{" BPE "," BYTES ",'post_processor':{'type':'TemplateProcessing','single':["
         "{'SpecialToken':{'id':'h'}}]}}",
         "expected a token of special_tokens"},
        {"{" BPE "," BYTES ",'post_processor':{'type':'BertProcessing','cls':['h',7],"
         "'sep':['i',1]}}",
         "7 is not the id of a token"},
        {"{'model':{'type':'Unigram','vocab':{}}," META "}", "expected an array"},
        {"{'model':{'type':'Unigram','vocab':[['a']]}," META "}", "item 0"},
        {"{'model':{'type':'Unigram','vocab':[['a',1e300]]}," META "}", "its score is"},
        {"{'model':{'type':'Unigram','vocab':[['a',1],['a',2]]}," META "}", "two ids: 0 and 1"},
        {"{'model':{'type':'Unigram','unk_id':9,'vocab':[['a',1]]}," META "}", "model.unk_id"},
        {"{'model':{'type':'Unigram','vocab':[['a',1]]}," META
         ",'normalizer':{'type':'Precompiled','precompiled_charsmap':'A*=='}}",
         "is not base64"},
        {"{'model':{'type':'Unigram','vocab':[['a',1]]}," META
         ",'normalizer':{'type':'Precompiled','precompiled_charsmap':'AAAA'}}",
         "precompiled_charsmap: 3 bytes"},
        {"{'model':{'type':'WordPiece'," VOCAB "}," BERT "}", "expected BertNormalizer"},
        {"{'model':{'type':'WordPiece'," VOCAB "},'normalizer':{'type':'BertNormalizer'}}",
         "expected BertPreTokenizer"},
        {"{'model':{'type':'WordPiece','continuing_subword_prefix':'@'," VOCAB "}," BERT "}",
         "continuing_subword_prefix: \"@\""},
        {"{'model':{'type':'WordPiece'," VOCAB "}," BERT
         ",'normalizer':{'type':'BertNormalizer','clean_text':false}}",
         "clean_text: false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *copy = requote(strdup(cases[i].json));
        lace_error err = {0};
        lace_status status = read_json(copy, strlen(copy), &err);
        if (!CHECK(status == LACE_E_VOCAB && err.status == status &&
                   strstr(err.text, cases[i].words)))
            tap_note("%s: %d \"%s\", expected \"%s\"", cases[i].json, status, err.text,
                     cases[i].words);
        free(copy);
    }
}

static void deep_nesting_is_refused(void)
{
    buf b;
    lace_error err = {0};
    buf_init(&b, MAX_MEMORY);
    buf_append_text(&b, "{\"normalizer\":");
    for (int i = 0; i < 100000; i++)
        buf_append_text(&b, "{\"type\":\"Sequence\",\"normalizers\":[");
    CHECK(read_json(b.data, b.size, &err) == LACE_E_LIMIT);
    buf_deinit(&b);
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

/* Only where a field ends can a file end; what is left may still lack pieces. */
static void cut_tokenizer_model_is_refused_inside_a_field(void)
{
    buf bytes;
    spm_file(&(spm_options){.model_type = 2, .is_short = true}, &bytes);
    lace_error err = {0};
    CHECK(read_proto(&bytes, bytes.size, &err) == LACE_OK);
    size_t end = 0; /* of the field before, by its length byte */
    for (size_t i = 0; i < bytes.size; i++) {
        if (i == end) {
            end += 2 + (size_t)(unsigned char)bytes.data[end + 1];
            (void)read_proto(&bytes, i, &err);
            continue;
        }
        lace_error cut = {0};
        lace_status status = read_proto(&bytes, i, &cut);
        CHECK(status == LACE_E_TRUNC && cut.status == status &&
              strstr(cut.text, "tokenizer.model"));
    }
    buf_deinit(&bytes);
}

static void changed_bytes_of_a_tokenizer_model_do_no_harm(void)
{
    buf bytes;
    spm_file(&(spm_options){.model_type = 1, .is_short = true}, &bytes);
    int n_refused = 0;
    for (size_t i = 0; i < bytes.size; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            lace_error err = {0};
            bytes.data[i] = (char)(bytes.data[i] ^ 1 << bit);
            lace_status status = read_proto(&bytes, bytes.size, &err);
            CHECK(status == LACE_OK || (err.status == status && err.text[0]));
            n_refused += status != LACE_OK;
            bytes.data[i] = (char)(bytes.data[i] ^ 1 << bit);
        }
    CHECK(n_refused > 100);
    buf_deinit(&bytes);
}

/* A file with one wrong field behind the pieces. */
static void check_proto(unsigned message, unsigned field, uint64_t value, const char *words)
{
    buf bytes, inner;
    spm_file(&(spm_options){.model_type = 2, .is_short = true}, &bytes);
    buf_init(&inner, 256);
    proto_number(&inner, field, value);
    proto_bytes(&bytes, message, inner.data, inner.size);
    lace_error err = {0};
    if (!CHECK(read_proto(&bytes, bytes.size, &err) == LACE_E_VOCAB && strstr(err.text, words)))
        tap_note("\"%s\", expected \"%s\"", err.text, words);
    buf_deinit(&bytes);
    buf_deinit(&inner);
}

static void impossible_fields_of_a_tokenizer_model_are_named(void)
{
    check_proto(2, 3, 4, "model_type: 4");
    check_proto(2, 24, 1, "treat_whitespace_as_suffix");
    check_proto(2, 41, 8, "special token that does not exist");
    check_proto(3, 2, 1, "precompiled_charsmap: expected bytes");
    check_proto(3, 4, 1, "remove_extra_whitespaces");
    check_proto(1, 3, 7, "type: expected 1 to 6");
    check_proto(1, 2, 7, "score: expected a float");
    check_proto(1, 1, 7, "piece: expected a text");
}

/* ---- Files and memory ------------------------------------------------------------------------ */

static void broken_configs_are_named(void)
{
    static const struct {
        const char *file, *json, *words;
    } cases[] = {
        {"tokenizer_config.json", "[]", "tokenizer_config.json: is an array"},
        {"tokenizer_config.json", "{'bos_token':7}", "bos_token: is a number"},
        {"tokenizer_config.json", "{'add_bos_token':'yes'}", "add_bos_token: is a string"},
        {"tokenizer_config.json", "{'chat_template':7}", "chat_template: is a number"},
        {"tokenizer_config.json", "{", "tokenizer_config.json: JSON, at byte"},
        {"generation_config.json", "{'eos_token_id':'x'}", "eos_token_id: is a string"},
        {"generation_config.json", "{'eos_token_id':[1,null]}", "eos_token_id: is null"},
        {"tokenizer.json", "{", "tokenizer.json: JSON, at byte"},
        {"tokenizer.json", "", "tokenizer.json: JSON, at byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch_create();
        char *file = requote(strdup(valid)), *json = requote(strdup(cases[i].json));
        CHECK(scratch_write("tokenizer.json", file) && scratch_write(cases[i].file, json));
        hf_tokenizer *t = NULL;
        lace_error err = {0};
        lace_status status = hf_tokenizer_open(scratch_path(""), NULL, &t, &err);
        if (!CHECK(status != LACE_OK && !t && err.status == status &&
                   strstr(err.text, cases[i].words)))
            tap_note("%s: \"%s\", expected \"%s\"", cases[i].json, err.text, cases[i].words);
        hf_tokenizer_close(t);
        free(file);
        free(json);
        scratch_remove();
    }
}

/* Opens the scratch folder with each allocation failing in turn. */
static void fail_allocations(const char *what)
{
    long i = 0;
    for (bool is_done = false; i < 20000 && !is_done; i++) {
        hf_tokenizer *t = NULL;
        gguf_writer *w = NULL;
        lace_error err = {0};
        mem_fail_at(i, false);
        lace_status status = hf_tokenizer_open(scratch_path(""), NULL, &t, &err);
        if (status == LACE_OK)
            status = gguf_writer_create(&w, &err);
        if (status == LACE_OK)
            status = hf_tokenizer_to_gguf(t, 512, w, &err);
        is_done = mem_count() <= i;
        mem_fail_at(-1, false);
        /* The writer tells of a failure when the file is written. */
        if (!CHECK(status == LACE_E_NOMEM || status == LACE_OK))
            tap_note("%s, allocation %ld: %d %s", what, i, status, err.text);
        CHECK(status == LACE_OK || err.status == status);
        gguf_writer_free(w);
        hf_tokenizer_close(t);
    }
    CHECK(i > 10 && i < 20000);
    tap_note("%s: %ld allocations", what, i);
}

static void failing_allocations_are_reported(void)
{
    char *file = requote(strdup(valid));
    scratch_create();
    CHECK(scratch_write("tokenizer.json", file));
    CHECK(
        scratch_write("tokenizer_config.json", "{\"eos_token\":\"<s>\",\"chat_template\":\"x\"}"));
    fail_allocations("tokenizer.json");
    scratch_remove();
    scratch_create();
    buf bytes;
    spm_file(&(spm_options){.model_type = 2}, &bytes);
    FILE *f = fopen(scratch_path("tokenizer.model"), "wb");
    CHECK(f && fwrite(bytes.data, 1, bytes.size, f) == bytes.size && fclose(f) == 0);
    CHECK(scratch_write("added_tokens.json", "{\"<x>\":264}"));
    fail_allocations("tokenizer.model");
    scratch_remove();
    buf_deinit(&bytes);
    free(file);
}

int main(void)
{
    CASE(valid_file_is_read);
    CASE(cut_tokenizer_json_is_refused_at_every_byte);
    CASE(impossible_fields_are_named);
    CASE(deep_nesting_is_refused);
    CASE(cut_tokenizer_model_is_refused_inside_a_field);
    CASE(changed_bytes_of_a_tokenizer_model_do_no_harm);
    CASE(impossible_fields_of_a_tokenizer_model_are_named);
    CASE(broken_configs_are_named);
    CASE(failing_allocations_are_reported);
    return tap_end();
}
