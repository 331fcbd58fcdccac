/*
 * What forms cost: twice the text takes at most 2.5 times the processor time, for every keyword of
 * JSON schemas, every part of a regex and every construct of GBNF. A row writes its form for a size
 * n; the measure is the least of several tries, since others on the machine only ever add to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/work_limit.h"
#include "grammar_kit.h"
#include "tap.h"

typedef struct cost_row {
    const char *name;
    lace_grammar_kind kind;
    int n;               /* a size that takes some milliseconds */
    const char *before;  /* the text is before, n times each, after */
    const char *each;    /* %d is the number, 0 to n - 1; NULL: `before` has %d for n */
    const char *between; /* the repetitions */
    const char *after;
} cost_row;

static void write_number(buf *out, const char *pattern, int i)
{
    for (const char *p = pattern; *p; p++)
        if (p[0] == '%' && p[1] == 'd') {
            buf_printf(out, "%d", i);
            p++;
        } else {
            buf_append(out, p, 1);
        }
}

static void write_form(const cost_row *r, int n, buf *out)
{
    buf_clear(out);
    write_number(out, r->before, n);
    for (int i = 0; r->each && i < n; i++) {
        if (i > 0)
            buf_append_text(out, r->between);
        write_number(out, r->each, i);
    }
    write_number(out, r->after, n);
    buf_append(out, "", 1);
}

/* Processor time of reading, compiling and preparing the form, in ms; the least of some tries. */
static double measure(const cost_row *r, int n, int n_tries, bool *is_accepted)
{
    double least = 1e9;
    buf source;
    buf_init(&source, 64 << 20);
    write_form(r, n, &source);
    for (int i = 0; i < n_tries; i++) {
        lace_error err = {0};
        uint64_t begin = work_thread_ns();
        grammar_matcher *m = kit_compile(r->kind, source.data, &err);
        double took = (double)(work_thread_ns() - begin) / 1e6;
        least = took < least ? took : least;
        *is_accepted = m != NULL;
        if (!m && i == 0)
            tap_note("%s of %d: %s", r->name, n, err.text);
        grammar_matcher_free(m);
    }
    buf_deinit(&source);
    return least;
}

/* How far this thread's clock moves at a time, in ms: nothing to speak of but on Windows. */
static double tick_ms(void)
{
    uint64_t begin = work_thread_ns(), now = begin;
    while (now == begin)
        now = work_thread_ns();
    return (double)(now - begin) / 1e6;
}

static void check_row(void *arg)
{
    const cost_row *r = arg;
    double small = 0, large = 0, tick = tick_ms();
    bool is_accepted = false;
    kit_vocab();
    for (int try = 0; try < 6; try++) {
        small = measure(r, r->n, 3, &is_accepted);
        CHECK(is_accepted);
        large = measure(r, 2 * r->n, 2, &is_accepted);
        CHECK(is_accepted);
        if (large <= 2.5 * (small + tick))
            break;
    }
    if (large < 0.3)
        large = 0; /* no cost to speak of, and nothing that grows */
    if (!CHECK(large <= 2.5 * (small + tick)) || getenv("LACE_VERBOSE"))
        tap_note("%s: %.2f ms for %d, %.2f ms for %d", r->name, small, r->n, large, 2 * r->n);
}

