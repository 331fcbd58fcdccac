/* Reading the surgery file: lines, sections, keys with their types and ranges. */
#include "compress/surgery.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum {
    MAX_RULES = 1024,
    MAX_GLOBS = 256, /* of one list */
    MAX_VALUE = 512, /* bytes of a number or a string */
    MAX_MEMORY = 4 * 1024 * 1024,
};

static const char *const method_names[PRUNE_N_METHODS] = {
    [PRUNE_MAGNITUDE] = "magnitude", [PRUNE_WANDA] = "wanda", [PRUNE_RIA] = "ria",
    [PRUNE_SPARSEGPT] = "sparsegpt", [PRUNE_HEADS] = "heads", [PRUNE_NEURONS] = "neurons",
};

static const char *const store_names[STORE_N] = {
    [STORE_SAME] = "same", [STORE_M4] = "m4",   [STORE_M8] = "m8",
    [STORE_N24] = "n24",   [STORE_CSR] = "csr",
};

/* TYPE_name and TYPE_find, by a list of n names. */
#define NAMED(type, names, n)                                                                      \
    const char *type##_name(type x)                                                                \
    {                                                                                              \
        return names[x];                                                                           \
    }                                                                                              \
                                                                                                   \
    bool type##_find(text name, type *out)                                                         \
    {                                                                                              \
        for (int i = 0; i < (n); i++)                                                              \
            if (text_is(name, names[i])) {                                                         \
                *out = (type)i;                                                                    \
                return true;                                                                       \
            }                                                                                      \
        return false;                                                                              \
    }

NAMED(prune_method, method_names, PRUNE_N_METHODS)
NAMED(prune_store, store_names, STORE_N)

bool prune_method_is_structured(prune_method method)
{
    return method == PRUNE_HEADS || method == PRUNE_NEURONS;
}

lace_status surgery_pattern(text t, int32_t *keep, int32_t *out_of, lace_error *err)
{
    int32_t part[2] = {0, 0};
    int n_digits[2] = {0, 0}, at = 0;
    bool ok = true;
    for (size_t i = 0; i < t.size && ok; i++) {
        char c = t.data[i];
        if (c == ':' && at == 0)
            at = 1;
        else if (c >= '0' && c <= '9' && n_digits[at] < 2) {
            part[at] = 10 * part[at] + (c - '0');
            n_digits[at]++;
        } else
            ok = false;
    }
    if (!ok || at != 1 || part[0] < 1 || part[1] <= part[0] || part[1] > PRUNE_MAX_GROUP)
        return error_set(err, LACE_E_ARG,
                         "\"%.*s\" is not a pattern: expected N:M with 1 <= N < M <= %d, like 2:4",
                         text_width(t), t.data, PRUNE_MAX_GROUP);
    *keep = part[0];
    *out_of = part[1];
    return LACE_OK;
}

/* ---- The parser ------------------------------------------------------------------------------ */

typedef enum section { SECTION_NONE, SECTION_LIMITS, SECTION_RULE } section;

typedef struct parser {
    const char *name; /* of the file, for messages */
    text source;
    size_t at;
    int32_t line;
    surgery *s;
    size_t rules_capacity;
    section section;
    uint32_t seen; /* a bit for each key of this section */
    lace_error *err;
} parser;

/* One value: a string, a number, or a list of strings. */
typedef struct value {
    enum { VALUE_STRING, VALUE_NUMBER, VALUE_LIST } kind;
    text string;
    double number;
    const char **list;
    int32_t n_list;
} value;

#define FAIL(p, ...)                                                                               \
    do {                                                                                           \
        error_set((p)->err, LACE_E_META, __VA_ARGS__);                                             \
        return fail_here(p);                                                                       \
    } while (0)

static lace_status fail_here(parser *p)
{
    char where[300];
    snprintf(where, sizeof where, "%.256s:%d", p->name, p->line);
    return error_prefix(p->err, LACE_E_META, where);
}

static int peek(const parser *p)
{
    return p->at < p->source.size ? (unsigned char)p->source.data[p->at] : -1;
}

