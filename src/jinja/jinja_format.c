/* Formatting in templates: "%-5s" % x and "{:>5}".format(x). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jinja/jinja_eval.h"

/* How one value is to be written; both syntaxes come down to it. */
typedef struct format_spec {
    marked fill; /* one character */
    char align;  /* '<', '>', '^', '=' (between sign and digits), 0: as the type likes */
    char sign;   /* '+', ' ' or 0 */
    bool is_alternate, has_commas;
    int64_t width, precision; /* -1: none */
    char type;                /* 0: str() */
} format_spec;

static lace_status read_digits(jinja_run *r, text t, size_t *at, int64_t *out)
{
    int64_t n = 0;
    for (; *at < t.size && t.data[*at] >= '0' && t.data[*at] <= '9'; ++*at) {
        n = n * 10 + (t.data[*at] - '0');
        if (n > (int64_t)1 << 30)
            return jinja_limit(r, "characters of a number's width");
    }
    *out = n;
    return LACE_OK;
}

/* Fill up to the width around what was written since `start`; sign_size bytes of it are a sign. */
static lace_status write_padded(jinja_run *r, const format_spec *spec, size_t start,
                                size_t sign_size, char default_align)
{
    jv body;
    TRY(jinja_take_output(r, start, &body));
    marked all = jv_marked(body);
    text chars = all.chars;
    int64_t n = (int64_t)chars_count(chars);
    TRY(jinja_spend(r, 32 + chars.size / 4));
    size_t room = spec->width > n ? (size_t)(spec->width - n) : 0;
    TRY(jinja_spend(r, room / 2));
    char align = spec->align ? spec->align : default_align;
    size_t left = align == '<' ? 0 : align == '^' ? room / 2 : room;
    if (align == '=') {
        TRY(jinja_write_marked(r, marked_part(all, (text){chars.data, sign_size})));
        chars = (text){chars.data + sign_size, chars.size - sign_size};
    }
    TRY(jinja_write_fill(r, spec->fill, left));
    TRY(jinja_write_marked(r, marked_part(all, chars)));
    return jinja_write_fill(r, spec->fill, room - left);
}

static lace_status write_string(jinja_run *r, const format_spec *spec, jv value, bool as_repr)
{
    size_t start = r->out->size;
    TRY(as_repr ? jv_print_repr(r, value) : jv_print(r, value));
    if (spec->precision >= 0) {
        jv whole;
        TRY(jinja_take_output(r, start, &whole));
        text chars = jv_chars(whole);
        TRY(jinja_spend_chars(r, chars.size));
        chars.size = chars_offset(chars, (size_t)spec->precision);
        TRY(jinja_write_marked(r, marked_part(jv_marked(whole), chars)));
    }
    return write_padded(r, spec, start, 0, '<');
}

static lace_status write_sign(jinja_run *r, const format_spec *spec, bool is_negative, size_t *n)
{
    char sign = is_negative ? '-' : spec->sign;
    *n = sign ? 1 : 0;
    return sign ? jinja_write_byte(r, sign) : LACE_OK;
}

/* Digits with a comma after each group of three before the point. */
static lace_status write_grouped(jinja_run *r, const format_spec *spec, const char *digits)
{
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % 3 == 0 && spec->has_commas)
            TRY(jinja_write_byte(r, ','));
        TRY(jinja_write_byte(r, digits[i]));
    }
    return jinja_write(r, text_of(digits + whole));
}

static lace_status write_int(jinja_run *r, const format_spec *spec, int64_t value)
{
    char digits[72] = "", prefix[3] = "";
    size_t start = r->out->size, n_sign, n = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint64_t base = spec->type == 'x' || spec->type == 'X' ? 16
                    : spec->type == 'o'                    ? 8
                    : spec->type == 'b'                    ? 2
                                                           : 10;
    const char *letters = spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char reversed[72];
    do {
        reversed[n++] = letters[rest % base];
        rest /= base;
    } while (rest > 0);
    for (size_t i = 0; i < n; i++)
        digits[i] = reversed[n - 1 - i];
    if (spec->is_alternate && base != 10)
        snprintf(prefix, sizeof prefix, "0%c", spec->type);
    TRY(write_sign(r, spec, value < 0, &n_sign));
    TRY(jinja_write(r, text_of(prefix)));
    if (spec->precision > (int64_t)n) /* "%.5d": at least so many digits */
        TRY(jinja_write_fill(r, marked_own(text_of("0")), (size_t)spec->precision - n));
    TRY(base == 10 ? write_grouped(r, spec, digits) : jinja_write(r, text_of(digits)));
    return write_padded(r, spec, start, n_sign + strlen(prefix), '>');
}

