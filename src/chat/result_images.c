/*
 * Images of tools' results, for templates that show only the text of a result: they follow in a
 * message of the user, behind the results that stand together and with the names of their tools.
 */
#include <string.h>

#include "chat/messages.h"

typedef struct moving {
    json_t *messages;
    json_t *names; /* of the tools that were called, by the calls' ids */
    json_t *parts; /* of the user's message that follows the results */
} moving;

/* Append a message, which is taken over; NULL stands for want of memory. */
static lace_status push(json_t *list, json_t *message)
{
    return message && json_array_append_new(list, message) == 0 ? LACE_OK : LACE_E_NOMEM;
}

static lace_status note_names(moving *m, const json_t *message)
{
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call)
    {
        const char *id = json_string_value(json_object_get(call, "id"));
        json_t *name = json_object_get(json_object_get(call, "function"), "name");
        if (id && json_is_string(name) && json_object_set(m->names, id, name) != 0)
            return LACE_E_NOMEM;
    }
    return LACE_OK;
}

/* "Image of the result of NAME:" is said in front of the images. */
static lace_status announce(moving *m, const json_t *message, size_t n_images)
{
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    const json_t *name = id ? json_object_get(m->names, id) : NULL;
    buf b;
    buf_init(&b, SIZE_MAX / 2);
    if (!json_is_string(name))
        name = json_object_get(message, "name");
    lace_status status =
        buf_printf(&b, "Image%s of the result of %.200s:\n", n_images == 1 ? "" : "s",
                   json_is_string(name) ? json_string_value(name) : "the tool");
    if (status == LACE_OK)
        status = message_end_part(&b, m->parts);
    buf_deinit(&b);
    return status;
}

/* The texts of a result stay, in `chars`; its images wait in m->parts. */
static lace_status divide(moving *m, const json_t *message, const json_t *parts, buf *chars)
{
    size_t i, n_images = 0;
    json_t *part;
    json_array_foreach(parts, i, part) n_images += !json_object_get(part, "text");
    TRY(announce(m, message, n_images));
    json_array_foreach(parts, i, part)
    {
        const json_t *said = json_object_get(part, "text");
        if (!said && json_array_append(m->parts, part) != 0)
            return LACE_E_NOMEM;
        if (said && chars->size > 0)
            TRY(buf_append(chars, "\n", 1));
        TRY(buf_append(chars, json_string_value(said), json_string_length(said)));
    }
    return LACE_OK;
}

static lace_status move_images(moving *m, const json_t *message, size_t number, lace_error *err)
{
    json_t *parts = json_array(), *copy = json_copy((json_t *)message);
    buf chars;
    buf_init(&chars, SIZE_MAX / 2);
    bool is_whole = parts && json_object_size(copy) == json_object_size(message);
    lace_status status = is_whole ? LACE_OK : LACE_E_NOMEM;
    if (status == LACE_OK)
        status = message_parts(json_object_get(message, "content"), number, &chars, parts, err);
    if (status == LACE_OK)
        status = message_end_part(&chars, parts);
    if (status == LACE_OK)
        status = divide(m, message, parts, &chars);
    if (status == LACE_OK &&
        json_object_set_new(copy, "content",
                            json_stringn(chars.data ? chars.data : "", chars.size)) != 0)
        status = LACE_E_NOMEM;
    if (status == LACE_OK)
        status = push(m->messages, json_incref(copy));
    buf_deinit(&chars);
    json_decref(parts);
    json_decref(copy);
    return status;
}

/* The images that wait become a message. */
static lace_status end_results(moving *m)
{
    if (json_array_size(m->parts) == 0)
        return LACE_OK;
    json_t *message = json_pack("{s:s, s:O}", "role", "user", "content", m->parts);
    json_decref(m->parts);
    m->parts = json_array();
    lace_status status = push(m->messages, message);
    return m->parts ? status : LACE_E_NOMEM;
}

static lace_status move_all(moving *m, const json_t *messages, lace_error *err)
{
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        bool is_result = message_is_result(message);
        TRY(note_names(m, message));
        if (!is_result)
            TRY(end_results(m));
        if (is_result && message_has_image(message))
            TRY(move_images(m, message, i, err));
        else
            TRY(push(m->messages, json_incref(message)));
    }
    return end_results(m);
}

lace_status messages_move_images(const json_t *messages, json_t **out, lace_error *err)
{
    size_t i;
    json_t *message;
    bool has_images = false;
    *out = NULL;
    json_array_foreach(messages, i, message)
    {
        has_images = has_images || (message_is_result(message) && message_has_image(message));
    }
    if (!has_images)
        return LACE_OK;
    moving m = {.messages = json_array(), .names = json_object(), .parts = json_array()};
    lace_status status =
        m.messages && m.names && m.parts ? move_all(&m, messages, err) : LACE_E_NOMEM;
    json_decref(m.names);
    json_decref(m.parts);
    if (status == LACE_OK)
        *out = m.messages;
    else
        json_decref(m.messages);
    return status == LACE_E_NOMEM ? error_nomem(err, "messages") : status;
}
