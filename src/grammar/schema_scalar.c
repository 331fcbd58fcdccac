/* JSON schema to grammar: strings and numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "grammar/char_automaton.h"
#include "grammar/grammar_schema.h"

lace_status schema_count(schema_reader *r, const json_t *schema, const char *keyword,
                         uint32_t otherwise, uint32_t *out)
{
    const json_t *value = json_object_get(schema, keyword);
    *out = otherwise;
    if (!value)
        return LACE_OK;
    json_int_t n = json_integer_value(value);
    if (json_is_real(value) && json_real_value(value) == floor(json_real_value(value)) &&
        fabs(json_real_value(value)) < 1e9)
        n = (json_int_t)json_real_value(value);
    else if (!json_is_integer(value))
        return schema_fail(r, keyword, "is %s, expected an integer", json_kind(value));
    if (n < 0 || n > GRAMMAR_MAX_REPEAT)
        return schema_fail(r, keyword, "%" JSON_INTEGER_FORMAT ", expected 0 to %d", n,
                           GRAMMAR_MAX_REPEAT);
    *out = (uint32_t)n;
    return LACE_OK;
}

/* ---- Strings --------------------------------------------------------------------------------- */

/* One character of a JSON string: itself or an escape; \u never half of a surrogate pair. */
static const grammar_node *string_character(schema_reader *r)
{
    static const code_range plain[] = {
        {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, 0x10FFFF}};
    static const code_range letters[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                         {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    static const code_range hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    static const code_range hex_but_d[] = {
        {'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    static const code_range d[] = {{'D', 'D'}, {'d', 'd'}}, low_octal[] = {{'0', '7'}};
    grammar_ast *g = r->g;
    const grammar_node *digit = grammar_set(g, hex, 3);
    const grammar_node *unit = GRAMMAR_ALT(
        g, GRAMMAR_SEQ(g, grammar_set(g, hex_but_d, 5), digit, digit, digit),
        GRAMMAR_SEQ(g, grammar_set(g, d, 2), grammar_set(g, low_octal, 1), digit, digit));
    const grammar_node *escape =
        GRAMMAR_ALT(g, grammar_set(g, letters, 8), GRAMMAR_SEQ(g, grammar_text(g, "u"), unit));
    return GRAMMAR_ALT(g, grammar_set(g, plain, 4), GRAMMAR_SEQ(g, grammar_text(g, "\\"), escape));
}

const grammar_node *schema_any_string(schema_reader *r)
{
    grammar_ast *g = r->g;
    if (r->string == 0) {
        uint32_t rule = grammar_add_rule(g, text_of("string"));
        if (!g->rules)
            return grammar_empty(g);
        g->rules[rule].body = GRAMMAR_SEQ(g, grammar_text(g, "\""),
                                          grammar_repeat(g, string_character(r), 0, GRAMMAR_NO_MAX),
                                          grammar_text(g, "\""));
        r->string = rule + 1;
    }
    return grammar_use(g, r->string - 1);
}

/* clang-format off */
#define DATE "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
/* Of addresses: without --, which begins names in another script; a last one of digits would be a number. */
#define PART "(-[A-Za-z0-9]{1,20}){0,2}"
#define HOST "([A-Za-z0-9]{1,20}" PART "\\.){0,3}[A-Za-z][A-Za-z0-9]{0,19}" PART
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define BASE64 "[A-Za-z0-9+/]"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define WORD "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
/*
 * A regex that every match of is valid for the format; the other way round need not hold. Beside a
 * pattern another may stand, that leaves it more to choose from.
 */
static const struct {
    const char *name, *regex, *beside;
} formats[] = {
    {"date", DATE, NULL},
    {"time", TIME, NULL},
    {"date-time", DATE "T" TIME, NULL},
    {"duration", "P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,2}M)?([0-9]{1,2}D)?|[0-9]{1,3}D(T[0-9]{1,2}H)?|T[0-9]{1,2}H([0-9]{1,2}M([0-9]{1,2}S)?)?|T[0-9]{1,2}M([0-9]{1,2}S)?|T[0-9]{1,2}S)", NULL},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@" LABEL "(\\." LABEL "){1,3}", ATOM "(\\." ATOM ")*@(" WORD "\\.)+" WORD},
    {"hostname", LABEL "(\\." LABEL "){0,3}", NULL},
    {"ipv4", BYTE "\\." BYTE "\\." BYTE "\\." BYTE, NULL},
    {"ipv6", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|([0-9a-f]{1,4}:){1,6}:[0-9a-f]{1,4}|([0-9a-f]{1,4}:){1,7}:|::([0-9a-f]{1,4}:){0,5}[0-9a-f]{1,4}|::", NULL},
    {"uri", "https?://" HOST "(/[A-Za-z0-9._~-]{0,64}){0,8}", NULL},
    {"base64", "(" BASE64 "{4}){1,64}(" BASE64 "{2}==|" BASE64 "{3}=)?", "(" BASE64 "{4})*(" BASE64 "{2}==|" BASE64 "{3}=)?"},
    {"base64url", "([A-Za-z0-9_-]{4}){1,64}([A-Za-z0-9_-]{2,3})?", "([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?"},
    {"jwt", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9\\.([A-Za-z0-9_-]{4}){4,32}\\.([A-Za-z0-9_-]{4}){4,16}", NULL},
};
/* clang-format on */

/* What a string must match: patterns, and formats that are known. */
typedef struct string_parts {
    const char *keyword; /* of the first, for messages */
    const char *source;  /* its regex, if it is the only one */
    bool is_format;
    node_list nodes;   /* all, to be combined */
    const char *alien; /* a format that is not known; beside a pattern it names that */
} string_parts;

static lace_status fail_regex(schema_reader *r, const char *keyword, lace_status status,
                              const lace_error *why)
{
    return error_set(r->err, status, "JSON schema: %s: %s", keyword, why->text);
}

/* Formats are whole texts. */
static const char *anchor(const char *regex, char *out, size_t size)
{
    snprintf(out, size, "^(%s)$", regex);
    return out;
}

static const char *find_format(const char *name, bool is_beside)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, name) == 0)
            return is_beside && formats[i].beside ? formats[i].beside : formats[i].regex;
    return NULL;
}

/* A pattern or a format more. */
static lace_status add_string_part(schema_reader *r, const char *keyword, const json_t *value,
                                   string_parts *p)
{
    regex_options options = {.is_json = true, .is_part = true};
    const char *name = json_string_value(value), *source = name;
    const grammar_node *node;
    lace_error why = {0};
    char anchored[1024];
    bool is_format = strcmp(keyword, "format") == 0;
    if (!name)
        return schema_fail(r, keyword, "is %s, expected a text", json_kind(value));
    if (is_format) {
        source = find_format(name, true);
        p->alien = source ? p->alien : name;
        if (!source)
            return LACE_OK;
        source = anchor(source, anchored, sizeof anchored);
    }
    lace_status status =
        grammar_read_regex(r->g, text_of(source), &options, &node, NULL, NULL, &why);
    if (status != LACE_OK)
        return fail_regex(r, keyword, status, &why);
    if (p->nodes.n == 0) {
        p->keyword = keyword;
        p->source = name;
        p->is_format = is_format;
    }
    return node_list_add(&p->nodes, node) ? LACE_OK : error_nomem(r->err, "a JSON schema");
}

static lace_status list_string_parts(schema_reader *r, const json_t *schema, string_parts *p)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *format = json_object_get(schema, "format");
    const json_t *more = json_object_get(schema, SCHEMA_STRINGS);
    if (pattern)
        TRY(add_string_part(r, "pattern", pattern, p));
    if (format)
        TRY(add_string_part(r, "format", format, p));
    for (size_t i = 0; i < json_array_size(more); i++) {
        const char *key;
        json_t *value;
        json_object_foreach(json_array_get(more, i), key, value)
            TRY(add_string_part(r, key, value, p));
    }
    if (p->alien && p->nodes.n == 0)
        return schema_fail(r, "format", "\"%.40s\" is not supported", p->alien);
    return LACE_OK;
}

/* The contents of a string that has parts. One alone stays as it is, if it has the right length. */
static lace_status read_string_parts(schema_reader *r, const string_parts *p, uint32_t min,
                                     uint32_t max, const grammar_node **out)
{
    lace_error why = {0};
    lace_status status;
    if (p->nodes.n == 1) {
        regex_options options = {.is_json = true};
        uint32_t shortest = 0, longest = GRAMMAR_NO_MAX;
        char anchored[1024];
        const char *source = p->is_format
                                 ? anchor(find_format(p->source, false), anchored, sizeof anchored)
                                 : p->source;
        status =
            grammar_read_regex(r->g, text_of(source), &options, out, &shortest, &longest, &why);
        if (status != LACE_OK)
            return fail_regex(r, p->keyword, status, &why);
        if (shortest >= min && longest <= max)
            return LACE_OK;
    }
    status = grammar_all_of(r->g, p->nodes.nodes, p->nodes.n, min, max, true, out, &why);
    return status == LACE_OK ? LACE_OK : fail_regex(r, p->keyword, status, &why);
}

/* Strings of one form are one rule, as many properties may have it. */
static lace_status find_string_rule(schema_reader *r, const json_t *schema, char **key,
                                    int32_t *rule)
{
    static const char *const words[] = {"pattern", "format", SCHEMA_STRINGS, "minLength",
                                        "maxLength"};
    json_t *form = json_object();
    bool ok = form;
    for (size_t i = 0; ok && i < sizeof words / sizeof words[0]; i++) {
        json_t *value = json_object_get(schema, words[i]);
        ok = !value || json_object_set(form, words[i], value) == 0;
    }
    char *dump = ok ? json_dumps(form, JSON_COMPACT) : NULL;
    json_decref(form);
    *key = dump ? arena_strndup(&r->g->memory, dump, strlen(dump)) : NULL;
    mem_free(dump);
    if (!*key)
        return error_nomem(r->err, "a JSON schema");
    *rule = map_find(&r->strings, text_of(*key));
    return LACE_OK;
}

static lace_status read_formed_string(schema_reader *r, const json_t *schema, uint32_t min,
                                      uint32_t max, const grammar_node **out)
{
    grammar_ast *g = r->g;
    char *key = NULL;
    int32_t rule = -1;
    TRY(find_string_rule(r, schema, &key, &rule));
    if (rule < 0) {
        string_parts parts = {0};
        const grammar_node *contents = NULL;
        lace_status status = list_string_parts(r, schema, &parts);
        if (status == LACE_OK)
            status = read_string_parts(r, &parts, min, max, &contents);
        node_list_deinit(&parts.nodes);
        TRY(status);
        rule = (int32_t)grammar_add_rule(g, text_of("string"));
        TRY(grammar_ast_check(g, r->err));
        const grammar_node *quote = grammar_text(g, "\"");
        g->rules[rule].body = GRAMMAR_SEQ(g, quote, contents, quote);
        if (map_add(&r->strings, text_of(key), rule) != LACE_OK)
            return error_nomem(r->err, "a JSON schema");
    }
    *out = grammar_use(g, (uint32_t)rule);
    return LACE_OK;
}

lace_status schema_read_string(schema_reader *r, const json_t *schema, const grammar_node **out)
{
    grammar_ast *g = r->g;
    uint32_t min, max;
    TRY(schema_count(r, schema, "minLength", 0, &min));
    TRY(schema_count(r, schema, "maxLength", GRAMMAR_NO_MAX, &max));
    if (max < min)
        return schema_fail(r, "maxLength", "is %u, but minLength is %u", max, min);
    if (json_object_get(schema, "pattern") || json_object_get(schema, "format"))
        return read_formed_string(r, schema, min, max, out);
    const grammar_node *quote = grammar_text(g, "\"");
    *out = min == 0 && max == GRAMMAR_NO_MAX
               ? schema_any_string(r)
               : GRAMMAR_SEQ(g, quote, grammar_repeat(g, string_character(r), min, max), quote);
    return LACE_OK;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static const code_range digit_range[] = {{'0', '9'}}, nonzero_range[] = {{'1', '9'}};

const grammar_node *schema_any_number(schema_reader *r, bool is_integer)
{
    grammar_ast *g = r->g;
    uint32_t *known = is_integer ? &r->integer : &r->number;
    if (*known == 0) {
        uint32_t rule = grammar_add_rule(g, text_of(is_integer ? "integer" : "number"));
        if (!g->rules)
            return grammar_empty(g);
        const grammar_node *digit = grammar_set(g, digit_range, 1);
        const grammar_node *minus = grammar_repeat(g, grammar_text(g, "-"), 0, 1);
        const grammar_node *large =
            GRAMMAR_SEQ(g, grammar_set(g, nonzero_range, 1), grammar_repeat(g, digit, 0, 14));
        if (is_integer) {
            g->rules[rule].body =
                GRAMMAR_ALT(g, grammar_text(g, "0"), GRAMMAR_SEQ(g, minus, large));
        } else {
            static const code_range e[] = {{'E', 'E'}, {'e', 'e'}},
                                    sign[] = {{'+', '+'}, {'-', '-'}};
            const grammar_node *fraction =
                GRAMMAR_SEQ(g, grammar_text(g, "."), grammar_repeat(g, digit, 1, 15));
            const grammar_node *exponent = GRAMMAR_SEQ(
                g, grammar_set(g, e, 2), grammar_repeat(g, grammar_set(g, sign, 2), 0, 1),
                grammar_repeat(g, digit, 1, 2));
            g->rules[rule].body =
                GRAMMAR_SEQ(g, minus, GRAMMAR_ALT(g, grammar_text(g, "0"), large),
                            grammar_repeat(g, fraction, 0, 1), grammar_repeat(g, exponent, 0, 1));
        }
        *known = rule + 1;
    }
    return grammar_use(g, *known - 1);
}

enum { MAX_DIGITS = 17 }; /* of a number with bounds, so that it fits 64 bits */

/* A bound: digits * 10^-n_decimals. */
typedef struct decimal {
    bool is_given;
    bool is_excluded;
    int64_t digits;
    int n_decimals;
} decimal;

/* The shortest decimal that reads as this number, without an exponent. */
static lace_status read_decimal(schema_reader *r, const json_t *value, const char *keyword,
                                decimal *out)
{
    char text_form[64];
    double x = json_number_value(value);
    if (!json_is_number(value) || !isfinite(x))
        return schema_fail(r, keyword, "is %s, expected a number", json_kind(value));
    out->is_given = true;
    for (int n = 0; n <= MAX_DIGITS; n++) {
        snprintf(text_form, sizeof text_form, "%.*f", n, x);
        if (fabs(x) >= 1e15 || strtod(text_form, NULL) == x) {
            out->n_decimals = n;
            break;
        }
        if (n == MAX_DIGITS)
            return schema_fail(r, keyword, "has more decimals than are supported");
    }
    if (fabs(x) >= 1e15) {
        out->digits = x > 0 ? INT64_MAX : INT64_MIN;
        return LACE_OK;
    }
    size_t n_digits = 0;
    out->digits = 0;
    for (const char *p = text_form; *p; p++)
        if (*p >= '0' && *p <= '9') {
            out->digits = out->digits * 10 + (*p - '0');
            n_digits += out->digits > 0;
            if (n_digits > MAX_DIGITS)
                return schema_fail(r, keyword, "has more digits than are supported");
        }
    if (x < 0)
        out->digits = -out->digits;
    return LACE_OK;
}

/* The tighter of a bound and its exclusive form, which older drafts write as true. */
static lace_status read_bounds(schema_reader *r, const json_t *schema, bool is_low, decimal *out)
{
    const char *keyword = is_low ? "minimum" : "maximum";
    const char *exclusive = is_low ? "exclusiveMinimum" : "exclusiveMaximum";
    const json_t *value = json_object_get(schema, keyword);
    const json_t *other = json_object_get(schema, exclusive);
    if (value)
        TRY(read_decimal(r, value, keyword, out));
    if (json_is_boolean(other)) {
        out->is_excluded = json_is_true(other);
        return LACE_OK;
    }
    if (!other)
        return LACE_OK;
    decimal excluded = {.is_excluded = true};
    TRY(read_decimal(r, other, exclusive, &excluded));
    double x = json_number_value(value), y = json_number_value(other);
    if (!value || (is_low ? y >= x : y <= x))
        *out = excluded;
    return LACE_OK;
}

static int64_t power_of_ten(int n)
{
    int64_t x = 1;
    while (n-- > 0)
        x *= 10;
    return x;
}

/* Digits of a number that is not negative, [n_digits], with zeros in front. */
static void write_digits(int64_t x, int n_digits, uint8_t *out)
{
    for (int i = n_digits; i-- > 0; x /= 10)
        out[i] = (uint8_t)(x % 10);
}

static bool all_zero(const uint8_t *digits, int n)
{
    for (int i = 0; i < n; i++)
        if (digits[i])
            return false;
    return true;
}

/*
 * The numbers from low to high, both with `length` digits before the point and n_decimals behind
 * it, as a graph: a point for each digit's place and for whether the digits so far are those of
 * low, of high, both or neither. Decimals may be left out where the rest, zeros, is in range.
 */
static const grammar_node *digits_between(schema_reader *r, int64_t low, int64_t high, int length,
                                          int n_decimals)
{
    grammar_ast *g = r->g;
    int n = length + n_decimals;
    uint8_t a[MAX_DIGITS + 2], b[MAX_DIGITS + 2];
    write_digits(low, n, a);
    write_digits(high, n, b);
    enum { MAX_EDGES = (MAX_DIGITS + 2) * 4 * 4 };
    grammar_edge edges[MAX_EDGES];
    size_t n_edges = 0;
    uint32_t end = (uint32_t)(4 * (n + 1)) + 1;
    /* Point 0 is the start, where both bounds bind. */
    edges[n_edges++] = (grammar_edge){0, 1 + 3, grammar_empty(g)};
    for (int i = 0; i <= n; i++)
        for (unsigned bound = 0; bound < 4; bound++) { /* 1: low binds, 2: high binds */
            uint32_t from = 1 + 4 * (uint32_t)i + bound;
            if (i >= length && (!(bound & 1) || all_zero(a + i, n - i)))
                edges[n_edges++] = (grammar_edge){from, end, grammar_empty(g)};
            if (i == n)
                continue;
            int least = bound & 1 ? a[i] : 0, most = bound & 2 ? b[i] : 9;
            for (int d = least; d <= most;) {
                unsigned next = (d == least ? bound & 1 : 0) | (d == most ? bound & 2 : 0);
                int last = d;
                while (next == 0 && last + 1 < most + !(bound & 2))
                    last++; /* digits between the bounds lead to the same point */
                code_range range = {(uint32_t)('0' + d), (uint32_t)('0' + last)};
                const grammar_node *digit = grammar_set(g, &range, 1);
                if (i == length)
                    digit = GRAMMAR_SEQ(g, grammar_text(g, "."), digit);
                edges[n_edges++] = (grammar_edge){from, 1 + 4 * (uint32_t)(i + 1) + next, digit};
                d = last + 1;
            }
        }
    return grammar_net(g, end + 1, edges, n_edges);
}

/* 0 <= low <= high, in units of the last decimal. */
static const grammar_node *numbers_between(schema_reader *r, int64_t low, int64_t high,
                                           int n_decimals)
{
    node_list parts = {0};
    int64_t unit = power_of_ten(n_decimals);
    for (int length = 1; length + n_decimals <= MAX_DIGITS; length++) {
        int64_t first = length == 1 ? 0 : power_of_ten(length - 1) * unit;
        int64_t last = power_of_ten(length) * unit - 1;
        int64_t from = low > first ? low : first, to = high < last ? high : last;
        if (from <= to)
            r->g->is_out_of_memory |=
                !node_list_add(&parts, digits_between(r, from, to, length, n_decimals));
    }
    const grammar_node *node = grammar_list(r->g, NODE_ALT, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return node;
}

/* The bound in units of the last decimal, rounded into the range; false: it does not fit. */
static bool scale_bound(decimal d, int n_decimals, bool is_low, int64_t limit, int64_t *out)
{
    if (!d.is_given || (d.digits == INT64_MIN && is_low) || (d.digits == INT64_MAX && !is_low)) {
        *out = is_low ? -limit : limit;
        return true;
    }
    if (d.digits == INT64_MIN || d.digits == INT64_MAX)
        return false;
    if (d.n_decimals > n_decimals) { /* integers: towards the inside */
        int64_t unit = power_of_ten(d.n_decimals - n_decimals), q = d.digits / unit;
        bool is_exact = d.digits % unit == 0;
        if (!is_exact && (d.digits > 0) == is_low)
            q += is_low ? 1 : -1;
        *out = q;
        if (is_exact && d.is_excluded)
            *out += is_low ? 1 : -1;
    } else {
        int64_t unit = power_of_ten(n_decimals - d.n_decimals);
        if (d.digits > limit / unit || d.digits < -(limit / unit))
            return false;
        *out = d.digits * unit;
        if (d.is_excluded)
            *out += is_low ? 1 : -1;
    }
    return true;
}

static int count_whole_digits(decimal d)
{
    int64_t x = d.digits == INT64_MIN || d.digits == INT64_MAX ? 0 : llabs(d.digits);
    int n = 0;
    for (x /= power_of_ten(d.n_decimals); x > 0; x /= 10)
        n++;
    return n;
}

/* "format" of a number: what a 32-bit integer is, and names that say nothing more than the type. */
static lace_status read_number_format(schema_reader *r, const json_t *schema, decimal *low,
                                      decimal *high)
{
    const json_t *format = json_object_get(schema, "format");
    const char *name = json_string_value(format);
    if (!format)
        return LACE_OK;
    if (name && strcmp(name, "int32") == 0) {
        if (!low->is_given)
            *low = (decimal){.is_given = true, .digits = INT32_MIN};
        if (!high->is_given)
            *high = (decimal){.is_given = true, .digits = INT32_MAX};
        return LACE_OK;
    }
    bool is_plain = name && (strcmp(name, "int64") == 0 || strcmp(name, "float") == 0 ||
                             strcmp(name, "double") == 0);
    return is_plain ? LACE_OK
                    : schema_fail(r, "format", "\"%.40s\" is not supported for numbers",
                                  name ? name : json_kind(format));
}

/* Without a bound on one side, numbers go as far as so many digits before the point. */
static int whole_digits(decimal low, decimal high, bool is_integer)
{
    int a = count_whole_digits(low), b = count_whole_digits(high);
    int n = a > b ? a : b;
    if (is_integer)
        return 15;
    bool is_closed =
        low.is_given && high.is_given && low.digits != INT64_MIN && high.digits != INT64_MAX;
    return is_closed || n > 9 ? n : 9;
}

lace_status schema_read_number(schema_reader *r, const json_t *schema, bool is_integer,
                               const grammar_node **out)
{
    decimal low = {0}, high = {0};
    TRY(read_bounds(r, schema, true, &low));
    TRY(read_bounds(r, schema, false, &high));
    TRY(read_number_format(r, schema, &low, &high));
    if (!low.is_given && !high.is_given) {
        *out = schema_any_number(r, is_integer);
        return LACE_OK;
    }
    int n_whole = whole_digits(low, high, is_integer), n_decimals = 0;
    if (!is_integer) {
        n_decimals = low.n_decimals > high.n_decimals ? low.n_decimals : high.n_decimals;
        int room = 15 - n_whole; /* more digits than that a double cannot tell apart */
        if (n_decimals > (room > 0 ? room : 0))
            return schema_fail(r, low.is_given ? "minimum" : "maximum",
                               "has more digits than are supported");
        if (n_decimals < 6)
            n_decimals = room < 6 ? room : 6;
    }
    int64_t limit = power_of_ten(n_whole + n_decimals) - (n_whole > 0), least, most;
    if (n_whole == 0)
        limit = power_of_ten(n_decimals);
    if (!scale_bound(low, n_decimals, true, limit, &least) ||
        !scale_bound(high, n_decimals, false, limit, &most))
        return schema_fail(r, low.is_given ? "minimum" : "maximum", "is beyond 15 digits");
    if (least > most)
        return schema_fail(r, low.is_given ? "minimum" : "maximum", "no number is in the range");
    grammar_ast *g = r->g;
    node_list parts = {0};
    bool ok = true;
    if (least < 0) /* "-0" is left out */
        ok = node_list_add(
            &parts, GRAMMAR_SEQ(g, grammar_text(g, "-"),
                                numbers_between(r, most < 0 ? -most : 1, -least, n_decimals)));
    if (most >= 0)
        ok = ok &&
             node_list_add(&parts, numbers_between(r, least > 0 ? least : 0, most, n_decimals));
    g->is_out_of_memory |= !ok;
    *out = grammar_list(g, NODE_ALT, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return LACE_OK;
}
