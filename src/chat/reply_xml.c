/*
 * Tool calls whose arguments are elements, and objects and lists elements inside of them:
 *
 *     NAME"> MARK<key>value MARK</key> MARK<list>MARK<item>value MARK</item>MARK</list>
 *
 * where MARK stands in front of every tag. What is a list and what an object is told by the tool's
 * schema, or by the tag <item>.
 */
#include <string.h>

#include "chat/reply_types.h"

enum { MAX_DEPTH = 32 };

/* Reads the source; on the first pass nothing is given out, so that only whole calls are calls. */
typedef struct xml_reader {
    reply_parser *p;
    text source;
    size_t at;
    bool is_valid, is_dry;
} xml_reader;

static bool is_at(const xml_reader *r, const char *word)
{
    size_t n = strlen(word);
    return n <= r->source.size - r->at && memcmp(r->source.data + r->at, word, n) == 0;
}

/* Up to a word, behind which the reader then stands; not valid if there is none. */
static text read_to(xml_reader *r, const char *word)
{
    size_t from = r->at;
    while (r->at < r->source.size && !is_at(r, word))
        r->at++;
    text found = {r->source.data + from, r->at - from};
    r->is_valid = r->is_valid && is_at(r, word);
    r->at += r->is_valid ? strlen(word) : 0;
    return found;
}

static void skip_space(xml_reader *r)
{
    while (r->at < r->source.size && reply_is_space(r->source.data[r->at]))
        r->at++;
}

static lace_status put(const xml_reader *r, const char *chars)
{
    return r->is_dry ? LACE_OK : reply_put_args(r->p, chars, strlen(chars));
}

/* Whether an opening tag stands here. */
static bool is_at_element(const xml_reader *r)
{
    const char *begin = r->p->format.calls->key_begin;
    size_t n = strlen(begin);
    return is_at(r, begin) && r->at + n < r->source.size && r->source.data[r->at + n] != '/';
}

/* The closing tag of `key`. */
static void read_close(xml_reader *r, text key)
{
    const char *begin = r->p->format.calls->key_begin;
    text rest = {NULL, 0};
    if (is_at(r, begin)) {
        r->at += strlen(begin);
        rest = read_to(r, r->p->format.calls->key_end);
    }
    r->is_valid = r->is_valid && rest.size == key.size + 1 && rest.data[0] == '/' &&
                  memcmp(rest.data + 1, key.data, key.size) == 0;
}

static lace_status read_elements(xml_reader *r, type_schema of, int depth);

/* A value, up to the closing tag. */
static lace_status read_value(xml_reader *r, type_schema of, int depth)
{
    const char *begin = r->p->format.calls->key_begin;
    if (is_at_element(r))
        return read_elements(r, of, depth + 1);
    size_t from = r->at;
    while (r->at < r->source.size && !is_at(r, begin))
        r->at++;
    text value = {r->source.data + from, r->at - from};
    if (r->is_dry)
        return LACE_OK;
    /* Nothing between the tags: an empty list or object has no elements. */
    if (value.size == 0 && of.schema && !reply_wants_string(of))
        return put(r, reply_takes_list(of) ? "[]" : reply_takes_object(of) ? "{}" : "\"\"");
    return reply_put_value(r->p, of, value);
}

/* Elements one after the other: an object, or a list of items. */
static lace_status read_elements(xml_reader *r, type_schema of, int depth)
{
    const reply_calls *f = r->p->format.calls;
    r->is_valid = r->is_valid && depth <= MAX_DEPTH;
    bool is_list = false, is_first = true;
    for (; r->is_valid && is_at_element(r); is_first = false) {
        r->at += strlen(f->key_begin);
        text key = read_to(r, f->key_end);
        if (!r->is_valid)
            break;
        if (is_first) {
            bool is_item = depth > 0 && text_is(key, "item");
            is_list = is_item && reply_takes_list(of) &&
                      !(reply_takes_object(of) && reply_schema_member(of, key).schema);
        }
        TRY(put(r, !is_first ? "," : is_list ? "[" : "{"));
        if (!is_list && !r->is_dry)
            TRY(reply_put_string(r->p, key));
        if (!is_list)
            TRY(put(r, ":"));
        TRY(read_value(r, is_list ? reply_schema_items(of) : reply_schema_member(of, key), depth));
        read_close(r, key);
        skip_space(r);
    }
    return put(r, is_first ? "{}" : is_list ? "]" : "}");
}

static lace_status read_call(xml_reader *r)
{
    buf *name = &r->p->call.name;
    text found = read_to(r, r->p->format.calls->name_end);
    r->is_valid = r->is_valid && found.size > 0;
    if (!r->is_valid)
        return LACE_OK;
    if (!r->is_dry) {
        buf_clear(name);
        TRY(buf_append(name, found.data, found.size));
        TRY(reply_begin_call(r->p));
    }
    skip_space(r);
    TRY(read_elements(r, reply_schema_of_call(r->p), 0));
    r->is_valid = r->is_valid && r->at == r->source.size;
    return r->is_dry ? LACE_OK : reply_end_call(r->p, true);
}

lace_status reply_read_xml(reply_parser *p, text source, bool *is_valid)
{
    xml_reader r = {.p = p, .source = source, .is_valid = true, .is_dry = true};
    buf copy;
    buf_init(&copy, REPLY_MAX_HELD);
    /* Giving out the call forgets the raw text, so it is read from a copy. */
    lace_status status = buf_append(&copy, source.data, source.size);
    if (status == LACE_OK)
        status = read_call(&r);
    *is_valid = r.is_valid;
    if (status == LACE_OK && r.is_valid) {
        r.is_dry = false;
        r.at = 0;
        r.source = (text){copy.data, copy.size};
        status = read_call(&r);
    }
    buf_deinit(&copy);
    return status;
}
