/* Methods of strings in templates. */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "jinja/jinja_eval.h"

/* Modes of methods that work at one end of a string, or at both. */
enum { SIDE_LEFT = 1, SIDE_RIGHT = 2 };

/* ---- Cases, white space ---------------------------------------------------------------------- */

static lace_status str_case(jinja_run *r, const jinja_call *c, jv *out)
{
    TRY(jinja_change_case(r, jv_marked(c->self), (jinja_case)c->mode, out));
    out->is_safe = c->self.is_safe;
    return LACE_OK;
}

static lace_status str_strip(jinja_run *r, const jinja_call *c, jv *out)
{
    return jinja_strip(r, c->self, c->p[0], c->mode & SIDE_LEFT, c->mode & SIDE_RIGHT, out);
}

/* ---- Looking for parts ----------------------------------------------------------------------- */

static bool has_affix(text chars, text affix, bool at_end)
{
    return affix.size <= chars.size &&
           (affix.size == 0 || memcmp(chars.data + (at_end ? chars.size - affix.size : 0),
                                      affix.data, affix.size) == 0);
}

/* A string or a tuple of them. */
static lace_status str_affix(jinja_run *r, const jinja_call *c, jv *out)
{
    const jv *options = &c->p[0];
    size_t n = 1;
    bool is_there = false;
    if (c->p[0].kind == JV_TUPLE) {
        options = c->p[0].as.list->items;
        n = c->p[0].as.list->n;
    }
    for (size_t i = 0; i < n && !is_there; i++) {
        text affix;
        TRY(jinja_param_text(r, options[i], NULL, &affix));
        TRY(jinja_spend(r, 1 + affix.size / 64));
        is_there = has_affix(jv_chars(c->self), affix, c->mode == SIDE_RIGHT);
    }
    *out = jv_bool(is_there);
    return LACE_OK;
}

static lace_status str_removeprefix(jinja_run *r, const jinja_call *c, jv *out)
{
    text affix, chars = jv_chars(c->self);
    TRY(jinja_param_text(r, c->p[0], NULL, &affix));
    TRY(jinja_spend_bytes(r, affix.size));
    size_t cut = has_affix(chars, affix, false) ? affix.size : 0;
    text rest = {chars.data + cut, chars.size - cut};
    return jv_part(r, marked_part(jv_marked(c->self), rest), out);
}

static lace_status str_removesuffix(jinja_run *r, const jinja_call *c, jv *out)
{
    text affix, chars = jv_chars(c->self);
    TRY(jinja_param_text(r, c->p[0], NULL, &affix));
    TRY(jinja_spend_bytes(r, affix.size));
    chars.size -= has_affix(chars, affix, true) ? affix.size : 0;
    return jv_part(r, marked_part(jv_marked(c->self), chars), out);
}

/* The last place of a part, or SIZE_MAX. */
static size_t find_last(text chars, text part)
{
    if (part.size == 0)
        return chars.size;
    for (size_t at = chars.size < part.size ? 0 : chars.size - part.size + 1; at-- > 0;)
        if (chars.data[at] == part.data[0] && memcmp(chars.data + at, part.data, part.size) == 0)
            return at;
    return SIZE_MAX;
}

/* Backward search has no memmem: its worst case is paid for. */
static lace_status spend_find(jinja_run *r, text chars, text part, bool is_last)
{
    return is_last ? jinja_spend(r, chars.size / 8 * (1 + part.size / 64))
                   : jinja_spend_find(r, chars, part);
}

enum { FIND_LAST = 1, FIND_MUST = 2 };

static lace_status str_find(jinja_run *r, const jinja_call *c, jv *out)
{
    bool is_last = c->mode == FIND_LAST;
    text part, chars = jv_chars(c->self);
    TRY(jinja_param_text(r, c->p[0], NULL, &part));
    TRY(spend_find(r, chars, part, is_last));
    size_t at = is_last ? find_last(chars, part) : chars_find(chars, part, 0);
    if (at == SIZE_MAX && c->mode == FIND_MUST)
        return jinja_fail(r, "substring not found");
    *out = jv_int(at == SIZE_MAX ? -1 : (int64_t)chars_count((text){chars.data, at}));
    return LACE_OK;
}

