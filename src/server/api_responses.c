/*
 * POST /v1/responses: OpenAI's newer API, without state: each request brings the whole
 * conversation, and nothing of it is kept.
 */
#include <inttypes.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "server/api.h"
#include "server/core.h"

enum { MAX_REPLY = 256 << 20 };

typedef enum item_kind { ITEM_NONE, ITEM_MESSAGE, ITEM_REASONING, ITEM_CALL } item_kind;

typedef struct response_reply {
    call *c;
    reply_parser *parser;
    json_out out;   /* events of a stream */
    json_out items; /* finished items of the output */
    json_out inside, name;
    item_kind open;
    int n_items, n_events;
    bool has_begun, has_failed;
    lace_finish finish;
    lace_generation_stats stats;
} response_reply;

/* ---- Writing --------------------------------------------------------------------------------- */

static void begin_event(response_reply *p, const char *name)
{
    call_begin_stream(p->c, "text/event-stream");
    json_out_printf(&p->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", name, name,
                    p->n_events++);
}

static void end_event(response_reply *p)
{
    json_out_raw(&p->out, "}\n\n");
}

/* The whole response as it stands. */
static void write_response(const response_reply *p, json_out *out, const char *status)
{
    bool is_done = strcmp(status, "in_progress") != 0;
    json_out_printf(out,
                    "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%" PRId64
                    ",\"status\":\"%s\",\"error\":null,\"incomplete_details\":",
                    call_id(p->c), p->c->created, status);
    json_out_raw(out,
                 strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_out_raw(out, ",\"instructions\":null,\"metadata\":{},\"model\":");
    json_out_string(out, call_server(p->c)->model_id);
    json_out_raw(out, ",\"output\":[");
    if (is_done && p->items.b.size)
        json_out_bytes(out, p->items.b.data, p->items.b.size);
    json_out_raw(out,
                 "],\"parallel_tool_calls\":true,\"temperature\":null,\"tool_choice\":\"auto\","
                 "\"tools\":[],\"top_p\":null,\"store\":false,\"usage\":");
    if (is_done)
        json_out_printf(out,
                        "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d},"
                        "\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":0},"
                        "\"total_tokens\":%d}",
                        p->stats.n_prompt, p->stats.n_cached, p->stats.n_generated,
                        p->stats.n_prompt + p->stats.n_generated);
    else
        json_out_raw(out, "null");
    json_out_raw(out, "}");
}

static void begin_response(response_reply *p)
{
    static const char *const names[] = {"response.created", "response.in_progress"};
    if (p->has_begun)
        return;
    p->has_begun = true;
    for (int i = 0; i < 2; i++) {
        begin_event(p, names[i]);
        json_out_raw(&p->out, ",\"response\":");
        write_response(p, &p->out, "in_progress");
        end_event(p);
    }
}

static void write_text_part(json_out *out, item_kind kind, const buf *text_bytes)
{
    json_out_raw(out, kind == ITEM_MESSAGE
                          ? "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":"
                          : "{\"type\":\"reasoning_text\",\"text\":");
    json_out_text(out, text_bytes->data ? text_bytes->data : "", text_bytes->size);
    json_out_raw(out, "}");
}

static const char *id_prefix(item_kind kind)
{
    return kind == ITEM_MESSAGE ? "msg" : kind == ITEM_REASONING ? "rs" : "fc";
}

/* The open item, with what it holds or as it began. */
static void write_item(const response_reply *p, json_out *out, bool is_done)
{
    static const buf nothing;
    const buf *inside = is_done ? &p->inside.b : &nothing;
    json_out_printf(out, "{\"id\":\"%s_%s%d\",", id_prefix(p->open), call_id(p->c), p->n_items);
    if (p->open == ITEM_CALL) {
        json_out_printf(out,
                        "\"type\":\"function_call\",\"status\":\"%s\",\"call_id\":\"call_%s%d\","
                        "\"name\":",
                        is_done ? "completed" : "in_progress", call_id(p->c), p->n_items);
        json_out_text(out, p->name.b.data ? p->name.b.data : "", p->name.b.size);
        json_out_raw(out, ",\"arguments\":");
        json_out_text(out, inside->data ? inside->data : "", inside->size);
    } else {
        json_out_printf(out, "\"type\":\"%s\",", p->open == ITEM_MESSAGE ? "message" : "reasoning");
        json_out_raw(out, p->open == ITEM_MESSAGE ? "\"role\":\"assistant\"," : "\"summary\":[],");
        json_out_printf(out, "\"status\":\"%s\",\"content\":[",
                        is_done ? "completed" : "in_progress");
        if (is_done)
            write_text_part(out, p->open, inside);
        json_out_raw(out, "]");
    }
    json_out_raw(out, "}");
}

