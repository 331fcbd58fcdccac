/* Tokenizers of Hugging Face directories: which files count, and what becomes of them in a GGUF. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_read.h"
#include "formats/gguf_write.h"
#include "vocab/vocab_gguf.h"
#include "vocab/vocab_hf.h"
#include "scratch.h"
#include "spm_file.h"
#include "tap.h"
#include "token_check.h"

#define TOKENIZER                                                                                  \
    "{'model':{'type':'BPE','vocab':{'h':0,'i':1,'hi':2},'merges':['h i']},"                       \
    "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false},'added_tokens':["               \
    "{'id':3,'content':'<s>','special':true},{'id':4,'content':'</s>','special':true},"            \
    "{'id':5,'content':'<e>','special':true}]%s}"
#define TEMPLATE                                                                                   \
    ",'post_processor':{'type':'Sequence','processors':[{'type':'ByteLevel'},{'type':"             \
    "'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}},{'Sequence':{'id':'A'}}],"       \
    "'special_tokens':{'<s>':{'id':'<s>','ids':[3]}}}]}"

/* Writes a file with " for '. */
static void put(const char *name, const char *quoted)
{
    char *copy = strdup(quoted);
    for (char *c = copy; *c; c++)
        *c = (char)(*c == '\'' ? '"' : *c);
    CHECK(scratch_write(name, copy));
    free(copy);
}

static void put_tokenizer(const char *more)
{
    char quoted[2048];
    snprintf(quoted, sizeof quoted, TOKENIZER, more);
    put("tokenizer.json", quoted);
}

/* Opens the scratch folder, with a config.json if `config` is not NULL. */
static hf_tokenizer *open_folder(const char *config)
{
    hf_tokenizer *t = NULL;
    json_t *json = NULL;
    lace_error err = {0};
    if (config) {
        put("config.json", config);
        json = json_load_file(scratch_path("config.json"), 0, NULL);
    }
    if (!CHECK(hf_tokenizer_open(scratch_path(""), json, &t, &err) == LACE_OK))
        tap_note("%s", err.text);
    json_decref(json);
    return t;
}

