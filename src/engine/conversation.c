/* Chat for the public API: messages to prompts, and replies taken apart. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "chat/call_grammar.h"
#include "chat/chat.h"
#include "engine/engine.h"

enum { MAX_PROMPT = 256 << 20, MAX_REPLY = 64 << 20, MAX_GBNF = 4 << 20, MAX_CALLS = 1024 };

struct lace_chat {
    const lace_model *model;
    chat_template *template;
};

/* What lace.h shows of a prompt is its beginning. */
typedef struct made_prompt {
    lace_prompt shown;
    chat_prompt chars;
    lace_token *tokens;
    json_t *tools; /* NULL: none */
    reply_format format;
    bool keeps_reasoning;
} made_prompt;

struct lace_reply {
    reply_parser *parser;
    lace_reply_fn on_event;
    void *user;
    buf content, reasoning;
    buf arguments;  /* of the call under way */
    json_t *calls;  /* those that were complete */
    json_t *called; /* the call under way; NULL: none */
    char *message;
};

/* ---- Templates ------------------------------------------------------------------------------- */

static text token_text(const lace_model *lm, lace_token token)
{
    text t = {"", 0};
    if (token >= 0)
        t.data = lace_token_bytes(lm, token, &t.size);
    return t;
}

lace_status lace_chat_create(const lace_model *lm, const char *template_source, lace_chat **out,
                             lace_error *err)
{
    *out = NULL;
    lace_model_info info;
    lace_model_describe(lm, &info);
    lace_chat *c = mem_calloc(1, sizeof *c);
    if (!c)
        return error_nomem(err, "a chat template");
    c->model = lm;
    const char *source = template_source ? template_source : info.chat_template;
    lace_status status = chat_template_create(text_of(source), token_text(lm, info.bos),
                                              token_text(lm, info.eos), &c->template, err);
    return GIVE_OR_FREE(status, c, out, lace_chat_free);
}

void lace_chat_free(lace_chat *c)
{
    if (!c)
        return;
    chat_template_free(c->template);
    mem_free(c);
}

/* ---- Prompts --------------------------------------------------------------------------------- */

lace_chat_request lace_chat_request_default(void)
{
    return (lace_chat_request){.messages = NULL};
}

/* A field of the request, as JSON; NULL stays NULL. */
static lace_status read_field(const char *name, const char *source, json_type type, json_t **out,
                              lace_error *err)
{
    *out = NULL;
    if (!source)
        return LACE_OK;
    lace_status status = json_read((span){(const uint8_t *)source, strlen(source)}, 0, out, err);
    if (status != LACE_OK)
        return error_prefix(err, status, name);
    if (json_typeof(*out) == type)
        return LACE_OK;
    return error_set(err, LACE_E_ARG, "%s is %s, expected %s", name, json_kind(*out),
                     type == JSON_ARRAY ? "an array" : "an object");
}

static lace_status list_messages(const lace_chat_request *r, json_t **out, lace_error *err)
{
    if (r->messages_json)
        return read_field("messages_json", r->messages_json, JSON_ARRAY, out, err);
    *out = json_array();
    for (size_t i = 0; *out && i < r->n_messages; i++) {
        const lace_message *m = &r->messages[i];
        if (!m->role || !m->content)
            return error_set(err, LACE_E_ARG, "message %zu has no role or no content", i);
        json_t *message = json_pack("{s:s, s:s}", "role", m->role, "content", m->content);
        if (!message)
            return error_set(err, LACE_E_UTF8, "message %zu is not valid UTF-8", i);
        json_array_append_new(*out, message);
    }
    return *out ? LACE_OK : error_nomem(err, "messages");
}

static lace_status tokenize_prompt(const lace_chat *c, made_prompt *p, lace_error *err)
{
    const buf *chars = &p->chars.chars;
    /* A model's own template writes BOS itself. */
    unsigned flags = LACE_TOKENIZE_PARSE_SPECIAL;
    if (!chat_template_caps(c->template)->has_own_template)
        flags |= LACE_TOKENIZE_ADD_SPECIAL;
    size_t n = 0, room = chars->size + 2; /* no token but BOS and EOS stands for no byte */
    p->tokens = mem_calloc(room, sizeof *p->tokens);
    if (!p->tokens)
        return error_nomem(err, "tokens");
    TRY(lace_tokenize_contents(c->model, chars->data ? chars->data : "", chars->size,
                               p->chars.contents, p->chars.n_contents, flags, p->tokens, room, &n,
                               err));
    p->shown = (lace_prompt){.text = chars->data ? chars->data : "",
                             .n_bytes = chars->size,
                             .tokens = p->tokens,
                             .n_tokens = n < room ? n : room};
    return LACE_OK;
}

