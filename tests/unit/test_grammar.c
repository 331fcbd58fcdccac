/* Grammars: what GBNF and regexes match, what is refused, and the masks over tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "grammar_kit.h"
#include "base/random.h"
#include "tap.h"

#define YES(grammar, input)     CHECK(kit_matches(LACE_GRAMMAR_GBNF, grammar, input))
#define NO(grammar, input)      CHECK(!kit_matches(LACE_GRAMMAR_GBNF, grammar, input))
#define REFUSED(grammar, words) CHECK(kit_refuses(LACE_GRAMMAR_GBNF, grammar, words))

/* ---- GBNF ------------------------------------------------------------------------------------ */

static void gbnf_matches_literals_sequences_and_alternatives(void)
{
    YES("root ::= \"abc\"", "abc");
    NO("root ::= \"abc\"", "ab");
    NO("root ::= \"abc\"", "abcd");
    YES("root ::= \"a\" \"b\" | \"c\"", "ab");
    YES("root ::= \"a\" \"b\" | \"c\"", "c");
    NO("root ::= \"a\" \"b\" | \"c\"", "abc");
    YES("root ::= \"\"", "");
    YES("root ::= \"\\x41\\u00e9\\n\\t\\\"\\\\\"", "A\xC3\xA9\n\t\"\\");
    YES("root ::= \"\\U0001F600\"", "\xF0\x9F\x98\x80");
}

static void gbnf_matches_classes_of_characters(void)
{
    YES("root ::= [a-c0-9_]", "b");
    NO("root ::= [a-c0-9_]", "d");
    YES("root ::= [^a-c]", "d");
    NO("root ::= [^a-c]", "a");
    YES("root ::= [^a-c]", "\xE2\x82\xAC"); /* one character of three bytes */
    NO("root ::= [^a-c]", "\xE2\x82");
    YES("root ::= [\xD0\xB0-\xD1\x8F]+", "\xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82");
    NO("root ::= [\xD0\xB0-\xD1\x8F]+", "\xD0\x90");
    YES("root ::= [a\\-\\]\\n]+", "-]\n");
    YES("root ::= [a-]+", "-a-");
    YES("root ::= . .", "x\xF0\x9F\x98\x80");
}

static void gbnf_matches_repetitions(void)
{
    YES("root ::= \"a\"*", "");
    YES("root ::= \"a\"*", "aaa");
    NO("root ::= \"a\"+", "");
    YES("root ::= \"ab\"+", "abab");
    YES("root ::= \"a\"? \"b\"", "b");
    YES("root ::= [a-b]{3}", "aba");
    NO("root ::= [a-b]{3}", "ab");
    NO("root ::= [a-b]{3}", "abab");
    YES("root ::= (\"a\" | \"bb\"){2,3}", "abbbb");
    NO("root ::= (\"a\" | \"bb\"){2,3}", "a");
    YES("root ::= \"a\"{0,2} \"b\"", "aab");
    YES("root ::= \"a\"{2,}", "aaaaa");
    NO("root ::= \"a\"{2,}", "a");
    YES("root ::= \"a\"{,2}", "aa");
    YES("root ::= ((\"a\"*)*)*", "aaa"); /* the empty round must not loop */
    YES("root ::= ( [x]* )*", "");
    YES("root ::= (\"\"*)+", "");
}

/* Long repetitions count rounds instead of having a state for each. */
static void gbnf_counts_long_repetitions(void)
{
    char input[300];
    memset(input, 'a', sizeof input);
    input[100] = 0;
    YES("root ::= [a-z]{50,100}", input);
    input[100] = 'a';
    input[101] = 0;
    NO("root ::= [a-z]{50,100}", input);
    input[49] = 0;
    NO("root ::= [a-z]{50,100}", input);
    input[49] = 'a';
    input[60] = '!';
    input[61] = 0;
    YES("root ::= [a-z]{50,} \"!\"", input);
    input[49] = '!';
    input[50] = 0;
    NO("root ::= [a-z]{50,} \"!\"", input);
    YES("root ::= [a-z\xC3\xA9]{0,20} \"!\"", "\xC3\xA9\xC3\xA9!");
    YES("root ::= (\"x\" | \"yz\"){10,12}", "xyzxyzxyzxyzxyz");
    NO("root ::= (\"x\" | \"yz\"){10,12}", "xyzxyzxyzxyzx");
}

