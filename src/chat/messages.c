/* Messages in OpenAI's form, brought into the form that a template takes. */
#include "chat/messages.h"

#include <string.h>

#include "jinja/json_any.h"

static const char *string_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is_system_role(const char *role)
{
    return strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
}

/* Set a member to a new value, which is taken over and may be NULL for want of memory. */
static lace_status set_new(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0 ? LACE_OK : LACE_E_NOMEM;
}

/* jansson's copies leave out what memory was missing for; NULL then. */
static json_t *copy_whole(const json_t *json, bool is_deep)
{
    json_t *copy = is_deep ? json_deep_copy(json) : json_copy((json_t *)json);
    bool is_whole = is_deep ? json_equal(copy, json)
                            : json_object_size(copy) == json_object_size(json) &&
                                  json_array_size(copy) == json_array_size(json);
    if (copy && !is_whole) {
        json_decref(copy);
        copy = NULL;
    }
    return copy;
}

/* ---- Content --------------------------------------------------------------------------------- */

/* A place for an image, which templates with parts write down in their own way. */
static bool is_image_part(const json_t *part)
{
    const char *type = string_of(part, "type");
    return type && strcmp(type, "image") == 0;
}

static bool is_text_part(const json_t *part)
{
    const char *type = string_of(part, "type");
    return type && (strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
                    strcmp(type, "output_text") == 0);
}

/* The texts of all parts, joined by line ends. */
static lace_status join_parts(const json_t *parts, size_t message, buf *out, lace_error *err)
{
    size_t i;
    json_t *part;
    json_array_foreach(parts, i, part)
    {
        const char *type = string_of(part, "type");
        const json_t *chars = json_object_get(part, "text");
        bool is_text = is_text_part(part);
        if (!is_text && type)
            return error_set(err, LACE_E_UNSUPPORTED,
                             "messages[%zu].content[%zu]: parts of type '%.40s' are not supported",
                             message, i, type);
        if (!is_text || !json_is_string(chars))
            return error_set(err, LACE_E_ARG, "messages[%zu].content[%zu]: a text part is expected",
                             message, i);
        if (i > 0)
            TRY(buf_append(out, "\n", 1));
        TRY(buf_append(out, json_string_value(chars), json_string_length(chars)));
    }
    return LACE_OK;
}

lace_status message_text(const json_t *content, size_t message, buf *out, lace_error *err)
{
    if (json_is_array(content))
        return join_parts(content, message, out, err);
    if (content && !json_is_null(content) && !json_is_string(content))
        return error_set(err, LACE_E_ARG, "messages[%zu].content: a string or parts are expected",
                         message);
    return buf_append(out, json_string_value(content), json_string_length(content));
}

static bool has_image(const json_t *parts)
{
    for (size_t i = 0; i < json_array_size(parts); i++)
        if (is_image_part(json_array_get(parts, i)))
            return true;
    return false;
}

bool message_has_image(const json_t *message)
{
    return has_image(json_object_get(message, "content"));
}

bool message_is_result(const json_t *message)
{
    const char *role = string_of(message, "role");
    return role && (strcmp(role, "tool") == 0 || strcmp(role, "function") == 0);
}

lace_status message_end_part(buf *chars, json_t *parts)
{
    if (chars->size == 0)
        return LACE_OK;
    /* Unchecked: words of ours may stand between bytes that no text has. */
    json_t *part = json_pack("{s:s, s:o}", "type", "text", "text",
                             json_stringn_nocheck(chars->data, chars->size));
    buf_clear(chars);
    return part && json_array_append_new(parts, part) == 0 ? LACE_OK : LACE_E_NOMEM;
}

static lace_status refuse_part(size_t message, size_t part, lace_error *err)
{
    return error_set(err, LACE_E_ARG, "messages[%zu].content[%zu]: a text or an image is expected",
                     message, part);
}

lace_status message_parts(const json_t *content, size_t message, buf *chars, json_t *parts,
                          lace_error *err)
{
    bool is_behind_text = false;
    if (!json_is_array(content))
        return message_text(content, message, chars, err);
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *part = json_array_get(content, i);
        const json_t *said = json_object_get(part, "text");
        if (is_image_part(part)) {
            TRY(message_end_part(chars, parts));
            if (json_array_append(parts, part) != 0)
                return LACE_E_NOMEM;
        } else if (!is_text_part(part) || !json_is_string(said)) {
            return refuse_part(message, i, err);
        } else {
            if (is_behind_text)
                TRY(buf_append(chars, "\n", 1));
            TRY(buf_append(chars, json_string_value(said), json_string_length(said)));
        }
        is_behind_text = !is_image_part(part);
    }
    return LACE_OK;
}