static lace_status make_prompt(const lace_chat *c, const lace_chat_request *r,
                               const json_t *messages, const json_t *variables, made_prompt *p,
                               lace_error *err)
{
    chat_request request = chat_request_default();
    request.messages = messages;
    request.tools = json_array_size(p->tools) ? p->tools : NULL;
    request.kwargs = variables;
    request.continues_last = r->continues_last;
    request.describes_tools = true;
    request.gives_date = true;
    request.now = clock_wall_seconds();
    TRY(chat_template_prompt(c->template, &request, &p->chars, err));
    TRY(tokenize_prompt(c, p, err));
    bool is_described = request.tools && !chat_template_caps(c->template)->takes_tools;
    p->format = is_described ? chat_template_described_format(c->template)
                             : *chat_template_reply_format(c->template);
    p->keeps_reasoning = r->keeps_reasoning;
    p->shown.is_thinking =
        reply_opens_thinking(&p->format, (text){p->shown.text, p->shown.n_bytes});
    return LACE_OK;
}

lace_status lace_chat_prompt(const lace_chat *c, const lace_chat_request *r, lace_prompt **out,
                             lace_error *err)
{
    *out = NULL;
    made_prompt *p = mem_calloc(1, sizeof *p);
    if (!p)
        return error_nomem(err, "a prompt");
    chat_prompt_init(&p->chars, MAX_PROMPT);
    json_t *messages = NULL, *variables = NULL;
    json_heap_failed(); /* forget what others were short of */
    lace_status status = list_messages(r, &messages, err);
    if (status == LACE_OK)
        status = read_field("tools_json", r->tools_json, JSON_ARRAY, &p->tools, err);
    if (status == LACE_OK)
        status = read_field("variables_json", r->variables_json, JSON_OBJECT, &variables, err);
    if (status == LACE_OK)
        status = make_prompt(c, r, messages, variables, p, err);
    if (status == LACE_OK && json_heap_failed()) /* a message or a tool may be missing */
        status = error_nomem(err, "a prompt");
    json_decref(messages);
    json_decref(variables);
    return GIVE_OR_FREE(status, &p->shown, out, lace_prompt_free);
}

void lace_prompt_free(lace_prompt *shown)
{
    made_prompt *p = (made_prompt *)shown;
    if (!p)
        return;
    chat_prompt_deinit(&p->chars);
    json_decref(p->tools);
    mem_free(p->tokens);
    mem_free(p);
}