/* ,"item_id":...,"output_index":N[,"content_index":0] */
static void write_place(response_reply *p, bool has_part)
{
    json_out_printf(&p->out, ",\"item_id\":\"%s_%s%d\",\"output_index\":%d%s", id_prefix(p->open),
                    call_id(p->c), p->n_items, p->n_items, has_part ? ",\"content_index\":0" : "");
}

/* ---- Items ----------------------------------------------------------------------------------- */

static void send_item(response_reply *p, const char *event, bool is_done)
{
    begin_event(p, event);
    json_out_printf(&p->out, ",\"output_index\":%d,\"item\":", p->n_items);
    write_item(p, &p->out, is_done);
    end_event(p);
}

static void send_part(response_reply *p, const char *event, const buf *inside)
{
    begin_event(p, event);
    write_place(p, true);
    json_out_raw(&p->out, ",\"part\":");
    write_text_part(&p->out, p->open, inside);
    end_event(p);
}

static void open_item(response_reply *p, item_kind kind)
{
    static const buf nothing;
    p->open = kind;
    if (!call_request(p->c)->is_stream)
        return;
    send_item(p, "response.output_item.added", false);
    if (kind != ITEM_CALL)
        send_part(p, "response.content_part.added", &nothing);
}

static void add_to_item(response_reply *p, text chars)
{
    static const char *const names[] = {"", "response.output_text.delta",
                                        "response.reasoning_text.delta",
                                        "response.function_call_arguments.delta"};
    json_out_bytes(&p->inside, chars.data, chars.size);
    if (!call_request(p->c)->is_stream)
        return;
    begin_event(p, names[p->open]);
    write_place(p, p->open != ITEM_CALL);
    json_out_raw(&p->out, p->open == ITEM_MESSAGE ? ",\"logprobs\":[],\"delta\":" : ",\"delta\":");
    json_out_text(&p->out, chars.data, chars.size);
    end_event(p);
}

static void close_item(response_reply *p)
{
    static const char *const names[] = {"", "response.output_text.done",
                                        "response.reasoning_text.done",
                                        "response.function_call_arguments.done"};
    if (p->open == ITEM_NONE)
        return;
    if (call_request(p->c)->is_stream) {
        const buf *inside = &p->inside.b;
        begin_event(p, names[p->open]);
        write_place(p, p->open != ITEM_CALL);
        json_out_raw(&p->out, p->open == ITEM_CALL      ? ",\"arguments\":"
                              : p->open == ITEM_MESSAGE ? ",\"logprobs\":[],\"text\":"
                                                        : ",\"text\":");
        json_out_text(&p->out, inside->data ? inside->data : "", inside->size);
        end_event(p);
        if (p->open != ITEM_CALL)
            send_part(p, "response.content_part.done", inside);
        send_item(p, "response.output_item.done", true);
    }
    json_out_raw(&p->items, p->n_items ? "," : "");
    write_item(p, &p->items, true);
    buf_clear(&p->inside.b);
    buf_clear(&p->name.b);
    p->open = ITEM_NONE;
    p->n_items++;
}

static lace_status on_part(void *arg, const reply_event *part)
{
    response_reply *p = arg;
    if (!call_wants_part(p->c, 0, part))
        return LACE_OK;
    item_kind kind = part->kind == REPLY_CONTENT ? ITEM_MESSAGE : ITEM_REASONING;
    switch (part->kind) {
    case REPLY_CONTENT:
    case REPLY_REASONING:
        if (p->open != kind) {
            close_item(p);
            open_item(p, kind);
        }
        add_to_item(p, part->chars);
        break;
    case REPLY_CALL_BEGIN:
        close_item(p);
        json_out_bytes(&p->name, part->chars.data, part->chars.size);
        open_item(p, ITEM_CALL);
        break;
    case REPLY_CALL_ARGS:
        add_to_item(p, part->chars);
        break;
    case REPLY_CALL_END:
        close_item(p);
        break;
    }
    return LACE_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static response_reply *state_of(call *c)
{
    response_reply *p = call_state(c);
    if (p)
        return p;
    p = mem_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->c = c;
    json_out *outs[] = {&p->out, &p->items, &p->inside, &p->name};
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++)
        json_out_init(outs[i], MAX_REPLY);
    p->has_failed = gen_make_parser(c, on_part, p, &p->parser) != LACE_OK;
    call_set_state(c, p);
    return p;
}

