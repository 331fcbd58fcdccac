/* Tokenizers of Hugging Face directories: the ids that they give. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_read.h"
#include "formats/weights.h"
#include "vocab/vocab_gguf.h"
#include "vocab/vocab_hf.h"
#include "data.h"
#include "scratch.h"
#include "tap.h"
#include "token_check.h"

#define MARK "\xE2\x96\x81" /* U+2581 */

/* JSON written with ' for ". The result is to be freed with json_decref. */
static json_t *parse(const char *quoted)
{
    char *copy = strdup(quoted);
    json_t *json = NULL;
    lace_error err = {0};
    for (char *c = copy; *c; c++)
        *c = (char)(*c == '\'' ? '"' : *c);
    span bytes = {(const uint8_t *)copy, strlen(copy)};
    if (!CHECK(json_read(bytes, 0, &json, &err) == LACE_OK))
        tap_note("%s in %s", err.text, copy);
    free(copy);
    return json;
}

/* The tokenizer of a JSON value; what the post-processor adds goes to *h, if that is not NULL. */
static tokenizer *tokenizer_of(const json_t *json, hf_vocab *h)
{
    arena memory;
    hf_vocab local;
    tokenizer *t = NULL;
    lace_error err = {0};
    h = h ? h : &local;
    arena_init(&memory, (size_t)1 << 30);
    if (CHECK(tokenizer_json_read(json, &memory, h, &err) == LACE_OK))
        t = check_create(&h->v);
    else
        tap_note("%s", err.text);
    arena_deinit(&memory);
    return t;
}

static bool is_same(const token_list *a, const token_list *b)
{
    return a->size == b->size && memcmp(a->data, b->data, a->size * sizeof *a->data) == 0;
}

/* Ids as "1 2 3". */
static void check_ids(const tokenizer *t, const char *input, unsigned flags, const char *expected)
{
    char found[512] = "";
    token_list list = check_encode(t, input, strlen(input), flags);
    for (size_t i = 0, n = 0; i < list.size && n < 480; i++)
        n += (size_t)snprintf(found + n, 24, "%s%d", i ? " " : "", list.data[i]);
    if (!CHECK(strcmp(found, expected) == 0))
        tap_note("\"%s\" gives %s, expected %s", input, found, expected);
    token_list_deinit(&list);
}

static void check_text(const tokenizer *t, const char *input)
{
    token_list list = check_encode(t, input, strlen(input), 0);
    buf out;
    buf_init(&out, MEGABYTE);
    check_decode(t, &list, &out);
    if (!CHECK(out.data && strcmp(out.data, input) == 0))
        tap_note("\"%s\" comes back as \"%s\"", input, out.data ? out.data : "");
    buf_deinit(&out);
    token_list_deinit(&list);
}

/* ---- Real vocabularies ----------------------------------------------------------------------- */

static bool read_data(const char *name, buf *out)
{
    char *path = data_path(name);
    buf_init(out, 16 * MEGABYTE);
    bool ok = path && CHECK(file_read(path, out, NULL) == LACE_OK);
    free(path);
    return ok;
}

static void compare(const tokenizer *a, const tokenizer *b, const buf *input, unsigned flags)
{
    token_list x = check_encode(a, input->data, input->size, flags);
    token_list y = check_encode(b, input->data, input->size, flags);
    if (!CHECK(x.size > 0 && is_same(&x, &y))) {
        size_t i = 0;
        while (i < x.size && i < y.size && x.data[i] == y.data[i])
            i++;
        tap_note("token %zu is %d, expected %d", i, i < x.size ? x.data[i] : -1,
                 i < y.size ? y.data[i] : -1);
    }
    tap_note("%zu tokens of %zu bytes", x.size, input->size);
    token_list_deinit(&x);
    token_list_deinit(&y);
}

