/* Tool calls whose arguments are JSON, read byte by byte. */
#include <string.h>

#include "jinja/json_any.h"
#include "chat/reply_parser.h"

enum { MAX_NAME = 256 }; /* bytes before which a function's name must end */

/* ---- Values ---------------------------------------------------------------------------------- */

typedef enum scan_result {
    SCAN_MORE, /* the byte belongs to the value, which goes on */
    SCAN_LAST, /* the byte is the value's last */
    SCAN_PAST, /* the value ended before this byte */
} scan_result;

static scan_result scan_byte(json_scan *s, char c)
{
    if (s->is_text) {
        if (s->is_escape)
            s->is_escape = false;
        else if (c == '\\')
            s->is_escape = true;
        else if (c == '"')
            s->is_text = false;
        return !s->is_text && s->depth == 0 ? SCAN_LAST : SCAN_MORE;
    }
    if (s->is_scalar && (reply_is_space(c) || strchr(",}]", c)))
        return SCAN_PAST;
    s->is_begun = true;
    if (c == '"') {
        s->is_text = true;
    } else if (c == '{' || c == '[') {
        s->depth++;
    } else if (c == '}' || c == ']') {
        s->depth--;
        return s->depth <= 0 ? SCAN_LAST : SCAN_MORE;
    } else if (s->depth == 0) {
        s->is_scalar = true;
    }
    return SCAN_MORE;
}

bool reply_knows_tool(const reply_parser *p, text name)
{
    size_t i;
    const json_t *tool;
    if (!json_is_array(p->options.tools))
        return true;
    json_array_foreach(p->options.tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const json_t *known = json_object_get(function ? function : tool, "name");
        if (json_is_string(known) && text_is(name, json_string_value(known)))
            return true;
    }
    return false;
}

/* A JSON string's text replaces it; false if it is none. */
static lace_status decode_string(buf *b, bool *is_valid)
{
    json_t *json;
    lace_status status = json_read_any((text){b->data, b->size}, &json, NULL);
    *is_valid = status == LACE_OK && json_is_string(json);
    if (*is_valid) {
        buf_clear(b);
        status = buf_append(b, json_string_value(json), json_string_length(json));
    } else if (status != LACE_E_NOMEM) {
        status = LACE_OK;
    }
    json_decref(json);
    return status;
}

/* ---- {"name": ..., "arguments": ...} --------------------------------------------------------- */

static json_role role_of(const reply_parser *p)
{
    static const struct {
        const char *key;
        json_role role;
    } keys[] = {
        {"name", ROLE_NAME},      {"tool_name", ROLE_NAME},  {"function", ROLE_NAME},
        {"arguments", ROLE_ARGS}, {"parameters", ROLE_ARGS}, {"args", ROLE_ARGS},
        {"id", ROLE_ID},          {"tool_call_id", ROLE_ID},
    };
    text key = {p->call.key.data, p->call.key.size};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (text_is(key, keys[i].key))
            return keys[i].role;
    return ROLE_OTHER;
}

static lace_status begin_if_known(reply_parser *p, bool *is_begun)
{
    reply_call *c = &p->call;
    bool is_bare = p->n_raw_marker == 0 && c->n_done == 0;
    *is_begun = c->is_begun;
    if (c->is_begun || c->name.size == 0 ||
        (is_bare && !reply_knows_tool(p, (text){c->name.data, c->name.size})))
        return LACE_OK;
    *is_begun = true;
    TRY(reply_begin_call(p));
    /* Arguments that came before the name. */
    return reply_put_args(p, c->args.data, c->args.size);
}

/* A byte of a value goes where the value belongs. */
static lace_status keep_value_byte(reply_parser *p, char byte)
{
    reply_call *c = &p->call;
    if (c->role == ROLE_ARGS && c->is_begun && p->word.size == 0)
        return reply_put_args(p, &byte, 1);
    return c->role == ROLE_OTHER ? LACE_OK : buf_append(&p->word, &byte, 1);
}