static void gbnf_follows_rules_recursion_and_comments(void)
{
    const char *nested = "# balanced\nroot ::= item+ # here too\nitem ::= \"(\" item* \")\"\n";
    YES(nested, "(()(()))()");
    NO(nested, "(()");
    NO(nested, "())");
    const char *expression = "root  ::= term ([-+*/] term)*\n"
                             "term  ::= num | \"(\" ws root \")\" ws\n"
                             "num   ::= [0-9]+ ws\n"
                             "ws    ::= [ \\t\\n]*\n";
    YES(expression, "1 +(2*3) -4");
    NO(expression, "1 +(2*3");
    YES("root ::= (\n  \"a\" # one\n  \"b\"\n)\n", "ab");
    YES("root ::= \"a\" |\n \"b\"\n | \"c\"\nother ::= \"d\"", "c");
    YES("list ::= \"x\" \",\" list | \"x\"\nroot ::= list", "x,x,x,x");
}

static void gbnf_has_words_of_its_own(void)
{
    const char *schema = "root ::= \"a\" %json {\"type\": \"object\", \"properties\": {\"}\\\"\":"
                         " {\"type\": \"integer\"}}, \"required\": [\"}\\\"\"]} \"b\" other\n"
                         "other ::= %json {\"enum\": [1, \"x\"]}";
    YES(schema, "a{\"}\\\"\": 5}b1");
    YES(schema, "a{\"}\\\"\": 5}b\"x\"");
    NO(schema, "a{\"}\\\"\": \"x\"}b1");
    YES("root ::= %until \"</p>\" \"</p>\"", "a < b </ </</p>");
    YES("root ::= %until \"</p>\" \"</p>\"", "</p>");
    NO("root ::= %until \"</p>\" \"</p>\"", "a</p>b</p>");
    YES("root ::= %until \"aab\"", "aaa b aacab a");
    NO("root ::= %until \"aab\"", "aaab");
    NO("root ::= %until \"abab\"", "ababab");
    NO("root ::= %until \"é😀\"", "xé😀y");
    YES("root ::= %until \"é😀\"", "xéé😁 😀y");
    YES("root ::= %marked \"a<b>\"", "a<b>"); /* no token of this name */
    REFUSED("root ::= %marked \"\"", "not empty");
    REFUSED("root ::= %marked x", "a literal in quotes");
    REFUSED("root ::= %until \"x", "no closing quote");
    REFUSED("root ::= %json 5", "expected a JSON schema");
    REFUSED("root ::= %json {\"type\": \"object\"", "the JSON schema");
    REFUSED("root ::= %json {\"multipleOf\": 2}", "multipleOf");
    REFUSED("root ::= %other", "%json, %marked or %until");
}

static bool allows(grammar_position *p, lace_token token)
{
    const uint64_t *mask;
    return grammar_position_allowed(p, &mask, NULL) == LACE_OK &&
           mask[token / 64] >> token % 64 & 1;
}

/* A mark passes where it is named, as one token, and nowhere else; text never stands for it. */
static void marks_are_single_tokens(void)
{
    lace_error err = {0};
    grammar_matcher *m = kit_compile(LACE_GRAMMAR_GBNF,
                                     "root ::= \"a\" %marked \"x<mark>\" %until \"<mark>\"", &err);
    grammar_position *p = NULL;
    CHECK(m && grammar_position_create(m, &p, &err) == LACE_OK);
    CHECK(p && !allows(p, kit_mark()));
    CHECK(p && grammar_position_accept(p, 'a', &err) == LACE_OK && !allows(p, kit_mark()));
    CHECK(p && grammar_position_accept(p, 'x', &err) == LACE_OK);
    CHECK(p && allows(p, kit_mark()) && !allows(p, '<') && !allows(p, 0xFF));
    CHECK(p && grammar_position_accept(p, kit_mark(), &err) == LACE_OK);
    CHECK(p && !allows(p, kit_mark()) && allows(p, '<') && allows(p, kit_end()));
    CHECK(p && !allows(p, 0xFF) && !allows(p, 0xFE));
    CHECK(p && grammar_position_accept(p, kit_mark(), &err) == LACE_E_GRAMMAR);
    grammar_position_free(p);
    grammar_matcher_free(m);
}