static void directory_gives_the_ids_of_the_file(void *arg)
{
    buf input;
    if (!read_data("text/test.txt", &input)) {
        buf_deinit(&input);
        return;
    }
    char *path = data_path(arg), *file = data_path("models/tales-4m-f16.gguf");
    hf_tokenizer *hf = NULL;
    weights *w = NULL;
    tokenizer *mine = NULL, *expected = NULL;
    lace_error err = {0};
    CHECK(hf_tokenizer_open(path, NULL, &hf, &err) == LACE_OK && hf);
    CHECK(weights_open(file, &w, &err) == LACE_OK);
    CHECK(vocab_gguf_open(weights_gguf(w), &expected, &err) == LACE_OK);
    mine = check_create(&hf_tokenizer_vocab(hf)->v);
    compare(mine, expected, &input, LACE_TOKENIZE_ADD_SPECIAL);
    check_ids(mine, "<|endoftext|>", LACE_TOKENIZE_PARSE_SPECIAL, "0");
    CHECK(tokenizer_bos(mine) == 0 && tokenizer_eos(mine) == 0 && tokenizer_is_end(mine, 0));
    CHECK(tokenizer_n_tokens(mine) == tokenizer_n_tokens(expected));
    tokenizer_free(mine);
    tokenizer_free(expected);
    hf_tokenizer_close(hf);
    weights_close(w);
    buf_deinit(&input);
    free(path);
    free(file);
}

static json_t *text_json(text t)
{
    return json_stringn(t.data, t.size);
}

static const float *sorted_scores;

static int compare_scores(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    float difference = sorted_scores[y] - sorted_scores[x];
    return difference != 0 ? (difference > 0 ? 1 : -1) : x - y;
}

/* What SentencePiece's scores say, as merges: the best tokens first, each with all its halves. */
static json_t *merges_of_scores(const vocab *v)
{
    json_t *merges = json_array();
    int32_t *order = calloc(v->n_tokens, sizeof *order);
    map ids;
    map_init(&ids);
    for (size_t i = 0; i < v->n_tokens; i++) {
        order[i] = (int32_t)i;
        CHECK(map_add(&ids, v->tokens[i], (int32_t)i) != LACE_E_NOMEM);
    }
    sorted_scores = v->scores;
    qsort(order, v->n_tokens, sizeof *order, compare_scores);
    for (size_t n = 0; n < v->n_tokens; n++) {
        int32_t i = order[n];
        text t = v->tokens[i];
        /* Halves whose left one has the lowest id come first, as transformers writes them. */
        for (int32_t last = -1; v->types[i] == TOKEN_NORMAL;) {
            int32_t next = INT32_MAX;
            size_t at = 0;
            for (size_t k = 1; k < t.size; k++) {
                int32_t left = map_find(&ids, (text){t.data, k});
                int32_t right = map_find(&ids, (text){t.data + k, t.size - k});
                if (left > last && left < next && right >= 0) {
                    next = left;
                    at = k;
                }
            }
            if (at == 0)
                break;
            json_array_append_new(merges, json_pack("[oo]", text_json((text){t.data, at}),
                                                    text_json((text){t.data + at, t.size - at})));
            last = next;
        }
    }
    map_deinit(&ids);
    free(order);
    return merges;
}

/* A tokenizer.json with the tokens of a GGUF file. */
static json_t *json_of_vocab(const vocab *v, const char *rules)
{
    json_t *root = parse(rules), *model = json_object_get(root, "model");
    json_t *tokens = json_object(), *added = json_array(), *merges = json_array();
    for (size_t i = 0; i < v->n_tokens; i++) {
        char key[512];
        snprintf(key, sizeof key, "%.*s", (int)v->tokens[i].size, v->tokens[i].data);
        json_object_set_new(tokens, key, json_integer((json_int_t)i));
        if (v->types[i] == TOKEN_CONTROL || v->types[i] == TOKEN_USER_DEFINED)
            json_array_append_new(added, json_pack("{s:i,s:s,s:b}", "id", (int)i, "content", key,
                                                   "special", v->types[i] == TOKEN_CONTROL));
    }
    for (size_t i = 0; i < v->n_merges; i++)
        json_array_append_new(merges, text_json(v->merges[i]));
    if (v->n_merges == 0) {
        json_decref(merges);
        merges = merges_of_scores(v);
    }
    json_object_set_new(model, "vocab", tokens);
    json_object_set_new(model, "merges", merges);
    json_object_set_new(root, "added_tokens", added);
    return root;
}

