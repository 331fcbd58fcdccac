/* The fields of a request that speak to the chat template, and rendering by it. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "server/core.h"

static bool refuse_kind(call *c, const char *name, const char *expected, const json_t *value)
{
    call_fail(c, 400, name, "invalid_type", "%s is %s, expected %s", name, json_kind(value),
              expected);
    return false;
}

/* A boolean that may be missing; *is_given says whether it was there. */
static bool read_flag(call *c, const json_t *body, const char *name, bool *flag, bool *is_given)
{
    const json_t *value = json_get(body, name);
    *is_given = value != NULL;
    if (!value)
        return true;
    if (!json_is_boolean(value))
        return refuse_kind(c, name, "a boolean", value);
    *flag = json_is_true(value);
    return true;
}

static bool set_thinking(gen_request *r, call *c, bool is_on)
{
    return json_object_set_new(r->kwargs, "enable_thinking", json_boolean(is_on)) == 0 ||
           call_nomem(c);
}

/* Variables that the request gives by name; those that are made of other fields are not taken. */
static bool read_kwargs(gen_request *r, call *c, const json_t *body)
{
    static const char *const reserved[] = {
        "messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"};
    const json_t *given = json_get(body, "chat_template_kwargs");
    if (given && !json_is_object(given))
        return refuse_kind(c, "chat_template_kwargs", "an object", given);
    for (size_t i = 0; given && i < sizeof reserved / sizeof reserved[0]; i++)
        if (json_object_get(given, reserved[i])) {
            call_fail(c, 400, "chat_template_kwargs", "invalid_value",
                      "chat_template_kwargs.%s: a request cannot set this variable; messages, "
                      "tools, documents and add_generation_prompt are fields of their own",
                      reserved[i]);
            return false;
        }
    const json_t *thinking = json_get(given, "enable_thinking");
    if (thinking && !json_is_boolean(thinking))
        return refuse_kind(c, "chat_template_kwargs.enable_thinking", "a boolean", thinking);
    json_decref(r->kwargs);
    r->kwargs = given ? json_copy((json_t *)given) : json_object();
    return r->kwargs || call_nomem(c);
}

/* How much the model is to think: words of OpenAI, vLLM and llama-server. */
static bool read_reasoning(gen_request *r, call *c, const json_t *body)
{
    static const char *const budgets[] = {"thinking_budget_tokens", "reasoning_budget_tokens",
                                          "reasoning_budget"};
    json_t *effort = json_get(body, "reasoning_effort");
    const json_t *format = json_get(body, "reasoning_format");
    bool is_on = true, is_given;
    r->thinking_budget = call_server(c)->options.reasoning_budget;
    if (r->thinking_budget == 0 && !json_object_get(r->kwargs, "enable_thinking") &&
        !set_thinking(r, c, false))
        return false;
    if (!read_flag(c, body, "enable_thinking", &is_on, &is_given) ||
        (is_given && !set_thinking(r, c, is_on)))
        return false;
    if (effort && !json_is_string(effort))
        return refuse_kind(c, "reasoning_effort", "a string", effort);
    if (effort && strcmp(json_string_value(effort), "none") == 0) {
        if (!set_thinking(r, c, false))
            return false;
    } else if (effort && json_object_set(r->kwargs, "reasoning_effort", effort) != 0) {
        return call_nomem(c);
    }
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        const json_t *budget = json_get(body, budgets[i]);
        if (budget && !json_is_integer(budget))
            return refuse_kind(c, budgets[i], "an integer", budget);
        if (budget && (json_integer_value(budget) < -1 || json_integer_value(budget) > INT32_MAX)) {
            call_fail(c, 400, budgets[i], "invalid_value",
                      "%s is out of range: 0 turns reasoning off, -1 does not limit it",
                      budgets[i]);
            return false;
        }
        if (budget && json_integer_value(budget) == 0 && !set_thinking(r, c, false))
            return false;
        if (budget)
            r->thinking_budget = (int32_t)json_integer_value(budget);
    }
    const char *word = json_string_value(format);
    r->keeps_reasoning = word && strcmp(word, "none") == 0;
    if (format && !r->keeps_reasoning &&
        !(word && (strcmp(word, "auto") == 0 || strcmp(word, "deepseek") == 0)))
        return call_refuse(c, "reasoning_format",
                           "reasoning_format is not \"none\", \"auto\" or \"deepseek\"");
    return true;
}

/* Tokens for an effort that the template itself has no word for. */
static int32_t effort_budget(const gen_request *r, const call *c)
{
    static const struct {
        const char *effort;
        int32_t n_tokens;
    } budgets[] = {{"minimal", 256}, {"low", 1024}, {"medium", 8192}};
    const char *effort = json_string_value(json_object_get(r->kwargs, "reasoning_effort"));
    if (!effort || chat_template_uses(call_server(c)->chat, "reasoning_effort"))
        return -1;
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++)
        if (strcmp(effort, budgets[i].effort) == 0)
            return budgets[i].n_tokens;
    return -1;
}

