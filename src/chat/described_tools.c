/*
 * Tools for templates that have no place for them: the system message describes them, a call is a
 * JSON object that is the whole reply, and earlier calls and results are shown the same way. Where a
 * template has a place for tools and only none for calls, these are shown as its model writes them;
 * where it has one for calls and none for tools (DeepSeek's), they are asked for in that form.
 */
#include <string.h>

#include "jinja/json_any.h"
#include "chat/messages.h"
#include "chat/reply_writer.h"

static const char own_how[] = "\nTo use one, end your reply with a call of exactly this form, in "
                              "which TOOL is the tool's name "
                              "and ARGUMENTS a JSON object that fits its parameters:\n";
static const char intro[] = "You have these tools, each described by a JSON object:\n";
static const char how[] =
    "\nTo use one, reply with nothing but a JSON object of this form:\n"
    "{\"name\": \"the tool's name\", \"arguments\": {\"parameter\": \"value\"}}\n"
    "Its result then comes as the next message. Where no tool is needed, reply in plain text.";

/* A call in the model's own form, with words in the places of name and arguments. */
static lace_status show_shape(const char *shape, buf *out)
{
    for (; *shape; shape++) {
        bool is_place = *shape == '$' && (shape[1] == 'n' || shape[1] == 'a');
        if (!is_place) {
            TRY(buf_append(out, *shape == '\v' ? "\n" : shape, 1));
            continue;
        }
        TRY(buf_append_text(out, *++shape == 'n' ? "TOOL" : "ARGUMENTS"));
    }
    return LACE_OK;
}

static lace_status describe(const json_t *tools, const reply_format *format, buf *out)
{
    size_t i;
    json_t *tool;
    TRY(buf_append_text(out, intro));
    json_array_foreach(tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        TRY(reply_dump_json(function ? function : tool, JSON_COMPACT, out));
        TRY(buf_append_text(out, "\n"));
    }
    if (!format)
        return buf_append_text(out, how);
    TRY(buf_append_text(out, own_how));
    return show_shape(format->calls->shape, out);
}

/* Append a message; NULL stands for want of memory. */
static lace_status push(json_t *list, json_t *message)
{
    return message && json_array_append_new(list, message) == 0 ? LACE_OK : LACE_E_NOMEM;
}

static json_t *make_message(const char *role, const buf *content)
{
    /* Unchecked: words of ours stand between bytes that no text has. */
    json_t *chars = json_stringn_nocheck(content->data ? content->data : "", content->size);
    return json_pack("{s:s, s:o}", "role", role, "content", chars);
}

/* The conversation under construction. */
typedef struct shown {
    const reply_format *asked;  /* how calls are asked for; NULL: as JSON alone */
    const reply_format *format; /* how earlier ones are written; NULL: as they were described */
    json_t *messages;
    json_t *names;   /* of the tools that were called, by the calls' ids */
    bool is_results; /* the last message is made of results, and more go into it */
} shown;

/* {"name": ..., "arguments": {...}}, a line for each call, behind what was said. */
static lace_status show_calls(shown *s, const json_t *message, size_t number, lace_error *err)
{
    size_t i;
    json_t *call;
    buf b;
    buf_init(&b, SIZE_MAX / 2);
    lace_status status = message_text(json_object_get(message, "content"), number, &b, err);
    json_array_foreach(json_object_get(message, "tool_calls"), i, call)
    {
        json_t *function = json_object_get(call, "function");
        json_t *name = json_object_get(function, "name");
        json_t *arguments = json_object_get(function, "arguments"), *parsed = NULL;
        const char *id = json_string_value(json_object_get(call, "id"));
        if (!json_is_string(name))
            status = error_set(err, LACE_E_ARG,
                               "messages[%zu].tool_calls[%zu].function.name: a string is expected",
                               number, i);
        if (json_is_string(arguments)) {
            text chars = {json_string_value(arguments), json_string_length(arguments)};
            if (json_read_any(chars, &parsed, NULL) == LACE_E_NOMEM)
                status = LACE_E_NOMEM; /* what is no JSON is shown as it was written */
        }
        json_t *one =
            json_pack("{s:O, s:O*}", "name", name, "arguments", parsed ? parsed : arguments);
        if (status == LACE_OK && s->format)
            status = reply_write_call(s->format, i == 0, name, parsed ? parsed : arguments, &b);
        if (status == LACE_OK && !s->format && b.size > 0)
            status = buf_append_text(&b, "\n");
        if (status == LACE_OK && !s->format)
            status = one ? reply_dump_json(one, JSON_COMPACT, &b) : LACE_E_NOMEM;
        if (status == LACE_OK && id && json_object_set(s->names, id, name) != 0)
            status = LACE_E_NOMEM;
        json_decref(one);
        json_decref(parsed);
        if (status != LACE_OK)
            break;
    }
    if (status == LACE_OK && s->format)
        status = reply_write_calls_end(s->format, &b);
    if (status == LACE_OK)
        status = push(s->messages, make_message("assistant", &b));
    buf_deinit(&b);
    s->is_results = false;
    return status;
}