typedef struct real_vocab {
    const char *name, *rules;
    bool is_converted; /* GGUF has a name for its words */
} real_vocab;

/* The tokenizer of a GGUF file that a directory with this tokenizer.json becomes. */
static tokenizer *through_gguf(const json_t *json, size_t n_tokens)
{
    hf_tokenizer *hf = NULL;
    gguf_writer *w = NULL;
    gguf *g = NULL;
    tokenizer *t = NULL;
    buf bytes;
    lace_error err = {0};
    buf_init(&bytes, 64 * MEGABYTE);
    scratch_create();
    CHECK(json_dump_file(json, scratch_path("tokenizer.json"), 0) == 0);
    if (!CHECK(hf_tokenizer_open(scratch_path(""), NULL, &hf, &err) == LACE_OK &&
               gguf_writer_create(&w, &err) == LACE_OK &&
               hf_tokenizer_to_gguf(hf, n_tokens, w, &err) == LACE_OK &&
               gguf_writer_to_buf(w, &bytes, &err) == LACE_OK &&
               gguf_parse((span){(const uint8_t *)bytes.data, bytes.size}, &g, &err) == LACE_OK &&
               vocab_gguf_open(g, &t, &err) == LACE_OK))
        tap_note("%s", err.text);
    gguf_free(g);
    gguf_writer_free(w);
    hf_tokenizer_close(hf);
    buf_deinit(&bytes);
    scratch_remove();
    return t;
}

#define BYTES_AFTER(first)                                                                         \
    "'pre_tokenizer':{'type':'Sequence','pretokenizers':[" first                                   \
    ",{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}]}"
#define WORDS(numbers)                                                                             \
    "{'type':'Split','behavior':'Isolated','pattern':{'Regex':'(?i:\\u0027s|\\u0027t|\\u0027re|"   \
    "\\u0027ve|\\u0027m|\\u0027ll|\\u0027d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" numbers      \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+'}}"

static void real_vocabulary_gives_the_same_ids(void *arg)
{
    const real_vocab *real = arg;
    char name[64];
    buf input, book;
    snprintf(name, sizeof name, "vocab/%s.inp", real->name);
    if (!read_data(name, &input) || !read_data("text/calib.txt", &book))
        return;
    snprintf(name, sizeof name, "vocab/%s.gguf", real->name);
    char *path = data_path(name);
    weights *w = NULL;
    tokenizer *expected = NULL;
    arena memory;
    vocab v;
    lace_error err = {0};
    arena_init(&memory, (size_t)1 << 30);
    CHECK(weights_open(path, &w, &err) == LACE_OK);
    CHECK(vocab_gguf_open(weights_gguf(w), &expected, &err) == LACE_OK);
    CHECK(vocab_gguf_read(weights_gguf(w), &memory, &v, &err) == LACE_OK);
    json_t *json = json_of_vocab(&v, real->rules);
    tokenizer *mine = tokenizer_of(json, NULL);
    book.size = 100000;
    if (mine) {
        compare(mine, expected, &input, 0);
        compare(mine, expected, &book, 0);
    }
    tokenizer *converted = real->is_converted ? through_gguf(json, v.n_tokens) : NULL;
    if (converted) {
        compare(converted, expected, &input, 0);
        compare(converted, expected, &book, 0);
    }
    tokenizer_free(converted);
    json_decref(json);
    tokenizer_free(mine);
    tokenizer_free(expected);
    arena_deinit(&memory);
    weights_close(w);
    buf_deinit(&input);
    buf_deinit(&book);
    free(path);
}

/* ---- Hand-written files ---------------------------------------------------------------------- */

#define LETTERS "'h':0,'e':1,'l':2,'o':3,'he':4,'ll':5,'hell':6,'hello':7"
#define MERGES  "'merges':['h e','l l','he ll','hell o']"