/* Parts among which are images; the others are texts. */
static lace_status check_images(const json_t *parts, size_t message, bool takes_parts,
                                lace_error *err)
{
    if (!takes_parts)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "messages[%zu]: the model's chat template has no place for images there",
                         message);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = string_of(part, "type");
        if (!is_image_part(part) && !(type && strcmp(type, "text") == 0 && string_of(part, "text")))
            return refuse_part(message, i, err);
    }
    return LACE_OK;
}

static json_t *one_part(const json_t *string)
{
    return json_pack("[{s:s, s:O}]", "type", "text", "text", string);
}

static lace_status adapt_content(json_t *message, size_t number, const chat_caps *caps,
                                 lace_error *err)
{
    json_t *content = json_object_get(message, "content");
    const char *role = string_of(message, "role");
    bool has_calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    /* Templates that take parts from users may still want a text from the system, or from tools. */
    bool wants_text =
        is_system_role(role) || (message_is_result(message) && !caps->takes_result_parts);
    bool takes_parts = caps->takes_parts && !(caps->takes_strings && wants_text);
    if (has_calls && (!content || json_is_null(content)))
        return caps->takes_null_content ? set_new(message, "content", json_null())
                                        : set_new(message, "content", json_string(""));
    if (has_calls && json_is_string(content) && json_string_length(content) == 0)
        return caps->takes_empty_content ? LACE_OK : set_new(message, "content", json_null());
    if (!content || json_is_null(content))
        return set_new(message, "content", json_string(""));
    if (json_is_string(content))
        return caps->takes_strings ? LACE_OK : set_new(message, "content", one_part(content));
    if (!json_is_array(content))
        return error_set(err, LACE_E_ARG, "messages[%zu].content: a string or parts are expected",
                         number);
    buf joined;
    buf_init(&joined, SIZE_MAX / 2);
    lace_status status = has_image(content) ? check_images(content, number, takes_parts, err)
                                            : join_parts(content, number, &joined, err);
    if (status == LACE_OK && !takes_parts)
        status =
            set_new(message, "content", json_stringn(joined.data ? joined.data : "", joined.size));
    buf_deinit(&joined);
    return status;
}

/* ---- Tool calls ------------------------------------------------------------------------------ */

static lace_status adapt_arguments(json_t *function, bool as_object)
{
    json_t *arguments = json_object_get(function, "arguments"), *parsed;
    if (as_object && json_is_string(arguments)) {
        text chars = {json_string_value(arguments), json_string_length(arguments)};
        lace_status status = json_read_any(chars, &parsed, NULL);
        if (status != LACE_OK || !json_is_object(parsed)) {
            json_decref(parsed);
            return status == LACE_E_NOMEM ? status : LACE_OK; /* shown as it was written */
        }
        return set_new(function, "arguments", parsed);
    }
    if (!as_object && arguments && !json_is_string(arguments)) {
        char *dump = json_dumps(arguments, JSON_ENCODE_ANY);
        lace_status status = set_new(function, "arguments", dump ? json_string(dump) : NULL);
        json_free_t free_dump;
        json_get_alloc_funcs(NULL, &free_dump);
        if (dump)
            free_dump(dump);
        return status;
    }
    return LACE_OK;
}

/* 9 letters and digits for any id, the same for the same; one that has this form already stays. */
static lace_status shorten_id(json_t *object, const char *key)
{
    enum { SHORT = 9 };
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    const char *id = string_of(object, key);
    char made[SHORT + 1] = "";
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    if (!id ||
        (strlen(id) == SHORT &&
         strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == SHORT))
        return LACE_OK;
    for (const char *p = id; *p; p++)
        hash = (hash ^ (unsigned char)*p) * UINT64_C(1099511628211);
    for (int i = 0; i < SHORT; i++, hash /= 36)
        made[i] = digits[hash % 36];
    return set_new(object, key, json_string(made));
}