static void gbnf_refuses_what_it_cannot_use(void)
{
    REFUSED("Root ::= \"a\"", "no rule named root");
    REFUSED("", "no rule named root");
    REFUSED("root ::= undefined-rule", "\"undefined-rule\" is used but not defined");
    REFUSED("root ::= root \"a\"", "left recursion: the rule \"root\"");
    REFUSED("root ::= a\na ::= b\nb ::= c\nc ::= a \"x\" | \"y\"", "left recursion");
    REFUSED("root ::= n root \"a\" | \"b\"\nn ::= \"x\"?", "left recursion");
    REFUSED("root ::= \"a\" root", "no text matches");
    REFUSED("root ::= [] \"a\"", "no text matches");
    REFUSED("root ::= \"a\"{1000000000}", "column 14: a repetition may have a million");
    REFUSED("root ::= \"a\"{99999999999999999999}", "a million times at most");
    REFUSED("root ::= \"a\"{5,2}", "is below its minimum");
    REFUSED("root ::= \"a\"{-1}", "expected a number");
    REFUSED("root ::= (\"a\" \"bc\" | root2){900000}\nroot2 ::= \"a\"", "too large");
    REFUSED("root ::= \"a", "line 1, column 10: this literal has no closing quote");
    REFUSED("root ::= [a", "this class has no closing");
    REFUSED("root ::= [b-a]", "ends before it begins");
    REFUSED("root ::= (\"a\"", "this group has no closing");
    REFUSED("root ::= \"a\")", "expected the end of the line");
    REFUSED("root ::= \"\\q\"", "unknown escape");
    REFUSED("root ::= \"\\ud800\"", "not a Unicode character");
    REFUSED("root ::= <think>", "tokens by name");
    REFUSED("root ::= *", "expected a literal");
    REFUSED("root ::= \"a\"*****", "repetition of a repetition");
    REFUSED("root = \"a\"", "expected ::=");
    REFUSED("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: this rule is already defined");
    REFUSED("root ::= \"\xFF\"", "not valid UTF-8");
}

static void gbnf_refuses_depth_without_recursing(void)
{
    size_t n = 60000;
    char *source = malloc(2 * n + 32);
    size_t at = (size_t)sprintf(source, "root ::= ");
    memset(source + at, '(', n);
    memcpy(source + at + n, "\"a\"", 3);
    memset(source + at + n + 3, ')', n);
    CHECK(kit_refuses_n(LACE_GRAMMAR_GBNF, source, at + 2 * n + 3, "nested too deeply"));
    /* A chain of 20,000 rules is compiled without recursing; but it begins in as many ways. */
    for (int length = 900; length <= 20000; length += 19100) {
        buf b;
        buf_init(&b, 1 << 20);
        buf_append_text(&b, "root ::= r0\n");
        for (int i = 0; i < length; i++)
            buf_printf(&b, "r%d ::= r%d | \"x\"\n", i, i + 1);
        buf_printf(&b, "r%d ::= \"y\"\n", length);
        lace_error err = {0};
        grammar_matcher *m = kit_compile(LACE_GRAMMAR_GBNF, b.data, &err);
        if (!CHECK(length == 900 ? m != NULL : err.status == LACE_E_LIMIT))
            tap_note("%s", err.text);
        grammar_matcher_free(m);
        buf_deinit(&b);
    }
    free(source);
}

/* ---- Regexes --------------------------------------------------------------------------------- */

