/* POST /v1/chat/completions: messages in, a message out, with reasoning and tool calls apart. */
#include <string.h>

#include "base/json_read.h"
#include "server/api.h"
#include "server/core.h"
#include "server/openai.h"
#include "server/reply.h"

typedef struct chat_reply chat_reply;

/* One choice: what was parsed, kept for the whole answer or written as deltas at once. */
typedef struct chat_choice {
    chat_reply *reply;
    int index;
    reply_parser *parser;
    json_out content, reasoning;
    json_out calls;     /* the list of tool calls, without its brackets */
    json_out arguments; /* of the call that is being read */
    json_out logprobs;  /* tokens that no chunk has shown yet */
    int n_calls;
    bool has_content;
    bool has_role; /* the first chunk was sent */
    lace_finish finish;
    lace_generation_stats stats; /* of the last event */
} chat_choice;

struct chat_reply {
    call *c;
    int n_choices;
    bool has_failed;
    openai_usage usage;
    json_out chunk; /* being written */
    chat_choice choices[];
};

/* ---- Asking ---------------------------------------------------------------------------------- */

/* tool_choice: whether tools are used at all, and whether one of them, or this one, must be. */
static bool read_choice(call *c, const json_t *choice, bool *is_none, bool *is_forced,
                        const char **name)
{
    const char *word = json_string_value(choice);
    *is_none = *is_forced = false;
    *name = NULL;
    if (!choice || json_is_null(choice) || (word && strcmp(word, "auto") == 0))
        return true;
    *is_none = word && strcmp(word, "none") == 0;
    *is_forced = word && strcmp(word, "required") == 0;
    if (*is_none || *is_forced)
        return true;
    *name = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    *is_forced = *name;
    return *name ||
           call_refuse(c, "tool_choice",
                       "tool_choice is not \"auto\", \"none\", \"required\" or a function's name");
}

/* The tools, unless they are not to be used. */
static bool read_tools(gen_request *r, call *c, const json_t *body)
{
    json_t *tools = json_object_get(body, "tools");
    bool is_none, is_forced;
    const char *name;
    if (!read_choice(c, json_object_get(body, "tool_choice"), &is_none, &is_forced, &name))
        return false;
    if (is_forced && json_array_size(tools) == 0)
        return call_refuse(c, "tool_choice", "tool_choice demands a call, but there are no tools");
    if (is_none)
        return true;
    if (!tools || json_is_null(tools))
        return true;
    if (!json_is_array(tools))
        return call_refuse(c, "tools", "tools is not a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (!json_is_string(json_object_get(function, "name")))
            return call_refuse(c, "tools", "a tool has no function with a name");
    }
    r->tools = json_array_size(tools) ? json_incref(tools) : NULL;
    return !is_forced || gen_force_call(r, c, name);
}

/* ---- State ----------------------------------------------------------------------------------- */

static lace_status on_part(void *arg, const reply_event *part);

static const size_t outs[] = {offsetof(chat_reply, chunk)};
static const size_t choice_outs[] = {
    offsetof(chat_choice, content), offsetof(chat_choice, reasoning), offsetof(chat_choice, calls),
    offsetof(chat_choice, arguments), offsetof(chat_choice, logprobs)};

static void make_parsers(call *c, void *state)
{
    chat_reply *reply = state;
    reply->c = c;
    reply->n_choices = call_request(c)->n_choices;
    for (int i = 0; i < reply->n_choices; i++) {
        chat_choice *h = &reply->choices[i];
        h->reply = reply;
        h->index = i;
        if (gen_make_parser(c, i, on_part, h, &h->parser) != LACE_OK)
            reply->has_failed = true;
    }
}

static void free_parsers(void *state)
{
    chat_reply *reply = state;
    for (int i = 0; i < reply->n_choices; i++)
        reply_parser_free(reply->choices[i].parser);
}

static const choices_kind choices = CHOICES_KIND(chat_reply, chat_choice, outs, choice_outs,
                                                 .begin = make_parsers, .end = free_parsers);

/* ---- Chunks of a stream ---------------------------------------------------------------------- */

/* Up to the members of delta; end_chunk completes it. */
static json_out *begin_chunk(chat_choice *h)
{
    call *c = h->reply->c;
    json_out *out = &h->reply->chunk;
    openai_begin_chunk(c, out);
    openai_write_head(c, out, "chatcmpl", "chat.completion.chunk");
    json_out_printf(out, ",\"choices\":[{\"index\":%d,\"delta\":{", h->index);
    return out;
}

