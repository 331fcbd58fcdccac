/* Requests of OpenAI's Responses API, brought into the form of chat, which templates know. */
#include "server/responses.h"

#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0)
        words++;
    return *words;
}

/* ---- Input ----------------------------------------------------------------------------------- */

/* Texts as the parts that templates know, and images: a new array. False: answered. */
static bool read_parts(call *c, const json_t *content, json_t **out)
{
    static const char *const texts[] = {"input_text", "output_text", "text", "reasoning_text",
                                        NULL};
    *out = json_array();
    bool ok = *out || call_nomem(c);
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        bool is_refusal = strcmp(json_type_word(part), "refusal") == 0;
        if (strcmp(json_type_word(part), "input_image") == 0) { /* gen_images.c reads it */
            ok = call_append(c, *out, json_incref((json_t *)part));
            continue;
        }
        json_t *value = json_object_get(part, is_refusal ? "refusal" : "text");
        if (!json_is_string(value) || (!is_refusal && !is_one_of(json_type_word(part), texts)))
            ok = call_refuse(c, "input", "a part of an item's content is not a text");
        else
            ok = call_append(c, *out, json_pack("{s:s, s:O}", "type", "text", "text", value));
    }
    return ok;
}

/* A text, or a list of parts. False: answered. */
static bool read_content(call *c, const json_t *content, json_t **out)
{
    *out = NULL;
    if (json_is_array(content))
        return read_parts(c, content, out);
    if (!json_is_string(content))
        return call_refuse(c, "input", "an item's content is neither a text nor a list of texts");
    *out = json_incref((json_t *)content);
    return true;
}

/* Items on their way to messages. */
typedef struct input {
    call *c;
    json_t *messages;
    json_t *thought; /* a text that the assistant's next message comes with; NULL: none */
} input;

/* {"role": ..., "content": ...} and, of a tool, the call that it answers. */
static bool add_message(input *in, const char *role, const json_t *content, json_t *call_id)
{
    json_t *shown;
    if (!read_content(in->c, content, &shown)) {
        json_decref(shown);
        return false;
    }
    json_t *thought = strcmp(role, "assistant") == 0 ? in->thought : NULL;
    bool ok = call_append(in->c, in->messages,
                          json_pack("{s:s, s:o, s:O*, s:O*}", "role", role, "content", shown,
                                    "tool_call_id", call_id, "reasoning_content", thought));
    json_decref(in->thought);
    in->thought = NULL;
    return ok;
}

static bool read_message(input *in, const json_t *item)
{
    const char *role = json_string_value(json_object_get(item, "role"));
    if (!role)
        return call_refuse(in->c, "input", "an item has neither a type nor a role");
    return add_message(in, role, json_object_get(item, "content"), NULL);
}

static bool read_result(input *in, const json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *output = json_object_get(item, "output");
    if (!json_is_string(id) || !output)
        return call_refuse(in->c, "input", "the output of a call has no call_id or output");
    return add_message(in, "tool", output, id);
}