/* clang-format off */
#define SCHEMA LACE_GRAMMAR_JSON_SCHEMA
#define REGEX  LACE_GRAMMAR_REGEX
#define GBNF   LACE_GRAMMAR_GBNF
static cost_row rows[] = {
    {"properties", SCHEMA, 1000, "{\"properties\":{", "\"property_%d\":{\"type\":\"string\"}", ",", "}}"},
    {"properties beside additionalProperties", SCHEMA, 300, "{\"additionalProperties\":{\"type\":\"integer\"},\"properties\":{", "\"property_%d\":{\"type\":\"string\"}", ",", "}}"},
    {"required without properties", SCHEMA, 1000, "{\"required\":[", "\"property_%d\"", ",", "]}"},
    {"names of other letters", SCHEMA, 300, "{\"properties\":{", "\"%d_\xC3\xA9\":{\"type\":\"null\"}", ",", "}}"},
    {"names in propertyNames", SCHEMA, 500, "{\"additionalProperties\":{\"type\":\"null\"},\"propertyNames\":{\"enum\":[", "\"name_%d\"", ",", "]}}"},
    {"minProperties", SCHEMA, 2000, "{\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":%d}", NULL, "", ""},
    {"maxProperties", SCHEMA, 2000, "{\"additionalProperties\":{\"type\":\"null\"},\"maxProperties\":%d}", NULL, "", ""},
    {"enum", SCHEMA, 4000, "{\"enum\":[", "\"value_%d\"", ",", "]}"},
    {"anyOf of objects", SCHEMA, 300, "{\"anyOf\":[", "{\"properties\":{\"a%d\":{\"type\":\"null\"}},\"required\":[\"a%d\"]}", ",", "]}"},
    {"anyOf of constants", SCHEMA, 2000, "{\"anyOf\":[", "{\"const\":\"value_%d\"}", ",", "]}"},
    {"oneOf of constants", SCHEMA, 2000, "{\"oneOf\":[", "{\"const\":\"value_%d\"}", ",", "]}"},
    {"oneOf of objects", SCHEMA, 200, "{\"oneOf\":[", "{\"properties\":{\"t\":{\"const\":\"v%d\"}},\"required\":[\"t\"]}", ",", "]}"},
    {"oneOf of lists", SCHEMA, 6000, "{\"oneOf\":[{\"enum\":[", "%d", ",", "]},{\"type\":\"string\"}]}"},
    {"allOf of objects", SCHEMA, 1000, "{\"allOf\":[", "{\"type\":\"object\",\"properties\":{\"k%d\":{\"type\":\"null\"}}}", ",", "]}"},
    {"allOf of one property", SCHEMA, 4000, "{\"allOf\":[", "{\"properties\":{\"k\":{\"minimum\":%d}}}", ",", "]}"},
    {"allOf of required", SCHEMA, 1000, "{\"allOf\":[", "{\"required\":[\"k%d\"]}", ",", "]}"},
    {"allOf of bounds", SCHEMA, 4000, "{\"type\":\"integer\",\"allOf\":[", "{\"minimum\":%d}", ",", "]}"},
    {"allOf of items", SCHEMA, 3000, "{\"allOf\":[", "{\"items\":{\"minimum\":%d}}", ",", "]}"},
    {"allOf of a long enum", SCHEMA, 12000, "{\"allOf\":[{\"enum\":[1]},{\"enum\":[", "%d", ",", "]}]}"},
    {"prefixItems", SCHEMA, 1000, "{\"prefixItems\":[", "{\"const\":%d}", ",", "]}"},
    {"minItems", SCHEMA, 2000, "{\"items\":{\"type\":\"null\"},\"minItems\":%d}", NULL, "", ""},
    {"maxItems", SCHEMA, 2000, "{\"items\":{\"type\":\"null\"},\"maxItems\":%d}", NULL, "", ""},
    {"minLength", SCHEMA, 200000, "{\"minLength\":%d}", NULL, "", ""},
    {"maxLength", SCHEMA, 200000, "{\"maxLength\":%d}", NULL, "", ""},
    {"type", SCHEMA, 20000, "{\"type\":[", "\"null\"", ",", "]}"},
    {"$ref to definitions", SCHEMA, 1600, "{\"$defs\":{", "\"d%d\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}}}", ",", "},\"$ref\":\"#/$defs/d1\"}"},
    {"annotations", SCHEMA, 20000, "{\"type\":\"null\",\"examples\":[", "%d", ",", "]}"},
    {"a long pattern", SCHEMA, 2000, "{\"pattern\":\"^", "x%d", "", "$\"}"},
    {"a pattern anywhere", SCHEMA, 500, "{\"pattern\":\"", "x%d", "", "\"}"},
    {"patterns that all hold", SCHEMA, 150, "{\"allOf\":[{\"pattern\":\"^[a-z0-9]*$\"},{\"pattern\":\"^", "x%d", "", "$\"}]}"},
    {"formats in many places", SCHEMA, 400, "{\"properties\":{", "\"p%d\":{\"format\":\"email\",\"pattern\":\"^(?!a).*$\"}", ",", "}}"},
    {"a pattern with a length", SCHEMA, 400, "{\"pattern\":\"^(a|b[cd])*$\",\"maxLength\":%d}", NULL, "", ""},
    {"regex: what a text must begin with", REGEX, 1000, "(?=.{1,%d}$)[a-z]*", NULL, "", ""},
    {"regex: what it must not have", REGEX, 1000, "(?!.*", "x%d", "", ")[a-z0-9]*"},
    {"regex: look-aheads in a row", REGEX, 30, "", "[ab]{40}(?!b)c", "", ""},
    {"regex: ends in alternatives", REGEX, 500, "", "(^a%d|b%d$)", "|", ""},
    {"regex: letters", REGEX, 5000, "", "ab%d", "", ""},
    {"regex: alternatives", REGEX, 3000, "", "ab%d", "|", ""},
    {"regex: groups", REGEX, 3000, "", "(a%d)", "", ""},
    {"regex: optional groups", REGEX, 2000, "", "(a%d)?b", "", ""},
    {"regex: classes", REGEX, 2000, "", "[a-f0-9%d]", "", ""},
    {"regex: a long class", REGEX, 10000, "[", "%d\\u00e9", "", "]+"},
    {"regex: stars", REGEX, 1000, "", "a*b", "", ""},
    {"regex: counted letters", REGEX, 200000, "a{%d}", NULL, "", ""},
    {"regex: counted choices", REGEX, 1000, "(a|ab?c){%d}", NULL, "", ""},
    {"regex: escapes", REGEX, 3000, "", "\\d\\w\\s\\u0041", "", ""},
    {"gbnf: a chain of rules", GBNF, 10000, "root ::= r0\n", "r%d ::= \"x\" r0 | \"y%d\"", "\n", "\n"},
    {"gbnf: rules that end in each other", GBNF, 3000, "root ::= ", "\"a%d\"", " ", "\n"},
    {"gbnf: alternatives", GBNF, 8000, "root ::= ", "\"a%d\"", " | ", "\n"},
    {"gbnf: classes", GBNF, 2000, "root ::= ", "[a-f%d]", " ", "\n"},
    {"gbnf: optional parts", GBNF, 1000, "root ::= ", "\"a%d\"? \"b\"", " ", "\n"},
    {"gbnf: repetitions", GBNF, 500, "root ::= ", "[a-z]* \"%d\"", " ", "\n"},
    {"gbnf: counted rules", GBNF, 10000, "root ::= item{%d}\nitem ::= \"a\" | \"b\" [0-9]?\n", NULL, "", ""},
    {"gbnf: counted up to", GBNF, 10000, "root ::= item{,%d}\nitem ::= \"a\"? [b-z] \",\"\n", NULL, "", ""},
    {"gbnf: a long literal", GBNF, 5000, "root ::= \"", "text%d", "", "\"\n"},
    {"gbnf: comments", GBNF, 30000, "root ::= \"a\"\n", "# com %d", "\n", "\n"},
};
/* clang-format on */

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "twice_the_text_takes_2.5_times_the_time: %s", rows[i].name);
        tap_case_arg(name, check_row, &rows[i]);
    }
    grammar_vocab_free(kit_vocab());
    return tap_end();
}
