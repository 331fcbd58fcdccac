/* Tool calls whose arguments stand between tags, and what is left of a call at the end. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/reply_types.h"

enum { MAX_NAME = 256, MAX_KEY = 256 };

/* ---- Values ---------------------------------------------------------------------------------- */

lace_status reply_put_string(reply_parser *p, text chars)
{
    static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    TRY(reply_put_args(p, "\"", 1));
    for (size_t i = 0; i < chars.size;) {
        uint32_t code;
        char bytes[8];
        i += (size_t)utf8_decode(chars.data + i, chars.size - i, &code);
        const char *found = code && code < 128 ? strchr(plain, (char)code) : NULL;
        int n = found         ? snprintf(bytes, sizeof bytes, "\\%c", letters[found - plain])
                : code < 0x20 ? snprintf(bytes, sizeof bytes, "\\u%04x", (unsigned)code)
                              : utf8_encode(code, bytes);
        TRY(reply_put_args(p, bytes, (size_t)n));
    }
    return reply_put_args(p, "\"", 1);
}

/* A value between tags, of which the tag may say that it is a string. */
static lace_status put_value(reply_parser *p, text key, text value, bool is_text)
{
    if (is_text)
        return reply_put_string(p, value);
    return reply_put_value(p, reply_schema_member(reply_schema_of_call(p), key), value);
}

/* ---- Tags ------------------------------------------------------------------------------------ */

/* Whether `word` begins a tag (NULL: there is none), and whether it is all of it. */
static bool may_be(const buf *word, const char *tag, bool *is_whole)
{
    size_t n = tag ? strlen(tag) : 0;
    bool is_start = word->size <= n && memcmp(word->data, tag, word->size) == 0;
    *is_whole = is_start && word->size == n;
    return is_start;
}

static bool is_name(text name)
{
    for (size_t i = 0; i < name.size; i++)
        if (reply_is_space(name.data[i]) || strchr("<>\"'{}()", name.data[i]))
            return false;
    return name.size > 0;
}

static lace_status close_args(reply_parser *p)
{
    return p->call.n_args > 0 ? reply_put_args(p, "}", 1) : reply_put_args(p, "{}", 2);
}

static lace_status end_tagged(reply_parser *p, bool is_complete)
{
    TRY(close_args(p));
    TRY(reply_end_call(p, is_complete));
    p->state = STATE_CONTENT;
    return LACE_OK;
}

/* What stands here is no tag of the call: the call ends, and it is content. */
static lace_status break_off(reply_parser *p)
{
    buf word = p->word;
    lace_status status = end_tagged(p, false);
    buf_init(&p->word, REPLY_MAX_HELD);
    for (size_t i = 0; i < word.size && status == LACE_OK; i++)
        status = reply_step(p, word.data[i]);
    buf_deinit(&word);
    return status;
}

/* The name, of which n_end bytes at the end of `word` are something else. */
static lace_status begin_tagged(reply_parser *p, size_t n_end, tagged_place place)
{
    text name = {p->word.data, p->word.size - n_end};
    while (name.size > 0 && reply_is_space(name.data[name.size - 1]))
        name.size--;
    /* name" index="1": attributes behind the name. */
    const char *quote = name.size ? memchr(name.data, '"', name.size) : NULL;
    if (quote)
        name.size = (size_t)(quote - name.data);
    if (!is_name(name))
        return reply_give_up(p);
    TRY(buf_append(&p->call.name, name.data, name.size));
    buf_clear(&p->word);
    p->call.tagged = place;
    return reply_begin_call(p);
}

static lace_status step_name(reply_parser *p, char c)
{
    const reply_calls *f = p->format.calls;
    if (p->word.size == 0 && (c == '{' || c == '[')) {
        p->state = STATE_JSON; /* as others write it */
        return reply_step_json(p, c);
    }
    TRY(buf_append(&p->raw, &c, 1));
    if (p->word.size > 0 || !reply_is_space(c))
        TRY(buf_append(&p->word, &c, 1));
    if (p->word.size > MAX_NAME)
        return reply_give_up(p);
    if (f->name_end)
        return reply_ends_with(&p->word, f->name_end)
                   ? begin_tagged(p, strlen(f->name_end), TAGGED_BODY)
                   : LACE_OK;
    if (p->word.size > 0 && c == '\n')
        return begin_tagged(p, 1, TAGGED_BODY);
    if (reply_ends_with(&p->word, f->key_begin))
        return begin_tagged(p, strlen(f->key_begin), TAGGED_KEY);
    if (reply_ends_with(&p->word, f->call_end)) {
        TRY(begin_tagged(p, strlen(f->call_end), TAGGED_BODY));
        return p->call.is_begun ? end_tagged(p, true) : LACE_OK;
    }
    return LACE_OK;
}

