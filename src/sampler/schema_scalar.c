/* JSON schema to grammar: strings and numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "sampler/grammar_schema.h"

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
        return schema_fail(r, keyword, "%s, expected an integer", json_kind(value));
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
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
/* A regex that every match of is valid for the format; the other way round need not hold. */
static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@" LABEL "(\\." LABEL "){1,3}"},
    {"hostname", LABEL "(\\." LABEL "){0,3}"},
    {"ipv4", BYTE "\\." BYTE "\\." BYTE "\\." BYTE},
    {"uri", "https?://" LABEL "(\\." LABEL "){0,3}(/[A-Za-z0-9._~-]{0,64}){0,8}"},
};
/* clang-format on */

/* The contents of a string with a pattern or a format. */
static lace_status read_regex(schema_reader *r, const json_t *schema, const char *keyword,
                              const grammar_node **out, uint32_t *min, uint32_t *max)
{
    const char *name = json_string_value(json_object_get(schema, keyword)), *source = name;
    regex_options options = {.is_json = true};
    char anchored[512];
    if (!name)
        return schema_fail(r, keyword, "%s, expected a text",
                           json_kind(json_object_get(schema, keyword)));
    if (strcmp(keyword, "format") == 0) {
        source = NULL;
        for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
            if (strcmp(formats[i].name, name) == 0)
                source = formats[i].regex;
        if (!source)
            return schema_fail(r, "format", "\"%.40s\" is not supported", name);
        snprintf(anchored, sizeof anchored, "^(%s)$", source);
        source = anchored;
    }
    lace_error why = {0};
    lace_status status = grammar_read_regex(r->g, text_of(source), &options, out, min, max, &why);
    if (status != LACE_OK)
        error_set(r->err, status, "JSON schema: %s: %s", keyword, why.text);
    return status;
}

lace_status schema_read_string(schema_reader *r, const json_t *schema, const grammar_node **out)
{
    grammar_ast *g = r->g;
    uint32_t min, max;
    TRY(schema_count(r, schema, "minLength", 0, &min));
    TRY(schema_count(r, schema, "maxLength", GRAMMAR_NO_MAX, &max));
    if (max < min)
        return schema_fail(r, "maxLength", "%u, but minLength is %u", max, min);
    bool has_pattern = json_object_get(schema, "pattern");
    bool has_format = json_object_get(schema, "format");
    if ((has_pattern && has_format) || json_object_get(schema, SCHEMA_STRINGS))
        return schema_fail(r, "pattern", "together with format is not supported");
    const grammar_node *quote = grammar_text(g, "\"");
    if (has_pattern || has_format) {
        const char *keyword = has_pattern ? "pattern" : "format";
        const grammar_node *contents;
        uint32_t shortest, longest;
        TRY(read_regex(r, schema, keyword, &contents, &shortest, &longest));
        if (shortest < min || longest > max)
            return schema_fail(r, keyword,
                               "together with minLength or maxLength is supported only if every "
                               "match has such a length");
        *out = GRAMMAR_SEQ(g, quote, contents, quote);
        return LACE_OK;
    }
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
        return schema_fail(r, keyword, "%s, expected a number", json_kind(value));
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

static lace_status read_bound(schema_reader *r, const json_t *schema, const char *keyword,
                              bool is_excluded, decimal *out)
{
    const json_t *value = json_object_get(schema, keyword);
    if (!value)
        return LACE_OK;
    if (out->is_given)
        return schema_fail(r, keyword, "together with its inclusive form is not supported");
    out->is_excluded = is_excluded;
    return read_decimal(r, value, keyword, out);
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
    TRY(read_bound(r, schema, "minimum", false, &low));
    TRY(read_bound(r, schema, "exclusiveMinimum", true, &low));
    TRY(read_bound(r, schema, "maximum", false, &high));
    TRY(read_bound(r, schema, "exclusiveMaximum", true, &high));
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
