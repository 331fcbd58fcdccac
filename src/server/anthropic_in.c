/* Requests of Anthropic's API, brought into OpenAI's form, which templates know. */
#include "server/anthropic.h"

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"

/* ---- Text ------------------------------------------------------------------------------------ */

/*
 * Claude Code begins its system prompt with a line that is different in every request, which no
 * prefix cache would survive. It is for the vendor's accounts and means nothing to a model.
 */
static void drop_billing_line(text *t)
{
    static const char name[] = "x-anthropic-billing-header:";
    if (t->size < sizeof name - 1 || memcmp(t->data, name, sizeof name - 1) != 0)
        return;
    const char *end = memchr(t->data, '\n', t->size);
    size_t n = end ? (size_t)(end - t->data) + 1 : t->size;
    t->data += n;
    t->size -= n;
}

/*
 * What a block of a system message or of a tool's result says. A change of the tools says nothing:
 * the tools are shown as they stand at the end (anthropic_tools). False: it has no text.
 */
static bool text_of_block(const json_t *block, text *out)
{
    const char *type = json_type_word(block);
    const json_t *value =
        json_object_get(block, strcmp(type, "tool_reference") == 0 ? "tool_name" : "text");
    *out = (text){0};
    if (strcmp(type, "tool_addition") == 0 || strcmp(type, "tool_removal") == 0)
        return true;
    if ((strcmp(type, "text") != 0 && strcmp(type, "tool_reference") != 0) ||
        !json_is_string(value))
        return false;
    *out = (text){json_string_value(value), json_string_length(value)};
    return true;
}

/* A block that is text, behind a line end where others stand before it. */
static bool read_text_block(call *c, const char *param, const json_t *block, buf *out)
{
    text t;
    if (!text_of_block(block, &t)) {
        call_fail(c, 400, param, "invalid_value", "%s: a block is not of type text", param);
        return false;
    }
    drop_billing_line(&t);
    if (t.size == 0)
        return true;
    if ((out->size > 0 && buf_append(out, "\n", 1) != LACE_OK) ||
        buf_append(out, t.data, t.size) != LACE_OK)
        return call_nomem(c);
    return true;
}

/* A string, or a list of blocks that are text, to one text. */
static bool read_text(call *c, const char *param, const json_t *content, buf *out)
{
    if (json_is_string(content)) {
        text t = {json_string_value(content), json_string_length(content)};
        drop_billing_line(&t);
        return buf_append(out, t.data, t.size) == LACE_OK || call_nomem(c);
    }
    if (!json_is_array(content)) {
        call_fail(c, 400, param, "invalid_type",
                  "%s: a content is neither a string nor a list of blocks", param);
        return false;
    }
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!read_text_block(c, param, json_array_get(content, i), out))
            return false;
    return true;
}

static json_t *text_json(const buf *b)
{
    return json_stringn(b->data ? b->data : "", b->size);
}

/* "system", or the content of a message of this role, which may stand anywhere. */
static bool read_system(call *c, const char *param, const json_t *system, json_t *messages)
{
    if (!system || json_is_null(system))
        return true;
    buf b;
    buf_init(&b, 64 << 20);
    bool ok = read_text(c, param, system, &b);
    if (ok && b.size > 0)
        ok = call_append(c, messages,
                         json_pack("{s:s, s:o}", "role", "system", "content", text_json(&b)));
    buf_deinit(&b);
    return ok;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* What the blocks of one message add up to. */
typedef struct turn {
    buf said, thought;
    json_t *parts; /* what was said before, and images; NULL: there are no images */
    json_t *calls; /* array */
    const char *role;
} turn;

static bool read_tool_use(call *c, turn *t, const json_t *block)
{
    json_t *input = json_object_get(block, "input");
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    if (!json_is_string(id) || !json_is_string(name) || (input && !json_is_object(input)))
        return call_refuse(c, "messages", "a tool_use has no id, name or input");
    char *arguments = input ? json_dumps(input, JSON_COMPACT) : mem_strdup("{}");
    json_t *one = arguments ? json_pack("{s:O, s:s, s:{s:O, s:s}}", "id", id, "type", "function",
                                        "function", "name", name, "arguments", arguments)
                            : NULL;
    mem_free(arguments);
    return call_append(c, t->calls, one);
}

/* What was said so far becomes a part, in front of an image or at the end. */
static bool end_part(call *c, turn *t)
{
    if (!t->parts)
        t->parts = json_array();
    if (!t->parts)
        return call_nomem(c);
    if (t->said.size > 0 &&
        !call_append(c, t->parts,
                     json_pack("{s:s, s:o}", "type", "text", "text", text_json(&t->said))))
        return false;
    buf_clear(&t->said);
    return true;
}

/* An image, which gen_images.c reads. */
static bool read_image(call *c, turn *t, const json_t *block)
{
    return end_part(c, t) && call_append(c, t->parts, json_incref((json_t *)block));
}

static json_t *content_json(const turn *t)
{
    return t->parts ? json_incref(t->parts) : text_json(&t->said);
}

/* What a tool's result says and shows. */
static bool read_result_blocks(call *c, turn *t, const json_t *content)
{
    if (!content || json_is_null(content))
        return true;
    if (!json_is_array(content))
        return read_text(c, "messages", content, &t->said);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        bool is_image = strcmp(json_type_word(block), "image") == 0;
        if (!(is_image ? read_image(c, t, block) : read_text_block(c, "messages", block, &t->said)))
            return false;
    }
    return !t->parts || end_part(c, t);
}