static lace_status adapt_calls(json_t *message, size_t number, const chat_caps *caps,
                               lace_error *err)
{
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    if (!caps->takes_long_ids)
        TRY(shorten_id(message, "tool_call_id"));
    if (!calls || json_is_null(calls))
        return LACE_OK;
    if (!json_is_array(calls))
        return error_set(err, LACE_E_ARG, "messages[%zu].tool_calls: an array is expected", number);
    calls = copy_whole(calls, true);
    TRY(set_new(message, "tool_calls", calls));
    json_array_foreach(calls, i, call)
    {
        json_t *function = json_object_get(call, "function");
        if (!string_of(function, "name"))
            return error_set(err, LACE_E_ARG,
                             "messages[%zu].tool_calls[%zu].function.name: a string is expected",
                             number, i);
        TRY(adapt_arguments(function, caps->takes_object_args));
        if (!caps->takes_long_ids)
            TRY(shorten_id(call, "id"));
    }
    return LACE_OK;
}

/* ---- Roles ----------------------------------------------------------------------------------- */

/* Put the text of system messages before a user's. */
static lace_status prepend_system(json_t *message, const buf *system, const chat_caps *caps)
{
    json_t *content = json_object_get(message, "content"), *merged;
    if (json_is_array(content)) {
        json_t *part = json_pack("{s:s, s:s%}", "type", "text", "text", system->data, system->size);
        merged = copy_whole(content, false);
        if (json_array_insert_new(merged, 0, part) != 0) { /* frees the part */
            json_decref(merged);
            return LACE_E_NOMEM;
        }
        return set_new(message, "content", merged);
    }
    buf chars;
    buf_init(&chars, SIZE_MAX / 2);
    lace_status status = buf_append(&chars, system->data, system->size);
    if (status == LACE_OK)
        status = buf_append(&chars, "\n\n", 2);
    if (status == LACE_OK)
        status = buf_append(&chars, json_string_value(content), json_string_length(content));
    if (status == LACE_OK)
        status = set_new(message, "content", json_stringn(chars.data, chars.size));
    buf_deinit(&chars);
    return status;
}

/* Keep a system message's text for the next user message. */
static lace_status keep_system(const json_t *message, buf *system)
{
    const json_t *content = json_object_get(message, "content");
    if (system->size > 0)
        TRY(buf_append(system, "\n\n", 2));
    if (json_is_array(content)) /* seen to be texts when the content was adapted */
        return join_parts(content, 0, system, NULL);
    return buf_append(system, json_string_value(content), json_string_length(content));
}

static lace_status adapt_reasoning(json_t *message, const message_rules *rules)
{
    json_t *reasoning = json_object_get(message, "reasoning_content");
    if (!reasoning)
        reasoning = json_object_get(message, "reasoning");
    if (!json_is_string(reasoning))
        return LACE_OK;
    const char *key = rules->wants_thinking ? "thinking" : "reasoning_content";
    return json_object_get(message, key) ? LACE_OK : set_new(message, key, json_incref(reasoning));
}

/* Messages on their way into the form of a template. */
typedef struct adapting {
    const message_rules *rules;
    json_t *out;
    buf system;     /* system messages that wait for the next user message */
    bool has_begun; /* there was a message of another role than the system's */
    buf run;        /* texts that became one with the last message, which gets them at the end */
    bool has_parts; /* or it is a list of parts, which is its own and grows */
} adapting;

/* The role that a template knows. */
static lace_status adapt_role(adapting *a, json_t *message)
{
    const char *role = string_of(message, "role");
    bool is_system = is_system_role(role);
    if (strcmp(role, "developer") == 0 && !a->rules->keeps_developer)
        TRY(set_new(message, "role", json_string("system")));
    if (is_system && a->has_begun && !a->rules->caps->takes_late_system)
        return set_new(message, "role", json_string("user"));
    a->has_begun = a->has_begun || !is_system;
    return LACE_OK;
}

/* One message, changed in place; *is_dropped if its text waits now. */
static lace_status adapt_message(adapting *a, json_t *message, size_t number, bool *is_dropped,
                                 lace_error *err)
{
    const chat_caps *caps = a->rules->caps;
    const char *role = string_of(message, "role");
    *is_dropped = false;
    if (!role || role[0] == 0)
        return error_set(err, LACE_E_ARG, "messages[%zu].role: a string is expected", number);
    TRY(adapt_role(a, message));
    role = string_of(message, "role");
    TRY(adapt_content(message, number, caps, err));
    TRY(adapt_calls(message, number, caps, err));
    TRY(adapt_reasoning(message, a->rules));
    if (strcmp(role, "system") == 0 && !caps->takes_system) {
        *is_dropped = true;
        return keep_system(message, &a->system);
    }
    if (strcmp(role, "user") == 0 && a->system.size > 0) {
        TRY(prepend_system(message, &a->system, caps));
        buf_clear(&a->system);
    }
    return LACE_OK;
}

