/* Calls as a model writes them. */
#include "chat/reply_writer.h"

/* No UTF-8 has them. */
static const char word_begin = '\xFF', word_end = '\xFE';

static lace_status write_word(const char *word, buf *out)
{
    TRY(buf_append(out, &word_begin, 1));
    TRY(buf_append_text(out, word));
    return buf_append(out, &word_end, 1);
}

void reply_settle_words(buf *prompt, buf *marks, size_t from)
{
    size_t to = from;
    bool is_word = false;
    for (size_t i = from; i < prompt->size; i++) {
        char c = prompt->data[i];
        if (c == word_begin || c == word_end) {
            is_word = c == word_begin;
            continue;
        }
        if (marks)
            marks->data[to] = is_word ? 0 : marks->data[i];
        prompt->data[to++] = c;
    }
    if (to == prompt->size)
        return;
    prompt->data[to] = 0;
    prompt->size = to;
    if (marks)
        marks->size = to;
}

bool reply_can_write(const reply_format *f)
{
    return f->calls->style == CALL_PYTHON || f->calls->style == CALL_JSON;
}

/* Into memory of our own: a dump that jansson makes loses parts when memory runs out. */
lace_status reply_dump_json(const json_t *value, size_t flags, buf *out)
{
    flags |= JSON_ENCODE_ANY;
    size_t n = json_dumpb(value, NULL, 0, flags);
    if (n == 0)
        return LACE_E_NOMEM;
    TRY(buf_reserve(out, n));
    if (json_dumpb(value, out->data + out->size, n, flags) != n)
        return LACE_E_NOMEM;
    out->size += n;
    out->data[out->size] = 0;
    return LACE_OK;
}

lace_status reply_write_json(const json_t *value, buf *out)
{
    return reply_dump_json(value, 0, out);
}

/* A value in Python: words with capitals, all else as in JSON. */
static lace_status write_python(const json_t *value, buf *out)
{
    const char *key;
    json_t *member;
    size_t i;
    bool is_first = true;
    if (json_is_boolean(value) || json_is_null(value))
        return buf_append_text(out, json_is_true(value)    ? "True"
                                    : json_is_false(value) ? "False"
                                                           : "None");
    if (!json_is_object(value) && !json_is_array(value))
        return reply_write_json(value, out);
    TRY(buf_append_text(out, json_is_object(value) ? "{" : "["));
    json_object_foreach((json_t *)value, key, member)
    {
        json_t *name = json_string(key);
        TRY(buf_append_text(out, is_first ? "" : ", "));
        lace_status status = name ? reply_write_json(name, out) : LACE_E_NOMEM;
        json_decref(name);
        TRY(status);
        TRY(buf_append_text(out, ": "));
        TRY(write_python(member, out));
        is_first = false;
    }
    json_array_foreach(value, i, member)
    {
        TRY(buf_append_text(out, i ? ", " : ""));
        TRY(write_python(member, out));
    }
    return buf_append_text(out, json_is_object(value) ? "}" : "]");
}

/* name(key="value", n=2) */
static lace_status write_python_call(const char *name, const json_t *arguments, buf *out)
{
    const char *key;
    json_t *value;
    bool is_first = true;
    TRY(buf_append_text(out, name));
    TRY(buf_append_text(out, "("));
    json_object_foreach((json_t *)arguments, key, value)
    {
        TRY(buf_append_text(out, is_first ? "" : ", "));
        TRY(buf_append_text(out, key));
        TRY(buf_append_text(out, "="));
        TRY(write_python(value, out));
        is_first = false;
    }
    return buf_append_text(out, ")");
}

lace_status reply_write_call(const reply_format *f, bool is_first, const json_t *name,
                             const json_t *arguments, buf *out)
{
    TRY(is_first ? write_word(f->calls->call_begin, out) : buf_append_text(out, ", "));
    if (is_first)
        TRY(buf_append_text(out, "["));
    if (f->calls->style == CALL_PYTHON)
        return write_python_call(json_string_value(name), arguments, out);
    TRY(buf_append_text(out, "{\"name\": "));
    TRY(reply_write_json(name, out));
    TRY(buf_append_text(out, ", \"arguments\": "));
    TRY(arguments ? reply_write_json(arguments, out) : buf_append_text(out, "{}"));
    return buf_append_text(out, "}");
}

lace_status reply_write_calls_end(const reply_format *f, buf *out)
{
    TRY(buf_append_text(out, "]"));
    return f->calls->call_end ? write_word(f->calls->call_end, out) : LACE_OK;
}
