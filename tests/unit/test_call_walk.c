/*
 * Calls of every format, written by a model that knows nothing: random tokens of those that the call's
 * grammar allows. What comes out must be taken apart into calls whose arguments are valid for their
 * schema, whole and in pieces alike.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "chat/call_grammar.h"
#include "chat/reply_formats.h"
#include "chat_kit.h"
#include "grammar_kit.h"
#include "tap.h"

enum { N_TEXTS = 24, MAX_STEPS = 1500 };

static const char schema_text[] = "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": "
                                  "\"string\"}, \"days\": {\"type\": "
                                  "\"integer\"}, \"exact\": {\"type\": \"boolean\"}, \"unit\": "
                                  "{\"enum\": [\"C\", \"F\"]}, \"tags\": "
                                  "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}}, "
                                  "\"required\": [\"city\", \"unit\"], "
                                  "\"additionalProperties\": false}";

/* Every format that has a form for calls. */
static const char *const formats[] = {
    "harmony",   "deepseek-r1",  "deepseek",      "deepseek-v3.2", "deepseek-v4",  "kimi-k3",
    "mistral",   "mistral-list", "kimi-k2",       "seed-oss",      "qwen3-coder",  "functionary",
    "glm",       "hunyuan",      "minimax-m2",    "minicpm",       "solar",        "lfm2",
    "gemma4",    "olmo3",        "functiongemma", "pythonic",      "nemotron",     "cohere",
    "command-r", "apertus",      "apriel",        "tool-calls",    "gigachat",     "gigachat3",
    "phi4-mini", "granite",      "internlm",      "granite-20b",   "firefunction", "llama3",
    "hermes",    "json",
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static reply_format format_of(const char *name)
{
    reply_format hermes = reply_format_by_name("hermes");
    return strcmp(name, "json") == 0 ? reply_format_described(&hermes) : reply_format_by_name(name);
}

static uint32_t state = 1;

static uint32_t draw(uint32_t n)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/*
 * Words that may come next. Chance alone would not end a text that goes on until one of them. In a
 * string they would be part of it, where a model has them as control tokens, which no string takes:
 * then any letter may follow.
 */
static bool take_word(grammar_position *p, const reply_format *f, buf *out)
{
    const reply_calls *c = f->calls;
    const char *all[] = {c->value_end, c->value_begin, c->section_begin, c->call_begin, "\"", "}",
                         "]"};
    const char *word = all[draw(sizeof all / sizeof all[0])];
    grammar_position *next = NULL;
    lace_error err;
    if (!word || grammar_position_clone(p, &next, &err) != LACE_OK)
        return false;
    bool fits = grammar_position_advance(next, text_of(word), &err) == LACE_OK;
    if (fits && word[1] && grammar_position_advance(next, text_of("x"), &err) == LACE_OK)
        fits = false;
    if (fits) {
        CHECK(grammar_position_advance(p, text_of(word), &err) == LACE_OK);
        CHECK(buf_append_text(out, word) == LACE_OK);
    }
    grammar_position_free(next);
    return fits;
}

/* A random text of the grammar; false: it did not end. */
static bool write_text(grammar_matcher *m, const reply_format *f, buf *out)
{
    grammar_position *p = NULL;
    lace_error err;
    bool is_whole = false;
    buf_clear(out);
    CHECK(grammar_position_create(m, &p, &err) == LACE_OK);
    for (int i = 0; p && i < MAX_STEPS && !is_whole; i++) {
        const uint64_t *mask;
        is_whole = grammar_position_is_finished(p) ||
                   (grammar_position_is_complete(p) && out->size > 0 && draw(8) == 0);
        if (is_whole)
            break;
        if (draw(2) == 0 && take_word(p, f, out))
            continue;
        const char *bracket = draw(2) ? "{" : "[";
        if (i == 0 && grammar_position_advance(p, text_of(bracket), &err) == LACE_OK) {
            CHECK(buf_append_text(out, bracket) == LACE_OK);
            continue;
        }
        if (!CHECK(grammar_position_allowed(p, &mask, &err) == LACE_OK))
            break;
        uint32_t from = draw(128), t = 128;
        for (uint32_t k = 0; k < 256 && t >= 128; k++) {
            uint32_t byte = k < 128 ? (from + k) % 128 : k; /* ASCII, if it may be */
            bool is_text = byte >= ' ' || byte == '\n';
            if (is_text && (mask[byte / 64] >> (byte % 64) & 1)) {
                t = byte;
                break;
            }
        }
        char c = (char)t;
        if (!CHECK(grammar_position_advance(p, (text){&c, 1}, &err) == LACE_OK))
            break;
        CHECK(buf_append(out, &c, 1) == LACE_OK);
    }
    grammar_position_free(p);
    return is_whole;
}

/* ---- Taking apart ---------------------------------------------------------------------------- */

typedef struct parts {
    buf args[64], content;
    int n_calls, n_whole, n_named;
} parts;

static lace_status take(void *arg, const reply_event *e)
{
    parts *p = arg;
    if (e->kind == REPLY_CONTENT)
        return buf_append(&p->content, e->chars.data, e->chars.size);
    if (e->kind == REPLY_CALL_BEGIN && p->n_calls < 64) {
        buf_init(&p->args[p->n_calls++], 1 << 20);
        p->n_named += e->chars.size == 1 && (e->chars.data[0] == 'f' || e->chars.data[0] == 'g');
    }
    if (e->kind == REPLY_CALL_ARGS)
        return buf_append(&p->args[e->call], e->chars.data, e->chars.size);
    p->n_whole += e->kind == REPLY_CALL_END && e->is_complete;
    return LACE_OK;
}

static void parse(const reply_format *f, const json_t *tools, const buf *whole, size_t piece,
                  parts *out)
{
    reply_options o = {.tools = tools};
    reply_parser *p = NULL;
    lace_error err;
    *out = (parts){0};
    buf_init(&out->content, 1 << 20);
    CHECK(reply_parser_create(f, &o, take, out, &p, &err) == LACE_OK);
    for (size_t at = 0; at < whole->size; at += piece) {
        size_t n = whole->size - at < piece ? whole->size - at : piece;
        CHECK(reply_parser_feed(p, (text){whole->data + at, n}, &err) == LACE_OK);
    }
    CHECK(reply_parser_finish(p, &err) == LACE_OK);
    reply_parser_free(p);
}

static void free_parts(parts *p)
{
    for (int i = 0; i < p->n_calls; i++)
        buf_deinit(&p->args[i]);
    buf_deinit(&p->content);
}

static bool is_same(const parts *a, const parts *b)
{
    bool is = a->n_calls == b->n_calls && a->content.size == b->content.size;
    for (int i = 0; is && i < a->n_calls; i++)
        is = a->args[i].size == b->args[i].size &&
             memcmp(a->args[i].data, b->args[i].data, a->args[i].size) == 0;
    return is;
}

/* Members of the schema, of its types, and all that are required. */
static bool is_valid(const char *chars)
{
    json_t *args = json_loads(chars, JSON_REJECT_DUPLICATES, NULL), *value;
    const char *key;
    const char *unit = json_string_value(json_object_get(args, "unit"));
    bool is = json_is_object(args) && json_is_string(json_object_get(args, "city")) && unit &&
              (strcmp(unit, "C") == 0 || strcmp(unit, "F") == 0);
    json_object_foreach(args, key, value)
    {
        size_t i;
        const json_t *tag;
        is = is && (strcmp(key, "city") == 0 || strcmp(key, "unit") == 0 ||
                    (strcmp(key, "days") == 0 && json_is_integer(value)) ||
                    (strcmp(key, "exact") == 0 && json_is_boolean(value)) ||
                    (strcmp(key, "tags") == 0 && json_is_array(value)));
        if (strcmp(key, "tags") == 0)
            json_array_foreach(value, i, tag) is = is && json_is_string(tag);
    }
    json_decref(args);
    return is;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

/* Calls of a format, written and taken apart. Returns how many calls there were; -1: no grammar. */
static int walk(const char *name, bool is_optional, bool is_single)
{
    json_t *schema = read_json(schema_text);
    json_t *tools =
        json_pack("[{s:s, s:{s:s, s:b, s:O}}, {s:s, s:{s:s, s:b, s:O}}]", "type", "function",
                  "function", "name", "f", "strict", 1, "parameters", schema, "type", "function",
                  "function", "name", "g", "strict", 1, "parameters", schema);
    reply_format f = format_of(name);
    f.answer = NULL;
    call_demand demand = {.tools = tools, .is_optional = is_optional, .is_single = is_single};
    buf gbnf, whole;
    int n_calls = 0, n_ended = 0;
    lace_error err = {0};
    buf_init(&gbnf, 1 << 20);
    buf_init(&whole, 1 << 20);
    lace_status status = reply_call_grammar(&f, &demand, &gbnf);
    grammar_matcher *m = status == LACE_OK ? kit_compile(LACE_GRAMMAR_GBNF, gbnf.data, &err) : NULL;
    if (status == LACE_OK && !CHECK(m != NULL))
        tap_note("%s: %s\n%s", name, err.text, gbnf.data);
    for (int i = 0; m && i < N_TEXTS; i++) {
        parts all, some;
        if (!write_text(m, &f, &whole))
            continue;
        n_ended++;
        parse(&f, tools, &whole, whole.size + 1, &all);
        parse(&f, tools, &whole, 1 + draw(5), &some);
        bool is_right = is_same(&all, &some) && all.n_whole == all.n_calls &&
                        all.n_named == all.n_calls && (is_optional || all.n_calls == 1) &&
                        (!is_single || all.n_calls <= 1);
        for (int k = 0; k < all.n_calls; k++)
            is_right = is_right && is_valid(all.args[k].data ? all.args[k].data : "");
        if (!CHECK(is_right))
            tap_note("%s%s: %d calls, %d whole, arguments %s, of: %s", name,
                     is_optional ? ", optional" : "", all.n_calls, all.n_whole,
                     all.n_calls ? all.args[0].data : "", whole.data);
        n_calls += all.n_calls;
        free_parts(&all);
        free_parts(&some);
    }
    if (m)
        CHECK(n_ended > N_TEXTS / 4);
    grammar_matcher_free(m);
    buf_deinit(&gbnf);
    buf_deinit(&whole);
    json_decref(tools);
    json_decref(schema);
    return m ? n_calls : -1;
}

static void demanded_calls_of_every_format_are_valid(void)
{
    for (int i = 0; i < N_FORMATS; i++) {
        int n = walk(formats[i], false, false);
        if (!CHECK(n > N_TEXTS / 4))
            tap_note("%s: %d calls", formats[i], n);
    }
}

static void calls_that_are_up_to_the_model_are_valid(void)
{
    int n_held = 0;
    for (int i = 0; i < N_FORMATS; i++) {
        int n = walk(formats[i], true, false), single = walk(formats[i], true, true);
        bool cannot = strcmp(formats[i], "harmony") == 0 || strcmp(formats[i], "kimi-k3") == 0 ||
                      strcmp(formats[i], "firefunction") == 0;
        if (!CHECK(cannot ? n < 0 && single < 0 : n > 0 && single > 0))
            tap_note("%s: %d calls, %d where one is allowed", formats[i], n, single);
        n_held += n > 0;
    }
    tap_note("%d formats", n_held);
}

int main(void)
{
    CASE(demanded_calls_of_every_format_are_valid);
    CASE(calls_that_are_up_to_the_model_are_valid);
    return tap_end();
}