static lace_status str_count(jinja_run *r, const jinja_call *c, jv *out)
{
    text part, chars = jv_chars(c->self);
    int64_t n = 0;
    TRY(jinja_param_text(r, c->p[0], NULL, &part));
    TRY(jinja_spend_find(r, chars, part));
    if (part.size == 0)
        n = (int64_t)chars_count(chars) + 1;
    for (size_t at = 0; part.size > 0 && (at = chars_find(chars, part, at)) != SIZE_MAX;) {
        TRY(jinja_spend(r, 1));
        n++;
        at += part.size;
    }
    *out = jv_int(n);
    return LACE_OK;
}

static lace_status str_replace(jinja_run *r, const jinja_call *c, jv *out)
{
    text old;
    marked new;
    int64_t count;
    TRY(jinja_param_text(r, c->p[0], NULL, &old));
    TRY(jinja_param_marked(r, c->p[1], NULL, &new));
    TRY(jinja_param_int(r, c->p[2], -1, &count));
    TRY(jinja_replace(r, jv_marked(c->self), old, new, count, out));
    out->is_safe = c->self.is_safe;
    return LACE_OK;
}

/* ---- Splitting ------------------------------------------------------------------------------- */

static lace_status add_part(jinja_run *r, jv *list, jv whole, text part)
{
    jv item;
    TRY(jv_part(r, marked_part(jv_marked(whole), part), &item));
    item.is_safe = whole.is_safe;
    return jv_list_add(r, list->as.list, item);
}

static void reverse_list(jv_list *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        jv swap = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = swap;
    }
}

/* The next end of a word (is_space: of white space), or its start from the right. */
static size_t word_edge(text t, bool is_space, bool from_right)
{
    size_t n = 0;
    while (n < t.size) {
        size_t at = from_right ? t.size - n - 1 : n, size = 1;
        while (from_right && at > 0 && ((unsigned char)t.data[at] & 0xC0) == 0x80)
            at--, size++;
        uint32_t code;
        int length = utf8_decode(t.data + at, t.size - at, &code);
        if (chars_is_space(code) != is_space)
            break;
        n += from_right ? size : (size_t)length;
    }
    return n;
}

/* At white space; empty parts do not count. */
static lace_status split_words(jinja_run *r, const jinja_call *c, int64_t limit, bool from_right,
                               jv *out)
{
    text rest = jv_chars(c->self);
    for (;;) {
        rest = chars_strip(rest, !from_right, from_right);
        if (rest.size == 0)
            return LACE_OK;
        size_t word = limit == 0 ? rest.size : word_edge(rest, false, from_right);
        text part = {from_right ? rest.data + rest.size - word : rest.data, word};
        TRY(add_part(r, out, c->self, part));
        rest.size -= word;
        rest.data += from_right ? 0 : word;
        limit -= limit > 0;
    }
}

static lace_status str_split(jinja_run *r, const jinja_call *c, jv *out)
{
    bool from_right = c->mode == SIDE_RIGHT;
    text separator, rest = jv_chars(c->self);
    int64_t limit;
    TRY(jinja_param_int(r, c->p[1], -1, &limit));
    TRY(jv_list_new(r, JV_LIST, 0, out));
    TRY(jinja_spend_chars(r, rest.size));
    if (!jinja_param_is_set(c->p[0])) {
        TRY(split_words(r, c, limit, from_right, out));
    } else {
        TRY(jinja_param_text(r, c->p[0], NULL, &separator));
        if (separator.size == 0)
            return jinja_fail(r, "empty separator");
        TRY(spend_find(r, rest, separator, from_right));
        for (; limit != 0; limit -= limit > 0) {
            size_t at = from_right ? find_last(rest, separator) : chars_find(rest, separator, 0);
            if (at == SIZE_MAX)
                break;
            text tail = {rest.data + at + separator.size, rest.size - at - separator.size};
            text head = {rest.data, at};
            TRY(add_part(r, out, c->self, from_right ? tail : head));
            rest = from_right ? head : tail;
        }
        TRY(add_part(r, out, c->self, rest));
    }
    if (from_right)
        reverse_list(out->as.list);
    return LACE_OK;
}