/* The list of calls of the assistant's turn; calls in a row, and behind a text, are of one. */
static json_t *calls_of_turn(input *in)
{
    json_t *last = json_array_get(in->messages, json_array_size(in->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || strcmp(role, "assistant") != 0 || in->thought) {
        const json_t *nothing = json_string("");
        bool ok = nothing && add_message(in, "assistant", nothing, NULL);
        json_decref((json_t *)nothing);
        if (!ok)
            return NULL;
        last = json_array_get(in->messages, json_array_size(in->messages) - 1);
    }
    if (!json_object_get(last, "tool_calls"))
        json_object_set_new(last, "tool_calls", json_array());
    return json_object_get(last, "tool_calls");
}

/* A call of a function, or of a tool that takes a text, which is shown as {"input": text}. */
static bool read_call(input *in, const json_t *item)
{
    bool is_custom = strcmp(json_type_word(item), "custom_tool_call") == 0;
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    json_t *given = json_object_get(item, is_custom ? "input" : "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(given))
        return call_refuse(in->c, "input", "a call has no call_id, name or arguments");
    json_t *calls = calls_of_turn(in);
    if (!calls)
        return call_nomem(in->c);
    json_t *arguments = is_custom ? json_pack("{s:O}", "input", given) : json_incref(given);
    return call_append(in->c, calls,
                       json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function",
                                 "function", "name", name, "arguments", arguments));
}

/* What was thought belongs to the message behind it, unless only OpenAI can read it. */
static bool read_reasoning(input *in, const json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    buf b;
    buf_init(&b, 64 << 20);
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *value = json_object_get(json_array_get(content, i), "text");
        ok = json_is_string(value)
                 ? buf_append(&b, json_string_value(value), json_string_length(value)) == LACE_OK ||
                       call_nomem(in->c)
                 : call_refuse(in->c, "input", "a part of a reasoning is not a text");
    }
    json_decref(in->thought);
    in->thought = ok && b.size ? json_stringn(b.data, b.size) : NULL;
    ok = ok && (in->thought || b.size == 0 || call_nomem(in->c));
    buf_deinit(&b);
    return ok;
}

/* One item of the input becomes a message, or a part of the last one. */
static bool read_item(input *in, const json_t *item)
{
    /* What OpenAI's servers did themselves: nothing that a template shows. */
    static const char *const passed_over[] = {"web_search_call", "file_search_call",
                                              "code_interpreter_call", NULL};
    static const char *const calls[] = {"function_call", "custom_tool_call", NULL};
    static const char *const results[] = {"function_call_output", "custom_tool_call_output", NULL};
    const char *type = json_type_word(item);
    if (!*type || strcmp(type, "message") == 0)
        return read_message(in, item);
    if (strcmp(type, "reasoning") == 0)
        return read_reasoning(in, item);
    if (is_one_of(type, calls))
        return read_call(in, item);
    if (is_one_of(type, results))
        return read_result(in, item);
    if (is_one_of(type, passed_over))
        return true;
    call_fail(in->c, 400, "input", "invalid_value",
              "an item is of type %.60s, which is not supported", type);
    return false;
}

static bool read_items(input *in, const json_t *items)
{
    if (json_is_string(items))
        return add_message(in, "user", items, NULL);
    if (!json_is_array(items) || json_array_size(items) == 0)
        return call_refuse(in->c, "input", "input is neither a text nor a list of items");
    for (size_t i = 0; i < json_array_size(items); i++)
        if (!read_item(in, json_array_get(items, i)))
            return false;
    return true;
}

static bool read_input(gen_request *r, call *c, const json_t *body)
{
    const json_t *instructions = json_get(body, "instructions");
    r->messages = json_array();
    if (!r->messages)
        return call_nomem(c);
    if (json_get(body, "previous_response_id"))
        return call_refuse(c, "previous_response_id",
                           "responses are not kept: send the whole input");
    if (instructions && !json_is_string(instructions))
        return call_refuse(c, "instructions", "instructions is not a text");
    input in = {.c = c, .messages = r->messages};
    bool ok = (!instructions || add_message(&in, "system", instructions, NULL)) &&
              read_items(&in, json_object_get(body, "input"));
    json_decref(in.thought);
    return ok;
}

/* ---- Tools ----------------------------------------------------------------------------------- */

/*
 * {"type": "function", "name": ..., "parameters": ...}. Tools of other types (web_search,
 * namespace, custom...) are run by OpenAI's servers or have a form that models here do not know:
 * they are left out, as clients offer all that they have.
 */