static void check_ids(const vocab *v, const char *input, unsigned flags, const char *expected)
{
    char found[512] = "";
    tokenizer *t = check_create(v);
    token_list list = check_encode(t, input, strlen(input), flags);
    for (size_t i = 0, n = 0; i < list.size && n < 480; i++)
        n += (size_t)snprintf(found + n, 24, "%s%d", i ? " " : "", list.data[i]);
    if (!CHECK(strcmp(found, expected) == 0))
        tap_note("\"%s\" gives %s, expected %s", input, found, expected);
    token_list_deinit(&list);
    tokenizer_free(t);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void directory_without_tokenizer_has_none(void)
{
    scratch_create();
    put("tokenizer_config.json", "{}");
    hf_tokenizer *t = open_folder(NULL);
    CHECK(!t);
    hf_tokenizer_close(t);
    scratch_remove();
}

static void special_tokens_come_from_the_configs(void)
{
    scratch_create();
    put_tokenizer("");
    put("tokenizer_config.json",
        "{'bos_token':'<s>','eos_token':{'content':'</s>','lstrip':false},'pad_token':null,"
        "'add_bos_token':true,'add_eos_token':false,"
        "'model_max_length':1000000000000000019884624838656}");
    put("generation_config.json", "{'eos_token_id':[4,5]}");
    hf_tokenizer *t = open_folder("{'bos_token_id':1,'eos_token_id':4}");
    const hf_vocab *h = hf_tokenizer_vocab(t);
    CHECK(h->v.bos == 3 && h->v.eos == 4 && h->v.pad == -1 && h->v.add_bos && !h->v.add_eos);
    tokenizer *tokens = check_create(&h->v);
    CHECK(tokenizer_is_end(tokens, 4) && tokenizer_is_end(tokens, 5) &&
          !tokenizer_is_end(tokens, 3));
    tokenizer_free(tokens);
    check_ids(&h->v, "hi", LACE_TOKENIZE_ADD_SPECIAL, "3 2");
    hf_tokenizer_close(t);
    scratch_remove();
}

static void model_config_fills_what_is_missing(void)
{
    scratch_create();
    put_tokenizer("");
    hf_tokenizer *t = open_folder("{'bos_token_id':3,'eos_token_id':[5,4]}");
    const hf_vocab *h = hf_tokenizer_vocab(t);
    CHECK(h->v.bos == 3 && h->v.eos == 5 && !h->v.add_bos && h->v.n_ends == 2);
    check_ids(&h->v, "hi", LACE_TOKENIZE_ADD_SPECIAL, "2");
    hf_tokenizer_close(t);
    scratch_remove();
}

static void template_adds_tokens_unless_the_config_says_no(void)
{
    scratch_create();
    put_tokenizer(TEMPLATE);
    hf_tokenizer *t = open_folder(NULL);
    check_ids(&hf_tokenizer_vocab(t)->v, "hi", LACE_TOKENIZE_ADD_SPECIAL, "3 2");
    hf_tokenizer_close(t);
    put("tokenizer_config.json", "{'add_bos_token':false}");
    t = open_folder(NULL);
    check_ids(&hf_tokenizer_vocab(t)->v, "hi", LACE_TOKENIZE_ADD_SPECIAL, "2");
    hf_tokenizer_close(t);
    scratch_remove();
}

static void check_template(const char *expected)
{
    hf_tokenizer *t = open_folder(NULL);
    text found = hf_tokenizer_vocab(t)->chat_template;
    if (!CHECK(text_is(found, expected)))
        tap_note("\"%.*s\", expected \"%s\"", text_width(found), found.data, expected);
    hf_tokenizer_close(t);
}

static void chat_template_is_found_in_three_places(void)
{
    scratch_create();
    put_tokenizer("");
    check_template("");
    CHECK(scratch_write("chat_template.jinja", "from the file"));
    check_template("from the file");
    put("tokenizer_config.json", "{'chat_template':'in the config'}");
    check_template("in the config");
    put("tokenizer_config.json", "{'chat_template':[{'name':'tool_use','template':'x'},"
                                 "{'name':'default','template':'by name'}]}");
    check_template("by name");
    scratch_remove();
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

static void put_spm(const spm_options *options)
{
    buf bytes;
    spm_file(options, &bytes);
    FILE *f = fopen(scratch_path("tokenizer.model"), "wb");
    CHECK(f && fwrite(bytes.data, 1, bytes.size, f) == bytes.size);
    if (f)
        fclose(f);
    buf_deinit(&bytes);
}

static void sentencepiece_model_is_read_without_a_tokenizer_json(void)
{
    scratch_create();
    put_spm(&(spm_options){.model_type = 2});
    put("added_tokens.json", "{'<tool>':300}");
    put("tokenizer_config.json",
        "{'added_tokens_decoder':{'301':{'content':'<|x|>'},'1':{'content':"
        "'<s>','special':true}},'eos_token':'<|x|>'}");
    hf_tokenizer *t = open_folder(NULL);
    const vocab *v = &hf_tokenizer_vocab(t)->v;
    CHECK(v->kind == VOCAB_SPM && v->n_tokens == 302 && v->bos == 1 && v->eos == 301);
    CHECK(v->types[300] == TOKEN_USER_DEFINED && v->types[301] == TOKEN_CONTROL);
    /* <unk> <s> </s> 256 bytes, U+2581 h i hi U+2581+hi */
    check_ids(v, "hi hi", LACE_TOKENIZE_ADD_SPECIAL, "1 263 263");
    check_ids(v, "\n<tool>hi", 0, "259 13 300 263");
    hf_tokenizer_close(t);
    put_spm(&(spm_options){.model_type = 1});
    t = open_folder(NULL);
    v = &hf_tokenizer_vocab(t)->v;
    CHECK(v->kind == VOCAB_UNIGRAM && v->add_eos);
    check_ids(v, "hi  hi", 0, "263 263");
    hf_tokenizer_close(t);
    scratch_remove();
}

static void spm_without_prefix_adds_none(void)
{
    scratch_create();
    put_spm(&(spm_options){.model_type = 2, .has_no_prefix = true});
    hf_tokenizer *t = open_folder(NULL);
    check_ids(&hf_tokenizer_vocab(t)->v, "hi hi", 0, "262 263");
    hf_tokenizer_close(t);
    scratch_remove();
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

/* The tokenizer that a GGUF file made of the scratch folder has. */
static tokenizer *through_gguf(size_t n_vocab)
{
    hf_tokenizer *t = open_folder(NULL);
    gguf_writer *w = NULL;
    gguf *g = NULL;
    tokenizer *tokens = NULL;
    buf bytes;
    lace_error err = {0};
    buf_init(&bytes, MEGABYTE);
    CHECK(gguf_writer_create(&w, &err) == LACE_OK);
    if (!CHECK(hf_tokenizer_to_gguf(t, n_vocab, w, &err) == LACE_OK &&
               gguf_writer_to_buf(w, &bytes, &err) == LACE_OK &&
               gguf_parse((span){(const uint8_t *)bytes.data, bytes.size}, &g, &err) == LACE_OK &&
               vocab_gguf_open(g, &tokens, &err) == LACE_OK))
        tap_note("%s", err.text);
    gguf_free(g);
    gguf_writer_free(w);
    buf_deinit(&bytes);
    hf_tokenizer_close(t);
    return tokens;
}

static void check_same(const char *const *inputs, size_t n_vocab)
{
    hf_tokenizer *t = open_folder(NULL);
    tokenizer *mine = check_create(&hf_tokenizer_vocab(t)->v), *other = through_gguf(n_vocab);
    for (size_t i = 0; other && inputs[i]; i++) {
        unsigned flags = LACE_TOKENIZE_ADD_SPECIAL | LACE_TOKENIZE_PARSE_SPECIAL;
        token_list a = check_encode(mine, inputs[i], strlen(inputs[i]), flags);
        token_list b = check_encode(other, inputs[i], strlen(inputs[i]), flags);
        if (!CHECK(a.size == b.size &&
                   (a.size == 0 || memcmp(a.data, b.data, a.size * sizeof *a.data) == 0)))
            tap_note("\"%s\" gives other tokens", inputs[i]);
        token_list_deinit(&a);
        token_list_deinit(&b);
    }
    CHECK(other && tokenizer_n_tokens(other) == n_vocab);
    tokenizer_free(mine);
    tokenizer_free(other);
    hf_tokenizer_close(t);
}

static void gguf_has_the_same_vocabulary(void)
{
    static const char *const inputs[] = {"hi", "hi hi<s>h", "", " i\n</s>", NULL};
    scratch_create();
    put_tokenizer(TEMPLATE);
    check_same(inputs, 8);
    scratch_remove();
    scratch_create();
    put_spm(&(spm_options){.model_type = 2});
    check_same(inputs, 264);
    put_spm(&(spm_options){.model_type = 1});
    check_same(inputs, 270);
    scratch_remove();
    scratch_create();
    put("tokenizer.json",
        "{'model':{'type':'BPE','unk_token':'<unk>','vocab':{'<unk>':0,'h':1,'i':2,'hi':3,"
        "'\xE2\x96\x81':4,'\xE2\x96\x81hi':5},'merges':['h i','\xE2\x96\x81 hi']},"
        "'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':"
        "'\xE2\x96\x81'},{'type':'Replace','pattern':{'String':' '},'content':'\xE2\x96\x81'}]}}");
    check_same(inputs, 6);
    scratch_remove();
}

static void words_without_a_name_are_not_converted(void)
{
    scratch_create();
    put("tokenizer.json",
        "{'model':{'type':'BPE','vocab':{'h':0,'i':1,'hi':2},'merges':['h i']},'pre_tokenizer':"
        "{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'h+'},"
        "'behavior':'Isolated'},{'type':'ByteLevel','add_prefix_space':false}]}}");
    hf_tokenizer *t = open_folder(NULL);
    gguf_writer *w = NULL;
    lace_error err = {0};
    CHECK(gguf_writer_create(&w, &err) == LACE_OK);
    CHECK(hf_tokenizer_to_gguf(t, 3, w, &err) == LACE_E_VOCAB && strstr(err.text, "--no-vocab"));
    gguf_writer_free(w);
    CHECK(gguf_writer_create(&w, &err) == LACE_OK);
    CHECK(hf_tokenizer_to_gguf(t, 2, w, &err) == LACE_E_VOCAB && strstr(err.text, "3 tokens"));
    gguf_writer_free(w);
    hf_tokenizer_close(t);
    scratch_remove();
}

/* Before they take memory and time that no vocabulary is worth. */
static void tokenizers_of_more_than_64_mib_are_refused(void)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    for (int i = 0; i < 2; i++) {
        hf_tokenizer *t = NULL;
        lace_error err = {0};
        if (!CHECK(scratch_create() != NULL && scratch_write(names[i], "{")))
            return;
        CHECK(truncate(scratch_path(names[i]), (64 << 20) + 1) == 0);
        CHECK(hf_tokenizer_open(scratch_path(""), NULL, &t, &err) == LACE_E_LIMIT && t == NULL);
        CHECK(strstr(err.text, names[i]) && strstr(err.text, "67108864"));
        scratch_remove();
    }
}

int main(void)
{
    CASE(directory_without_tokenizer_has_none);
    CASE(special_tokens_come_from_the_configs);
    CASE(model_config_fills_what_is_missing);
    CASE(template_adds_tokens_unless_the_config_says_no);
    CASE(chat_template_is_found_in_three_places);
    CASE(sentencepiece_model_is_read_without_a_tokenizer_json);
    CASE(spm_without_prefix_adds_none);
    CASE(gguf_has_the_same_vocabulary);
    CASE(words_without_a_name_are_not_converted);
    CASE(tokenizers_of_more_than_64_mib_are_refused);
    return tap_end();
}
