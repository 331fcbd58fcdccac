/* Requests of Ollama's API, brought into OpenAI's form, which templates know. */
#include "server/ollama.h"

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "server/core.h"

/* ---- The model ------------------------------------------------------------------------------- */

/* Whether it is the name, alone or with Ollama's tag behind it. */
static bool is_tagged(const char *given, const char *name)
{
    size_t n = strlen(name);
    return strncmp(given, name, n) == 0 && (given[n] == 0 || strcmp(given + n, ":latest") == 0);
}

bool ollama_check_name(call *c, const json_t *body, bool is_strict)
{
    const json_t *name = json_object_get(body, "model");
    if (!name)
        name = json_object_get(body, "name");
    const char *given = json_string_value(name), *own = call_server(c)->model_id;
    if (given && strlen(given) == json_string_length(name) &&
        (!is_strict || is_tagged(given, own) || is_tagged(given, SERVER_ANY_MODEL) ||
         adapter_by_name(call_server(c), given) >= 0))
        return true;
    if (!given)
        call_fail(c, 400, "model", NULL, "model is missing");
    else
        call_fail(c, 404, "model", NULL,
                  "there is no such model here; this server has \"%s\", also called \"%s\"", own,
                  SERVER_ANY_MODEL);
    return false;
}

bool ollama_check_model(call *c, const json_t *body)
{
    return ollama_check_name(c, body, call_server(c)->options.is_strict);
}

/*
 * "keep_alive": seconds, or a text such as "5m", after which a model that nobody asks may go. The
 * one that is served stays; that 0 asks for its end only shows in the answer.
 */
static bool read_keep_alive(call *c, const json_t *body, bool *is_zero)
{
    const json_t *given = json_get(body, "keep_alive");
    const char *at = json_string_value(given);
    *is_zero = false;
    if (!given)
        return true;
    if (json_is_number(given)) {
        *is_zero = json_number_value(given) == 0;
        return true;
    }
    /* Digits with units, as "1h30m" or "-1": all zero, or not. */
    if (!at || at[0] == 0 || at[strspn(at, "+-0123456789.nu\xC2\xB5msh")] != 0 ||
        !at[strcspn(at, "0123456789")])
        return call_refuse(c, "keep_alive",
                           "keep_alive is neither a number of seconds nor a time such as \"5m\"");
    *is_zero = !at[strcspn(at, "123456789")];
    return true;
}

/* Without a prompt only the model is asked for. True: there is one; false: answered. */
static bool has_prompt(call *c, const json_t *body, const json_t *prompt, bool is_chat)
{
    bool is_empty = !prompt || (json_is_string(prompt) && json_string_length(prompt) == 0) ||
                    (json_is_array(prompt) && json_array_size(prompt) == 0);
    bool is_unload;
    if (!read_keep_alive(c, body, &is_unload))
        return false;
    if (is_empty)
        ollama_reply_loaded(c, is_chat, is_unload);
    return !is_empty;
}

/* ---- Options --------------------------------------------------------------------------------- */

/* Options that are fields of ours, and what errors call them. */
static const field_name option_names[] = {
    {"temperature", "options.temperature"},
    {"top_k", "options.top_k"},
    {"top_p", "options.top_p"},
    {"min_p", "options.min_p"},
    {"typical_p", "options.typical_p"},
    {"tfs_z", "options.tfs_z"},
    {"seed", "options.seed"},
    {"stop", "options.stop"},
    {"repeat_penalty", "options.repeat_penalty"},
    {"repeat_last_n", "options.repeat_last_n"},
    {"presence_penalty", "options.presence_penalty"},
    {"frequency_penalty", "options.frequency_penalty"},
    {"mirostat", "options.mirostat"},
    {"mirostat_tau", "options.mirostat_tau"},
    {"mirostat_eta", "options.mirostat_eta"},
    {"max_tokens", "options.num_predict"},
    {NULL, NULL},
};