/* (before, separator, after); without the separator everything is before
 * (from the right: after). */
static lace_status str_partition(jinja_run *r, const jinja_call *c, jv *out)
{
    bool from_right = c->mode == SIDE_RIGHT;
    text separator, all = jv_chars(c->self), end = {all.data + all.size, 0};
    text parts[3] = {all, end, end};
    TRY(jinja_param_text(r, c->p[0], NULL, &separator));
    if (separator.size == 0)
        return jinja_fail(r, "empty separator");
    TRY(spend_find(r, all, separator, from_right));
    size_t at = from_right ? find_last(all, separator) : chars_find(all, separator, 0);
    if (at != SIZE_MAX) {
        parts[0].size = at;
        parts[1] = (text){all.data + at, separator.size};
        parts[2] = (text){all.data + at + separator.size, all.size - at - separator.size};
    } else if (from_right) {
        parts[0].size = 0;
        parts[2] = all;
    }
    TRY(jv_list_new(r, JV_TUPLE, 3, out));
    for (int i = 0; i < 3; i++)
        TRY(add_part(r, out, c->self, parts[i]));
    return LACE_OK;
}

static lace_status str_splitlines(jinja_run *r, const jinja_call *c, jv *out)
{
    text rest = jv_chars(c->self);
    bool keeps_ends = jv_is_true(c->p[0]);
    TRY(jv_list_new(r, JV_LIST, 0, out));
    TRY(jinja_spend_chars(r, rest.size));
    while (rest.size > 0) {
        size_t n = 0, end;
        while (n < rest.size && rest.data[n] != '\n' && rest.data[n] != '\r')
            n++;
        end = n + (n < rest.size);
        if (end < rest.size && rest.data[n] == '\r' && rest.data[end] == '\n')
            end++;
        TRY(add_part(r, out, c->self, (text){rest.data, keeps_ends ? end : n}));
        rest = (text){rest.data + end, rest.size - end};
    }
    return LACE_OK;
}

