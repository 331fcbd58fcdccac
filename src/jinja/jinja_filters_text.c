/* Filters of templates that give text. */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "jinja/jinja_eval.h"
#include "jinja/json_any.h"

/* The string that a text filter works on; what is none becomes one. */
static lace_status self_text(jinja_run *r, const jinja_call *c, marked *out)
{
    jv string;
    TRY(jv_to_string(r, c->self, &string));
    *out = jv_marked(string);
    return LACE_OK;
}

static bool is_safe(const jinja_call *c)
{
    return c->self.kind == JV_STRING && c->self.is_safe;
}

/* ---- Shared with methods --------------------------------------------------------------------- */

static bool is_letter(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
}

static uint32_t change_char(uint32_t code, bool to_upper)
{
    utf8proc_int32_t c = (utf8proc_int32_t)code;
    return (uint32_t)(to_upper ? utf8proc_toupper(c) : utf8proc_tolower(c));
}

lace_status jinja_change_case(jinja_run *r, marked m, jinja_case wanted, jv *out)
{
    text chars = m.chars;
    size_t start = r->out->size;
    bool is_after_letter = false;
    TRY(jinja_spend_chars(r, chars.size));
    for (size_t i = 0; i < chars.size;) {
        uint32_t code;
        bool is_first = wanted == CASE_TITLE ? !is_after_letter : i == 0;
        bool is_content = marked_is_content(m, i);
        bool to_upper = wanted == CASE_UPPER || (wanted != CASE_LOWER && is_first);
        i += (size_t)utf8_decode(chars.data + i, chars.size - i, &code);
        is_after_letter = is_letter(code);
        if (code == 0xDF && to_upper) { /* sharp s */
            TRY(jinja_write_char(r, 'S', is_content));
            code = 's';
            to_upper = wanted == CASE_UPPER;
        }
        TRY(jinja_write_char(r, change_char(code, to_upper), is_content));
    }
    return jinja_take_output(r, start, out);
}

lace_status jinja_replace(jinja_run *r, marked m, text old, marked new, int64_t count, jv *out)
{
    text chars = m.chars;
    size_t start = r->out->size, from = 0;
    TRY(jinja_spend_find(r, chars, old));
    while (count != 0) {
        TRY(jinja_spend(r, 1));
        size_t at = chars_find(chars, old, from);
        if (old.size == 0) {
            /* The empty string is found before every character and at the end. */
            text rest = {chars.data + from, chars.size - from};
            text one = {rest.data, chars_offset(rest, 1)};
            TRY(jinja_write_marked(r, new));
            TRY(jinja_write_marked(r, marked_part(m, one)));
            from += one.size;
            if (one.size == 0)
                break;
        } else if (at == SIZE_MAX) {
            break;
        } else {
            TRY(jinja_write_marked(r, marked_part(m, (text){chars.data + from, at - from})));
            TRY(jinja_write_marked(r, new));
            from = at + old.size;
        }
        count -= count > 0;
    }
    TRY(jinja_write_marked(r, marked_part(m, (text){chars.data + from, chars.size - from})));
    return jinja_take_output(r, start, out);
}

lace_status jinja_strip(jinja_run *r, jv string, jv set, bool left, bool right, jv *out)
{
    text chars = {"", 0}, stripped = jv_chars(string);
    bool has_set = jinja_param_is_set(set);
    if (has_set)
        TRY(jinja_param_text(r, set, NULL, &chars));
    /* Each character is paid for, and what it is compared with. */
    for (int end = 0; end < 2; end++)
        for (bool goes_on = end ? right : left; goes_on;) {
            TRY(jinja_spend(r, 1 + chars.size / 64));
            goes_on = chars_strip_one(&stripped, has_set ? &chars : NULL, end);
        }
    TRY(jv_part(r, marked_part(jv_marked(string), stripped), out));
    out->is_safe = string.is_safe;
    return LACE_OK;
}

/* ---- Filters --------------------------------------------------------------------------------- */