static lace_status value_done(reply_parser *p, bool *is_valid)
{
    reply_call *c = &p->call;
    bool is_begun, is_string = p->word.size > 0 && p->word.data[0] == '"';
    *is_valid = true;
    c->place = PLACE_COMMA;
    if (is_string)
        TRY(decode_string(&p->word, is_valid));
    if (c->role == ROLE_NAME && is_string && *is_valid) {
        buf_clear(&c->name);
        TRY(buf_append(&c->name, p->word.data, p->word.size));
        if (c->has_args)
            TRY(begin_if_known(p, &is_begun));
    } else if (c->role == ROLE_ID && is_string) {
        buf_clear(&c->id);
        TRY(buf_append(&c->id, p->word.data, p->word.size));
    } else if (c->role == ROLE_ARGS && p->word.size > 0) {
        /* Held back: in front of the name, or a string in which the arguments are quoted. */
        TRY(c->is_begun ? reply_put_args(p, p->word.data, p->word.size)
                        : buf_append(&c->args, p->word.data, p->word.size));
    }
    buf_clear(&p->word);
    return LACE_OK;
}

/* The first byte of a value. */
static lace_status begin_value(reply_parser *p, char c, bool *is_wrapper)
{
    reply_call *call = &p->call;
    bool is_begun;
    call->role = role_of(p);
    call->scan = (json_scan){0};
    *is_wrapper = c == '{' && call->role == ROLE_NAME && call->key.size == 8 &&
                  memcmp(call->key.data, "function", 8) == 0;
    /* Some name the function by the key: {"get_weather": {...}}. */
    if (c == '{' && call->role == ROLE_OTHER && call->name.size == 0 && call->n_wrappers == 0 &&
        !call->has_args && p->n_raw_marker > 0) {
        call->role = ROLE_ARGS;
        TRY(buf_append(&call->name, call->key.data, call->key.size));
    }
    if (call->role == ROLE_ARGS && call->has_args)
        call->role = ROLE_OTHER; /* given twice: the first counts */
    if (call->role == ROLE_ARGS) {
        call->has_args = true;
        /* A string is held back until it can be unquoted. */
        if (c != '"')
            TRY(begin_if_known(p, &is_begun));
    }
    return LACE_OK;
}

static lace_status object_done(reply_parser *p, bool *is_valid)
{
    reply_call *c = &p->call;
    bool is_begun;
    TRY(begin_if_known(p, &is_begun));
    *is_valid = is_begun && (c->has_args || p->n_raw_marker > 0);
    if (!is_begun)
        return LACE_OK;
    if (!c->has_args)
        TRY(reply_put_args(p, "{}", 2));
    TRY(reply_end_call(p, true));
    buf_clear(&c->name);
    buf_clear(&c->id);
    buf_clear(&c->args);
    c->has_args = false;
    c->place = PLACE_START;
    return LACE_OK;
}

/* Before an object: brackets and separators, or what ends the calls. */
static lace_status step_start(reply_parser *p, char c, bool *is_valid)
{
    reply_call *call = &p->call;
    if (reply_is_space(c) || (call->n_done > 0 && (c == ',' || c == ';')))
        return LACE_OK;
    if (c == '{') {
        call->place = PLACE_KEY;
        return LACE_OK;
    }
    if (c == '[' && !call->is_list && call->n_done == 0) {
        call->is_list = true;
        return LACE_OK;
    }
    *is_valid = call->n_done > 0;
    if (!*is_valid)
        return LACE_OK;
    TRY(reply_leave_call(p));
    return c == ']' && call->is_list ? LACE_OK : reply_step(p, c);
}

static lace_status step_object(reply_parser *p, char c, bool *is_valid);

static lace_status step_value(reply_parser *p, char c, bool *is_valid)
{
    reply_call *call = &p->call;
    if (call->place == PLACE_VALUE) {
        bool is_wrapper;
        if (reply_is_space(c))
            return LACE_OK;
        TRY(begin_value(p, c, &is_wrapper));
        if (is_wrapper) {
            *is_valid = call->n_wrappers++ < 4;
            call->place = PLACE_KEY;
            return LACE_OK;
        }
        call->place = PLACE_IN_VALUE;
    }
    scan_result result = scan_byte(&call->scan, c);
    if (result != SCAN_PAST)
        TRY(keep_value_byte(p, c));
    *is_valid = call->scan.depth >= 0;
    if (result == SCAN_MORE || !*is_valid)
        return LACE_OK;
    TRY(value_done(p, is_valid));
    return result == SCAN_PAST && *is_valid ? step_object(p, c, is_valid) : LACE_OK;
}

static lace_status step_key(reply_parser *p, char c)
{
    reply_call *call = &p->call;
    if (c == '"' && !call->is_escape) {
        call->place = PLACE_COLON;
        return LACE_OK;
    }
    call->is_escape = c == '\\' && !call->is_escape;
    return buf_append(&call->key, &c, 1);
}