static void on_free(call *c)
{
    response_reply *p = call_state(c);
    if (!p)
        return;
    json_out *outs[] = {&p->out, &p->items, &p->inside, &p->name};
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++)
        json_out_deinit(outs[i]);
    reply_parser_free(p->parser);
    mem_free(p);
}

static void on_event(call *c, const gen_event *e)
{
    response_reply *p = state_of(c);
    bool is_stream = call_request(c)->is_stream;
    if (!p || p->has_failed)
        return;
    p->stats = e->stats;
    if (is_stream)
        begin_response(p);
    if (reply_parser_feed(p->parser, (text){e->text, e->n_text}, NULL) != LACE_OK)
        p->has_failed = true;
    if (e->finish != LACE_FINISH_NONE) {
        p->finish = e->finish;
        if (!p->has_failed && reply_parser_finish(p->parser, NULL) != LACE_OK)
            p->has_failed = true;
        close_item(p);
    }
    if (is_stream && p->out.b.size > 0)
        call_write(c, &p->out);
}

static void on_end(call *c)
{
    response_reply *p = state_of(c);
    if (!p || p->has_failed)
        return call_is_streaming(c) ? call_end(c) : call_fail(c, 503, NULL, NULL, "out of memory");
    const char *status = p->finish == LACE_FINISH_LENGTH ? "incomplete" : "completed";
    p->out.has_failed = p->out.has_failed || p->items.has_failed || p->inside.has_failed;
    if (!call_request(c)->is_stream) {
        write_response(p, &p->out, status);
        return call_reply(c, 200, "application/json", &p->out);
    }
    begin_response(p);
    begin_event(p, p->finish == LACE_FINISH_LENGTH ? "response.incomplete" : "response.completed");
    json_out_raw(&p->out, ",\"response\":");
    write_response(p, &p->out, status);
    end_event(p);
    call_write(c, &p->out);
    call_end(c);
}

static void on_ping(call *c)
{
    json_out out;
    json_out_init(&out, 64);
    json_out_raw(&out, ": ping\n\n");
    call_begin_stream(c, "text/event-stream");
    call_write(c, &out);
    json_out_deinit(&out);
}

static const gen_sink sink = {
    .on_event = on_event,
    .on_end = on_end,
    .on_ping = on_ping,
    .on_free = on_free,
};

/* ---- Asking ---------------------------------------------------------------------------------- */

/* Parts of type input_text and output_text as the parts that templates know. */
static json_t *read_content(call *c, const json_t *content)
{
    if (json_is_string(content))
        return json_incref((json_t *)content);
    json_t *parts = json_is_array(content) ? json_array() : NULL;
    for (size_t i = 0; parts && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *value = json_object_get(part, "text");
        bool is_text = type && (strcmp(type, "input_text") == 0 || strcmp(type, "text") == 0 ||
                                strcmp(type, "output_text") == 0);
        if (!is_text || !json_is_string(value)) {
            json_decref(parts);
            parts = NULL;
            break;
        }
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", value));
    }
    if (!parts)
        call_refuse(c, "input", "an item's content is neither a text nor a list of texts");
    return parts;
}

/* One item of the input becomes a message, or a part of the last one. */
static bool read_item(call *c, const json_t *item, json_t *messages)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    json_t *role = json_object_get(item, "role");
    json_t *id = json_object_get(item, "call_id");
    if (!type || strcmp(type, "message") == 0) {
        if (!json_is_string(role))
            return call_refuse(c, "input", "an item has neither a type nor a role");
        json_t *content = read_content(c, json_object_get(item, "content"));
        if (!content)
            return false;
        json_array_append_new(messages, json_pack("{s:O, s:o}", "role", role, "content", content));
        return true;
    }
    if (strcmp(type, "reasoning") == 0)
        return true;
    if (strcmp(type, "function_call_output") == 0) {
        json_t *output = json_object_get(item, "output");
        if (!json_is_string(id) || !output)
            return call_refuse(c, "input", "a function_call_output has no call_id or output");
        json_t *content = read_content(c, output);
        if (!content)
            return false;
        json_array_append_new(messages, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                                                  id, "content", content));
        return true;
    }
    if (strcmp(type, "function_call") != 0)
        return call_refuse(c, "input", "an item is of a type that is not supported");
    json_t *name = json_object_get(item, "name"), *arguments = json_object_get(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return call_refuse(c, "input", "a function_call has no call_id, name or arguments");
    json_t *one = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                            "name", name, "arguments", arguments);
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    json_t *calls = json_object_get(last, "tool_calls");
    if (calls) /* calls in a row are of one message */
        json_array_append_new(calls, one);
    else
        json_array_append_new(messages, json_pack("{s:s, s:s, s:[o]}", "role", "assistant",
                                                  "content", "", "tool_calls", one));
    return true;
}