/* Options that speak of the machine: settled when the server started. */
static bool is_of_the_machine(const char *key)
{
    static const char *const names[] = {"num_ctx",    "num_keep",  "num_gpu",          "main_gpu",
                                        "num_thread", "num_batch", "use_mmap",         "use_mlock",
                                        "numa",       "low_vram",  "penalize_newline", "f16_kv",
                                        "vocab_only", "logits_all"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return false;
}

/* "options" in Ollama's words, as a body in ours. */
static bool translate(call *c, const json_t *options, json_t *ours)
{
    json_t *value;
    const char *key;
    json_object_foreach((json_t *)options, key, value)
    {
        const field_name *n = option_names;
        while (n->ours && strcmp(key, n->theirs + strlen("options.")) != 0)
            n++;
        if (n->ours && json_object_set(ours, n->ours, value) != 0)
            return call_nomem(c);
        if (!n->ours && !is_of_the_machine(key)) {
            call_fail(c, 400, "options", NULL, "options.%.60s is not known here", key);
            return false;
        }
    }
    const json_t *n_predict = json_object_get(ours, "max_tokens");
    if (json_is_integer(n_predict) && json_integer_value(n_predict) < 0)
        json_object_del(ours, "max_tokens"); /* -1: without a limit */
    return true;
}

/* Fields of the body itself that control the generation. */
static bool read_top_fields(gen_request *r, call *c, const json_t *body, json_t *ours)
{
    static const char *const not_done[] = {"template", "context"};
    static const char *const same[] = {"logprobs", "top_logprobs"};
    for (size_t i = 0; i < sizeof not_done / sizeof not_done[0]; i++) {
        const json_t *value = json_object_get(body, not_done[i]);
        if (json_is_true(value) || json_string_length(value) > 0 || json_array_size(value) > 0) {
            call_fail(c, 400, not_done[i], NULL, "%s is not supported here", not_done[i]);
            return false;
        }
    }
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        json_t *value = json_get(body, same[i]);
        if (value && json_object_set(ours, same[i], value) != 0)
            return call_nomem(c);
    }
    const json_t *stream = json_get(body, "stream");
    if (stream && !json_is_boolean(stream))
        return call_refuse(c, "stream", "stream is not a boolean");
    r->is_stream = !json_is_false(stream);
    return true;
}

static bool read_options(gen_request *r, call *c, const json_t *body)
{
    const json_t *options = json_get(body, "options");
    const json_t *n_context = json_object_get(options, "num_ctx");
    if (options && !json_is_object(options))
        return call_refuse(c, "options", "options is not an object");
    if (n_context && !json_is_null(n_context) && !json_is_integer(n_context))
        return call_refuse(c, "options.num_ctx", "options.num_ctx is not an integer");
    if (json_is_integer(n_context) &&
        json_integer_value(n_context) > call_server(c)->limits.n_context) {
        call_fail(c, 400, "num_ctx", NULL,
                  "options.num_ctx is %" JSON_INTEGER_FORMAT ", the server's context has %d tokens",
                  json_integer_value(n_context), call_server(c)->limits.n_context);
        return false;
    }
    json_t *ours = json_object();
    call_rename(c, option_names);
    bool ok = (ours || call_nomem(c)) && translate(c, options, ours) &&
              read_top_fields(r, c, body, ours) && gen_request_read(r, c, ours, GEN_CHAT);
    json_decref(ours);
    return ok;
}

/* "format": "json", or a schema. */
static bool read_format(gen_request *r, call *c, const json_t *format)
{
    const char *word = json_string_value(format);
    if (!format || json_is_null(format) || (word && !*word))
        return true;
    if (word && strcmp(word, "json") == 0)
        return gen_use_schema(r, c, "format", NULL);
    return json_is_object(format)
               ? gen_use_schema(r, c, "format", format)
               : call_refuse(c, "format", "format is neither \"json\" nor a schema");
}

/* "think": true, false, or how much. */
static bool read_think(gen_request *r, call *c, const json_t *body)
{
    json_t *think = json_get(body, "think");
    r->kwargs = json_object();
    if (think && !json_is_boolean(think) && !json_is_string(think))
        return call_refuse(c, "think", "think is neither a boolean nor a text");
    if (!r->kwargs ||
        (think &&
         json_object_set(r->kwargs, json_is_string(think) ? "reasoning_effort" : "enable_thinking",
                         think) != 0))
        return call_nomem(c);
    return true;
}

/* What both routes have. */
static bool read_common(gen_request *r, call *c, const json_t *body)
{
    return read_options(r, c, body) && read_format(r, c, json_object_get(body, "format")) &&
           read_think(r, c, body);
}

/* ---- Chat ------------------------------------------------------------------------------------ */

static bool read_tools(gen_request *r, call *c, const json_t *body)
{
    json_t *tools = json_get(body, "tools");
    if (tools && !json_is_array(tools))
        return call_refuse(c, "tools", "tools is not a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (!json_is_string(json_object_get(function, "name")))
            return call_refuse(c, "tools", "a tool is not a function with a name");
    }
    r->tools = json_array_size(tools) ? json_incref(tools) : NULL;
    return true;
}

/*
 * Images beside a text, as a list of base64: the content becomes parts, the images first, in the form
 * that gen_images.c reads.
 */
