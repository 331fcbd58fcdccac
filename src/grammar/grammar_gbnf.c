/*
 * GBNF, the grammar notation of llama.cpp: rules `name ::= ...` of literals, character classes,
 * names and groups, each with * + ? or {m,n} behind it, and | between alternatives.
 *
 * A rule ends at the end of its line, but not inside parentheses, nor before or after a |.
 *
 * Three words are lace's own: %json {...} is what a JSON schema describes, %marked "..." a text in
 * which the marks of the vocabulary are tokens, %until "..." any text that does not have this one.
 */
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "grammar/grammar_ast.h"

typedef struct gbnf {
    grammar_ast *g;
    text source;
    size_t at;
    map rules; /* name to rule */
    lace_error *err;
} gbnf;

static lace_status fail_at(gbnf *p, size_t at, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < p->source.size; i++) {
        column++;
        if (p->source.data[i] == '\n') {
            line++;
            column = 1;
        }
    }
    return error_set(p->err, LACE_E_GRAMMAR, "grammar, line %zu, column %zu: %s", line, column,
                     what);
}

static int peek(const gbnf *p)
{
    return p->at < p->source.size ? (unsigned char)p->source.data[p->at] : -1;
}

static bool starts_with(const gbnf *p, const char *word)
{
    size_t n = strlen(word);
    return p->source.size - p->at >= n && memcmp(p->source.data + p->at, word, n) == 0;
}

/* White space and comments; ends of lines too, if they mean nothing here. */
static void skip_space(gbnf *p, bool over_lines)
{
    for (int c; (c = peek(p)) >= 0; p->at++) {
        if (c == '#') {
            while (peek(p) >= 0 && peek(p) != '\n')
                p->at++;
            p->at--; /* the loop's step comes back to the end of the line */
        } else if (c != ' ' && c != '\t' && !(over_lines && (c == '\n' || c == '\r'))) {
            break;
        }
    }
}

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static text read_name(gbnf *p)
{
    size_t begin = p->at;
    while (is_name(peek(p)))
        p->at++;
    return (text){p->source.data + begin, p->at - begin};
}

static lace_status find_rule(gbnf *p, text name, uint32_t *out)
{
    int32_t found = map_find(&p->rules, name);
    if (found >= 0) {
        *out = (uint32_t)found;
        return LACE_OK;
    }
    *out = grammar_add_rule(p->g, name);
    if (p->g->is_out_of_memory || p->g->is_too_large)
        return grammar_ast_check(p->g, p->err);
    return map_add(&p->rules, name, (int32_t)*out) == LACE_OK ? LACE_OK
                                                              : error_nomem(p->err, "a grammar");
}

/* ---- Characters ------------------------------------------------------------------------------ */

