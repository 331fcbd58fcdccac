/* Grammars for tests. */
#include "grammar_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

/* Words that cross the borders of what grammars usually tell apart. */
static const char *const words[] = {
    "the",      " the",
    "a\"",      "\":",
    "\": ",     "\": \"",
    "\",",      "\", \"",
    "{\"",      "\"}",
    "}}",       "[[",
    "]]",       "],",
    "[]",       "{}",
    "123",      "12.",
    ".5",       "e1",
    "-1",       "tru",
    "e,",       "null",
    "nul",      "false",
    "\n",       "\n  ",
    "    ",     "\\n",
    "\\u00",    "\\\"",
    "\xC3",     "\xA9",
    "\xC3\xA9", "\xE2\x82",
    "\xAC",     "\xF0\x9F\x98\x80",
    "name",     "age",
    "\"name\"", "aaaa",
    "aaaaaaaa", "ab",
    "ba",       "abab",
    "x",        "1, 2",
    ", ",       ": ",
};

enum { N_WORDS = sizeof words / sizeof words[0], N_VOCAB = KIT_N_BYTES + N_WORDS + 3 };

lace_token kit_control(void)
{
    return KIT_N_BYTES + N_WORDS;
}

lace_token kit_end(void)
{
    return kit_control() + 1;
}

lace_token kit_mark(void)
{
    return kit_control() + 2;
}

grammar_vocab *kit_vocab(void)
{
    static grammar_vocab *v;
    static char bytes[KIT_N_BYTES];
    static text texts[N_VOCAB];
    static uint8_t kinds[N_VOCAB];
    if (v)
        return v;
    for (int i = 0; i < N_VOCAB; i++) {
        kinds[i] = GRAMMAR_TOKEN_TEXT;
        if (i < KIT_N_BYTES) {
            bytes[i] = (char)i;
            texts[i] = (text){&bytes[i], 1};
        } else if (i < KIT_N_BYTES + N_WORDS) {
            texts[i] = text_of(words[i - KIT_N_BYTES]);
        }
    }
    texts[kit_control()] = text_of("the"); /* a special token that looks like text */
    kinds[kit_control()] = GRAMMAR_TOKEN_OTHER;
    kinds[kit_end()] = GRAMMAR_TOKEN_END;
    texts[kit_mark()] = text_of("<mark>");
    kinds[kit_mark()] = GRAMMAR_TOKEN_MARK;
    if (grammar_vocab_create(texts, kinds, N_VOCAB, &v, NULL) != LACE_OK)
        exit(1);
    return v;
}

static grammar_matcher *compile(lace_grammar_kind kind, text source, lace_error *err)
{
    grammar_ast g;
    grammar_automaton a;
    grammar_core *core = NULL;
    grammar_matcher *m = NULL;
    const grammar_node *node;
    regex_options options = {0};
    grammar_ast_init(&g);
    g.vocab = kit_vocab();
    lace_status status = LACE_OK;
    if (kind == LACE_GRAMMAR_GBNF) {
        status = grammar_read_gbnf(&g, source, err);
    } else if (kind == LACE_GRAMMAR_JSON_SCHEMA) {
        status = grammar_read_schema(&g, source, err);
    } else if (kind == LACE_GRAMMAR_JSON_OBJECT) {
        status = grammar_read_json_object(&g, err);
    } else {
        status = grammar_read_regex(&g, source, &options, &node, NULL, NULL, err);
        if (status == LACE_OK) {
            g.root = grammar_add_rule(&g, text_of("regex"));
            g.rules[g.root].body = node;
        }
    }
    if (status == LACE_OK)
        status = grammar_compile(&g, &a, err);
    if (status == LACE_OK)
        status = grammar_core_create(&a, kit_vocab(), &core, err);
    if (status == LACE_OK)
        grammar_matcher_create(core, &m, err);
    grammar_core_unref(core);
    grammar_ast_deinit(&g);
    return m;
}

grammar_matcher *kit_compile(lace_grammar_kind kind, const char *source, lace_error *err)
{
    return compile(kind, text_of(source), err);
}

bool kit_matches(lace_grammar_kind kind, const char *source, const char *input)
{
    lace_error err = {0};
    grammar_matcher *m = kit_compile(kind, source, &err);
    if (!CHECK(m != NULL)) {
        tap_note("%.300s: %s", source, err.text);
        return false;
    }
    grammar_position *p;
    bool matches = false;
    if (grammar_position_create(m, &p, &err) == LACE_OK) {
        lace_status status = grammar_position_advance(p, text_of(input), &err);
        matches = status == LACE_OK && grammar_position_is_complete(p);
        CHECK(status == LACE_OK || status == LACE_E_GRAMMAR);
        grammar_position_free(p);
    } else {
        CHECK(false);
    }
    grammar_matcher_free(m);
    return matches;
}

bool kit_refuses_n(lace_grammar_kind kind, const char *source, size_t n_bytes, const char *expected)
{
    lace_error err = {0};
    grammar_matcher *m = compile(kind, (text){source, n_bytes}, &err);
    bool ok = !m && err.status != LACE_OK && err.status != LACE_E_NOMEM &&
              strstr(err.text, expected) != NULL && !strchr(err.text, '\n');
    if (!ok)
        tap_note("%.60s: %s, expected \"%s\"", source, m ? "accepted" : err.text, expected);
    grammar_matcher_free(m);
    return ok;
}

bool kit_refuses(lace_grammar_kind kind, const char *source, const char *expected)
{
    return kit_refuses_n(kind, source, strlen(source), expected);
}

void kit_fuzz(lace_grammar_kind kind, const uint8_t *data, size_t size)
{
    lace_error err = {0};
    grammar_position *p = NULL;
    grammar_matcher *m = compile(kind, (text){(const char *)data, size}, &err);
    if (!m) {
        if (err.status == LACE_OK || err.text[0] == 0 || strchr(err.text, '\n'))
            abort();
        return;
    }
    uint32_t random = 1; /* the same way for the same input */
    for (size_t i = 0; i < size; i++)
        random = random * 31 + data[i];
    if (grammar_position_create(m, &p, &err) != LACE_OK && err.status != LACE_E_LIMIT)
        abort();
    for (int step = 0; p && step < 24; step++) {
        const uint64_t *mask;
        lace_status status = grammar_position_allowed(p, &mask, &err);
        if (status == LACE_E_LIMIT)
            break;
        if (status != LACE_OK)
            abort(); /* with all bytes in the vocabulary there is always a way */
        lace_token t = (lace_token)(random % N_VOCAB);
        while (!(mask[t / 64] >> (t % 64) & 1))
            t = (t + 1) % N_VOCAB;
        random = random * 1103515245 + 12345;
        status = grammar_position_accept(p, t, &err);
        if (status == LACE_E_LIMIT || t == kit_end())
            break;
        if (status != LACE_OK)
            abort();
    }
    grammar_position_free(p);
    grammar_matcher_free(m);
}