lace_status lace_chat_call_grammar(const lace_chat *c, const lace_prompt *prompt, const char *name,
                                   lace_grammar **out, lace_error *err)
{
    *out = NULL;
    const made_prompt *p = (const made_prompt *)prompt;
    if (json_array_size(p->tools) == 0)
        return error_set(err, LACE_E_ARG, "a call is demanded, and the prompt has no tools");
    call_demand demand = {.tools = p->tools, .name = name, .is_thinking = prompt->is_thinking};
    buf gbnf;
    buf_init(&gbnf, MAX_GBNF);
    lace_status status = reply_call_grammar(&p->format, &demand, &gbnf);
    if (status == LACE_E_ARG)
        error_set(err, status, "there is no tool \"%.100s\"", name ? name : "");
    else if (status != LACE_OK)
        error_set(err, status, "no call of these tools can be demanded: %s",
                  lace_status_text(status));
    else /* the model's own list of grammars is guarded by a lock */
        status = lace_grammar_create((lace_model *)c->model, LACE_GRAMMAR_GBNF, gbnf.data,
                                     gbnf.size, out, err);
    buf_deinit(&gbnf);
    return status;
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* {"id": "call_0", "type": "function", "function": {"name": ..., "arguments": ...}} */
static lace_status begin_call(lace_reply *r, const reply_event *e)
{
    char id[32];
    snprintf(id, sizeof id, "call_%d", e->call);
    json_decref(r->called);
    r->called = json_pack("{s:s%, s:s, s:{s:s%}}", "id", e->id.size ? e->id.data : id,
                          e->id.size ? e->id.size : strlen(id), "type", "function", "function",
                          "name", e->chars.data, e->chars.size);
    buf_clear(&r->arguments);
    return r->called ? LACE_OK : LACE_E_NOMEM;
}

/* A call that was cut short is not one that anybody can make. */
static lace_status end_call(lace_reply *r, bool is_complete)
{
    json_t *called = r->called;
    r->called = NULL;
    if (!is_complete || json_array_size(r->calls) >= MAX_CALLS) {
        json_decref(called);
        return LACE_OK;
    }
    const char *arguments = r->arguments.data ? r->arguments.data : "{}";
    json_object_set_new(json_object_get(called, "function"), "arguments",
                        json_stringn(arguments, strlen(arguments)));
    if (!r->calls)
        r->calls = json_array();
    json_array_append_new(r->calls, called);
    return json_heap_failed() ? LACE_E_NOMEM : LACE_OK;
}

static lace_status keep_event(lace_reply *r, const reply_event *e)
{
    switch (e->kind) {
    case REPLY_CONTENT:
        return buf_append(&r->content, e->chars.data, e->chars.size);
    case REPLY_REASONING:
        return buf_append(&r->reasoning, e->chars.data, e->chars.size);
    case REPLY_CALL_BEGIN:
        return begin_call(r, e);
    case REPLY_CALL_ARGS:
        return buf_append(&r->arguments, e->chars.data, e->chars.size);
    case REPLY_CALL_END:
        break;
    }
    return end_call(r, e->is_complete);
}

static lace_status on_reply(void *arg, const reply_event *e)
{
    static const lace_reply_kind kinds[] = {[REPLY_CONTENT] = LACE_REPLY_CONTENT,
                                            [REPLY_REASONING] = LACE_REPLY_REASONING,
                                            [REPLY_CALL_BEGIN] = LACE_REPLY_CALL_BEGIN,
                                            [REPLY_CALL_ARGS] = LACE_REPLY_CALL_ARGS,
                                            [REPLY_CALL_END] = LACE_REPLY_CALL_END};
    lace_reply *r = arg;
    TRY(keep_event(r, e));
    lace_reply_event shown = {.kind = kinds[e->kind],
                              .text = e->chars.data ? e->chars.data : "",
                              .n_bytes = e->chars.size,
                              .call = e->call,
                              .is_complete = e->is_complete};
    if (r->on_event)
        r->on_event(r->user, &shown);
    return LACE_OK;
}

lace_status lace_reply_create(const lace_chat *c, const lace_prompt *prompt, lace_reply_fn on_event,
                              void *user, lace_reply **out, lace_error *err)
{
    (void)c; /* what is known of the template is with the prompt */
    *out = NULL;
    const made_prompt *p = (const made_prompt *)prompt;
    lace_reply *r = mem_calloc(1, sizeof *r);
    if (!r)
        return error_nomem(err, "a reply");
    r->on_event = on_event;
    r->user = user;
    buf_init(&r->content, MAX_REPLY);
    buf_init(&r->reasoning, MAX_REPLY);
    buf_init(&r->arguments, MAX_REPLY);
    reply_options options = {.is_thinking = prompt->is_thinking,
                             .keeps_thinking = p->keeps_reasoning,
                             .keeps_calls = json_array_size(p->tools) == 0,
                             .opening = p->chars.opening,
                             .tools = p->tools};
    lace_status status = reply_parser_create(&p->format, &options, on_reply, r, &r->parser, err);
    return GIVE_OR_FREE(status, r, out, lace_reply_free);
}

static lace_status explain(lace_status status, lace_error *err)
{
    return status == LACE_OK ? status
                             : error_set(err, status, "a reply: %s", lace_status_text(status));
}

lace_status lace_reply_push(lace_reply *r, const char *chars, size_t n_bytes, lace_error *err)
{
    return explain(reply_parser_feed(r->parser, (text){chars, n_bytes}, NULL), err);
}

static json_t *string_of(const buf *b)
{
    return json_stringn_nocheck(b->data ? b->data : "", b->size);
}

lace_status lace_reply_finish(lace_reply *r, const char **message_json, lace_error *err)
{
    if (message_json)
        *message_json = NULL;
    TRY(explain(reply_parser_finish(r->parser, NULL), err));
    if (!message_json)
        return LACE_OK;
    json_heap_failed(); /* forget what others were short of */
    json_t *message =
        json_pack("{s:s, s:o}", "role", "assistant", "content", string_of(&r->content));
    if (r->reasoning.size)
        json_object_set_new(message, "reasoning_content", string_of(&r->reasoning));
    if (r->calls)
        json_object_set(message, "tool_calls", r->calls);
    mem_free(r->message);
    r->message = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    *message_json = r->message;
    return r->message && !json_heap_failed() ? LACE_OK : error_nomem(err, "a message");
}

void lace_reply_free(lace_reply *r)
{
    if (!r)
        return;
    reply_parser_free(r->parser);
    buf_deinit(&r->content);
    buf_deinit(&r->reasoning);
    buf_deinit(&r->arguments);
    json_decref(r->calls);
    json_decref(r->called);
    mem_free(r->message);
    mem_free(r);
}