static bool add_images(call *c, json_t *message, const json_t *images)
{
    if (!images || json_is_null(images) || (json_is_array(images) && json_array_size(images) == 0))
        return true;
    if (!json_is_array(images))
        return call_refuse(c, "images", "images is not a list");
    json_t *content = json_object_get(message, "content"), *parts = json_array();
    bool ok = parts || call_nomem(c);
    for (size_t i = 0; ok && i < json_array_size(images); i++) {
        json_t *data = json_array_get(images, i);
        ok = json_is_string(data)
                 ? call_append(c, parts,
                               json_pack("{s:s, s:{s:O}}", "type", "image", "source", "data", data))
                 : call_refuse(c, "images", "an image is not a text in base64");
    }
    if (ok && json_string_length(content) > 0)
        ok = call_append(c, parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
    ok = ok && (json_object_set(message, "content", parts) == 0 || call_nomem(c));
    json_decref(parts);
    return ok;
}

/* Calls without ids get some, and results without are of the last call. */
static bool read_messages(call *c, const json_t *given, json_t **out)
{
    *out = json_is_array(given) ? json_deep_copy(given) : NULL;
    char last[32] = "call_0";
    int n_calls = 0;
    if (!*out)
        return call_refuse(c, "messages", "messages is not a list");
    for (size_t i = 0; i < json_array_size(*out); i++) {
        json_t *message = json_array_get(*out, i);
        const json_t *images = json_object_get(message, "images");
        const char *role = json_string_value(json_object_get(message, "role"));
        json_t *calls = json_object_get(message, "tool_calls");
        if (!add_images(c, message, images))
            return false;
        json_object_del(message, "images");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            json_t *one = json_array_get(calls, k);
            if (!json_is_object(one))
                return call_refuse(c, "messages", "a tool call is not an object");
            snprintf(last, sizeof last, "call_%d", n_calls++);
            if (!json_object_get(one, "id"))
                json_object_set_new(one, "id", json_string(last));
            json_object_set_new(one, "type", json_string("function"));
        }
        if (role && strcmp(role, "tool") == 0 && !json_object_get(message, "tool_call_id"))
            json_object_set_new(message, "tool_call_id", json_string(last));
    }
    return true;
}

bool ollama_read_chat(gen_request *r, call *c, json_t *body)
{
    const json_t *messages = json_get(body, "messages");
    return ollama_check_model(c, body) && has_prompt(c, body, messages, true) &&
           read_common(r, c, body) && read_tools(r, c, body) &&
           read_messages(c, messages, &r->messages) && gen_request_chat(r, c);
}

/* ---- Generate -------------------------------------------------------------------------------- */

/* A model without a template goes on from what it is given, as Ollama has it: it knows no marks. */
static bool use_as_text(gen_request *r, call *c, const json_t *system, const json_t *prompt)
{
    size_t n_system = json_string_length(system), n_prompt = json_string_length(prompt);
    size_t n_between = n_system ? 2 : 0, n = n_system + n_between + n_prompt;
    char *whole = arena_alloc(&r->memory, n + 1, 1);
    if (!whole)
        return call_nomem(c);
    memcpy(whole, n_system ? json_string_value(system) : "", n_system);
    memcpy(whole + n_system, "\n\n", n_between);
    memcpy(whole + n_system + n_between, json_string_value(prompt), n_prompt + 1);
    return gen_request_text(r, c, whole, n);
}

/* The prompt as a conversation of one message, unless it is to be taken as it is. */
static bool use_prompt(gen_request *r, call *c, const json_t *body)
{
    json_t *prompt = json_get(body, "prompt"), *system = json_get(body, "system");
    const json_t *suffix = json_get(body, "suffix"), *raw = json_get(body, "raw");
    if (!json_is_string(prompt))
        return call_refuse(c, "prompt", "prompt is not a text");
    if (system && !json_is_string(system))
        return call_refuse(c, "system", "system is not a text");
    if (suffix && !json_is_string(suffix))
        return call_refuse(c, "suffix", "suffix is not a text");
    if (raw && !json_is_boolean(raw))
        return call_refuse(c, "raw", "raw is not a boolean");
    if ((json_is_true(raw) || json_string_length(suffix) > 0) &&
        json_array_size(json_get(body, "images")) > 0)
        return call_refuse(c, "images", "images need the model's template: not with raw or suffix");
    if (json_string_length(suffix) > 0)
        return gen_request_infill(r, c,
                                  (text){json_string_value(prompt), json_string_length(prompt)},
                                  (text){json_string_value(suffix), json_string_length(suffix)});
    bool has_images = json_array_size(json_get(body, "images")) > 0;
    if (!json_is_true(raw) && !has_images &&
        !chat_template_caps(call_server(c)->chat)->has_own_template)
        return use_as_text(r, c, system, prompt);
    if (json_is_true(raw))
        return gen_request_text(r, c, json_string_value(prompt), json_string_length(prompt));
    r->messages = json_array();
    if (!r->messages)
        return call_nomem(c);
    if (json_string_length(system) > 0 &&
        !call_append(c, r->messages, json_pack("{s:s, s:O}", "role", "system", "content", system)))
        return false;
    json_t *message = json_pack("{s:s, s:O}", "role", "user", "content", prompt);
    return (message || call_nomem(c)) && call_append(c, r->messages, message) &&
           add_images(c, message, json_get(body, "images")) && gen_request_chat(r, c);
}

bool ollama_read_generate(gen_request *r, call *c, json_t *body)
{
    return ollama_check_model(c, body) && has_prompt(c, body, json_get(body, "prompt"), false) &&
           read_common(r, c, body) && use_prompt(r, c, body);
}