/* The last message gets the texts that became one with it. */
static lace_status end_run(adapting *a)
{
    lace_status status = LACE_OK;
    if (a->run.size > 0)
        status = set_new(json_array_get(a->out, json_array_size(a->out) - 1), "content",
                         json_stringn(a->run.data, a->run.size));
    buf_clear(&a->run);
    a->has_parts = false;
    return status;
}

static lace_status join_text(adapting *a, const json_t *first, const json_t *content)
{
    if (a->run.size == 0)
        TRY(buf_append(&a->run, json_string_value(first), json_string_length(first)));
    TRY(buf_append(&a->run, "\n\n", 2));
    return buf_append(&a->run, json_string_value(content), json_string_length(content));
}

/* Put content behind that of the last message, as paragraphs of one text or as further parts. */
static lace_status join_content(adapting *a, json_t *last, json_t *content)
{
    if (!a->has_parts && !json_is_array(json_object_get(last, "content")) &&
        !json_is_array(content))
        return join_text(a, json_object_get(last, "content"), content);
    if (!a->has_parts) {
        TRY(end_run(a));
        const json_t *first = json_object_get(last, "content");
        TRY(set_new(last, "content",
                    json_is_array(first) ? copy_whole(first, false) : one_part(first)));
        a->has_parts = true;
    }
    json_t *more = json_is_array(content) ? json_incref(content) : one_part(content);
    bool ok = more && json_array_extend(json_object_get(last, "content"), more) == 0;
    json_decref(more);
    return ok ? LACE_OK : LACE_E_NOMEM;
}

/* Behind the last message, or as a part of it where the template does not take two in a row. */
static lace_status add_message(adapting *a, json_t *message)
{
    const chat_caps *caps = a->rules->caps;
    json_t *last = json_array_get(a->out, json_array_size(a->out) - 1);
    const char *role = string_of(message, "role"), *before = string_of(last, "role");
    bool is_run =
        before && (strcmp(role, before) == 0 || (is_system_role(role) && is_system_role(before)));
    bool is_alone = (strcmp(role, "user") == 0 && !caps->takes_user_runs) ||
                    (is_system_role(role) && !caps->takes_late_system);
    if (is_run && is_alone)
        return join_content(a, last, json_object_get(message, "content"));
    TRY(end_run(a));
    return json_array_append(a->out, message) == 0 ? LACE_OK : LACE_E_NOMEM;
}

static lace_status adapt_all(adapting *a, const json_t *messages, lace_error *err)
{
    size_t i;
    json_t *given;
    json_array_foreach(messages, i, given)
    {
        bool is_dropped = false;
        if (!json_is_object(given))
            return error_set(err, LACE_E_ARG, "messages[%zu]: an object is expected", i);
        json_t *message = copy_whole(given, false);
        lace_status status = message ? LACE_OK : LACE_E_NOMEM;
        if (status == LACE_OK)
            status = adapt_message(a, message, i, &is_dropped, err);
        if (status == LACE_OK && !is_dropped)
            status = add_message(a, message);
        json_decref(message);
        TRY(status);
    }
    TRY(end_run(a));
    if (a->system.size == 0)
        return LACE_OK;
    /* No user message came after the system's: it is one itself. */
    json_t *last =
        json_pack("{s:s, s:s%}", "role", "user", "content", a->system.data, a->system.size);
    return last && json_array_append_new(a->out, last) == 0 ? LACE_OK : LACE_E_NOMEM;
}

lace_status messages_adapt(const json_t *messages, const message_rules *rules, json_t **out,
                           lace_error *err)
{
    *out = NULL;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return error_set(err, LACE_E_ARG, "messages: an array of messages is expected");
    adapting a = {.rules = rules, .out = json_array()};
    if (!a.out)
        return error_nomem(err, "messages");
    buf_init(&a.system, SIZE_MAX / 2);
    buf_init(&a.run, SIZE_MAX / 2);
    lace_status status = adapt_all(&a, messages, err);
    buf_deinit(&a.system);
    buf_deinit(&a.run);
    if (status == LACE_OK)
        *out = a.out;
    else
        json_decref(a.out);
    return status == LACE_E_NOMEM ? error_nomem(err, "messages") : status;
}