/* What stands in the message of results so far: the last text is still open. */
static lace_status reopen(const json_t *content, buf *chars, json_t *parts)
{
    size_t n = json_array_size(content);
    const json_t *last = json_array_get(content, n - 1);
    const json_t *said = json_is_array(content) ? json_object_get(last, "text") : content;
    for (size_t i = 0; i + (said != NULL) < n; i++)
        if (json_array_append(parts, json_array_get(content, i)) != 0)
            return LACE_E_NOMEM;
    TRY(buf_append(chars, json_string_value(said), json_string_length(said)));
    return said ? buf_append_text(chars, "\n\n") : LACE_OK;
}

/* A text, or parts where there are images among them. */
static json_t *make_result(buf *chars, json_t *parts)
{
    if (json_array_size(parts) == 0)
        return make_message("user", chars);
    return message_end_part(chars, parts) == LACE_OK
               ? json_pack("{s:s, s:O}", "role", "user", "content", parts)
               : NULL;
}

/* A result, or what the user says behind results, which goes into the same message. */
static lace_status show_result(shown *s, const json_t *message, size_t number, bool is_result,
                               lace_error *err)
{
    size_t last = json_array_size(s->messages);
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    const json_t *name = id ? json_object_get(s->names, id) : NULL;
    json_t *parts = json_array();
    buf b;
    buf_init(&b, SIZE_MAX / 2);
    lace_status status = parts ? LACE_OK : LACE_E_NOMEM;
    if (!json_is_string(name))
        name = json_object_get(message, "name");
    if (status == LACE_OK && s->is_results)
        status =
            reopen(json_object_get(json_array_get(s->messages, last - 1), "content"), &b, parts);
    if (status == LACE_OK && is_result)
        status = buf_printf(&b, "Result of %.200s:\n",
                            json_is_string(name) ? json_string_value(name) : "the tool");
    if (status == LACE_OK && message_has_image(message))
        status = message_parts(json_object_get(message, "content"), number, &b, parts, err);
    else if (status == LACE_OK)
        status = message_text(json_object_get(message, "content"), number, &b, err);
    if (status == LACE_OK && s->is_results && json_array_remove(s->messages, last - 1) != 0)
        status = LACE_E_NOMEM;
    if (status == LACE_OK)
        status = push(s->messages, make_result(&b, parts));
    s->is_results = is_result;
    json_decref(parts);
    buf_deinit(&b);
    return status;
}

static lace_status show_message(shown *s, json_t *message, size_t number, bool shows_calls,
                                lace_error *err)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    bool is_result = message_is_result(message);
    if (shows_calls && json_array_size(json_object_get(message, "tool_calls")) > 0)
        return show_calls(s, message, number, err);
    if (shows_calls && !s->format &&
        (is_result || (s->is_results && role && strcmp(role, "user") == 0)))
        return show_result(s, message, number, is_result, err);
    s->is_results = false;
    return push(s->messages, json_incref(message));
}

static lace_status show_all(shown *s, const json_t *messages, const json_t *tools,
                            const chat_caps *caps, lace_error *err)
{
    size_t i, n_first = 0;
    json_t *message;
    buf b;
    lace_status status = LACE_OK;
    buf_init(&b, SIZE_MAX / 2);
    if (json_array_size(tools) > 0 && !caps->takes_tools) {
        const json_t *first = json_array_get(messages, 0);
        const char *role = json_string_value(json_object_get(first, "role"));
        if (role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)) {
            n_first = 1;
            status = message_text(json_object_get(first, "content"), 0, &b, err);
            if (status == LACE_OK && b.size > 0)
                status = buf_append_text(&b, "\n\n");
        }
        if (status == LACE_OK)
            status = describe(tools, s->asked, &b);
        if (status == LACE_OK)
            status = push(s->messages, make_message("system", &b));
    }
    buf_deinit(&b);
    TRY(status);
    json_array_foreach(messages, i, message)
    {
        if (i >= n_first)
            TRY(show_message(s, message, i, !caps->takes_calls, err));
    }
    return LACE_OK;
}

bool described_in_own_form(const chat_caps *caps, const reply_format *format)
{
    const char *shape = format->calls->shape;
    return caps->takes_calls && !caps->takes_tools && shape && strstr(shape, "$a");
}

lace_status messages_describe_tools(const json_t *messages, const json_t *tools,
                                    const chat_caps *caps, const reply_format *format, json_t **out,
                                    lace_error *err)
{
    bool is_own = caps->takes_tools && caps->takes_results && reply_can_write(format);
    shown s = {.asked = described_in_own_form(caps, format) ? format : NULL,
               .format = is_own ? format : NULL,
               .messages = json_array(),
               .names = json_object()};
    *out = NULL;
    lace_status status =
        s.messages && s.names ? show_all(&s, messages, tools, caps, err) : LACE_E_NOMEM;
    json_decref(s.names);
    if (status == LACE_OK)
        *out = s.messages;
    else
        json_decref(s.messages);
    return status == LACE_E_NOMEM ? error_nomem(err, "messages") : status;
}