static void regexes_match_whole_texts(void)
{
    static const struct {
        const char *regex, *yes, *no;
    } rows[] = {
        {"abc", "abc", "xabc"},
        {"a|bc|", "bc", "b"},
        {"[A-Z]{2}\\d{3,4}", "AB1234", "AB12"},
        {"(foo|ba(r|z))+", "foobarbaz", "fooba"},
        {"^\\w+@\\w+\\.com$", "me@here.com", "me@here.org"},
        {"\\s\\S", " x", "xx"},
        {"[^\\d\\s]+", "abc", "a1"},
        {"a.c",
         "a\xE2\x82\xAC"
         "c",
         "a\nc"},
        {"(?:ab)*?c", "ababc", "aba"},
        {"(?<year>[0-9]{4})", "2026", "226"},
        {"\\u0041\\x42\\u{1F600}", "AB\xF0\x9F\x98\x80", "AB"},
        {"[\\]\\-a]+", "]-a", "b"},
        {"[-+]?[0-9]+", "-5", "--5"},
        {"\\.\\*\\/", ".*/", "a*/"},
        {"a{0}b", "b", "ab"},
        {"a]}", "a]}", "a]"},
        {"(?!\\.)(?!.*\\.\\.)[a-z.]+@x", "a.b@x", "a..b@x"},
        {"(?!\\.)(?!.*\\.\\.)[a-z.]+@x", "ab@x", ".a@x"},
        {"((?!ab).)*", "acbba", "cabc"},
        {"(?=.*[0-9])(?=.*[a-z])[0-9a-z]{3,}", "a1b", "abc"},
        {"(?=.{1,3}$)[a-z]+(\\.[a-z]+)*", "a.b", "ab.c"},
        {"P(?!$)([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?)?", "P1DT2M", "P1DT"},
        {"P(?!$)([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?)?", "PT3H", "P"},
        {"(?:^a|b$|^c$)", "c", "d"},
        {"(a(?=b(?!c)))?[abcd]*", "abd", "abx"},
        {"((?:a(?=b(?!c))|d)[abcd]?)*", "abd", "abc"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool ok = CHECK(kit_matches(LACE_GRAMMAR_REGEX, rows[i].regex, rows[i].yes)) &&
                  CHECK(!kit_matches(LACE_GRAMMAR_REGEX, rows[i].regex, rows[i].no));
        if (!ok)
            tap_note("%s", rows[i].regex);
    }
}

static void regexes_refuse_by_name(void)
{
    static const struct {
        const char *regex, *words;
    } rows[] = {
        {"(?=a)b", "no text matches"},
        {"(?=a)*b", "a quantifier after a look-ahead is not supported"},
        {"a(?=^b)", "^ inside a look-ahead"},
        {"(?=a", "closing parenthesis"},
        {"(?<=x)*", "look-behind"},
        {"(?i)a", "flags"},
        {"(a)\\1", "back references"},
        {"\\bword", "word boundaries"},
        {"\\p{L}", "Unicode properties"},
        {"*", "byte 0: this quantifier has nothing before it"},
        {"a{2,1}", "is below its minimum"},
        {"a**", "a quantifier after a quantifier is not supported"},
        {"[a", "closing bracket"},
        {"[z-a]", "ends before it begins"},
        {"(a", "closing parenthesis"},
        {"a)", "has no opening one"},
        {"a^b", "no text matches"},
        {"a$b", "no text matches"},
        {"a{1000000000}", "a million times at most"},
        {"\\", "the regex ends with a backslash"},
        {"[ab]*a([ab]|cd?){30}x", "too large"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK(kit_refuses(LACE_GRAMMAR_REGEX, rows[i].regex, rows[i].words));
    size_t n = 100000;
    char *deep = malloc(n + 1);
    memset(deep, '(', n);
    CHECK(kit_refuses_n(LACE_GRAMMAR_REGEX, deep, n, "nested too deeply"));
    free(deep);
}

/* ---- Masks ----------------------------------------------------------------------------------- */

static bool is_allowed(const uint64_t *mask, lace_token t)
{
    return mask[t / 64] >> (t % 64) & 1;
}

/* Follow random allowed tokens; at each step the mask must be what trying every token says. */
static void check_masks(lace_grammar_kind kind, const char *source, uint64_t seed)
{
    lace_error err = {0};
    grammar_matcher *m = kit_compile(kind, source, &err);
    if (!CHECK(m != NULL)) {
        tap_note("%s: %s", source, err.text);
        return;
    }
    random_state random;
    random_init(&random, seed);
    for (int run = 0; run < 6; run++) {
        grammar_position *p = NULL;
        CHECK(grammar_position_create(m, &p, &err) == LACE_OK);
        for (int step = 0; step < 40; step++) {
            const uint64_t *mask;
            lace_token chosen = -1;
            uint32_t n_allowed = 0;
            if (!CHECK(grammar_position_allowed(p, &mask, &err) == LACE_OK)) {
                tap_note("%s: %s", source, err.text);
                break;
            }
            for (lace_token t = 0; t <= kit_end(); t++) {
                grammar_position *q;
                CHECK(grammar_position_clone(p, &q, &err) == LACE_OK);
                bool matches = grammar_position_accept(q, t, &err) == LACE_OK;
                grammar_position_free(q);
                if (!CHECK(matches == is_allowed(mask, t)))
                    tap_note("seed %llu, %s: token %d %s", (unsigned long long)seed, source, t,
                             matches ? "matches, but is masked" : "is allowed, but does not match");
                if (matches && random_bits(&random) % ++n_allowed == 0)
                    chosen = t;
            }
            CHECK(!is_allowed(mask, kit_control()));
            CHECK(is_allowed(mask, kit_end()) == grammar_position_is_complete(p));
            if (chosen < 0 || chosen == kit_end())
                break;
            CHECK(grammar_position_accept(p, chosen, &err) == LACE_OK);
        }
        grammar_position_free(p);
    }
    grammar_matcher_free(m);
}

static void masks_are_what_trying_every_token_says(void)
{
    static const struct {
        lace_grammar_kind kind;
        const char *source;
    } rows[] = {
        {LACE_GRAMMAR_JSON_OBJECT, ""},
        {LACE_GRAMMAR_GBNF, "root ::= item+\nitem ::= \"[\" item* \"]\" | \"the\" | \" the\""},
        {LACE_GRAMMAR_GBNF, "root ::= \"{\" [a-z]{3,12} \"}\" root?"},
        {LACE_GRAMMAR_GBNF, "root ::= ([a-z]{9,10} \"\\\"\"?)* [0-9]{10,}"},
        {LACE_GRAMMAR_GBNF, "root ::= (\"a\"* \"b\"* | \"ab\"+)* \"x\""},
        {LACE_GRAMMAR_GBNF, "root ::= a a a\na ::= \"\" | \"a\" | \"ab\" a | b\nb ::= \"b\" a"},
        {LACE_GRAMMAR_REGEX, "([a-z ]{0,20}[,.\"] ?)*[0-9]{1,15}(\\.\\d+)?"},
        {LACE_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":2,"
         "\"maxLength\":12},\"age\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120},"
         "\"a\":{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"maxItems\":3}},"
         "\"required\":[\"name\"],\"additionalProperties\":{\"type\":\"boolean\"}}"},
        {LACE_GRAMMAR_JSON_SCHEMA,
         "{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":[\"string\","
         "\"null\"]},\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},\"required\":"
         "[\"c\"]}},\"$ref\":\"#/$defs/t\"}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_masks(rows[i].kind, rows[i].source, 1 + i);
}

static void masks_are_kept_by_position(void)
{
    lace_error err = {0};
    grammar_matcher *m = kit_compile(LACE_GRAMMAR_GBNF, "root ::= \"[\" [a-z ]* \"]\"", &err);
    grammar_position *p = NULL;
    const uint64_t *mask;
    grammar_counts counts;
    CHECK(m && grammar_position_create(m, &p, &err) == LACE_OK);
    CHECK(grammar_position_accept(p, '[', &err) == LACE_OK);
    for (int i = 0; i < 100; i++) {
        CHECK(grammar_position_allowed(p, &mask, &err) == LACE_OK);
        CHECK(grammar_position_accept(p, 'a' + i % 26, &err) == LACE_OK);
    }
    grammar_matcher_count(m, &counts);
    CHECK(counts.n_masks_made <= 2 && counts.n_masks_found >= 98);
    grammar_position_free(p);
    grammar_matcher_free(m);
}

static void a_text_ends_only_where_the_grammar_does(void)
{
    lace_error err = {0};
    grammar_matcher *m = kit_compile(LACE_GRAMMAR_GBNF, "root ::= \"ab\" \"c\"?", &err);
    grammar_position *p = NULL, *q = NULL;
    const uint64_t *mask;
    CHECK(m && grammar_position_create(m, &p, &err) == LACE_OK);
    CHECK(!grammar_position_is_complete(p));
    CHECK(grammar_position_accept(p, kit_end(), &err) == LACE_E_GRAMMAR);
    CHECK(grammar_position_accept(p, kit_control(), &err) == LACE_E_GRAMMAR);
    CHECK(grammar_position_accept(p, -1, &err) == LACE_E_GRAMMAR);
    CHECK(grammar_position_accept(p, 100000, &err) == LACE_E_GRAMMAR);
    CHECK(grammar_position_advance(p, text_of("ax"), &err) == LACE_E_GRAMMAR);
    CHECK(grammar_position_advance(p, text_of("ab"), &err) == LACE_OK); /* as before the failure */
    CHECK(grammar_position_is_complete(p) && !grammar_position_is_finished(p));
    CHECK(grammar_position_clone(p, &q, &err) == LACE_OK);
    CHECK(grammar_position_accept(q, 'c', &err) == LACE_OK);
    CHECK(grammar_position_is_finished(q) && !grammar_position_is_finished(p));
    CHECK(grammar_position_allowed(q, &mask, &err) == LACE_OK);
    for (lace_token t = 0; t <= kit_end(); t++)
        CHECK(is_allowed(mask, t) == (t == kit_end()));
    CHECK(grammar_position_accept(p, kit_end(), &err) == LACE_OK);
    CHECK(grammar_position_accept(p, kit_end(), &err) == LACE_E_GRAMMAR);
    grammar_position_free(p);
    grammar_position_free(q);
    grammar_matcher_free(m);
}

static void frames_do_not_pile_up(void)
{
    lace_error err = {0};
    /* Recursion at the end needs no stack; recursion in the middle gives its frames back. */
    grammar_matcher *m =
        kit_compile(LACE_GRAMMAR_GBNF, "root ::= \"x\" root | \"(\" root \")\" root | \"\"", &err);
    grammar_position *p = NULL;
    grammar_counts counts;
    CHECK(m && grammar_position_create(m, &p, &err) == LACE_OK);
    for (int i = 0; i < 200000; i++)
        CHECK(grammar_position_advance(p, text_of("x(x)"), &err) == LACE_OK);
    grammar_matcher_count(m, &counts);
    CHECK(counts.n_frames < 100);
    /* A stack has a limit: the grammar then leaves no way but back. */
    lace_status status = LACE_OK;
    int depth = 0;
    for (; depth < 5000 && status == LACE_OK; depth++)
        status = grammar_position_advance(p, text_of("("), &err);
    CHECK(depth > 1000 && depth < 5000 && status == LACE_E_GRAMMAR);
    for (; depth > 1 && grammar_position_advance(p, text_of(")"), &err) == LACE_OK; depth--)
        ;
    CHECK(grammar_position_is_complete(p));
    grammar_position_free(p);
    grammar_matcher_free(m);
}

static void ambiguity_has_a_limit(void)
{
    lace_error err = {0};
    grammar_matcher *m =
        kit_compile(LACE_GRAMMAR_GBNF, "root ::= a{1,900}\na ::= b | \"x\" a\nb ::= \"x\"", &err);
    grammar_position *p = NULL;
    lace_status status = LACE_OK;
    if (!CHECK(m && grammar_position_create(m, &p, &err) == LACE_OK)) {
        tap_note("%s", err.text);
        return;
    }
    for (int i = 0; i < 3000 && status == LACE_OK; i++)
        status = grammar_position_advance(p, text_of("x"), &err);
    CHECK(status == LACE_OK || status == LACE_E_LIMIT);
    grammar_position_free(p);
    grammar_matcher_free(m);
}

static void every_failed_allocation_is_an_error(void)
{
    const char *source = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
                         "\"maxLength\":20},\"b\":{\"anyOf\":[{\"type\":\"integer\",\"minimum\":3},"
                         "{\"$ref\":\"#\"}]}},\"required\":[\"a\"]}";
    kit_vocab();
    bool is_done = false;
    for (long i = 0; i < 100000 && !is_done; i++) {
        lace_error err = {0};
        mem_fail_at(i, false);
        grammar_matcher *m = kit_compile(LACE_GRAMMAR_JSON_SCHEMA, source, &err);
        if (m) {
            grammar_position *p = NULL;
            const uint64_t *mask;
            is_done = grammar_position_create(m, &p, &err) == LACE_OK &&
                      grammar_position_allowed(p, &mask, &err) == LACE_OK &&
                      grammar_position_accept(p, '{', &err) == LACE_OK && mem_count() <= i;
            grammar_position_free(p);
        } else {
            CHECK(err.status == LACE_E_NOMEM);
        }
        mem_fail_at(-1, false);
        grammar_matcher_free(m);
    }
    CHECK(is_done);
}

int main(void)
{
    CASE(gbnf_matches_literals_sequences_and_alternatives);
    CASE(gbnf_matches_classes_of_characters);
    CASE(gbnf_matches_repetitions);
    CASE(gbnf_counts_long_repetitions);
    CASE(gbnf_follows_rules_recursion_and_comments);
    CASE(gbnf_has_words_of_its_own);
    CASE(marks_are_single_tokens);
    CASE(gbnf_refuses_what_it_cannot_use);
    CASE(gbnf_refuses_depth_without_recursing);
    CASE(regexes_match_whole_texts);
    CASE(regexes_refuse_by_name);
    CASE(masks_are_what_trying_every_token_says);
    CASE(masks_are_kept_by_position);
    CASE(a_text_ends_only_where_the_grammar_does);
    CASE(frames_do_not_pile_up);
    CASE(ambiguity_has_a_limit);
    CASE(every_failed_allocation_is_an_error);
    grammar_vocab_free(kit_vocab());
    return tap_end();
}