static void skip_blanks(parser *p)
{
    while (peek(p) == ' ' || peek(p) == '\t' || peek(p) == '\r')
        p->at++;
}

/* Blanks, comments and ends of lines. */
static void skip_lines(parser *p)
{
    for (;;) {
        skip_blanks(p);
        if (peek(p) == '#')
            while (peek(p) != '\n' && peek(p) != -1)
                p->at++;
        if (peek(p) != '\n')
            return;
        p->at++;
        p->line++;
    }
}

/* After a value or a section, only a comment may follow on the line. */
static lace_status end_line(parser *p)
{
    skip_blanks(p);
    int c = peek(p);
    if (c != '#' && c != '\n' && c != -1)
        FAIL(p, "unexpected \"%c\": one key = value on each line", c);
    return LACE_OK;
}

static text read_word(parser *p)
{
    size_t begin = p->at;
    while (isalnum(peek(p)) || peek(p) == '_')
        p->at++;
    return (text){p->source.data + begin, p->at - begin};
}

static lace_status read_string(parser *p, text *out)
{
    size_t begin = ++p->at;
    while (peek(p) != '"') {
        if (peek(p) == -1 || peek(p) == '\n')
            FAIL(p, "a string has no closing quote");
        if (peek(p) == '\\' || peek(p) < 32)
            FAIL(p, "a string may hold neither \\ nor control characters");
        p->at++;
    }
    *out = (text){p->source.data + begin, p->at - begin};
    p->at++;
    if (out->size == 0 || out->size > MAX_VALUE)
        FAIL(p, "a string must have 1 to %d bytes", MAX_VALUE);
    return LACE_OK;
}

static lace_status keep_string(parser *p, text t, const char **out)
{
    *out = arena_strndup(&p->s->memory, t.data, t.size);
    return *out ? LACE_OK : error_nomem(p->err, "the surgery file");
}

static lace_status read_list(parser *p, value *v)
{
    const char *items[MAX_GLOBS];
    int32_t n = 0;
    p->at++;
    for (;;) {
        skip_lines(p);
        if (peek(p) == ']')
            break;
        if (peek(p) != '"')
            FAIL(p, "a list holds strings: [\"...\", \"...\"]");
        if (n == MAX_GLOBS)
            FAIL(p, "a list has more than %d strings", MAX_GLOBS);
        text t;
        TRY(read_string(p, &t));
        TRY(keep_string(p, t, &items[n++]));
        skip_lines(p);
        if (peek(p) == ',')
            p->at++;
        else if (peek(p) != ']')
            FAIL(p, "expected , or ] in a list");
    }
    p->at++;
    if (n == 0)
        FAIL(p, "a list is empty");
    v->kind = VALUE_LIST;
    v->n_list = n;
    v->list = arena_alloc(&p->s->memory, (size_t)n, sizeof *v->list);
    if (!v->list)
        return error_nomem(p->err, "the surgery file");
    memcpy(v->list, items, (size_t)n * sizeof *items);
    return LACE_OK;
}

static lace_status read_number(parser *p, value *v)
{
    char digits[64];
    size_t n = 0;
    while (isalnum(peek(p)) || (peek(p) != -1 && strchr("+-._", peek(p)))) {
        if (n + 1 == sizeof digits)
            FAIL(p, "a number has too many digits");
        digits[n++] = p->source.data[p->at++];
    }
    digits[n] = 0;
    char *end;
    v->kind = VALUE_NUMBER;
    v->number = strtod(digits, &end);
    /* strtod also takes "inf", "nan" and hexadecimal numbers. */
    if (n == 0 || *end || strspn(digits, "0123456789+-.eE") != n || !isfinite(v->number))
        FAIL(p, "\"%s\" is not a number; write strings in quotes", digits);
    return LACE_OK;
}

