/* Values of templates as text: str(), repr() and json.dumps() of Python, and HTML's escapes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "jinja/jinja_eval.h"

/* ---- Numbers --------------------------------------------------------------------------------- */

size_t jv_float_text(double f, char out[JV_FLOAT_CHARS])
{
    char digits[JV_FLOAT_CHARS];
    int precision, exponent;
    if (!isfinite(f))
        return (size_t)snprintf(out, JV_FLOAT_CHARS, "%s",
                                isnan(f) ? "nan"
                                : f > 0  ? "inf"
                                         : "-inf");
    /* 15 digits, if they are enough, show any shorter number followed by zeros. */
    for (precision = 14; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    char *e = strchr(digits, 'e'), *last = e - 1;
    exponent = atoi(e + 1);
    while (*last == '0' && precision > 0)
        last--, precision--;
    memmove(precision > 0 ? last + 1 : last, e, strlen(e) + 1);
    if (exponent < -4 || exponent >= 16) {
        /* Python writes at least two digits of the exponent, as C does. */
        return (size_t)snprintf(out, JV_FLOAT_CHARS, "%s", digits);
    }
    int decimals = precision - exponent;
    return (size_t)snprintf(out, JV_FLOAT_CHARS, "%.*f", decimals > 1 ? decimals : 1, f);
}

static lace_status print_float(jinja_run *r, double f)
{
    char chars[JV_FLOAT_CHARS];
    TRY(jinja_spend(r, 100)); /* it takes that long */
    size_t n = jv_float_text(f, chars);
    return jinja_write(r, (text){chars, n});
}

static lace_status print_int(jinja_run *r, int64_t i)
{
    char chars[24];
    TRY(jinja_spend(r, 8)); /* it takes that long */
    int n = snprintf(chars, sizeof chars, "%lld", (long long)i);
    return jinja_write(r, (text){chars, (size_t)n});
}

static lace_status print_literal(jinja_run *r, const char *chars)
{
    return jinja_write(r, text_of(chars));
}

/* ---- str() and repr() ------------------------------------------------------------------------ */

static bool is_printable(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return code == ' ';
    default:
        return true;
    }
}

static lace_status print_quoted(jinja_run *r, marked m)
{
    text chars = m.chars;
    bool has_single = chars.size && memchr(chars.data, '\'', chars.size);
    bool has_double = chars.size && memchr(chars.data, '"', chars.size);
    char quote = has_single && !has_double ? '"' : '\'';
    size_t from = 0;
    TRY(jinja_spend(r, chars.size / 4)); /* tables of Unicode are slow */
    TRY(jinja_write_byte(r, quote));
    for (size_t i = 0, n; i < chars.size; i += n) {
        uint32_t code;
        char escape[16] = "";
        n = (size_t)utf8_decode(chars.data + i, chars.size - i, &code);
        if (code == (unsigned char)quote || code == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            snprintf(escape, sizeof escape, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
        else if (!is_printable(code))
            snprintf(escape, sizeof escape,
                     code < 0x100     ? "\\x%02x"
                     : code < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                     code);
        if (!escape[0])
            continue;
        TRY(jinja_write_marked(r, marked_part(m, (text){chars.data + from, i - from})));
        TRY(print_literal(r, escape));
        from = i + n;
    }
    TRY(jinja_write_marked(r, marked_part(m, (text){chars.data + from, chars.size - from})));
    return jinja_write_byte(r, quote);
}

static lace_status print_list(jinja_run *r, jv v)
{
    const jv_list *list = v.as.list;
    bool is_tuple = v.kind == JV_TUPLE;
    TRY(jinja_write_byte(r, is_tuple ? '(' : '['));
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0)
            TRY(print_literal(r, ", "));
        TRY(jv_print_repr(r, list->items[i]));
    }
    if (is_tuple && list->n == 1)
        TRY(jinja_write_byte(r, ','));
    return jinja_write_byte(r, is_tuple ? ')' : ']');
}