/* Why the model was not let go on, where it was not. */
static void write_cuts(json_out *out, const lace_generation_stats *s)
{
    if (s->text_cut != LACE_CUT_NONE)
        json_out_printf(out, ",\"stop_reason\":\"%s\"", lace_cut_text(s->text_cut));
    if (s->reasoning_cut != LACE_CUT_NONE)
        json_out_printf(out, ",\"reasoning_end\":\"%s\"", lace_cut_text(s->reasoning_cut));
}

static void end_chunk(chat_choice *h, const char *finish)
{
    call *c = h->reply->c;
    json_out *out = &h->reply->chunk;
    bool is_first = !h->has_role;
    h->has_role = true;
    json_out_raw(out, "},\"logprobs\":");
    if (h->logprobs.b.size) {
        json_out_raw(out, "{\"content\":[");
        json_out_bytes(out, h->logprobs.b.data, h->logprobs.b.size);
        json_out_raw(out, "],\"refusal\":null}");
        buf_clear(&h->logprobs.b);
    } else {
        json_out_raw(out, "null");
    }
    if (finish) {
        json_out_printf(out, ",\"finish_reason\":\"%s\"", finish);
        write_cuts(out, &h->stats);
        json_out_raw(out, "}]");
    } else
        json_out_raw(out, ",\"finish_reason\":null}]");
    const gen_request *r = call_request(c);
    json_out_raw(out, r->wants_usage ? ",\"usage\":null" : "");
    if ((r->times_tokens && !is_first) || (finish && !r->wants_usage))
        openai_write_timings(out, &h->stats, 1);
    openai_end_chunk(c, out);
}

static void send_role(chat_choice *h)
{
    if (h->has_role)
        return;
    json_out_raw(begin_chunk(h), "\"role\":\"assistant\",\"content\":\"\"");
    end_chunk(h, NULL);
}

/* ---- Parts of the reply ---------------------------------------------------------------------- */

static void begin_call(chat_choice *h, const reply_event *part, json_out *out)
{
    char id[64];
    if (part->id.size)
        snprintf(id, sizeof id, "%.*s", text_width(part->id), part->id.data);
    else
        snprintf(id, sizeof id, "call_%s%d%d", call_id(h->reply->c), h->index, part->call);
    json_out_raw(out, "\"id\":");
    json_out_string(out, id);
    json_out_raw(out, ",\"type\":\"function\",\"function\":{\"name\":");
    json_out_text(out, part->chars.data, part->chars.size);
    json_out_raw(out, ",\"arguments\":");
}

static void stream_part(chat_choice *h, const reply_event *part)
{
    json_out *out;
    send_role(h);
    switch (part->kind) {
    case REPLY_CONTENT:
    case REPLY_REASONING:
        out = begin_chunk(h);
        json_out_raw(out, part->kind == REPLY_CONTENT ? "\"content\":" : "\"reasoning_content\":");
        json_out_text(out, part->chars.data, part->chars.size);
        return end_chunk(h, NULL);
    case REPLY_CALL_BEGIN:
        out = begin_chunk(h);
        json_out_printf(out, "\"tool_calls\":[{\"index\":%d,", part->call);
        begin_call(h, part, out);
        json_out_raw(out, "\"\"}}]");
        return end_chunk(h, NULL);
    case REPLY_CALL_ARGS:
        out = begin_chunk(h);
        json_out_printf(out,
                        "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", part->call);
        json_out_text(out, part->chars.data, part->chars.size);
        json_out_raw(out, "}}]");
        return end_chunk(h, NULL);
    case REPLY_CALL_END:
        return;
    }
}

static void keep_part(chat_choice *h, const reply_event *part)
{
    switch (part->kind) {
    case REPLY_CONTENT:
        return json_out_bytes(&h->content, part->chars.data, part->chars.size);
    case REPLY_REASONING:
        return json_out_bytes(&h->reasoning, part->chars.data, part->chars.size);
    case REPLY_CALL_BEGIN:
        json_out_raw(&h->calls, part->call ? ",{" : "{");
        begin_call(h, part, &h->calls);
        return;
    case REPLY_CALL_ARGS:
        return json_out_bytes(&h->arguments, part->chars.data, part->chars.size);
    case REPLY_CALL_END:
        json_out_text(&h->calls, h->arguments.b.data, h->arguments.b.size);
        json_out_raw(&h->calls, "}}");
        buf_clear(&h->arguments.b);
        return;
    }
}

