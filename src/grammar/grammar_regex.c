/*
 * Regular expressions, in the syntax of JavaScript with its u flag, read into a grammar: literals,
 * escapes, classes, groups, alternatives, quantifiers, ^ and $, and look-aheads. Look-behind, back
 * references and word boundaries describe no plain set of texts, or not cheaply: they are refused.
 *
 * Most expressions become a grammar as they stand. One with look-aheads, or with ^ and $ in other
 * places than the ends, is read once more with nodes for those, and becomes an automaton over
 * characters first (char_automaton.h).
 */
#include <string.h>

#include "base/utf8.h"
#include "grammar/char_automaton.h"

typedef struct regex {
    grammar_ast *g;
    text source;
    size_t at;
    bool is_json;
    bool is_part;    /* ^, $ and look-aheads are nodes */
    bool needs_part; /* it can be read only so */
    int n_looks;     /* look-aheads around this place */
    lace_error *err;
} regex;

/* What a part of an expression matches, and how many characters that are. */
typedef struct part {
    const grammar_node *node;
    uint32_t min, max;     /* max may be GRAMMAR_NO_MAX */
    bool at_start, at_end; /* it began with ^, or ended with $ */
    bool is_look;
} part;

static lace_status fail_at(const regex *r, size_t at, const char *what)
{
    return error_set(r->err, LACE_E_GRAMMAR, "regex, byte %zu: %s", at, what);
}

/* The same for what can be read in the other way. */
static lace_status fail_plain(regex *r, size_t at, const char *what)
{
    r->needs_part = true;
    return fail_at(r, at, what);
}

static int peek(const regex *r)
{
    return r->at < r->source.size ? (unsigned char)r->source.data[r->at] : -1;
}

static bool next_is(const regex *r, const char *word)
{
    size_t n = strlen(word);
    return r->source.size - r->at >= n && memcmp(r->source.data + r->at, word, n) == 0;
}

/* ---- Sets ------------------------------------------------------------------------------------ */