static lace_status write_float(jinja_run *r, const format_spec *spec, double value)
{
    enum { MAX_PRECISION = 300 };
    char digits[MAX_PRECISION + 330], format[8];
    size_t start = r->out->size, n_sign;
    double magnitude = fabs(value);
    if (spec->precision > MAX_PRECISION)
        return jinja_limit(r, "digits of a float");
    TRY(jinja_spend(r, 100 + (uint64_t)(spec->precision > 0 ? spec->precision : 0) * 2 +
                           (magnitude > 1e20 ? 500 : 0))); /* long arithmetic inside printf */
    TRY(write_sign(r, spec, signbit(value) && !isnan(value), &n_sign));
    if (spec->type == 0 && spec->precision < 0) {
        jv_float_text(magnitude, digits);
    } else {
        char type = spec->type == '%' ? 'f' : spec->type == 0 ? 'g' : spec->type;
        snprintf(format, sizeof format, spec->is_alternate ? "%%#.*%c" : "%%.*%c", type);
        int precision = spec->precision < 0 ? 6 : (int)spec->precision;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(digits, sizeof digits, format, precision,
                 spec->type == '%' ? magnitude * 100 : magnitude);
#pragma GCC diagnostic pop
    }
    TRY(write_grouped(r, spec, digits));
    if (spec->type == '%')
        TRY(jinja_write_byte(r, '%'));
    return write_padded(r, spec, start, n_sign, '>');
}

/* ---- Percent --------------------------------------------------------------------------------- */

typedef struct percent_args {
    const jinja_args *args;
    size_t at;
} percent_args;

static lace_status next_arg(jinja_run *r, percent_args *args, jv *out)
{
    if (args->at >= args->args->n)
        return jinja_fail(r, "not enough arguments for format string");
    *out = args->args->items[args->at++];
    return LACE_OK;
}

/* "%(name)s": from the named arguments or from a dict that is the only argument. */
static lace_status named_arg(jinja_run *r, const jinja_args *args, text name, jv *out)
{
    jv *found = NULL;
    TRY(jinja_spend(r, 1 + args->n_named / 4));
    for (size_t i = 0; i < args->n_named; i++) {
        if (text_equals(args->named[i].name.chars, name)) {
            *out = args->named[i].value;
            return LACE_OK;
        }
    }
    if (args->n == 1 && args->items[0].kind == JV_DICT)
        TRY(jv_dict_find_text(r, args->items[0].as.dict, name, &found));
    if (!found)
        return jinja_fail(r, "the format has no argument '%.*s'", text_width(name), name.data);
    *out = *found;
    return LACE_OK;
}

static lace_status read_star(jinja_run *r, text f, size_t *at, percent_args *args, int64_t *out)
{
    jv value;
    if (*at < f.size && f.data[*at] == '*') {
        ++*at;
        TRY(next_arg(r, args, &value));
        return jinja_param_int(r, value, 0, out);
    }
    return read_digits(r, f, at, out);
}

static lace_status write_percent(jinja_run *r, const format_spec *spec, jv value)
{
    switch (spec->type) {
    case 's':
        return write_string(r, spec, value, false);
    case 'r':
    case 'a':
        return write_string(r, spec, value, true);
    case 'c':
        if (value.kind == JV_STRING)
            return write_string(r, spec, value, false);
        if (!jv_is_int(value) || jv_as_int(value) < 0 || jv_as_int(value) > 0x10FFFF ||
            (jv_as_int(value) >= 0xD800 && jv_as_int(value) < 0xE000))
            return jinja_fail(r, "%%c requires int or char");
        return jinja_write_char(r, (uint32_t)jv_as_int(value), false);
    case 'd':
    case 'i':
    case 'u':
        if (value.kind == JV_FLOAT && fabs(value.as.f) < 9e18)
            return write_int(r, spec, (int64_t)value.as.f);
        /* fall through */
    case 'x':
    case 'X':
    case 'o':
        if (jv_is_int(value))
            return write_int(r, spec, jv_as_int(value));
        break;
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        if (jv_is_number(value))
            return write_float(r, spec, jv_number(value));
        break;
    default:
        return jinja_fail(r, "unsupported format character '%c'", spec->type);
    }
    return jinja_fail(r, "%%%c format: a number is required, not %s", spec->type,
                      jv_type_name(value));
}