static lace_status on_part(void *arg, const reply_event *part)
{
    chat_choice *h = arg;
    if (!call_wants_part(h->reply->c, h->index, part))
        return LACE_OK;
    h->n_calls += part->kind == REPLY_CALL_BEGIN;
    h->has_content = h->has_content || part->kind == REPLY_CONTENT;
    if (call_request(h->reply->c)->is_stream)
        stream_part(h, part);
    else
        keep_part(h, part);
    return LACE_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static const char *finish_of(const chat_choice *h)
{
    return h->n_calls && h->finish == LACE_FINISH_STOP ? "tool_calls" : openai_finish(h->finish);
}

static void on_event(call *c, const gen_event *e)
{
    chat_reply *reply = choices_of(c);
    if (!reply || reply->has_failed)
        return;
    chat_choice *h = &reply->choices[e->choice];
    bool is_stream = call_request(c)->is_stream;
    openai_add_logprob(c, &h->logprobs, e);
    h->stats = e->stats;
    if (is_stream)
        send_role(h);
    if (reply_parser_feed(h->parser, (text){e->text, e->n_text}, NULL) != LACE_OK)
        reply->has_failed = true;
    if (e->finish == LACE_FINISH_NONE)
        return;
    if (!reply->has_failed && reply_parser_finish(h->parser, NULL) != LACE_OK)
        reply->has_failed = true;
    h->finish = e->finish;
    openai_add_usage(&reply->usage, e);
    if (is_stream) {
        begin_chunk(h);
        end_chunk(h, finish_of(h));
    }
}

static void on_prompt(call *c, const gen_event *e)
{
    chat_reply *reply = choices_of(c);
    if (!reply)
        return;
    chat_choice *h = &reply->choices[e->choice];
    h->stats = e->stats;
    send_role(h);
    json_out *out = begin_chunk(h);
    json_out_raw(out, "},\"logprobs\":null,\"finish_reason\":null}]");
    openai_write_progress(out, &e->stats);
    openai_end_chunk(c, out);
}

/* {"index":..,"message":{..},"logprobs":..,"finish_reason":..} */
static void write_choice(const call *c, json_out *out, void *state, int choice)
{
    const chat_choice *h = &((const chat_reply *)state)->choices[choice];
    json_out_printf(out,
                    "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", h->index);
    if (h->n_calls && !h->has_content)
        json_out_raw(out, "null");
    else
        json_out_text(out, h->content.b.data, h->content.b.size);
    json_out_raw(out, ",\"refusal\":null");
    if (h->reasoning.b.size) {
        json_out_raw(out, ",\"reasoning_content\":");
        json_out_text(out, h->reasoning.b.data, h->reasoning.b.size);
    }
    if (h->n_calls) {
        json_out_raw(out, ",\"tool_calls\":[");
        json_out_bytes(out, h->calls.b.data, h->calls.b.size);
        json_out_raw(out, "]");
    }
    json_out_raw(out, "},\"logprobs\":");
    if (call_request(c)->wants_logprobs) {
        json_out_raw(out, "{\"content\":[");
        json_out_bytes(out, h->logprobs.b.data, h->logprobs.b.size);
        json_out_raw(out, "],\"refusal\":null}");
    } else {
        json_out_raw(out, "null");
    }
    json_out_printf(out, ",\"finish_reason\":\"%s\"", finish_of(h));
    write_cuts(out, &h->stats);
    json_out_raw(out, "}");
    out->has_failed = out->has_failed || h->content.has_failed || h->reasoning.has_failed ||
                      h->calls.has_failed || h->logprobs.has_failed;
}

static void on_end(call *c)
{
    chat_reply *reply = call_state(c);
    if (call_is_streaming(c))
        return openai_end_stream(c, &reply->chunk, "chatcmpl", "chat.completion.chunk",
                                 &reply->usage);
    if (!reply || reply->has_failed)
        return call_fail(c, 503, NULL, NULL, "out of memory");
    openai_reply(c, &reply->chunk, "chatcmpl", "chat.completion", &reply->usage, reply->n_choices,
                 write_choice, reply);
}

static const gen_sink sink = {
    .choices = &choices, .on_event = on_event, .on_prompt = on_prompt, .on_end = on_end};

static bool read_request(gen_request *r, call *c, json_t *body)
{
    r->messages = json_incref(json_object_get(body, "messages"));
    return gen_check_model(c, body) && gen_request_read(r, c, body, GEN_CHAT) &&
           read_tools(r, c, body) && gen_read_template(r, c, body) && gen_request_chat(r, c);
}

void api_chat_completions(call *c)
{
    gen_start(c, read_request, &sink);
}

void api_chat_count(call *c)
{
    gen_count(c, read_request, "chat.completion.input_tokens");
}