/* A tool's result is a message of its own, in front of what the user says beside it. */
static bool read_tool_result(call *c, const json_t *block, json_t *messages)
{
    json_t *id = json_object_get(block, "tool_use_id");
    if (!json_is_string(id))
        return call_refuse(c, "messages", "a tool_result has no tool_use_id");
    turn t = {.role = "tool"};
    buf_init(&t.said, 64 << 20);
    bool ok = read_result_blocks(c, &t, json_object_get(block, "content")) &&
              call_append(c, messages,
                          json_pack("{s:s, s:O, s:o}", "role", t.role, "tool_call_id", id,
                                    "content", content_json(&t)));
    json_decref(t.parts);
    buf_deinit(&t.said);
    return ok;
}

static bool read_block(call *c, turn *t, const json_t *block, json_t *messages)
{
    const char *type = json_type_word(block);
    bool is_user = strcmp(t->role, "user") == 0;
    if (!*type)
        return call_refuse(c, "messages", "a block has no type");
    if (strcmp(type, "text") == 0 || strcmp(type, "thinking") == 0) {
        bool is_text = type[1] == 'e';
        const json_t *value = json_object_get(block, is_text ? "text" : "thinking");
        buf *to = is_text ? &t->said : &t->thought;
        if (!json_is_string(value))
            return call_refuse(c, "messages", "a block of type text has no text");
        if ((to->size > 0 && buf_append(to, "\n", 1) != LACE_OK) ||
            buf_append(to, json_string_value(value), json_string_length(value)) != LACE_OK)
            return call_nomem(c);
        return true;
    }
    if (strcmp(type, "tool_use") == 0 && !is_user)
        return read_tool_use(c, t, block);
    if (strcmp(type, "image") == 0 && is_user)
        return read_image(c, t, block);
    if (strcmp(type, "tool_result") == 0 && is_user)
        return read_tool_result(c, block, messages);
    if (strcmp(type, "redacted_thinking") == 0)
        return true;
    return call_refuse(c, "messages", "a block is of a type that is not supported here");
}

static bool read_blocks(call *c, turn *t, const json_t *content, json_t *messages)
{
    if (json_is_string(content))
        return buf_append(&t->said, json_string_value(content), json_string_length(content)) ==
                   LACE_OK ||
               call_nomem(c);
    if (!json_is_array(content))
        return call_refuse(c, "messages", "content is neither a string nor a list of blocks");
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!read_block(c, t, json_array_get(content, i), messages))
            return false;
    return true;
}

static bool finish_turn(call *c, const turn *t, bool had_result, json_t *messages)
{
    bool has_calls = json_array_size(t->calls) > 0;
    if (had_result && t->said.size == 0 && !t->parts)
        return true; /* the results say it all */
    json_t *message = json_pack("{s:s, s:o}", "role", t->role, "content", content_json(t));
    if (message && has_calls)
        json_object_set(message, "tool_calls", t->calls);
    if (message && t->thought.size > 0)
        json_object_set_new(message, "reasoning_content", text_json(&t->thought));
    return call_append(c, messages, message);
}

static bool read_message(call *c, const json_t *message, json_t *messages)
{
    turn t = {.role = json_string_value(json_object_get(message, "role")), .calls = json_array()};
    if (t.role && strcmp(t.role, "system") == 0) {
        json_decref(t.calls);
        return read_system(c, "messages", json_object_get(message, "content"), messages);
    }
    if (!t.role || (strcmp(t.role, "user") != 0 && strcmp(t.role, "assistant") != 0)) {
        json_decref(t.calls);
        return call_refuse(c, "messages",
                           "a message's role is not \"user\", \"assistant\" or \"system\"");
    }
    buf_init(&t.said, 64 << 20);
    buf_init(&t.thought, 64 << 20);
    size_t n_before = json_array_size(messages);
    bool ok = (t.calls || call_nomem(c)) &&
              read_blocks(c, &t, json_object_get(message, "content"), messages) &&
              (!t.parts || end_part(c, &t)) &&
              finish_turn(c, &t, json_array_size(messages) > n_before, messages);
    buf_deinit(&t.said);
    buf_deinit(&t.thought);
    json_decref(t.parts);
    json_decref(t.calls);
    return ok;
}