static lace_status step_body(reply_parser *p, char c)
{
    const reply_calls *f = p->format.calls;
    bool is_key, is_end, is_section_end;
    if (p->word.size == 0 && reply_is_space(c))
        return LACE_OK;
    TRY(buf_append(&p->word, &c, 1));
    bool can_be = may_be(&p->word, f->key_begin, &is_key);
    can_be |= may_be(&p->word, f->call_end, &is_end);
    can_be |= may_be(&p->word, f->section_end, &is_section_end); /* some forget the other */
    if (!can_be)
        return break_off(p);
    if (is_key)
        p->call.tagged = TAGGED_KEY;
    if (is_key || is_end || is_section_end)
        buf_clear(&p->word);
    return is_end || is_section_end ? end_tagged(p, true) : LACE_OK;
}

static lace_status step_key(reply_parser *p, char c)
{
    const reply_calls *f = p->format.calls;
    TRY(buf_append(&p->word, &c, 1));
    if (p->word.size > MAX_KEY)
        return break_off(p);
    if (!reply_ends_with(&p->word, f->key_end))
        return LACE_OK;
    buf_clear(&p->call.key);
    TRY(buf_append(&p->call.key, p->word.data, p->word.size - strlen(f->key_end)));
    buf_clear(&p->word);
    p->call.tagged = f->value_begin ? TAGGED_VALUE_BEGIN : TAGGED_VALUE;
    return LACE_OK;
}

static lace_status step_value_begin(reply_parser *p, char c)
{
    bool is_whole;
    if (p->word.size == 0 && reply_is_space(c))
        return LACE_OK;
    TRY(buf_append(&p->word, &c, 1));
    if (!may_be(&p->word, p->format.calls->value_begin, &is_whole))
        return break_off(p);
    if (is_whole) {
        buf_clear(&p->word);
        p->call.tagged = TAGGED_VALUE;
    }
    return LACE_OK;
}

static lace_status step_value(reply_parser *p, char c)
{
    const char *end = p->format.calls->value_end;
    TRY(buf_append(&p->word, &c, 1));
    if (!reply_ends_with(&p->word, end))
        return LACE_OK;
    text value = {p->word.data, p->word.size - strlen(end)};
    /* Values may stand on lines of their own. */
    if (value.size > 0 && value.data[0] == '\n')
        value = (text){value.data + 1, value.size - 1};
    if (value.size > 0 && value.data[value.size - 1] == '\n')
        value.size--;
    /* name" string="true: attributes behind the name. */
    text key = {p->call.key.data ? p->call.key.data : "", p->call.key.size};
    const char *quote = key.size ? memchr(key.data, '"', key.size) : NULL;
    if (quote)
        key.size = (size_t)(quote - key.data);
    bool is_text = quote && (reply_ends_with(&p->call.key, "string=\"true\"") ||
                             reply_ends_with(&p->call.key, "type=\"string\""));
    TRY(reply_put_args(p, p->call.n_args++ > 0 ? "," : "{", 1));
    TRY(reply_put_string(p, key));
    TRY(reply_put_args(p, ":", 1));
    TRY(put_value(p, key, value, is_text));
    buf_clear(&p->word);
    p->call.tagged = TAGGED_BODY;
    return LACE_OK;
}

lace_status reply_step_tagged(reply_parser *p, char c)
{
    switch (p->call.tagged) {
    case TAGGED_NAME:
        return step_name(p, c);
    case TAGGED_BODY:
        return step_body(p, c);
    case TAGGED_KEY:
        return step_key(p, c);
    case TAGGED_VALUE_BEGIN:
        return step_value_begin(p, c);
    default:
        return step_value(p, c);
    }
}

/* ---- Calls that are read when they are whole ------------------------------------------------- */

static lace_status end_whole(reply_parser *p, size_t n_end)
{
    bool is_valid;
    text source = {p->raw.data + p->n_raw_marker, p->raw.size - p->n_raw_marker - n_end};
    bool is_xml = p->format.calls->style == CALL_XML;
    TRY(is_xml ? reply_read_xml(p, source, &is_valid) : reply_read_python(p, source, &is_valid));
    if (!is_valid)
        return reply_give_up(p);
    buf_clear(&p->raw);
    p->state = STATE_CONTENT;
    return LACE_OK;
}

lace_status reply_step_whole(reply_parser *p, char c)
{
    const char *end = p->format.calls->call_end;
    TRY(buf_append(&p->raw, &c, 1));
    if (p->n_raw_marker == 0) /* nothing marks it: it is the rest of the reply, or none */
        return reply_begins_python((text){p->raw.data, p->raw.size}) ? LACE_OK : reply_give_up(p);
    return reply_ends_with(&p->raw, end) ? end_whole(p, strlen(end)) : LACE_OK;
}

/* ---- The end --------------------------------------------------------------------------------- */

lace_status reply_finish_call(reply_parser *p)
{
    if (p->state == STATE_WHOLE)
        return end_whole(p, 0);
    if (p->state == STATE_TAGGED && p->call.is_begun)
        return end_tagged(p, p->call.tagged == TAGGED_BODY);
    if (p->state == STATE_JSON && p->call.place == PLACE_START && p->call.n_done > 0) {
        p->state = STATE_CONTENT;
        return LACE_OK;
    }
    if (!p->call.is_begun)
        return reply_give_up(p);
    TRY(reply_end_call(p, p->state == STATE_JSON && reply_has_args(&p->call)));
    p->state = STATE_CONTENT;
    return LACE_OK;
}
