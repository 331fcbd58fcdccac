/*
 * Several calls of one message, for templates that show only one: each becomes a message of its own,
 * with its result behind it.
 */
#include <string.h>

#include "chat/messages.h"

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* Append a message, which is taken over; NULL stands for want of memory. */
static lace_status push(json_t *list, json_t *message)
{
    return message && json_array_append_new(list, message) == 0 ? LACE_OK : LACE_E_NOMEM;
}

/* The message with this one of its calls; what it says stands with the first. */
static json_t *with_call(const json_t *message, json_t *call, bool is_first)
{
    json_t *one = json_copy((json_t *)message);
    bool ok = json_object_size(one) == json_object_size(message) &&
              json_object_set_new(one, "tool_calls", json_pack("[O]", call)) == 0;
    if (ok && !is_first) {
        ok = json_object_set_new(one, "content", json_string("")) == 0;
        json_object_del(one, "reasoning_content");
        json_object_del(one, "reasoning");
    }
    if (!ok) {
        json_decref(one);
        return NULL;
    }
    return one;
}

/* Of the results messages[begin .. end), the one of a call: by its id, or by its place. */
static size_t find_result(const json_t *messages, size_t begin, size_t end, const json_t *call,
                          size_t place)
{
    const json_t *id = json_object_get(call, "id");
    for (size_t i = begin; i < end && json_is_string(id); i++)
        if (json_equal(json_object_get(json_array_get(messages, i), "tool_call_id"), id))
            return i;
    bool has_ids = begin < end && json_object_get(json_array_get(messages, begin), "tool_call_id");
    return has_ids && json_is_string(id) ? end : begin + place;
}

/* A result. The images of a request are known by their order, which must stay. */
static lace_status push_result(const json_t *messages, size_t at, size_t *last_image, json_t *out,
                               lace_error *err)
{
    json_t *result = json_array_get(messages, at);
    if (message_has_image(result)) {
        if (at < *last_image)
            return error_set(err, LACE_E_UNSUPPORTED,
                             "messages[%zu]: the model's chat template shows one call at a time: "
                             "results with images must be in the order of their calls",
                             at);
        *last_image = at;
    }
    return push(out, json_incref(result));
}

/* A message with several calls, and the results behind it up to `end`. */
static lace_status split(const json_t *messages, size_t at, size_t end, json_t *out,
                         lace_error *err)
{
    size_t last_image = 0;
    const json_t *message = json_array_get(messages, at);
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *call, *used = json_object();
    char key[32];
    size_t i;
    lace_status status = used ? LACE_OK : LACE_E_NOMEM;
    json_array_foreach(calls, i, call)
    {
        if (status == LACE_OK)
            status = push(out, with_call(message, call, i == 0));
        size_t result = find_result(messages, at + 1, end, call, i);
        snprintf(key, sizeof key, "%zu", result);
        if (status != LACE_OK || result >= end || json_object_get(used, key))
            continue;
        status = json_object_set_new(used, key, json_true()) == 0
                     ? push_result(messages, result, &last_image, out, err)
                     : LACE_E_NOMEM;
    }
    /* Results that belong to no call. */
    for (i = at + 1; i < end && status == LACE_OK; i++) {
        snprintf(key, sizeof key, "%zu", i);
        if (!json_object_get(used, key))
            status = push_result(messages, i, &last_image, out, err);
    }
    json_decref(used);
    return status;
}

lace_status messages_split_calls(const json_t *messages, json_t **out, lace_error *err)
{
    json_t *list = *out = json_array();
    lace_status status = list ? LACE_OK : LACE_E_NOMEM;
    for (size_t i = 0; i < json_array_size(messages) && status == LACE_OK;) {
        const json_t *message = json_array_get(messages, i);
        size_t end = i + 1;
        if (json_array_size(json_object_get(message, "tool_calls")) < 2) {
            status = push(list, json_incref((json_t *)message));
        } else {
            while (has_role(json_array_get(messages, end), "tool"))
                end++;
            status = split(messages, i, end, list, err);
        }
        i = end;
    }
    if (status != LACE_OK) {
        json_decref(list);
        *out = NULL;
    }
    return status == LACE_E_NOMEM ? error_nomem(err, "messages") : status;
}