static void byte_level_words_follow_the_regexes(void)
{
    json_t *json =
        parse("{'model':{'type':'BPE','vocab':{" LETTERS ",'\\u0120':8,'1':9,'2':10,'12':11},"
              "'merges':['h e','l l','he ll','hell o','1 2']},"
              "'added_tokens':[{'id':14,'content':'<x>','special':true,'lstrip':true},"
              "{'id':12,'content':'[T]','special':false}],"
              "'pre_tokenizer':{'type':'Sequence','pretokenizers':["
              "{'type':'Digits','individual_digits':true},{'type':'ByteLevel','add_prefix_space':"
              "false}]}}");
    tokenizer *t = tokenizer_of(json, NULL);
    check_ids(t, "hello12", 0, "7 9 10");
    check_ids(t, " hello[T]he", 0, "8 7 12 4");
    check_ids(t, "he  <x>he", LACE_TOKENIZE_PARSE_SPECIAL, "4 14 4");
    CHECK(tokenizer_n_tokens(t) == 15 && tokenizer_token_type(t, 13) == TOKEN_UNUSED);
    CHECK(tokenizer_token_type(t, 14) == TOKEN_CONTROL);
    check_text(t, "hello  hello");
    tokenizer_free(t);
    json_decref(json);
}

static void byte_level_adds_a_space_unless_there_is_one(void)
{
    json_t *json = parse("{'model':{'vocab':{" LETTERS ",'\\u0120':8}," MERGES "},"
                         "'added_tokens':[{'id':9,'content':'<x>','special':false}],"
                         "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':true}}");
    tokenizer *t = tokenizer_of(json, NULL);
    check_ids(t, "hello", 0, "8 7");
    check_ids(t, " hello", 0, "8 7");
    check_ids(t, "<x>he", 0, "9 8 4");
    tokenizer_free(t);
    json_decref(json);
}

/* Llama 2: a normalizer marks spaces, and bytes stand for what is not known. */
static void bytes_stand_for_unknown_characters(void)
{
    char quoted[16384];
    size_t n = (size_t)snprintf(quoted, sizeof quoted,
                                "{'normalizer':{'type':'Sequence','normalizers':["
                                "{'type':'Prepend','prepend':'" MARK "'},{'type':'Replace',"
                                "'pattern':{'String':' '},'content':'" MARK "'}]},"
                                "'added_tokens':[{'id':267,'content':'<s>','special':true}],"
                                "'model':{'type':'BPE','unk_token':'<unk>','fuse_unk':true,"
                                "'byte_fallback':true,'merges':[['h','e'],['l','l'],['he','ll'],"
                                "['hell','o'],['" MARK "','hello']],'vocab':{");
    for (int i = 0; i < 256; i++)
        n += (size_t)snprintf(quoted + n, 32, "'<0x%02X>':%d,", (unsigned)i, i + 300);
    snprintf(quoted + n, sizeof quoted - n,
             LETTERS ",'" MARK "':8,'" MARK "hello':9,'<unk>':10}}}");
    json_t *json = parse(quoted);
    tokenizer *t = tokenizer_of(json, NULL);
    check_ids(t, "hello hello", 0, "9 9");
    check_ids(t, " he\n", 0, "8 8 4 310");
    check_ids(t, "\xC3\xA9", 0, "8 495 469");
    check_ids(t, "<s>hello", LACE_TOKENIZE_PARSE_SPECIAL, "267 9");
    check_text(t, "hello\n\xC3\xA9 hello  x");
    tokenizer_free(t);
    json_decref(json);
}

/* `scheme` says when Metaspace puts a space in front. */
static tokenizer *metaspace(const char *scheme)
{
    char quoted[2048];
    snprintf(quoted, sizeof quoted,
             "{'model':{'type':'BPE','vocab':{" LETTERS ",'" MARK "':8,'" MARK "he':9,'<unk>':10,"
             "'e" MARK "':11},'merges':['h e','e " MARK "','" MARK " he','l l'],"
             "'unk_token':'<unk>'},'added_tokens':[{'id':12,'content':'<x>','special':false}],"
             "'pre_tokenizer':{'type':'Metaspace','replacement':'" MARK "',%s}}",
             scheme);
    json_t *json = parse(quoted);
    tokenizer *t = tokenizer_of(json, NULL);
    json_decref(json);
    return t;
}