static lace_status print_dict(jinja_run *r, const jv_dict *d)
{
    TRY(jinja_write_byte(r, '{'));
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            TRY(print_literal(r, ", "));
        TRY(jv_print_repr(r, d->entries[i].key));
        TRY(print_literal(r, ": "));
        TRY(jv_print_repr(r, d->entries[i].value));
    }
    return jinja_write_byte(r, '}');
}

/* What has no parts, with the language's words for it. */
static lace_status print_plain(jinja_run *r, jv v, const char *none, const char *yes,
                               const char *no)
{
    if (v.kind == JV_INT)
        return print_int(r, v.as.i);
    return print_literal(r, v.kind == JV_NONE ? none : v.as.b ? yes : no);
}

lace_status jv_print_repr(jinja_run *r, jv v)
{
    TRY(jinja_spend(r, 1));
    TRY(jinja_enter(r));
    switch (v.kind) {
    case JV_UNDEFINED:
        TRY(print_literal(r, "Undefined"));
        break;
    case JV_NONE:
    case JV_BOOL:
    case JV_INT:
        TRY(print_plain(r, v, "None", "True", "False"));
        break;
    case JV_FLOAT:
        TRY(print_float(r, v.as.f));
        break;
    case JV_STRING:
        if (v.is_safe)
            TRY(print_literal(r, "Markup("));
        TRY(print_quoted(r, jv_marked(v)));
        if (v.is_safe)
            TRY(jinja_write_byte(r, ')'));
        break;
    case JV_LIST:
    case JV_TUPLE:
        TRY(print_list(r, v));
        break;
    case JV_DICT:
        TRY(print_dict(r, v.as.dict));
        break;
    case JV_NAMESPACE:
        TRY(print_literal(r, "<Namespace "));
        TRY(print_dict(r, v.as.dict));
        TRY(jinja_write_byte(r, '>'));
        break;
    default:
        /* Python shows an address here, which no template can mean. */
        TRY(jinja_write_byte(r, '<'));
        TRY(print_literal(r, jv_type_name(v)));
        TRY(jinja_write_byte(r, '>'));
        break;
    }
    r->depth--;
    return LACE_OK;
}

lace_status jv_print(jinja_run *r, jv v)
{
    if (v.kind == JV_STRING)
        return jinja_write_marked(r, jv_marked(v));
    if (v.kind == JV_UNDEFINED)
        return LACE_OK;
    return jv_print_repr(r, v);
}

lace_status jv_to_string(jinja_run *r, jv v, jv *out)
{
    if (v.kind == JV_STRING) {
        *out = v;
        return LACE_OK;
    }
    size_t start = r->out->size;
    TRY(jv_print(r, v));
    return jinja_take_output(r, start, out);
}

/* ---- HTML ------------------------------------------------------------------------------------ */