static lace_status read_hex(gbnf *p, int n_digits, uint32_t *out)
{
    size_t begin = p->at;
    *out = 0;
    for (int i = 0; i < n_digits; i++, p->at++) {
        int c = peek(p);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return fail_at(p, begin, "this escape has too few hexadecimal digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    if (*out > 0x10FFFF || (*out >= 0xD800 && *out <= 0xDFFF))
        return fail_at(p, begin, "this escape is not a Unicode character");
    return LACE_OK;
}

/* One character of a literal or a class, escapes resolved. The source is valid UTF-8. */
static lace_status read_character(gbnf *p, uint32_t *out)
{
    if (peek(p) < 0)
        return fail_at(p, p->at, "the text ends inside a literal");
    if (peek(p) != '\\') {
        p->at += (size_t)utf8_decode(p->source.data + p->at, p->source.size - p->at, out);
        return LACE_OK;
    }
    p->at++;
    int c = peek(p);
    p->at++;
    switch (c) {
    case 'x':
        return read_hex(p, 2, out);
    case 'u':
        return read_hex(p, 4, out);
    case 'U':
        return read_hex(p, 8, out);
    case 't':
        *out = '\t';
        return LACE_OK;
    case 'r':
        *out = '\r';
        return LACE_OK;
    case 'n':
        *out = '\n';
        return LACE_OK;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
        *out = (uint32_t)c;
        return LACE_OK;
    default:
        return fail_at(p, p->at - 2, "unknown escape");
    }
}

static lace_status read_literal(gbnf *p, const grammar_node **out)
{
    size_t begin = p->at++;
    node_list parts = {0};
    char piece[256];
    size_t n = 0;
    lace_status status = LACE_OK;
    while (status == LACE_OK && peek(p) != '"') {
        uint32_t code;
        if (peek(p) < 0) {
            status = fail_at(p, begin, "this literal has no closing quote");
            break;
        }
        status = read_character(p, &code);
        if (status != LACE_OK)
            break;
        n += (size_t)utf8_encode(code, piece + n);
        if (n > sizeof piece - 4) {
            p->g->is_out_of_memory |= !node_list_add(&parts, grammar_bytes(p->g, piece, n));
            n = 0;
        }
    }
    p->at++;
    if (n > 0)
        p->g->is_out_of_memory |= !node_list_add(&parts, grammar_bytes(p->g, piece, n));
    *out = grammar_list(p->g, NODE_SEQ, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return status;
}

static lace_status read_ranges(gbnf *p, code_set *set)
{
    size_t begin = p->at;
    while (peek(p) != ']') {
        uint32_t low, high;
        if (peek(p) < 0)
            return fail_at(p, begin, "this class has no closing bracket");
        TRY(read_character(p, &low));
        high = low;
        if (peek(p) == '-' && p->at + 1 < p->source.size && p->source.data[p->at + 1] != ']') {
            p->at++;
            TRY(read_character(p, &high));
            if (high < low)
                return fail_at(p, begin, "this range ends before it begins");
        }
        if (!code_set_add(set, low, high))
            return error_nomem(p->err, "a grammar");
    }
    p->at++;
    return LACE_OK;
}

static lace_status read_class(gbnf *p, const grammar_node **out)
{
    p->at++;
    bool is_inverted = peek(p) == '^';
    p->at += is_inverted;
    code_set set = {0};
    lace_status status = read_ranges(p, &set);
    if (status == LACE_OK && is_inverted && !code_set_invert(&set))
        status = error_nomem(p->err, "a grammar");
    if (status == LACE_OK)
        *out = grammar_set(p->g, set.ranges, set.n);
    code_set_deinit(&set);
    return status;
}

/* ---- Words of our own ------------------------------------------------------------------------ */

/* The object that begins here, up to its last bracket. */
static text read_braces(gbnf *p)
{
    size_t begin = p->at;
    int depth = 0;
    bool is_text = false;
    for (int c; (c = peek(p)) >= 0; p->at++) {
        if (is_text && c == '\\') {
            p->at++;
        } else if (c == '"') {
            is_text = !is_text;
        } else if (!is_text && c == '{') {
            depth++;
        } else if (!is_text && c == '}' && --depth == 0) {
            p->at++;
            break;
        }
    }
    p->at = p->at < p->source.size ? p->at : p->source.size;
    return (text){p->source.data + begin, p->at - begin};
}

/* A literal's text, escapes resolved. */
static lace_status read_quoted(gbnf *p, buf *out)
{
    size_t begin = p->at;
    if (peek(p) != '"')
        return fail_at(p, begin, "expected a literal in quotes");
    for (p->at++; peek(p) != '"';) {
        uint32_t code;
        char bytes[4];
        if (peek(p) < 0)
            return fail_at(p, begin, "this literal has no closing quote");
        TRY(read_character(p, &code));
        if (buf_append(out, bytes, (size_t)utf8_encode(code, bytes)) != LACE_OK)
            return error_nomem(p->err, "a grammar");
    }
    p->at++;
    return LACE_OK;
}

static lace_status read_own_word(gbnf *p, const grammar_node **out)
{
    size_t begin = p->at++;
    text word = read_name(p);
    buf chars;
    skip_space(p, false);
    if (text_is(word, "json")) {
        if (peek(p) != '{')
            return fail_at(p, p->at, "expected a JSON schema after %json");
        return grammar_read_schema_node(p->g, read_braces(p), out, p->err);
    }
    bool is_marked = text_is(word, "marked");
    if (!is_marked && !text_is(word, "until"))
        return fail_at(p, begin, "expected %json, %marked or %until");
    buf_init(&chars, GRAMMAR_MAX_TEXT);
    lace_status status = read_quoted(p, &chars);
    text found = {chars.data, chars.size};
    if (status == LACE_OK && found.size == 0)
        status = fail_at(p, begin, "expected a text that is not empty");
    if (status == LACE_OK)
        *out = is_marked ? grammar_marked(p->g, found) : grammar_without(p->g, found);
    buf_deinit(&chars);
    return status;
}

/* ---- Structure ------------------------------------------------------------------------------- */

static lace_status read_number(gbnf *p, uint32_t *out)
{
    size_t begin = p->at;
    uint64_t value = 0;
    while (peek(p) >= '0' && peek(p) <= '9') {
        value = value * 10 + (uint64_t)(peek(p) - '0');
        if (value > GRAMMAR_MAX_REPEAT)
            return fail_at(p, begin, "a repetition may have a million times at most");
        p->at++;
    }
    if (p->at == begin)
        return fail_at(p, begin, "expected a number");
    *out = (uint32_t)value;
    return LACE_OK;
}

/* {m}, {m,}, {m,n} or {,n} */
static lace_status read_bounds(gbnf *p, uint32_t *min, uint32_t *max)
{
    size_t begin = p->at++;
    *min = 0;
    skip_space(p, true);
    if (peek(p) != ',')
        TRY(read_number(p, min));
    *max = *min;
    skip_space(p, true);
    if (peek(p) == ',') {
        p->at++;
        skip_space(p, true);
        *max = GRAMMAR_NO_MAX;
        if (peek(p) != '}')
            TRY(read_number(p, max));
        skip_space(p, true);
    }
    if (peek(p) != '}')
        return fail_at(p, p->at, "expected } after the bounds of a repetition");
    p->at++;
    if (*max < *min)
        return fail_at(p, begin, "the maximum of this repetition is below its minimum");
    return LACE_OK;
}

static lace_status read_repetition(gbnf *p, const grammar_node **node)
{
    for (int n = 0;; n++) {
        uint32_t min = 0, max = GRAMMAR_NO_MAX;
        if (n > 3 && strchr("*+?{", peek(p)))
            return fail_at(p, p->at,
                           "a repetition of a repetition of a repetition is not supported");
        switch (peek(p)) {
        case '*':
            p->at++;
            break;
        case '+':
            p->at++;
            min = 1;
            break;
        case '?':
            p->at++;
            max = 1;
            break;
        case '{':
            TRY(read_bounds(p, &min, &max));
            break;
        default:
            return LACE_OK;
        }
        *node = grammar_repeat(p->g, *node, min, max);
    }
}

static lace_status read_alternatives(gbnf *p, int depth, const grammar_node **out);

static lace_status read_symbol(gbnf *p, int depth, const grammar_node **out)
{
    int c = peek(p);
    if (c == '"')
        return read_literal(p, out);
    if (c == '[')
        return read_class(p, out);
    if (c == '.') {
        static const code_range any[] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}};
        p->at++;
        *out = grammar_set(p->g, any, 2);
        return LACE_OK;
    }
    if (c == '(') {
        size_t begin = p->at++;
        if (depth >= GRAMMAR_MAX_DEPTH)
            return fail_at(p, begin, "groups are nested too deeply");
        TRY(read_alternatives(p, depth + 1, out));
        skip_space(p, true);
        if (peek(p) != ')')
            return fail_at(p, begin, "this group has no closing parenthesis");
        p->at++;
        return LACE_OK;
    }
    if (c == '%')
        return read_own_word(p, out);
    if (is_name(c)) {
        uint32_t rule;
        TRY(find_rule(p, read_name(p), &rule));
        *out = grammar_use(p->g, rule);
        return LACE_OK;
    }
    if (c == '<' || c == '!')
        return fail_at(p, p->at,
                       "tokens by name or number are not supported: a grammar describes "
                       "text");
    return fail_at(p, p->at, "expected a literal, a class, a rule's name or a group");
}

static bool ends_sequence(gbnf *p)
{
    int c = peek(p);
    return c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r';
}

static lace_status read_sequence(gbnf *p, int depth, const grammar_node **out)
{
    node_list parts = {0};
    lace_status status = LACE_OK;
    skip_space(p, depth > 0);
    while (status == LACE_OK && !ends_sequence(p)) {
        const grammar_node *part = NULL;
        status = read_symbol(p, depth, &part);
        if (status == LACE_OK)
            status = read_repetition(p, &part);
        if (status == LACE_OK && !node_list_add(&parts, part))
            status = error_nomem(p->err, "a grammar");
        skip_space(p, depth > 0);
    }
    *out = grammar_list(p->g, NODE_SEQ, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return status;
}

/* A | at the beginning of the next line goes on with the rule. */
static bool has_another(gbnf *p)
{
    size_t before = p->at;
    skip_space(p, true);
    if (peek(p) == '|') {
        p->at++;
        skip_space(p, true);
        return true;
    }
    p->at = before;
    return false;
}

static lace_status read_alternatives(gbnf *p, int depth, const grammar_node **out)
{
    node_list parts = {0};
    lace_status status = LACE_OK;
    do {
        const grammar_node *part = NULL;
        status = read_sequence(p, depth, &part);
        if (status == LACE_OK && !node_list_add(&parts, part))
            status = error_nomem(p->err, "a grammar");
    } while (status == LACE_OK && has_another(p));
    *out = grammar_list(p->g, NODE_ALT, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return status;
}

static lace_status read_rule(gbnf *p)
{
    size_t begin = p->at;
    text name = read_name(p);
    if (name.size == 0)
        return fail_at(p, begin, "expected the name of a rule");
    skip_space(p, false);
    if (!starts_with(p, "::="))
        return fail_at(p, p->at, "expected ::= after the name of a rule");
    p->at += 3;
    skip_space(p, true);
    uint32_t rule;
    const grammar_node *body;
    TRY(find_rule(p, name, &rule));
    if (p->g->rules[rule].body)
        return fail_at(p, begin, "this rule is already defined");
    TRY(read_alternatives(p, 0, &body));
    p->g->rules[rule].body = body;
    if (peek(p) >= 0 && peek(p) != '\n' && peek(p) != '\r')
        return fail_at(p, p->at, "expected the end of the line");
    return LACE_OK;
}

static lace_status read_rules(gbnf *p)
{
    for (;;) {
        skip_space(p, true);
        if (peek(p) < 0)
            break;
        TRY(read_rule(p));
    }
    int32_t root = map_find(&p->rules, text_of("root"));
    if (root < 0 || !p->g->rules[root].body)
        return error_set(p->err, LACE_E_GRAMMAR, "the grammar has no rule named root");
    p->g->root = (uint32_t)root;
    return grammar_ast_check(p->g, p->err);
}

lace_status grammar_read_gbnf(grammar_ast *g, text source, lace_error *err)
{
    if (source.size > GRAMMAR_MAX_TEXT)
        return error_set(err, LACE_E_GRAMMAR, "the grammar has %zu bytes, expected at most %d",
                         source.size, GRAMMAR_MAX_TEXT);
    if (!utf8_is_valid(source.data, source.size))
        return error_set(err, LACE_E_GRAMMAR, "the grammar is not valid UTF-8");
    gbnf p = {.g = g, .source = source, .err = err};
    map_init(&p.rules);
    lace_status status = read_rules(&p);
    map_deinit(&p.rules);
    return status;
}