static void metaspace_adds_a_space_as_its_scheme_says(void)
{
    tokenizer *t = metaspace("'prepend_scheme':'always','split':true");
    check_ids(t, "he<x>he", 0, "9 12 9");
    check_ids(t, " he he  he", 0, "9 9 8 9");
    tokenizer_free(t);
    t = metaspace("'prepend_scheme':'first','split':true");
    check_ids(t, "he<x>he<x> he", 0, "9 12 4 12 9");
    check_ids(t, "<x>he", 0, "12 4");
    tokenizer_free(t);
    t = metaspace("'prepend_scheme':'never','split':true");
    check_ids(t, "he z", 0, "4 8 10");
    tokenizer_free(t);
    t = metaspace("'add_prefix_space':true");
    check_ids(t, "he", 0, "9");
    tokenizer_free(t);
}

/* Without a split, merges cross from one word to the next. */
static void metaspace_splits_only_if_it_says_so(void)
{
    tokenizer *t = metaspace("'prepend_scheme':'never','split':false");
    check_ids(t, "le he", 0, "2 11 4");
    tokenizer_free(t);
    t = metaspace("'prepend_scheme':'never','split':true");
    check_ids(t, "le he", 0, "2 1 9");
    tokenizer_free(t);
}

/* Gemma: no prefix, and runs of spaces are among the added tokens. */
static void runs_of_spaces_come_from_merges(void)
{
    json_t *json = parse(
        "{'model':{'type':'BPE','unk_token':'<unk>','vocab':{" LETTERS ",'" MARK "':8,"
        "'" MARK MARK "':9,'\\n':10,'\\n\\n':11,'<unk>':12,'" MARK "he':13},'merges':[['h','e'],"
        "['" MARK "','" MARK "'],['" MARK "','he']]},'normalizer':{'type':'Replace','pattern':"
        "{'String':' '},'content':'" MARK "'},'pre_tokenizer':{'type':'Split','pattern':"
        "{'String':' '},'behavior':'MergedWithPrevious','invert':false},'added_tokens':["
        "{'id':9,'content':'" MARK MARK "','special':false},"
        "{'id':11,'content':'\\n\\n','special':false}]}");
    tokenizer *t = tokenizer_of(json, NULL);
    check_ids(t, "he   he", 0, "4 9 13");
    check_ids(t, "he\n\nhe", 0, "4 11 4");
    check_text(t, "he  he\n\n he");
    tokenizer_free(t);
    json_decref(json);
}

static void unigram_takes_the_best_sum_of_scores(void)
{
    json_t *json =
        parse("{'model':{'type':'Unigram','unk_id':0,'vocab':[['<unk>',0],['" MARK "',-2],['a',-3],"
              "['b',-3.5],['ab',-4],['" MARK "ab',-5],['" MARK "a',-9]]},"
              "'normalizer':{'type':'Sequence','normalizers':[{'type':'NFKC'},{'type':'Replace',"
              "'pattern':{'Regex':' {2,}'},'content':' '}]},"
              "'pre_tokenizer':{'type':'Metaspace','prepend_scheme':'always'},"
              "'post_processor':{'type':'TemplateProcessing','single':[{'Sequence':{'id':'A'}},"
              "{'SpecialToken':{'id':'</s>'}}],'special_tokens':{'</s>':{'id':'</s>','ids':[7]}}},"
              "'added_tokens':[{'id':7,'content':'</s>','special':true}]}");
    hf_vocab h;
    tokenizer *t = tokenizer_of(json, &h);
    check_ids(t, "ab  ab", 0, "5 5");
    check_ids(t, "a\xEF\xBC\xA1zz", 0, "1 2 0");
    check_ids(t, "\xEF\xBD\x81", 0, "1 2"); /* a wide "a" */
    CHECK(h.first == -1 && h.last == 7 && h.v.unk == 0);
    tokenizer_free(t);
    json_decref(json);
}