/* clang-format off */
static const code_range digits[] = {{'0', '9'}};
static const code_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const code_range spaces[] = {
    {0x09, 0x0D}, {0x20, 0x20}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
    {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const code_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
/* clang-format on */

static lace_status add_ranges(const regex *r, code_set *set, const code_range *ranges, size_t n,
                              bool is_inverted)
{
    code_set more = {0};
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        ok = ok && code_set_add(&more, ranges[i].low, ranges[i].high);
    ok = ok && (!is_inverted || code_set_invert(&more));
    for (size_t i = 0; ok && i < more.n; i++)
        ok = code_set_add(set, more.ranges[i].low, more.ranges[i].high);
    code_set_deinit(&more);
    return ok ? LACE_OK : error_nomem(r->err, "a regex");
}

/* The set behind \d \D \w \W \s \S; false if the letter names none. */
static bool named_set(const regex *r, int letter, code_set *set, lace_status *status)
{
    switch (letter) {
    case 'd':
    case 'D':
        *status = add_ranges(r, set, digits, 1, letter == 'D');
        return true;
    case 'w':
    case 'W':
        *status = add_ranges(r, set, words, 4, letter == 'W');
        return true;
    case 's':
    case 'S':
        *status = add_ranges(r, set, spaces, sizeof spaces / sizeof spaces[0], letter == 'S');
        return true;
    default:
        return false;
    }
}

/*
 * In a JSON string, quotes, backslashes and control characters must be written as escapes, and the
 * rest stands for itself. Control characters without a short escape are left out.
 */
const grammar_node *grammar_json_set(grammar_ast *g, const code_set *set)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    code_set plain = {0}, after_backslash = {0};
    bool ok = true;
    for (size_t i = 0; i < set->n; i++) {
        uint32_t low = set->ranges[i].low, high = set->ranges[i].high;
        for (uint32_t code = low; code <= high && code < 0x80; code++) {
            const char *at = code ? strchr(escaped, (int)code) : NULL;
            if (at)
                ok = ok && code_set_add(&after_backslash, (uint8_t)letters[at - escaped],
                                        (uint8_t)letters[at - escaped]);
            else if (code >= 0x20)
                ok = ok && code_set_add(&plain, code, code);
        }
        if (high >= 0x80)
            ok = ok && code_set_add(&plain, low > 0x80 ? low : 0x80, high);
    }
    g->is_out_of_memory |= !ok;
    const grammar_node *self = grammar_set(g, plain.ranges, plain.n);
    const grammar_node *escape = GRAMMAR_SEQ(
        g, grammar_text(g, "\\"), grammar_set(g, after_backslash.ranges, after_backslash.n));
    const grammar_node *node = after_backslash.n == 0 ? self
                               : plain.n == 0         ? escape
                                                      : GRAMMAR_ALT(g, self, escape);
    code_set_deinit(&plain);
    code_set_deinit(&after_backslash);
    return node;
}

static const grammar_node *set_node(regex *r, code_set *set)
{
    code_set_sort(set);
    return r->is_json && !r->is_part ? grammar_json_set(r->g, set)
                                     : grammar_set(r->g, set->ranges, set->n);
}

/* ---- Escapes and classes --------------------------------------------------------------------- */

static int hex_digit(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static lace_status read_hex(regex *r, int n_digits, uint32_t *out)
{
    size_t begin = r->at;
    bool is_braced = n_digits == 4 && peek(r) == '{';
    r->at += is_braced;
    *out = 0;
    int n = 0;
    for (; hex_digit(peek(r)) >= 0 && n < (is_braced ? 6 : n_digits); n++, r->at++)
        *out = *out << 4 | (uint32_t)hex_digit(peek(r));
    if (n == 0 || (!is_braced && n < n_digits) || (is_braced && peek(r) != '}'))
        return fail_at(r, begin, "this hexadecimal escape is malformed");
    r->at += is_braced;
    if (*out > 0x10FFFF || (*out >= 0xD800 && *out <= 0xDFFF))
        return fail_at(r, begin, "this escape is not a Unicode character");
    return LACE_OK;
}

/* What stands behind a backslash, for one character. */
static lace_status read_escape(regex *r, uint32_t *out)
{
    size_t begin = r->at;
    int c = peek(r);
    r->at++;
    switch (c) {
    case 't':
        *out = '\t';
        return LACE_OK;
    case 'n':
        *out = '\n';
        return LACE_OK;
    case 'r':
        *out = '\r';
        return LACE_OK;
    case 'f':
        *out = '\f';
        return LACE_OK;
    case 'v':
        *out = '\v';
        return LACE_OK;
    case '0':
        if (peek(r) >= '0' && peek(r) <= '9')
            return fail_at(r, begin, "octal escapes are not supported");
        *out = 0;
        return LACE_OK;
    case 'x':
        return read_hex(r, 2, out);
    case 'u':
        return read_hex(r, 4, out);
    case 'b':
    case 'B':
        return fail_at(r, begin, "word boundaries (\\b, \\B) are not supported");
    case 'p':
    case 'P':
        return fail_at(r, begin, "Unicode properties (\\p, \\P) are not supported");
    case 'k':
        return fail_at(r, begin, "back references (\\k) are not supported");
    case 'c':
        return fail_at(r, begin, "control escapes (\\c) are not supported");
    case -1:
        return fail_at(r, begin, "the regex ends with a backslash");
    default:
        break;
    }
    if (c >= '1' && c <= '9')
        return fail_at(r, begin, "back references (\\1) are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80)
        return fail_at(r, begin, "unknown escape");
    *out = (uint32_t)c;
    return LACE_OK;
}

static lace_status read_plain(regex *r, uint32_t *out)
{
    r->at += (size_t)utf8_decode(r->source.data + r->at, r->source.size - r->at, out);
    return LACE_OK;
}

/* One end of a range in a class; or a whole set like \d, then *is_set. */
static lace_status read_class_item(regex *r, code_set *set, uint32_t *code, bool *is_set)
{
    *is_set = false;
    if (peek(r) != '\\')
        return read_plain(r, code);
    r->at++;
    if (peek(r) == 'b') {
        r->at++;
        *code = '\b';
        return LACE_OK;
    }
    lace_status status = LACE_OK;
    if (named_set(r, peek(r), set, &status)) {
        r->at++;
        *is_set = true;
        return status;
    }
    return read_escape(r, code);
}

static lace_status read_class_items(regex *r, code_set *set)
{
    size_t begin = r->at;
    while (peek(r) != ']') {
        uint32_t low, high;
        bool is_set, is_set_high = false;
        size_t item = r->at;
        if (peek(r) < 0)
            return fail_at(r, begin, "this class has no closing bracket");
        TRY(read_class_item(r, set, &low, &is_set));
        if (is_set)
            continue;
        high = low;
        if (peek(r) == '-' && r->at + 1 < r->source.size && r->source.data[r->at + 1] != ']') {
            r->at++;
            TRY(read_class_item(r, set, &high, &is_set_high));
            if (is_set_high || high < low)
                return fail_at(r, item, "this range ends before it begins");
        }
        if (!code_set_add(set, low, high))
            return error_nomem(r->err, "a regex");
    }
    r->at++;
    return LACE_OK;
}

static lace_status read_class(regex *r, part *out)
{
    r->at++;
    bool is_inverted = peek(r) == '^';
    r->at += is_inverted;
    code_set set = {0};
    lace_status status = read_class_items(r, &set);
    if (status == LACE_OK && is_inverted && !code_set_invert(&set))
        status = error_nomem(r->err, "a regex");
    if (status == LACE_OK)
        *out = (part){.node = set_node(r, &set), .min = 1, .max = 1};
    code_set_deinit(&set);
    return status;
}

/* A set of one character, or one of the named sets, as a part. */
static lace_status set_part(regex *r, const code_range *ranges, size_t n, bool is_inverted,
                            part *out)
{
    code_set set = {0};
    lace_status status = add_ranges(r, &set, ranges, n, is_inverted);
    if (status == LACE_OK)
        *out = (part){.node = set_node(r, &set), .min = 1, .max = 1};
    code_set_deinit(&set);
    return status;
}

/* ---- Structure ------------------------------------------------------------------------------- */

static uint32_t add_lengths(uint32_t a, uint32_t b)
{
    return a > GRAMMAR_NO_MAX - b ? GRAMMAR_NO_MAX : a + b;
}

static uint32_t multiply_lengths(uint32_t a, uint32_t b)
{
    uint64_t product = (uint64_t)a * b;
    if (a == 0 || b == 0)
        return 0;
    return a == GRAMMAR_NO_MAX || b == GRAMMAR_NO_MAX || product > GRAMMAR_NO_MAX
               ? GRAMMAR_NO_MAX
               : (uint32_t)product;
}

static lace_status read_alternatives(regex *r, int depth, part *out);

static lace_status read_look(regex *r, int depth, size_t begin, part *out)
{
    if (!r->is_part)
        return fail_plain(r, begin, "look-ahead ((?= and (?!)");
    bool is_negative = r->source.data[r->at + 1] == '!';
    r->at += 2;
    r->n_looks++;
    TRY(read_alternatives(r, depth + 1, out));
    r->n_looks--;
    if (peek(r) != ')')
        return fail_at(r, begin, "this group has no closing parenthesis");
    r->at++;
    *out = (part){.node = grammar_look(r->g, out->node, is_negative), .is_look = true};
    return LACE_OK;
}

static lace_status read_group(regex *r, int depth, part *out)
{
    size_t begin = r->at++;
    if (depth >= GRAMMAR_MAX_DEPTH)
        return fail_at(r, begin, "groups are nested too deeply");
    if (next_is(r, "?:"))
        r->at += 2;
    else if (next_is(r, "?=") || next_is(r, "?!"))
        return read_look(r, depth, begin, out);
    else if (next_is(r, "?<=") || next_is(r, "?<!"))
        return fail_at(r, begin, "look-behind ((?<= and (?<!) is not supported");
    else if (next_is(r, "?<")) {
        while (peek(r) >= 0 && peek(r) != '>')
            r->at++;
        r->at++;
    } else if (peek(r) == '?')
        return fail_at(r, begin, "flags and other groups that begin with (? are not supported");
    TRY(read_alternatives(r, depth + 1, out));
    if (peek(r) != ')')
        return fail_at(r, begin, "this group has no closing parenthesis");
    r->at++;
    return LACE_OK;
}

static lace_status read_atom(regex *r, int depth, part *out)
{
    int c = peek(r);
    lace_status status = LACE_OK;
    if (c == '(')
        return read_group(r, depth, out);
    if (c == '[')
        return read_class(r, out);
    if (c == '.') {
        r->at++;
        return set_part(r, line_ends, sizeof line_ends / sizeof line_ends[0], true, out);
    }
    if (c == '*' || c == '+' || c == '?' || c == '{')
        return fail_at(r, r->at, "this quantifier has nothing before it to repeat");
    uint32_t code;
    if (c == '\\') {
        r->at++;
        code_set set = {0};
        if (named_set(r, peek(r), &set, &status)) {
            r->at++;
            if (status == LACE_OK)
                *out = (part){.node = set_node(r, &set), .min = 1, .max = 1};
            code_set_deinit(&set);
            return status;
        }
        TRY(read_escape(r, &code));
    } else {
        TRY(read_plain(r, &code));
    }
    code_range one = {code, code};
    return set_part(r, &one, 1, false, out);
}

static lace_status read_number(regex *r, uint32_t *out)
{
    size_t begin = r->at;
    uint64_t value = 0;
    for (; peek(r) >= '0' && peek(r) <= '9'; r->at++) {
        value = value * 10 + (uint64_t)(peek(r) - '0');
        if (value > GRAMMAR_MAX_REPEAT)
            return fail_at(r, begin, "a repetition may have a million times at most");
    }
    if (r->at == begin)
        return fail_at(r, begin, "expected a number in a quantifier");
    *out = (uint32_t)value;
    return LACE_OK;
}

static lace_status read_quantifier(regex *r, part *p)
{
    uint32_t min = 0, max = GRAMMAR_NO_MAX;
    size_t begin = r->at;
    switch (peek(r)) {
    case '*':
        r->at++;
        break;
    case '+':
        r->at++;
        min = 1;
        break;
    case '?':
        r->at++;
        max = 1;
        break;
    case '{':
        r->at++;
        TRY(read_number(r, &min));
        max = min;
        if (peek(r) == ',') {
            r->at++;
            max = GRAMMAR_NO_MAX;
            if (peek(r) != '}')
                TRY(read_number(r, &max));
        }
        if (peek(r) != '}')
            return fail_at(r, begin, "this quantifier has no closing brace");
        r->at++;
        if (max < min)
            return fail_at(r, begin, "the maximum of this quantifier is below its minimum");
        break;
    default:
        return LACE_OK;
    }
    if (peek(r) == '?')
        r->at++; /* lazy: another way to search, the same texts */
    int c = peek(r);
    if (c == '*' || c == '+' || c == '?' || c == '{')
        return fail_at(r, r->at, "a quantifier after a quantifier is not supported");
    if (p->is_look)
        return fail_at(r, begin, "a quantifier after a look-ahead is not supported");
    if (p->at_start || p->at_end)
        return fail_plain(r, begin, "^ or $ inside a repetition");
    p->node = grammar_repeat(r->g, p->node, min, max);
    p->min = multiply_lengths(p->min, min);
    p->max = multiply_lengths(p->max, max);
    return LACE_OK;
}

/* Append to a sequence; ^ only at its beginning, $ only at its end. */
static lace_status append_part(regex *r, node_list *parts, part *sequence, part p, size_t at)
{
    if (p.at_start && (parts->n > 0 || sequence->at_start))
        return fail_plain(r, at, "^ after something else");
    if (sequence->at_end)
        return fail_plain(r, at, "$ before something else");
    if (!node_list_add(parts, p.node))
        return error_nomem(r->err, "a regex");
    sequence->at_start |= p.at_start;
    sequence->at_end |= p.at_end;
    sequence->min = add_lengths(sequence->min, p.min);
    sequence->max = add_lengths(sequence->max, p.max);
    return LACE_OK;
}

static lace_status read_parts(regex *r, int depth, node_list *parts, part *out)
{
    while (peek(r) >= 0 && peek(r) != '|' && peek(r) != ')') {
        size_t begin = r->at;
        if (peek(r) == '^' || peek(r) == '$') {
            bool is_start = peek(r) == '^';
            r->at++;
            if (is_start && r->n_looks > 0)
                return fail_at(r, begin, "^ inside a look-ahead is not supported");
            if (r->is_part) {
                part mark = {.node = grammar_mark(r->g, is_start ? NODE_START : NODE_END)};
                TRY(append_part(r, parts, out, mark, begin));
                continue;
            }
            if (is_start && (parts->n > 0 || out->at_end))
                return fail_plain(r, begin, "^ after something else");
            out->at_start |= is_start;
            out->at_end |= !is_start;
            continue;
        }
        part p = {0};
        TRY(read_atom(r, depth, &p));
        TRY(read_quantifier(r, &p));
        TRY(append_part(r, parts, out, p, begin));
    }
    return LACE_OK;
}

static lace_status read_sequence(regex *r, int depth, part *out)
{
    node_list parts = {0};
    *out = (part){0};
    lace_status status = read_parts(r, depth, &parts, out);
    if (status == LACE_OK)
        out->node = grammar_list(r->g, NODE_SEQ, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return status;
}

/* Any characters around what is not tied to an end of the text. */
static lace_status loosen(regex *r, part *p)
{
    if (!r->is_json || (p->at_start && p->at_end))
        return LACE_OK;
    part any;
    TRY(set_part(r, NULL, 0, true, &any));
    const grammar_node *rest = grammar_repeat(r->g, any.node, 0, GRAMMAR_NO_MAX);
    p->node = GRAMMAR_SEQ(r->g, p->at_start ? grammar_empty(r->g) : rest, p->node,
                          p->at_end ? grammar_empty(r->g) : rest);
    p->max = GRAMMAR_NO_MAX;
    p->at_start = p->at_end = true;
    return LACE_OK;
}

static lace_status read_alternatives(regex *r, int depth, part *out)
{
    node_list parts = {0};
    lace_status status = LACE_OK;
    bool is_first = true, is_mixed = false;
    for (;;) {
        part p;
        status = read_sequence(r, depth, &p);
        /* Each of the outermost alternatives has ends of its own. */
        if (status == LACE_OK && depth == 0)
            status = loosen(r, &p);
        if (status == LACE_OK && !node_list_add(&parts, p.node))
            status = error_nomem(r->err, "a regex");
        if (status != LACE_OK)
            break;
        if (is_first)
            *out = p;
        is_mixed |= out->at_start != p.at_start || out->at_end != p.at_end;
        out->min = out->min < p.min ? out->min : p.min;
        out->max = out->max > p.max ? out->max : p.max;
        is_first = false;
        if (peek(r) != '|')
            break;
        r->at++;
    }
    /* Without searching, both ends are tied anyway. */
    if (status == LACE_OK && is_mixed && depth > 0 && r->is_json)
        status = fail_plain(r, r->at, "alternatives of which only some have ^ or $");
    if (status == LACE_OK)
        out->node = grammar_list(r->g, NODE_ALT, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return status;
}

lace_status grammar_read_regex(grammar_ast *g, text source, const regex_options *options,
                               const grammar_node **out, uint32_t *min_length, uint32_t *max_length,
                               lace_error *err)
{
    *out = NULL;
    if (source.size > GRAMMAR_MAX_TEXT)
        return error_set(err, LACE_E_GRAMMAR, "the regex has %zu bytes, expected at most %d",
                         source.size, GRAMMAR_MAX_TEXT);
    if (!utf8_is_valid(source.data, source.size))
        return error_set(err, LACE_E_GRAMMAR, "the regex is not valid UTF-8");
    regex r = {.g = g,
               .source = source,
               .is_json = options->is_json,
               .is_part = options->is_part,
               .err = err};
    part p;
    lace_status status = read_alternatives(&r, 0, &p);
    if (status != LACE_OK && r.needs_part) {
        r = (regex){
            .g = g, .source = source, .is_json = options->is_json, .is_part = true, .err = err};
        status = read_alternatives(&r, 0, &p);
        p.min = 0;
        p.max = GRAMMAR_NO_MAX;
    }
    TRY(status);
    if (r.at < source.size)
        return fail_at(&r, r.at, "this closing parenthesis has no opening one");
    *out = p.node;
    if (r.is_part && !options->is_part)
        TRY(grammar_all_of(g, &p.node, 1, 0, GRAMMAR_NO_MAX, options->is_json, out, err));
    if (min_length)
        *min_length = p.min;
    if (max_length)
        *max_length = p.max;
    return grammar_ast_check(g, err);
}