static bool read_tool(gen_request *r, call *c, const json_t *tool)
{
    if (!*json_type_word(tool))
        return call_refuse(c, "tools", "a tool has no type");
    if (strcmp(json_type_word(tool), "function") != 0)
        return true;
    if (!json_is_string(json_object_get(tool, "name")))
        return call_refuse(c, "tools", "a function has no name");
    if (!r->tools && !(r->tools = json_array()))
        return call_nomem(c);
    json_t *function = json_copy((json_t *)tool);
    json_object_del(function, "type");
    return call_append(c, r->tools,
                       json_pack("{s:s, s:o}", "type", "function", "function", function));
}

static bool read_tools(gen_request *r, call *c, const json_t *body)
{
    const json_t *tools = json_get(body, "tools"), *choice = json_get(body, "tool_choice");
    const char *word = json_string_value(choice);
    const char *name = json_string_value(json_object_get(choice, "name"));
    if (tools && !json_is_array(tools))
        return call_refuse(c, "tools", "tools is not a list");
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!read_tool(r, c, json_array_get(tools, i)))
            return false;
    if (!choice || (word && strcmp(word, "auto") == 0))
        return true;
    if (word && strcmp(word, "none") == 0) {
        json_decref(r->tools);
        r->tools = NULL;
        return true;
    }
    if (!name && !(word && strcmp(word, "required") == 0))
        return call_refuse(c, "tool_choice",
                           "tool_choice is not auto, none, required or a function");
    if (!r->tools)
        return call_refuse(c, "tool_choice", "tool_choice demands a call, but there are no tools");
    return gen_force_call(r, c, name);
}

/* ---- The rest -------------------------------------------------------------------------------- */

static bool refuse_foreign(call *c, const json_t *body)
{
    static const char *const foreign[] = {
        "n", "logprobs", "top_logprobs", "conversation", "prompt", "background", NULL};
    for (size_t i = 0; foreign[i]; i++) {
        const json_t *value = json_get(body, foreign[i]);
        if (value && !json_is_false(value)) {
            call_fail(c, 400, foreign[i], "unsupported_value", "%s is not supported here",
                      foreign[i]);
            return false;
        }
    }
    const json_t *truncation = json_get(body, "truncation");
    const char *how = json_string_value(truncation);
    if (truncation && !(how && strcmp(how, "disabled") == 0))
        return call_refuse(c, "truncation", "no input is ever cut: truncation is \"disabled\"");
    return true;
}

/* The fields that have another name or place than in chat. */
static bool read_controls(gen_request *r, call *c, const json_t *body)
{
    json_t *max = json_object_get(body, "max_output_tokens");
    json_t *shape = json_get(body, "text"), *reasoning = json_get(body, "reasoning");
    json_t *format = json_get(shape, "format"), *effort = json_get(reasoning, "effort");
    if (shape && !json_is_object(shape))
        return call_refuse(c, "text", "text is not an object");
    if (reasoning && !json_is_object(reasoning))
        return call_refuse(c, "reasoning", "reasoning is not an object");
    if (effort && !json_is_string(effort))
        return call_refuse(c, "reasoning.effort", "reasoning.effort is not a text");
    if (!gen_read_template(r, c, body))
        return false;
    json_t *ours = json_copy((json_t *)body);
    bool ok = ours || call_nomem(c);
    if (ok && ((max && json_object_set(ours, "max_tokens", max) != 0) ||
               (format && json_object_set(ours, "response_format", format) != 0) ||
               (effort && json_object_set(r->kwargs, "reasoning_effort", effort) != 0)))
        ok = call_nomem(c);
    ok = ok && gen_request_read(r, c, ours, GEN_CHAT);
    json_decref(ours);
    return ok;
}

bool responses_read(gen_request *r, call *c, json_t *body)
{
    static const field_name names[] = {{"max_tokens", "max_output_tokens"},
                                       {"response_format", "text.format"},
                                       {"messages", "input"},
                                       {NULL, NULL}};
    call_rename(c, names);
    return gen_check_model(c, body) && refuse_foreign(c, body) && read_controls(r, c, body) &&
           read_input(r, c, body) && read_tools(r, c, body) && gen_request_chat(r, c);
}