static void wordpiece_marks_what_begins_a_word(void)
{
    json_t *json = parse(
        "{'model':{'type':'WordPiece','unk_token':'[UNK]','continuing_subword_prefix':'##',"
        "'max_input_chars_per_word':100,'vocab':{'[UNK]':0,'[CLS]':1,'[SEP]':2,'play':3,'##ing':4,"
        "'e':5,'!':6,'ing':7}},'added_tokens':[{'id':1,'content':'[CLS]','special':true},"
        "{'id':2,'content':'[SEP]','special':true},{'id':0,'content':'[UNK]','special':true}],"
        "'normalizer':{'type':'BertNormalizer','clean_text':true,'handle_chinese_chars':true,"
        "'strip_accents':null,'lowercase':true},'pre_tokenizer':{'type':'BertPreTokenizer'},"
        "'post_processor':{'type':'BertProcessing','sep':['[SEP]',2],'cls':['[CLS]',1]}}");
    hf_vocab h;
    tokenizer *t = tokenizer_of(json, &h);
    check_ids(t, "Playing ing!", 0, "3 4 7 6");
    check_ids(t, "\xC3\xA9 played", 0, "5 0");
    check_ids(t, "[SEP]play", LACE_TOKENIZE_PARSE_SPECIAL, "2 3");
    CHECK(h.first == 1 && h.last == 2);
    tokenizer_free(t);
    json_decref(json);
}

int main(void)
{
    static const real_vocab reals[] = {
        {"gpt-2",
         "{'model':{'type':'BPE'},'pre_tokenizer':{'type':'ByteLevel',"
         "'add_prefix_space':false}}",
         true},
        {"deepseek-coder",
         "{'model':{'type':'BPE'},'pre_tokenizer':{'type':'Sequence','pretokenizers':["
         "{'type':'Split','pattern':{'Regex':'[\\r\\n]'},'behavior':'Isolated'},"
         "{'type':'Split','pattern':{'Regex':'\\\\s?\\\\p{L}+'},'behavior':'Isolated'},"
         "{'type':'Split','pattern':{'Regex':'\\\\s?\\\\p{P}+'},'behavior':'Isolated'},"
         "{'type':'Split','pattern':{'Regex':'[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+'},"
         "'behavior':'Isolated'},{'type':'Digits','individual_digits':true},{'type':'ByteLevel',"
         "'add_prefix_space':false,'use_regex':false}]}}",
         false},
        {"llama-bpe",
         "{'model':{'type':'BPE','ignore_merges':true}," BYTES_AFTER(WORDS("\\\\p{N}{1,3}")) "}",
         true},
        {"qwen2", "{'model':{'type':'BPE'}," BYTES_AFTER(WORDS("\\\\p{N}")) "}", true},
        {"llama-spm",
         "{'model':{'type':'BPE','byte_fallback':true,'fuse_unk':true,'unk_token':'<unk>'},"
         "'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'" MARK "'},"
         "{'type':'Replace','pattern':{'String':' '},'content':'" MARK "'}]}}",
         true},
    };
    static const char *const folders[] = {"models/tales-4m", "models/tales-26m"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char name[96];
        char *path = data_path_if_there(folders[i]);
        free(path);
        if (i > 0 && !path)
            continue; /* too large for a clone */
        snprintf(name, sizeof name, "%s gives the ids of the GGUF file", folders[i]);
        tap_case_arg(name, directory_gives_the_ids_of_the_file, (void *)folders[i]);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s as a tokenizer.json gives the same ids", reals[i].name);
        tap_case_arg(name, real_vocabulary_gives_the_same_ids, (void *)&reals[i]);
    }
    CASE(byte_level_words_follow_the_regexes);
    CASE(byte_level_adds_a_space_unless_there_is_one);
    CASE(bytes_stand_for_unknown_characters);
    CASE(metaspace_adds_a_space_as_its_scheme_says);
    CASE(metaspace_splits_only_if_it_says_so);
    CASE(runs_of_spaces_come_from_merges);
    CASE(unigram_takes_the_best_sum_of_scores);
    CASE(wordpiece_marks_what_begins_a_word);
    return tap_end();
}