static lace_status str_join(jinja_run *r, const jinja_call *c, jv *out)
{
    jv *items;
    size_t n, start = r->out->size;
    TRY(jv_items(r, c->p[0], &items, &n));
    for (size_t i = 0; i < n; i++) {
        if (items[i].kind != JV_STRING)
            return jinja_fail(r, "sequence item %zu: expected str instance, %s found", i,
                              jv_type_name(items[i]));
        if (i > 0)
            TRY(jinja_write_marked(r, jv_marked(c->self)));
        TRY(jinja_spend(r, 1));
        TRY(jv_print(r, items[i]));
    }
    return jinja_take_output(r, start, out);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

typedef bool (*char_test)(uint32_t code);

static bool is_decimal(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
}

static bool is_alpha(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static bool is_alnum(uint32_t code)
{
    return is_alpha(code) || is_decimal(code);
}

enum { CHARS_DECIMAL, CHARS_ALPHA, CHARS_ALNUM, CHARS_SPACE };

static lace_status str_all_chars(jinja_run *r, const jinja_call *c, jv *out)
{
    static const char_test tests[] = {is_decimal, is_alpha, is_alnum, chars_is_space};
    char_test test = tests[c->mode];
    text chars = jv_chars(c->self);
    bool is_true = chars.size > 0;
    TRY(jinja_spend(r, chars.size / 4)); /* tables of Unicode are slow */
    for (size_t i = 0; i < chars.size && is_true;) {
        uint32_t code;
        i += (size_t)utf8_decode(chars.data + i, chars.size - i, &code);
        is_true = test(code);
    }
    *out = jv_bool(is_true);
    return LACE_OK;
}

static lace_status str_is_case(jinja_run *r, const jinja_call *c, jv *out)
{
    text test = text_of(c->mode == CASE_UPPER ? "upper" : "lower");
    return jinja_call_builtin(r, jinja_find_test(test), c->self, c->args, out);
}

/* ---- Padding --------------------------------------------------------------------------------- */

static lace_status str_pad(jinja_run *r, const jinja_call *c, jv *out)
{
    bool left = c->mode == SIDE_LEFT;
    marked fill;
    text chars = jv_chars(c->self);
    int64_t width, n = (int64_t)chars_count(chars);
    size_t start = r->out->size;
    TRY(jinja_spend_bytes(r, chars.size));
    TRY(jinja_param_int(r, c->p[0], 0, &width));
    TRY(jinja_param_marked(r, c->p[1], " ", &fill));
    size_t room = width > n ? (size_t)(width - n) : 0;
    if (left)
        TRY(jinja_write_fill(r, fill, room));
    TRY(jinja_write_marked(r, jv_marked(c->self)));
    if (!left)
        TRY(jinja_write_fill(r, fill, room));
    return jinja_take_output(r, start, out);
}

static lace_status str_format(jinja_run *r, const jinja_call *c, jv *out)
{
    return jinja_format_braces(r, jv_marked(c->self), c->args, out);
}

const jinja_builtin jinja_string_methods[] = {
    {"strip", "chars", str_strip, SIDE_LEFT | SIDE_RIGHT},
    {"lstrip", "chars", str_strip, SIDE_LEFT},
    {"rstrip", "chars", str_strip, SIDE_RIGHT},
    {"split", "sep maxsplit", str_split, SIDE_LEFT},
    {"rsplit", "sep maxsplit", str_split, SIDE_RIGHT},
    {"partition", "sep", str_partition, SIDE_LEFT},
    {"rpartition", "sep", str_partition, SIDE_RIGHT},
    {"splitlines", "keepends", str_splitlines, 0},
    {"startswith", "prefix", str_affix, SIDE_LEFT},
    {"endswith", "suffix", str_affix, SIDE_RIGHT},
    {"removeprefix", "prefix", str_removeprefix, 0},
    {"removesuffix", "suffix", str_removesuffix, 0},
    {"replace", "old new count", str_replace, 0},
    {"upper", "", str_case, CASE_UPPER},
    {"lower", "", str_case, CASE_LOWER},
    {"capitalize", "", str_case, CASE_CAPITALIZE},
    {"title", "", str_case, CASE_TITLE},
    {"join", "iterable", str_join, 0},
    {"format", "*", str_format, 0},
    {"find", "sub", str_find, 0},
    {"rfind", "sub", str_find, FIND_LAST},
    {"index", "sub", str_find, FIND_MUST},
    {"count", "sub", str_count, 0},
    {"isdigit", "", str_all_chars, CHARS_DECIMAL},
    {"isdecimal", "", str_all_chars, CHARS_DECIMAL},
    {"isnumeric", "", str_all_chars, CHARS_DECIMAL},
    {"isalpha", "", str_all_chars, CHARS_ALPHA},
    {"isalnum", "", str_all_chars, CHARS_ALNUM},
    {"isspace", "", str_all_chars, CHARS_SPACE},
    {"islower", "", str_is_case, CASE_LOWER},
    {"isupper", "", str_is_case, CASE_UPPER},
    {"ljust", "width fillchar", str_pad, SIDE_RIGHT},
    {"rjust", "width fillchar", str_pad, SIDE_LEFT},
    {0},
};