bool anthropic_messages(call *c, const json_t *body, json_t **out)
{
    const json_t *messages = json_object_get(body, "messages");
    *out = json_array();
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return call_refuse(c, "messages", "messages is not a list of at least one message");
    if (!*out)
        return call_nomem(c);
    if (!read_system(c, "system", json_object_get(body, "system"), *out))
        return false;
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!read_message(c, json_array_get(messages, i), *out))
            return false;
    return true;
}

/* ---- Tools ----------------------------------------------------------------------------------- */

/* A block that brings a tool into the conversation or takes it out of it: notes its name. */
static bool note_tool(call *c, const json_t *block, json_t *loaded)
{
    const char *type = json_type_word(block);
    const json_t *name = json_object_get(block, "tool_name");
    bool is_addition = strcmp(type, "tool_addition") == 0;
    if (is_addition || strcmp(type, "tool_removal") == 0)
        name = json_object_get(json_object_get(block, "tool"), "name");
    else if (strcmp(type, "tool_reference") != 0)
        return true;
    else
        is_addition = true;
    if (!json_is_string(name))
        return call_refuse(c, "messages", "a block refers to a tool without a name");
    return json_object_set_new(loaded, json_string_value(name), json_boolean(is_addition)) == 0 ||
           call_nomem(c);
}

/* All such blocks, also inside of tools' results; `loaded` gets the names with true or false. */
static bool note_tools(call *c, const json_t *content, json_t *loaded)
{
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const json_t *inner = json_object_get(block, "content");
        if (!note_tool(c, block, loaded))
            return false;
        for (size_t k = 0; k < json_array_size(inner); k++)
            if (!note_tool(c, json_array_get(inner, k), loaded))
                return false;
    }
    return true;
}

/*
 * One tool, unless the conversation has put it away, or has not asked for one that waits
 * ("defer_loading"). Tools of a type of Anthropic's own have no schema: those that its servers run
 * (web_search_...) cannot be run here, and are left out.
 */
static bool read_tool(call *c, const json_t *tool, const json_t *loaded, json_t *out)
{
    json_t *name = json_object_get(tool, "name");
    json_t *description = json_object_get(tool, "description");
    json_t *schema = json_object_get(tool, "input_schema");
    const char *type = json_type_word(tool);
    if (!schema && *type && strcmp(type, "custom") != 0)
        return true;
    if (!json_is_string(name) || !json_is_object(schema))
        return call_refuse(c, "tools", "a tool has no name or input_schema");
    const json_t *is_loaded = json_object_get(loaded, json_string_value(name));
    if (json_is_false(is_loaded) ||
        (!is_loaded && json_is_true(json_object_get(tool, "defer_loading"))))
        return true;
    json_t *function = json_pack("{s:O, s:O}", "name", name, "parameters", schema);
    if (function && json_is_string(description))
        json_object_set(function, "description", description);
    if (function && json_is_true(json_object_get(tool, "strict")))
        json_object_set_new(function, "strict", json_true());
    return call_append(c, out, json_pack("{s:s, s:o}", "type", "function", "function", function));
}

bool anthropic_tools(call *c, const json_t *body, json_t **out)
{
    const json_t *tools = json_object_get(body, "tools");
    const json_t *messages = json_object_get(body, "messages");
    *out = NULL;
    if (!tools || json_is_null(tools))
        return true;
    if (!json_is_array(tools))
        return call_refuse(c, "tools", "tools is not a list");
    json_t *loaded = json_object();
    *out = json_array();
    bool ok = (loaded && *out) || call_nomem(c);
    for (size_t i = 0; ok && i < json_array_size(messages); i++)
        ok = note_tools(c, json_object_get(json_array_get(messages, i), "content"), loaded);
    for (size_t i = 0; ok && i < json_array_size(tools); i++)
        ok = read_tool(c, json_array_get(tools, i), loaded, *out);
    json_decref(loaded);
    if (ok && json_array_size(*out) == 0) {
        json_decref(*out);
        *out = NULL;
    }
    return ok;
}