static lace_status filter_case(jinja_run *r, const jinja_call *c, jv *out)
{
    marked m;
    TRY(self_text(r, c, &m));
    TRY(jinja_change_case(r, m, (jinja_case)c->mode, out));
    out->is_safe = is_safe(c);
    return LACE_OK;
}

/* Words begin after white space, a hyphen or an opening bracket; apostrophes do not end them. */
static lace_status filter_title(jinja_run *r, const jinja_call *c, jv *out)
{
    marked m;
    size_t start = r->out->size;
    bool is_first = true;
    TRY(self_text(r, c, &m));
    text chars = m.chars;
    TRY(jinja_spend_chars(r, chars.size));
    for (size_t i = 0; i < chars.size;) {
        uint32_t code;
        bool is_content = marked_is_content(m, i);
        i += (size_t)utf8_decode(chars.data + i, chars.size - i, &code);
        TRY(jinja_write_char(r, change_char(code, is_first), is_content));
        is_first = chars_is_space(code) || (code && code < 128 && strchr("-({[<", (char)code));
    }
    return jinja_take_output(r, start, out);
}

static lace_status filter_string(jinja_run *r, const jinja_call *c, jv *out)
{
    return jv_to_string(r, c->self, out);
}

static lace_status filter_safe(jinja_run *r, const jinja_call *c, jv *out)
{
    TRY(jv_to_string(r, c->self, out));
    out->is_safe = true;
    return LACE_OK;
}

static lace_status filter_escape(jinja_run *r, const jinja_call *c, jv *out)
{
    return jv_escape(r, c->self, out);
}

static lace_status filter_forceescape(jinja_run *r, const jinja_call *c, jv *out)
{
    jv string;
    TRY(jv_to_string(r, c->self, &string));
    string.is_safe = false;
    return jv_escape(r, string, out);
}

static lace_status filter_trim(jinja_run *r, const jinja_call *c, jv *out)
{
    jv string;
    TRY(jv_to_string(r, c->self, &string));
    return jinja_strip(r, string, c->p[0], true, true, out);
}

static lace_status filter_replace(jinja_run *r, const jinja_call *c, jv *out)
{
    marked m;
    jv old, new;
    int64_t count;
    if (c->p[0].kind == JV_UNSET || c->p[1].kind == JV_UNSET)
        return jinja_fail(r, "replace() needs what to replace, and with what");
    TRY(self_text(r, c, &m));
    TRY(jv_to_string(r, c->p[0], &old));
    TRY(jv_to_string(r, c->p[1], &new));
    TRY(jinja_param_int(r, c->p[2], -1, &count));
    return jinja_replace(r, m, jv_chars(old), jv_marked(new), count, out);
}

static lace_status filter_center(jinja_run *r, const jinja_call *c, jv *out)
{
    marked m, space = marked_own(text_of(" "));
    int64_t width;
    size_t start = r->out->size;
    TRY(self_text(r, c, &m));
    TRY(jinja_spend_bytes(r, m.chars.size));
    TRY(jinja_param_int(r, c->p[0], 80, &width));
    int64_t room = width - (int64_t)chars_count(m.chars);
    if (room < 0)
        room = 0;
    int64_t left = room / 2 + (room & width & 1); /* where Python puts the odd one */
    TRY(jinja_write_fill(r, space, (size_t)left));
    TRY(jinja_write_marked(r, m));
    TRY(jinja_write_fill(r, space, (size_t)(room - left)));
    return jinja_take_output(r, start, out);
}