static lace_status step_object(reply_parser *p, char c, bool *is_valid)
{
    reply_call *call = &p->call;
    if (reply_is_space(c))
        return LACE_OK;
    if (call->place == PLACE_COLON) {
        *is_valid = c == ':';
        call->place = PLACE_VALUE;
    } else if (call->place == PLACE_KEY && c == '"') {
        buf_clear(&call->key);
        call->is_escape = false;
        call->place = PLACE_IN_KEY;
    } else if (call->place == PLACE_COMMA && c == ',') {
        call->place = PLACE_KEY;
    } else if (c == '}') {
        if (call->n_wrappers > 0) {
            call->n_wrappers--;
            call->place = PLACE_COMMA;
            return LACE_OK;
        }
        return object_done(p, is_valid);
    } else {
        *is_valid = false;
    }
    return LACE_OK;
}

bool reply_has_args(const reply_call *c)
{
    return c->has_args && c->place != PLACE_VALUE && c->place != PLACE_IN_VALUE;
}

/* It is malformed: a call that was given out ends here, anything else is content. */
static lace_status not_json(reply_parser *p, char c)
{
    if (!p->call.is_begun)
        return reply_give_up(p);
    /* The last bracket is what models forget most. */
    TRY(reply_end_call(p, reply_has_args(&p->call)));
    TRY(reply_leave_call(p));
    return reply_step(p, c);
}

lace_status reply_step_json(reply_parser *p, char c)
{
    reply_call *call = &p->call;
    bool is_valid = true;
    if (call->place == PLACE_START) {
        bool is_first = call->n_done == 0;
        if (is_first)
            TRY(buf_append(&p->raw, &c, 1));
        TRY(step_start(p, c, &is_valid));
        /* Between calls nothing needs to be kept; a new one starts to be. */
        if (!is_first && p->state == STATE_JSON && call->place == PLACE_KEY) {
            buf_clear(&p->raw);
            TRY(buf_append(&p->raw, &c, 1));
        }
        return is_valid ? LACE_OK : reply_give_up(p);
    }
    if (!call->is_begun)
        TRY(buf_append(&p->raw, &c, 1));
    switch (call->place) {
    case PLACE_IN_KEY:
        TRY(step_key(p, c));
        break;
    case PLACE_VALUE:
    case PLACE_IN_VALUE:
        TRY(step_value(p, c, &is_valid));
        break;
    default:
        TRY(step_object(p, c, &is_valid));
        break;
    }
    return is_valid ? LACE_OK : not_json(p, c);
}

/* ---- name, then JSON ------------------------------------------------------------------------- */

lace_status reply_step_name(reply_parser *p, char c)
{
    const reply_calls *f = p->format.calls;
    /* A model may write the list of objects that it knows from elsewhere. */
    if (p->word.size == 0 && (c == '{' || c == '[') && !f->name_begin) {
        p->state = STATE_JSON;
        return reply_step_json(p, c);
    }
    TRY(buf_append(&p->raw, &c, 1));
    if (p->word.size > 0 || !reply_is_space(c))
        TRY(buf_append(&p->word, &c, 1));
    size_t n_end = strlen(f->name_end);
    if (!reply_ends_with(&p->word, f->name_end))
        return p->word.size > MAX_NAME + n_end ? reply_give_up(p) : LACE_OK;
    text name = {p->word.data, p->word.size - n_end};
    if (f->name_begin) {
        size_t n_begin = strlen(f->name_begin), at = 0;
        while (at + n_begin <= name.size && memcmp(name.data + at, f->name_begin, n_begin) != 0)
            at++;
        if (at + n_begin > name.size)
            return reply_give_up(p);
        name = (text){name.data + at + n_begin, name.size - at - n_begin};
    }
    if (name.size == 0)
        return reply_give_up(p);
    TRY(buf_append(&p->call.name, name.data, name.size));
    p->state = STATE_ARGS;
    return LACE_OK;
}

lace_status reply_step_args(reply_parser *p, char c)
{
    reply_call *call = &p->call;
    if (!call->is_begun) {
        TRY(buf_append(&p->raw, &c, 1));
        if (reply_is_space(c))
            return LACE_OK;
        if (c != '{')
            return reply_give_up(p);
        TRY(reply_begin_call(p));
    }
    scan_result result = scan_byte(&call->scan, c);
    TRY(reply_put_args(p, &c, 1));
    if (result == SCAN_MORE)
        return LACE_OK;
    TRY(reply_end_call(p, true));
    return reply_leave_call(p);
}