/* At the character behind '%'; goes to behind the conversion. */
static lace_status format_one(jinja_run *r, text f, size_t *at, percent_args *args)
{
    format_spec spec = {.fill = marked_own(text_of(" ")), .width = 0, .precision = -1};
    jv value = {0};
    bool is_left = false, has_zeros = false;
    if (*at < f.size && f.data[*at] == '(') {
        size_t end = chars_find(f, text_of(")"), *at);
        if (end == SIZE_MAX)
            return jinja_fail(r, "incomplete format key");
        TRY(named_arg(r, args->args, (text){f.data + *at + 1, end - *at - 1}, &value));
        args->at = args->args->n;
        *at = end + 1;
    }
    for (; *at < f.size && f.data[*at] && strchr("#0- +", f.data[*at]); ++*at) {
        char flag = f.data[*at];
        is_left |= flag == '-';
        has_zeros |= flag == '0';
        spec.is_alternate |= flag == '#';
        if (flag == '+' || (flag == ' ' && !spec.sign))
            spec.sign = flag;
    }
    TRY(read_star(r, f, at, args, &spec.width));
    if (spec.width < 0) {
        is_left = true;
        spec.width = spec.width == INT64_MIN ? INT64_MAX : -spec.width;
    }
    if (*at < f.size && f.data[*at] == '.') {
        ++*at;
        TRY(read_star(r, f, at, args, &spec.precision));
        if (spec.precision < 0)
            spec.precision = 0;
    }
    if (*at >= f.size)
        return jinja_fail(r, "incomplete format");
    spec.type = f.data[(*at)++];
    if (spec.type == '%')
        return jinja_write_byte(r, '%');
    if (value.kind == JV_UNSET)
        TRY(next_arg(r, args, &value));
    bool is_text = strchr("srac", spec.type) != NULL;
    spec.align = is_left ? '<' : has_zeros && !is_text ? '=' : '>';
    if (spec.align == '=')
        spec.fill = marked_own(text_of("0"));
    return write_percent(r, &spec, value);
}

lace_status jinja_format_percent(jinja_run *r, marked format, const jinja_args *given, jv *out)
{
    text f = format.chars;
    percent_args args = {given, 0};
    size_t start = r->out->size, at = 0;
    TRY(jinja_spend_chars(r, f.size));
    while (at < f.size) {
        size_t next = chars_find(f, text_of("%"), at);
        size_t end = next == SIZE_MAX ? f.size : next;
        TRY(jinja_write_marked(r, marked_part(format, (text){f.data + at, end - at})));
        at = end + 1;
        if (next == SIZE_MAX)
            break;
        TRY(jinja_spend(r, 1));
        TRY(format_one(r, f, &at, &args));
    }
    bool is_dict = given->n == 1 && given->items[0].kind == JV_DICT;
    if (args.at < given->n && !is_dict)
        return jinja_fail(r, "not all arguments converted during string formatting");
    return jinja_take_output(r, start, out);
}

/* ---- Braces ---------------------------------------------------------------------------------- */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static lace_status read_spec(jinja_run *r, marked given, format_spec *spec)
{
    text t = given.chars;
    size_t at = 0, first = chars_offset(t, 1);
    *spec = (format_spec){.fill = marked_own(text_of(" ")), .precision = -1};
    if (first < t.size && strchr("<>^=", t.data[first]) && t.data[first]) {
        spec->fill = marked_part(given, (text){t.data, first});
        spec->align = t.data[first];
        at = first + 1;
    } else if (t.size > 0 && t.data[0] && strchr("<>^=", t.data[0])) {
        spec->align = t.data[at++];
    }
    if (at < t.size && (t.data[at] == '+' || t.data[at] == '-' || t.data[at] == ' '))
        spec->sign = t.data[at] == '-' ? 0 : t.data[at], at++;
    if (at < t.size && t.data[at] == '#')
        spec->is_alternate = true, at++;
    if (at < t.size && t.data[at] == '0') {
        at++;
        if (!spec->align) {
            spec->fill = marked_own(text_of("0"));
            spec->align = '=';
        }
    }
    TRY(read_digits(r, t, &at, &spec->width));
    if (at < t.size && (t.data[at] == ',' || t.data[at] == '_'))
        spec->has_commas = true, at++;
    if (at < t.size && t.data[at] == '.') {
        at++;
        TRY(read_digits(r, t, &at, &spec->precision));
    }
    if (at < t.size)
        spec->type = t.data[at++];
    if (at != t.size)
        return jinja_fail(r, "invalid format specifier '%.*s'", text_width(t), t.data);
    return LACE_OK;
}