/* The end of the line that begins at an offset; *next is where the next one begins. */
static size_t line_end(text chars, size_t at, size_t *next)
{
    while (at < chars.size) {
        uint32_t code;
        size_t n = (size_t)utf8_decode(chars.data + at, chars.size - at, &code);
        if ((code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
            code == 0x2028 || code == 0x2029) {
            bool is_pair = code == '\r' && at + 1 < chars.size && chars.data[at + 1] == '\n';
            *next = at + n + is_pair;
            return at;
        }
        at += n;
    }
    *next = at + 1;
    return at;
}

static lace_status filter_indent(jinja_run *r, const jinja_call *c, jv *out)
{
    marked m, unit = marked_own(text_of(" "));
    int64_t width = 1;
    size_t start = r->out->size;
    bool first = jv_is_true(c->p[1]), blank = jv_is_true(c->p[2]);
    TRY(self_text(r, c, &m));
    text chars = m.chars;
    if (c->p[0].kind == JV_STRING)
        unit = jv_marked(c->p[0]);
    else
        TRY(jinja_param_int(r, c->p[0], 4, &width));
    if (width < 0)
        width = 0;
    TRY(jinja_spend_chars(r, chars.size));
    /* A line goes from `at` to `end`; the text's end ends the last one. */
    for (size_t at = 0, end, next; at <= chars.size; at = next) {
        end = line_end(chars, at, &next);
        if (at > 0)
            TRY(jinja_write_byte(r, '\n'));
        if (at == 0 ? first : (blank || end > at))
            TRY(jinja_write_fill(r, unit, (size_t)width));
        TRY(jinja_write_marked(r, marked_part(m, (text){chars.data + at, end - at})));
    }
    TRY(jinja_take_output(r, start, out));
    out->is_safe = is_safe(c);
    return LACE_OK;
}

static lace_status filter_truncate(jinja_run *r, const jinja_call *c, jv *out)
{
    marked m, end;
    int64_t length, leeway;
    TRY(self_text(r, c, &m));
    text chars = m.chars;
    TRY(jinja_param_int(r, c->p[0], 255, &length));
    TRY(jinja_param_marked(r, c->p[2], "...", &end));
    TRY(jinja_param_int(r, c->p[3], 5, &leeway));
    TRY(jinja_spend_chars(r, chars.size + end.chars.size));
    int64_t n_end = (int64_t)chars_count(end.chars), n = (int64_t)chars_count(chars);
    if (length < n_end || leeway < 0)
        return jinja_fail(r, "truncate(): the length is shorter than the end that is appended");
    TRY(jv_part(r, m, out));
    if (n <= length || n - length <= leeway)
        return LACE_OK;
    chars.size = chars_offset(chars, (size_t)(length - n_end));
    if (!jv_is_true(c->p[1])) {
        size_t at = chars.size;
        while (at > 0 && chars.data[at - 1] != ' ')
            at--;
        chars.size = at > 0 ? at - 1 : chars.size;
    }
    TRY(jv_part(r, marked_part(m, chars), out));
    return jv_concat(r, *out, end, out);
}

static lace_status filter_wordcount(jinja_run *r, const jinja_call *c, jv *out)
{
    marked m;
    int64_t n = 0;
    bool was_word = false;
    TRY(self_text(r, c, &m));
    text chars = m.chars;
    TRY(jinja_spend(r, chars.size / 4));
    for (size_t i = 0; i < chars.size;) {
        uint32_t code;
        i += (size_t)utf8_decode(chars.data + i, chars.size - i, &code);
        bool is_word = is_letter(code) || (code >= '0' && code <= '9') || code == '_';
        n += is_word && !was_word;
        was_word = is_word;
    }
    *out = jv_int(n);
    return LACE_OK;
}

static lace_status filter_format(jinja_run *r, const jinja_call *c, jv *out)
{
    marked format;
    TRY(self_text(r, c, &format));
    return jinja_format_percent(r, format, c->args, out);
}

/* json.dumps(x, ensure_ascii, indent, separators, sort_keys), with ensure_ascii off by default. */
static lace_status filter_tojson(jinja_run *r, const jinja_call *c, jv *out)
{
    bool has_lines = jinja_param_is_set(c->p[1]);
    jv_json_style style = {.is_ascii = jv_is_true(c->p[0]),
                           .indent = has_lines ? &c->p[1] : NULL,
                           .between_items = marked_own(text_of(has_lines ? "," : ", ")),
                           .before_value = marked_own(text_of(": ")),
                           .is_sorted = jv_is_true(c->p[3])};
    if (has_lines && !jv_is_int(c->p[1]) && c->p[1].kind != JV_STRING)
        return jinja_fail(r, "tojson: indent must be an integer or a string");
    if (jinja_param_is_set(c->p[2])) {
        jv *items;
        size_t n;
        TRY(jv_items(r, c->p[2], &items, &n));
        if (n != 2 || items[0].kind != JV_STRING || items[1].kind != JV_STRING)
            return jinja_fail(r, "tojson: separators must be two strings");
        style.between_items = jv_marked(items[0]);
        style.before_value = jv_marked(items[1]);
    }
    size_t start = r->out->size;
    TRY(jv_print_json(r, c->self, &style));
    return jinja_take_output(r, start, out);
}

/* A value whose strings are copied: the JSON they lie in goes away. */
static lace_status copy_strings(jinja_run *r, jv *v)
{
    TRY(jinja_enter(r));
    if (v->kind == JV_STRING)
        TRY(jv_copy(r, jv_marked(*v), v));
    for (size_t i = 0; v->kind == JV_LIST && i < v->as.list->n; i++)
        TRY(copy_strings(r, &v->as.list->items[i]));
    for (size_t i = 0; v->kind == JV_DICT && i < v->as.dict->n; i++) {
        TRY(copy_strings(r, &v->as.dict->entries[i].key));
        TRY(copy_strings(r, &v->as.dict->entries[i].value));
    }
    r->depth--;
    return LACE_OK;
}

/* jansson's values take many times the text and are not on this render's heap. */
enum { MAX_JSON_BYTES = 256 << 10 };

/* Not in transformers, but some templates expect it of their engine. */
static lace_status filter_from_json(jinja_run *r, const jinja_call *c, jv *out)
{
    text chars;
    json_t *json;
    lace_error why;
    if (c->self.kind != JV_STRING)
        return jinja_fail(r, "from_json: '%s' is not a string", jv_type_name(c->self));
    chars = jv_chars(c->self);
    if (chars.size > MAX_JSON_BYTES)
        return jinja_limit(r, "bytes of JSON");
    TRY(jinja_spend(r, chars.size)); /* a value of two bytes takes that long */
    lace_status status = json_read_any(chars, &json, &why);
    if (status == LACE_E_NOMEM)
        return error_nomem(r->err, "a chat template's values");
    if (status != LACE_OK)
        return jinja_fail(r, "from_json: %s", why.text);
    /* If a part of the text is the context's, all that is made of it is. */
    marked m = jv_marked(c->self);
    bool is_content = m.marks ? memchr(m.marks, 1, chars.size) != NULL : m.is_content;
    status = jv_from_json(r, json, is_content, out);
    if (status == LACE_OK)
        status = copy_strings(r, out);
    json_decref(json);
    return status;
}

const jinja_builtin jinja_text_filters[] = {
    {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson, 0},
    {"trim", "chars", filter_trim, 0},
    {"string", "", filter_string, 0},
    {"upper", "", filter_case, CASE_UPPER},
    {"lower", "", filter_case, CASE_LOWER},
    {"capitalize", "", filter_case, CASE_CAPITALIZE},
    {"title", "", filter_title, 0},
    {"replace", "old new count", filter_replace, 0},
    {"indent", "width first blank", filter_indent, 0},
    {"safe", "", filter_safe, 0},
    {"escape", "", filter_escape, 0},
    {"e", "", filter_escape, 0},
    {"forceescape", "", filter_forceescape, 0},
    {"from_json", "", filter_from_json, 0},
    {"fromjson", "", filter_from_json, 0},
    {"center", "width", filter_center, 0},
    {"truncate", "length killwords end leeway", filter_truncate, 0},
    {"wordcount", "", filter_wordcount, 0},
    {"format", "*", filter_format, 0},
    {0},
};