/* What is said to close it, as tokens. */
static bool make_closing(gen_request *r, call *c, const char *end)
{
    char words[128];
    lace_reasoning *limit = &r->options.reasoning;
    size_t n = (size_t)snprintf(words, sizeof words, "\n%s\n\n", end);
    lace_token *tokens = arena_alloc(&r->memory, n, sizeof *tokens);
    if (!tokens)
        return call_nomem(c);
    if (lace_tokenize(call_server(c)->model, words, n, LACE_TOKENIZE_PARSE_SPECIAL, tokens, n,
                      &limit->n_closing, NULL) != LACE_OK ||
        limit->n_closing > n)
        limit->n_closing = 0;
    limit->closing = tokens;
    return true;
}

bool gen_limit_reasoning(gen_request *r, call *c)
{
    const server *s = call_server(c);
    const reply_format *format = chat_template_reply_format(s->chat);
    lace_reasoning *limit = &r->options.reasoning;
    r->options.breaks_loops = s->options.breaks_loops && !r->options.ignore_end;
    if (!reply_thinking_words(format, &limit->begin, &limit->end))
        return true;
    limit->is_open = reply_opens_thinking(format, (text){r->prompt_text, r->n_prompt_text});
    limit->max_tokens = r->thinking_budget > 0 ? r->thinking_budget : effort_budget(r, c);
    return make_closing(r, c, limit->end);
}

/* How the prompt ends: behind the messages, in a new turn of the assistant, or in its last one. */
static bool read_end(gen_request *r, call *c, const json_t *body)
{
    bool adds, continues;
    if (!read_flag(c, body, "add_generation_prompt", &r->add_generation_prompt, &adds) ||
        !read_flag(c, body, "continue_final_message", &r->continues_last, &continues))
        return false;
    if (!continues || !r->continues_last)
        return true;
    if (adds && r->add_generation_prompt)
        return call_refuse(c, "continue_final_message",
                           "continue_final_message and add_generation_prompt exclude each other");
    const json_t *messages = r->messages ? r->messages : json_get(body, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || strcmp(role, "assistant") != 0)
        return call_refuse(c, "continue_final_message",
                           "continue_final_message: the last message is not the assistant's");
    r->add_generation_prompt = true; /* what it says goes behind the words that open a reply */
    return true;
}

bool gen_read_template(gen_request *r, call *c, const json_t *body)
{
    const json_t *documents = json_get(body, "documents");
    if (json_get(body, "chat_template"))
        return call_refuse(
            c, "chat_template",
            "chat_template cannot be set by a request; use lace serve --chat-template-file");
    if (documents && !json_is_array(documents))
        return refuse_kind(c, "documents", "a list", documents);
    if (json_array_size(documents) > 0 && !chat_template_uses(call_server(c)->chat, "documents"))
        return call_refuse(c, "documents", "the model's template takes no documents");
    json_decref(r->documents);
    r->documents = json_array_size(documents) > 0 ? json_incref((json_t *)documents) : NULL;
    return read_kwargs(r, c, body) && read_reasoning(r, c, body) && read_end(r, c, body);
}

/* ---- Rendering ------------------------------------------------------------------------------- */

/* A role that no template knows would be shown to the model as it came. */
static bool check_roles(call *c, const json_t *messages)
{
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        call_fail(c, 400, "messages", "invalid_type",
                  "messages is not a list of at least one message");
        return false;
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        bool is_known = false;
        for (size_t k = 0; role && k < sizeof roles / sizeof roles[0]; k++)
            is_known = is_known || strcmp(role, roles[k]) == 0;
        if (!is_known) {
            call_fail(c, 400, "messages", "invalid_value",
                      "messages[%zu] has an unknown role or none", i);
            return false;
        }
    }
    return true;
}

lace_status gen_render_messages(const gen_request *r, call *c, const json_t *messages,
                                chat_prompt *out, lace_error *err)
{
    chat_request request = chat_request_default();
    request.messages = messages;
    request.tools = r->tools;
    request.kwargs = r->kwargs;
    request.documents = r->documents;
    request.add_generation_prompt = r->add_generation_prompt;
    request.continues_last = r->continues_last;
    request.describes_tools = true;
    request.gives_date = true;
    request.gives_thinking = true;
    request.now = clock_wall_seconds();
    return chat_template_prompt(call_server(c)->chat, &request, out, err);
}

bool gen_render(const gen_request *r, call *c, chat_prompt *out)
{
    lace_error err = {0};
    if (!check_roles(c, r->messages))
        return false;
    if (gen_render_messages(r, c, r->messages, out, &err) == LACE_OK)
        return true;
    call_fail_error(c, "messages", &err);
    return false;
}