/* & < > ' " as in HTML. */
static lace_status print_escaped(jinja_run *r, marked m)
{
    text chars = m.chars;
    static const char special[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t from = 0;
    TRY(jinja_spend_chars(r, chars.size));
    for (size_t i = 0; i < chars.size; i++) {
        const char *found = chars.data[i] ? strchr(special, chars.data[i]) : NULL;
        if (!found)
            continue;
        TRY(jinja_write_marked(r, marked_part(m, (text){chars.data + from, i - from})));
        TRY(print_literal(r, names[found - special]));
        from = i + 1;
    }
    return jinja_write_marked(r, marked_part(m, (text){chars.data + from, chars.size - from}));
}

lace_status jv_escape(jinja_run *r, jv v, jv *out)
{
    TRY(jv_to_string(r, v, out));
    if (out->is_safe)
        return LACE_OK;
    size_t start = r->out->size;
    TRY(print_escaped(r, jv_marked(*out)));
    TRY(jinja_take_output(r, start, out));
    out->is_safe = true;
    return LACE_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static lace_status print_json_string(jinja_run *r, marked m, bool is_ascii)
{
    text chars = m.chars;
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    size_t from = 0;
    TRY(jinja_spend_chars(r, chars.size));
    TRY(jinja_write_byte(r, '"'));
    for (size_t i = 0, n; i < chars.size; i += n) {
        uint32_t code;
        n = (size_t)utf8_decode(chars.data + i, chars.size - i, &code);
        const char *found = code && code < 128 ? strchr(plain, (char)code) : NULL;
        char escape[16];
        if (found)
            snprintf(escape, sizeof escape, "\\%c", letters[found - plain]);
        else if (is_ascii && code >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD7C0 + (code >> 10),
                     0xDC00 + (code & 0x3FF));
        else if (code < 0x20 || (is_ascii && code > 126))
            snprintf(escape, sizeof escape, "\\u%04x", code);
        else
            continue;
        TRY(jinja_write_marked(r, marked_part(m, (text){chars.data + from, i - from})));
        TRY(print_literal(r, escape));
        from = i + n;
    }
    TRY(jinja_write_marked(r, marked_part(m, (text){chars.data + from, chars.size - from})));
    return jinja_write_byte(r, '"');
}

static lace_status print_json_float(jinja_run *r, double f)
{
    if (isfinite(f))
        return print_float(r, f);
    return print_literal(r, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
}

static lace_status json_line(jinja_run *r, const jv_json_style *style, int level)
{
    if (!style->indent || style->indent->kind == JV_NONE)
        return LACE_OK;
    TRY(jinja_write_byte(r, '\n'));
    if (style->indent->kind == JV_STRING)
        return jinja_write_fill(r, jv_marked(*style->indent), (size_t)level);
    int64_t width = jv_as_int(*style->indent);
    if (width > 1000000)
        return jinja_limit(r, "spaces of an indentation");
    return jinja_write_fill(r, marked_own(text_of(" ")), width > 0 ? (size_t)(width * level) : 0);
}

static lace_status print_json(jinja_run *r, jv v, const jv_json_style *style, int level);

static lace_status print_json_list(jinja_run *r, const jv_list *list, const jv_json_style *style,
                                   int level)
{
    TRY(jinja_write_byte(r, '['));
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0)
            TRY(jinja_write_marked(r, style->between_items));
        TRY(json_line(r, style, level + 1));
        TRY(print_json(r, list->items[i], style, level + 1));
    }
    if (list->n > 0)
        TRY(json_line(r, style, level));
    return jinja_write_byte(r, ']');
}

static lace_status print_json_key(jinja_run *r, jv key, const jv_json_style *style)
{
    if (key.kind == JV_STRING)
        return print_json_string(r, jv_marked(key), style->is_ascii);
    if (!jv_is_number(key) && key.kind != JV_NONE)
        return jinja_fail(r, "keys must be str, int, float, bool or None, not %s",
                          jv_type_name(key));
    TRY(jinja_write_byte(r, '"'));
    TRY(print_json(r, key, style, 0));
    return jinja_write_byte(r, '"');
}

/* Sorting by insertion: the objects in templates have few members. */
static lace_status sorted_entries(jinja_run *r, const jv_dict *d, const jv_entry ***out)
{
    const jv_entry **entries;
    TRY(jinja_alloc(r, d->n, sizeof *entries, &entries));
    for (size_t i = 0; i < d->n; i++) {
        size_t k = i;
        for (int order; k > 0; k--) {
            TRY(jv_compare(r, entries[k - 1]->key, d->entries[i].key, &order));
            if (order <= 0)
                break;
            entries[k] = entries[k - 1];
        }
        entries[k] = &d->entries[i];
    }
    *out = entries;
    return LACE_OK;
}

static lace_status print_json_dict(jinja_run *r, const jv_dict *d, const jv_json_style *style,
                                   int level)
{
    const jv_entry **sorted = NULL;
    if (style->is_sorted)
        TRY(sorted_entries(r, d, &sorted));
    TRY(jinja_write_byte(r, '{'));
    for (size_t i = 0; i < d->n; i++) {
        const jv_entry *e = sorted ? sorted[i] : &d->entries[i];
        if (i > 0)
            TRY(jinja_write_marked(r, style->between_items));
        TRY(json_line(r, style, level + 1));
        TRY(print_json_key(r, e->key, style));
        TRY(jinja_write_marked(r, style->before_value));
        TRY(print_json(r, e->value, style, level + 1));
    }
    if (d->n > 0)
        TRY(json_line(r, style, level));
    return jinja_write_byte(r, '}');
}

static lace_status print_json(jinja_run *r, jv v, const jv_json_style *style, int level)
{
    TRY(jinja_spend(r, 1));
    TRY(jinja_enter(r));
    switch (v.kind) {
    case JV_NONE:
    case JV_BOOL:
    case JV_INT:
        TRY(print_plain(r, v, "null", "true", "false"));
        break;
    case JV_FLOAT:
        TRY(print_json_float(r, v.as.f));
        break;
    case JV_STRING:
        TRY(print_json_string(r, jv_marked(v), style->is_ascii));
        break;
    case JV_LIST:
    case JV_TUPLE:
        TRY(print_json_list(r, v.as.list, style, level));
        break;
    case JV_DICT:
        TRY(print_json_dict(r, v.as.dict, style, level));
        break;
    default:
        return jinja_fail(r, "Object of type %s is not JSON serializable", jv_type_name(v));
    }
    r->depth--;
    return LACE_OK;
}

lace_status jv_print_json(jinja_run *r, jv v, const jv_json_style *style)
{
    return print_json(r, v, style, 0);
}

/* ---- From JSON ------------------------------------------------------------------------------- */

static lace_status list_from_json(jinja_run *r, const json_t *json, bool is_content, jv *out)
{
    size_t n = json_array_size(json);
    TRY(jv_list_new(r, JV_LIST, n, out));
    for (size_t i = 0; i < n; i++) {
        jv item;
        TRY(jv_from_json(r, json_array_get(json, i), is_content, &item));
        TRY(jv_list_add(r, out->as.list, item));
    }
    return LACE_OK;
}

/* Roles that conversations have: templates write them inside of special tokens. */
static bool is_role(text key, const json_t *value)
{
    static const char *const roles[] = {"system", "developer", "user",    "assistant",
                                        "tool",   "function",  "ipython", "model"};
    const char *given = json_string_value(value);
    bool is_known = false;
    if (!given || !text_is(key, "role"))
        return false;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        is_known = is_known || text_is((text){given, json_string_length(value)}, roles[i]);
    return is_known;
}

static lace_status dict_from_json(jinja_run *r, const json_t *json, bool is_content, jv *out)
{
    json_t *object = (json_t *)json; /* jansson's iterators take no const */
    TRY(jv_dict_new(r, JV_DICT, out));
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        text name = {json_object_iter_key(it), json_object_iter_key_len(it)};
        const json_t *member = json_object_iter_value(it);
        jv key, value;
        TRY(jv_part(r, (marked){name, NULL, is_content}, &key));
        TRY(jv_from_json(r, member, is_content && !is_role(name, member), &value));
        TRY(jv_dict_set(r, out->as.dict, key, value));
    }
    return LACE_OK;
}

lace_status jv_from_json(jinja_run *r, const json_t *json, bool is_content, jv *out)
{
    text chars;
    *out = jv_none();
    TRY(jinja_enter(r));
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_OBJECT:
        TRY(dict_from_json(r, json, is_content, out));
        break;
    case JSON_ARRAY:
        TRY(list_from_json(r, json, is_content, out));
        break;
    case JSON_STRING:
        chars = (text){json_string_value(json), json_string_length(json)};
        TRY(jv_part(r, (marked){chars, NULL, is_content}, out));
        break;
    case JSON_INTEGER:
        *out = jv_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *out = jv_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = jv_bool(json_is_true(json));
        break;
    default:
        break;
    }
    r->depth--;
    return LACE_OK;
}