static lace_status read_value(parser *p, value *v)
{
    skip_blanks(p);
    if (peek(p) == '"') {
        v->kind = VALUE_STRING;
        return read_string(p, &v->string);
    }
    return peek(p) == '[' ? read_list(p, v) : read_number(p, v);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static lace_status want_number(parser *p, const char *key, const value *v, double least,
                               double below, double *out)
{
    if (v->kind != VALUE_NUMBER)
        FAIL(p, "%s must be a number", key);
    if (!(v->number >= least && v->number < below))
        FAIL(p, "%s is %g, expected %g or more and less than %g", key, v->number, least, below);
    *out = v->number;
    return LACE_OK;
}

static lace_status want_string(parser *p, const char *key, const value *v, text *out)
{
    if (v->kind != VALUE_STRING)
        FAIL(p, "%s must be a string in quotes", key);
    *out = v->string;
    return LACE_OK;
}

/* A string or a list of them. */
static lace_status want_globs(parser *p, const value *v, const char *const **out, int32_t *n)
{
    if (v->kind == VALUE_NUMBER)
        FAIL(p, "expected a string or a list of strings");
    *n = v->n_list;
    *out = v->list;
    if (v->kind == VALUE_STRING) {
        const char **one = arena_alloc(&p->s->memory, 1, sizeof *one);
        if (!one)
            return error_nomem(p->err, "the surgery file");
        TRY(keep_string(p, v->string, one));
        *out = one;
        *n = 1;
    }
    return LACE_OK;
}

static surgery_rule *newest_rule(const parser *p)
{
    return &p->s->rules[p->s->n_rules - 1];
}

static lace_status set_limits_kld(parser *p, const value *v)
{
    return want_number(p, "kld", v, 0, HUGE_VAL, &p->s->max_kld);
}

static lace_status set_protect(parser *p, const value *v)
{
    return want_globs(p, v, &p->s->protect, &p->s->n_protect);
}

static lace_status set_tensors(parser *p, const value *v)
{
    surgery_rule *r = newest_rule(p);
    return want_globs(p, v, &r->tensors, &r->n_tensors);
}

static lace_status set_method(parser *p, const value *v)
{
    text name;
    TRY(want_string(p, "method", v, &name));
    if (!prune_method_find(name, &newest_rule(p)->method))
        FAIL(p,
             "method \"%.*s\" is unknown, expected magnitude, wanda, ria, sparsegpt, heads or "
             "neurons",
             text_width(name), name.data);
    return LACE_OK;
}

static lace_status set_sparsity(parser *p, const value *v)
{
    return want_number(p, "sparsity", v, 0, 1, &newest_rule(p)->sparsity);
}

static lace_status set_pattern(parser *p, const value *v)
{
    surgery_rule *r = newest_rule(p);
    text t;
    TRY(want_string(p, "pattern", v, &t));
    if (surgery_pattern(t, &r->keep, &r->out_of, p->err) != LACE_OK)
        return fail_here(p);
    r->sparsity = 1.0 - (double)r->keep / r->out_of;
    return LACE_OK;
}

static lace_status set_store(parser *p, const value *v)
{
    text name;
    TRY(want_string(p, "store", v, &name));
    if (!prune_store_find(name, &newest_rule(p)->store))
        FAIL(p, "store \"%.*s\" is unknown, expected same, m4, m8, n24 or csr", text_width(name),
             name.data);
    return LACE_OK;
}

static lace_status set_rule_kld(parser *p, const value *v)
{
    return want_number(p, "kld", v, 0, HUGE_VAL, &newest_rule(p)->max_kld);
}

typedef struct key {
    section section;
    const char *name;
    lace_status (*set)(parser *p, const value *v);
} key;

static const key keys[] = {
    {SECTION_LIMITS, "kld", set_limits_kld},  {SECTION_LIMITS, "protect", set_protect},
    {SECTION_RULE, "tensors", set_tensors},   {SECTION_RULE, "method", set_method},
    {SECTION_RULE, "sparsity", set_sparsity}, {SECTION_RULE, "pattern", set_pattern},
    {SECTION_RULE, "store", set_store},       {SECTION_RULE, "kld", set_rule_kld},
};

enum { N_KEYS = sizeof keys / sizeof *keys };

static lace_status read_key(parser *p)
{
    text name = read_word(p);
    if (name.size == 0)
        FAIL(p, "expected a key, [limits] or [[rule]]");
    skip_blanks(p);
    if (peek(p) != '=')
        FAIL(p, "expected \"%.*s = value\"", text_width(name), name.data);
    p->at++;
    for (int i = 0; i < N_KEYS; i++) {
        if (keys[i].section != p->section || !text_is(name, keys[i].name))
            continue;
        if (p->seen & 1u << i)
            FAIL(p, "%s is given twice", keys[i].name);
        p->seen |= 1u << i;
        value v = {0};
        TRY(read_value(p, &v));
        TRY(keys[i].set(p, &v));
        return end_line(p);
    }
    if (p->section == SECTION_NONE)
        FAIL(p, "\"%.*s\" stands before the first [limits] or [[rule]]", text_width(name),
             name.data);
    FAIL(p, "unknown key \"%.*s\" in %s", text_width(name), name.data,
         p->section == SECTION_LIMITS ? "[limits]: kld, protect"
                                      : "[[rule]]: tensors, method, sparsity, pattern, store, kld");
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* What a rule must have and what cannot go together. */
static lace_status check_rule(parser *p, const surgery_rule *r)
{
    int32_t line = p->line;
    p->line = r->line; /* messages point at the rule */
    if (r->n_tensors == 0)
        FAIL(p, "the rule has no tensors = \"...\"");
    if (r->out_of && prune_method_is_structured(r->method))
        FAIL(p, "method %s takes a sparsity, not a pattern", method_names[r->method]);
    if (r->store != STORE_SAME && prune_method_is_structured(r->method))
        FAIL(p, "method %s makes smaller matrices: store does not apply", method_names[r->method]);
    if (r->store == STORE_N24 && !(r->keep == 2 && r->out_of == 4))
        FAIL(p, "store n24 needs pattern = \"2:4\"");
    p->line = line;
    return LACE_OK;
}

/* The section that was open is complete. */
static lace_status end_section(parser *p)
{
    if (p->section != SECTION_RULE)
        return LACE_OK;
    const surgery_rule *r = newest_rule(p);
    uint32_t amount = 0, method = 0;
    for (int i = 0; i < N_KEYS; i++) {
        if (keys[i].set == set_sparsity || keys[i].set == set_pattern)
            amount += p->seen >> i & 1;
        if (keys[i].set == set_method)
            method = p->seen >> i & 1;
    }
    int32_t line = p->line;
    p->line = r->line;
    if (!method)
        FAIL(p, "the rule has no method = \"...\"");
    if (amount != 1)
        FAIL(p, "the rule needs sparsity or pattern, and not both");
    p->line = line;
    return check_rule(p, r);
}

static lace_status add_rule(parser *p)
{
    surgery *s = p->s;
    if (s->n_rules == MAX_RULES)
        FAIL(p, "more than %d rules", MAX_RULES);
    if (!mem_grow(&s->rules, (size_t)s->n_rules, &p->rules_capacity, sizeof *s->rules, 8))
        return error_nomem(p->err, "the rules");
    s->rules[s->n_rules++] = (surgery_rule){.max_kld = HUGE_VAL, .line = p->line};
    return LACE_OK;
}

static lace_status read_section(parser *p)
{
    TRY(end_section(p));
    size_t begin = p->at;
    while (peek(p) == '[' || peek(p) == ']' || isalnum(peek(p)) || peek(p) == '_')
        p->at++;
    text t = {p->source.data + begin, p->at - begin};
    p->seen = 0;
    if (text_is(t, "[limits]")) {
        p->section = SECTION_LIMITS;
    } else if (text_is(t, "[[rule]]")) {
        TRY(add_rule(p));
        p->section = SECTION_RULE;
    } else {
        FAIL(p, "unknown section %.*s, expected [limits] or [[rule]]", text_width(t), t.data);
    }
    return end_line(p);
}

static lace_status parse(parser *p)
{
    if (memchr(p->source.data, 0, p->source.size))
        FAIL(p, "the file has NUL bytes: not a surgery file");
    for (;;) {
        skip_lines(p);
        if (peek(p) == -1)
            break;
        TRY(peek(p) == '[' ? read_section(p) : read_key(p));
    }
    TRY(end_section(p));
    if (p->s->n_rules == 0)
        FAIL(p, "no [[rule]] in the file: nothing to do");
    return LACE_OK;
}

static lace_status create(surgery **out, lace_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_nomem(err, "the surgery rules");
    arena_init(&(*out)->memory, MAX_MEMORY);
    (*out)->max_kld = HUGE_VAL;
    return LACE_OK;
}

lace_status surgery_parse(text source, const char *name, surgery **out, lace_error *err)
{
    *out = NULL;
    surgery *s;
    TRY(create(&s, err));
    lace_error own;
    parser p = {.name = name, .source = source, .line = 1, .s = s, .err = err ? err : &own};
    lace_status status = source.size ? parse(&p) : error_set(err, LACE_E_META, "%s: empty", name);
    return GIVE_OR_FREE(status, s, out, surgery_free);
}

lace_status surgery_simple(prune_method method, double sparsity, int32_t keep, int32_t out_of,
                           prune_store store, surgery **out, lace_error *err)
{
    static const char *const matrices[] = {"blk.*.weight"}, *const layers[] = {"blk.*"};
    *out = NULL;
    surgery *s;
    TRY(create(&s, err));
    s->rules = mem_calloc(1, sizeof *s->rules);
    if (!s->rules) {
        surgery_free(s);
        return error_nomem(err, "the surgery rules");
    }
    s->n_rules = 1;
    *s->rules = (surgery_rule){
        .tensors = prune_method_is_structured(method) ? layers : matrices,
        .n_tensors = 1,
        .method = method,
        .sparsity = out_of ? 1.0 - (double)keep / out_of : sparsity,
        .keep = keep,
        .out_of = out_of,
        .store = store,
        .max_kld = HUGE_VAL,
    };
    *out = s;
    return LACE_OK;
}

void surgery_free(surgery *s)
{
    if (!s)
        return;
    arena_deinit(&s->memory);
    mem_free_all(s->rules, s);
}

/*
 * Does the name match the glob, with * and ?. Only the last * is ever tried again, so the time is
 * at most the product of the lengths; fnmatch's is not bounded so.
 */
static bool glob_matches(const char *glob, const char *name)
{
    const char *star = NULL, *tried = NULL;
    while (*name) {
        if (*glob == '*') {
            star = glob++;
            tried = name;
        } else if (*glob == '?' || *glob == *name) {
            glob++;
            name++;
        } else if (star) {
            glob = star + 1;
            name = ++tried;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return !*glob;
}

static bool matches(const char *const *globs, int32_t n, const char *name)
{
    for (int32_t i = 0; i < n; i++)
        if (glob_matches(globs[i], name))
            return true;
    return false;
}

static bool is_protected(const surgery *s, const char *name, bool is_structured)
{
    /* A layer is protected if its tensors are: "blk.0.*" stands for "blk.0" too. */
    char layer[80];
    snprintf(layer, sizeof layer, "%.70s.", name);
    return matches(s->protect, s->n_protect, name) ||
           (is_structured && matches(s->protect, s->n_protect, layer));
}

int32_t surgery_match(const surgery *s, const char *name, bool is_structured)
{
    if (is_protected(s, name, is_structured))
        return -1;
    for (int32_t i = s->n_rules - 1; i >= 0; i--) {
        const surgery_rule *r = &s->rules[i];
        if (prune_method_is_structured(r->method) == is_structured &&
            matches(r->tensors, r->n_tensors, name))
            return i;
    }
    return -1;
}

int32_t surgery_match_method(const surgery *s, const char *name, prune_method method)
{
    if (is_protected(s, name, prune_method_is_structured(method)))
        return -1;
    for (int32_t i = s->n_rules - 1; i >= 0; i--)
        if (s->rules[i].method == method &&
            matches(s->rules[i].tensors, s->rules[i].n_tensors, name))
            return i;
    return -1;
}