static bool read_input(gen_request *r, call *c, const json_t *body)
{
    const json_t *input = json_object_get(body, "input");
    json_t *instructions = json_object_get(body, "instructions");
    r->messages = json_array();
    if (json_object_get(body, "previous_response_id") &&
        !json_is_null(json_object_get(body, "previous_response_id")))
        return call_refuse(c, "previous_response_id",
                           "responses are not kept: send the whole input");
    if (json_is_string(instructions))
        json_array_append_new(r->messages,
                              json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (json_is_string(input)) {
        json_array_append_new(r->messages,
                              json_pack("{s:s, s:O}", "role", "user", "content", input));
        return true;
    }
    if (!json_is_array(input) || json_array_size(input) == 0)
        return call_refuse(c, "input", "input is neither a text nor a list of items");
    for (size_t i = 0; i < json_array_size(input); i++)
        if (!read_item(c, json_array_get(input, i), r->messages))
            return false;
    return true;
}

/* Tools lie flat here: {"type": "function", "name": ..., "parameters": ...}. */
static bool read_tools(gen_request *r, call *c, const json_t *body)
{
    const json_t *tools = json_object_get(body, "tools");
    const json_t *choice = json_object_get(body, "tool_choice");
    const char *word = json_string_value(choice);
    const char *name = json_string_value(json_object_get(choice, "name"));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!type || strcmp(type, "function") != 0 ||
            !json_is_string(json_object_get(tool, "name")))
            return call_refuse(c, "tools", "a tool is not a function with a name");
        json_t *function = json_copy((json_t *)tool);
        json_object_del(function, "type");
        if (!r->tools)
            r->tools = json_array();
        json_array_append_new(r->tools,
                              json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    if (!choice || json_is_null(choice) || (word && strcmp(word, "auto") == 0))
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
        return call_refuse(c, "tool_choice", "tool_choice demands a call, and there are no tools");
    return gen_force_call(r, c, name);
}

/* The fields that have another name or place than in chat completions. */
static bool read_controls(gen_request *r, call *c, const json_t *body)
{
    static const char *const foreign[] = {"n",      "logprobs",  "top_logprobs", "conversation",
                                          "prompt", "background"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        const json_t *value = json_object_get(body, foreign[i]);
        if (value && !json_is_null(value) && !json_is_false(value)) {
            call_fail(c, 400, foreign[i], "unsupported_value", "%s is not supported here",
                      foreign[i]);
            return false;
        }
    }
    const json_t *truncation = json_object_get(body, "truncation");
    const char *how = json_string_value(truncation);
    if (truncation && !json_is_null(truncation) && !(how && strcmp(how, "disabled") == 0))
        return call_refuse(c, "truncation", "no input is ever cut: truncation is \"disabled\"");
    json_t *ours = json_copy((json_t *)body);
    json_t *max = json_object_get(body, "max_output_tokens");
    if (max)
        json_object_set(ours, "max_tokens", max);
    json_t *format = json_object_get(json_object_get(body, "text"), "format");
    if (format)
        json_object_set(ours, "response_format", format);
    bool ok = gen_request_read(r, c, ours, GEN_CHAT);
    json_decref(ours);
    json_t *effort = json_object_get(json_object_get(body, "reasoning"), "effort");
    r->kwargs = json_object();
    if (json_is_string(effort))
        json_object_set(r->kwargs, "reasoning_effort", effort);
    return ok;
}

static bool read_request(gen_request *r, call *c, json_t *body)
{
    return gen_check_model(c, body) && read_controls(r, c, body) && read_input(r, c, body) &&
           read_tools(r, c, body) && gen_request_chat(r, c);
}

void api_responses(call *c)
{
    gen_start(c, read_request, &sink);
}