static lace_status write_with_spec(jinja_run *r, marked spec_text, jv value)
{
    format_spec spec;
    TRY(read_spec(r, spec_text, &spec));
    bool is_plain = spec.type == 0 || spec.type == 's';
    if (value.kind == JV_STRING || (is_plain && !jv_is_number(value)) ||
        (is_plain && value.kind == JV_BOOL)) {
        if (!is_plain)
            return jinja_fail(r, "unknown format code '%c' for a string", spec.type);
        if (spec.align == '=')
            spec.align = '<';
        return write_string(r, &spec, value, false);
    }
    if (jv_is_int(value) && (spec.type == 0 || strchr("dxXobn", spec.type)))
        return write_int(r, &spec, jv_as_int(value));
    if (jv_is_number(value) && (spec.type == 0 || strchr("eEfFgG%", spec.type)))
        return write_float(r, &spec, jv_number(value));
    return jinja_fail(r, "unknown format code '%c' for '%s'", spec.type, jv_type_name(value));
}

/* A name or number, then .attribute and [item] as often as they come. */
static lace_status read_field(jinja_run *r, text field, const jinja_args *args, size_t *automatic,
                              jv *out)
{
    size_t n = 0;
    int64_t number = 0;
    while (n < field.size && field.data[n] != '.' && field.data[n] != '[')
        n++;
    text name = {field.data, n};
    size_t at = 0;
    TRY(read_digits(r, name, &at, &number));
    if (at == name.size) {
        size_t i = name.size == 0 ? (*automatic)++ : (size_t)number;
        if (i >= args->n)
            return jinja_fail(r, "replacement index %zu out of range", i);
        *out = args->items[i];
    } else {
        jinja_args named = {.named = args->named, .n_named = args->n_named};
        TRY(named_arg(r, &named, name, out));
    }
    while (n < field.size) {
        bool is_item = field.data[n] == '[';
        size_t end = ++n;
        while (end < field.size && (is_item ? field.data[end] != ']'
                                            : field.data[end] != '.' && field.data[end] != '['))
            end++;
        text key_text = {field.data + n, end - n};
        jv key;
        at = 0;
        TRY(read_digits(r, key_text, &at, &number));
        key = jv_int(number);
        if (!is_item || at < key_text.size || key_text.size == 0)
            TRY(jv_view(r, key_text, &key));
        TRY(jinja_spend(r, 1));
        TRY(is_item ? jinja_get_item(r, *out, key, out) : jinja_get_attr(r, *out, key_text, out));
        n = end + is_item;
        if (n < field.size && field.data[n] != '.' && field.data[n] != '[')
            return jinja_fail(r, "a field of the format string is malformed");
    }
    return LACE_OK;
}

lace_status jinja_format_braces(jinja_run *r, marked format, const jinja_args *args, jv *out)
{
    text f = format.chars;
    size_t start = r->out->size, automatic = 0;
    TRY(jinja_spend_chars(r, f.size));
    for (size_t at = 0; at < f.size;) {
        char c = f.data[at], next = at + 1 < f.size ? f.data[at + 1] : 0;
        if ((c != '{' && c != '}') || c == next) {
            TRY(jinja_write_marked(r, marked_part(format, (text){f.data + at, 1})));
            at += c == next && (c == '{' || c == '}') ? 2 : 1;
            continue;
        }
        size_t end = chars_find(f, text_of("}"), at);
        if (c == '}' || end == SIZE_MAX)
            return jinja_fail(r, "the format string has a single '%c'", c);
        text field = {f.data + at + 1, end - at - 1}, spec = {f.data + end, 0};
        if (field.size && memchr(field.data, '{', field.size))
            return jinja_fail(r, "formats inside of formats are not supported");
        size_t colon = chars_find(field, text_of(":"), 0);
        if (colon != SIZE_MAX) {
            spec = (text){field.data + colon + 1, field.size - colon - 1};
            field.size = colon;
        }
        size_t bang = chars_find(field, text_of("!"), 0);
        char conversion = bang != SIZE_MAX && bang + 1 < field.size ? field.data[bang + 1] : 0;
        if (bang != SIZE_MAX)
            field.size = bang;
        jv value;
        TRY(jinja_spend(r, 1));
        TRY(read_field(r, field, args, &automatic, &value));
        if (conversion) {
            size_t from = r->out->size;
            TRY(conversion == 's' ? jv_print(r, value) : jv_print_repr(r, value));
            TRY(jinja_take_output(r, from, &value));
        }
        TRY(write_with_spec(r, marked_part(format, spec), value));
        at = end + 1;
    }
    return jinja_take_output(r, start, out);
}
