/*
 * POST /v1/responses: OpenAI's newer API, without state: each request brings the whole
 * conversation, and nothing of it is kept. This is how it is answered; responses_in.c reads it.
 */
#include <inttypes.h>
#include <string.h>

#include "server/api.h"
#include "server/core.h"
#include "server/openai.h"
#include "server/reply.h"
#include "server/responses.h"

typedef enum item_kind { ITEM_NONE, ITEM_MESSAGE, ITEM_REASONING, ITEM_CALL } item_kind;

typedef struct response_reply {
    reply_state base;      /* its `out`: events of a stream */
    json_out items;        /* finished items of the output */
    json_out inside, name; /* of the open item */
    item_kind open;
    int n_items, n_events;
    bool has_begun;
} response_reply;

/* ---- Writing --------------------------------------------------------------------------------- */

static void begin_event(response_reply *p, const char *name)
{
    call_begin_stream(p->base.c, "text/event-stream");
    json_out_printf(&p->base.out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", name,
                    name, p->n_events++);
}

static void end_event(response_reply *p)
{
    json_out_raw(&p->base.out, "}\n\n");
}

/* The whole response as it stands. */
static void write_response(const response_reply *p, json_out *out, const char *status)
{
    bool is_done = strcmp(status, "in_progress") != 0;
    json_out_printf(out,
                    "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%" PRId64
                    ",\"status\":\"%s\",\"error\":null,\"incomplete_details\":",
                    call_id(p->base.c), p->base.c->created, status);
    json_out_raw(out,
                 strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_out_raw(out, ",\"instructions\":null,\"metadata\":{},\"model\":");
    json_out_string(out, call_model_id(p->base.c));
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
                        p->base.stats.n_prompt, p->base.stats.n_cached, p->base.stats.n_generated,
                        p->base.stats.n_prompt + p->base.stats.n_generated);
    else
        json_out_raw(out, "null");
    json_out_raw(out, "}");
}

static void begin_response(void *arg)
{
    static const char *const names[] = {"response.created", "response.in_progress"};
    response_reply *p = arg;
    if (p->has_begun)
        return;
    p->has_begun = true;
    for (int i = 0; i < 2; i++) {
        begin_event(p, names[i]);
        json_out_raw(&p->base.out, ",\"response\":");
        write_response(p, &p->base.out, "in_progress");
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
    json_out_printf(out, "{\"id\":\"%s_%s%d\",", id_prefix(p->open), call_id(p->base.c),
                    p->n_items);
    if (p->open == ITEM_CALL) {
        json_out_printf(out,
                        "\"type\":\"function_call\",\"status\":\"%s\",\"call_id\":\"call_%s%d\","
                        "\"name\":",
                        is_done ? "completed" : "in_progress", call_id(p->base.c), p->n_items);
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
    json_out_printf(&p->base.out, ",\"item_id\":\"%s_%s%d\",\"output_index\":%d%s",
                    id_prefix(p->open), call_id(p->base.c), p->n_items, p->n_items,
                    has_part ? ",\"content_index\":0" : "");
}

/* ---- Items ----------------------------------------------------------------------------------- */

static void send_item(response_reply *p, const char *event, bool is_done)
{
    begin_event(p, event);
    json_out_printf(&p->base.out, ",\"output_index\":%d,\"item\":", p->n_items);
    write_item(p, &p->base.out, is_done);
    end_event(p);
}

static void send_part(response_reply *p, const char *event, const buf *inside)
{
    begin_event(p, event);
    write_place(p, true);
    json_out_raw(&p->base.out, ",\"part\":");
    write_text_part(&p->base.out, p->open, inside);
    end_event(p);
}

static void open_item(response_reply *p, item_kind kind)
{
    static const buf nothing;
    p->open = kind;
    if (!call_request(p->base.c)->is_stream)
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
    if (!call_request(p->base.c)->is_stream)
        return;
    begin_event(p, names[p->open]);
    write_place(p, p->open != ITEM_CALL);
    json_out_raw(&p->base.out,
                 p->open == ITEM_MESSAGE ? ",\"logprobs\":[],\"delta\":" : ",\"delta\":");
    json_out_text(&p->base.out, chars.data, chars.size);
    if (call_request(p->base.c)->times_tokens)
        openai_write_timings(&p->base.out, &p->base.stats, 1);
    end_event(p);
}

static void close_item(void *arg)
{
    response_reply *p = arg;
    static const char *const names[] = {"", "response.output_text.done",
                                        "response.reasoning_text.done",
                                        "response.function_call_arguments.done"};
    if (p->open == ITEM_NONE)
        return;
    if (call_request(p->base.c)->is_stream) {
        const buf *inside = &p->inside.b;
        begin_event(p, names[p->open]);
        write_place(p, p->open != ITEM_CALL);
        json_out_raw(&p->base.out, p->open == ITEM_CALL      ? ",\"arguments\":"
                                   : p->open == ITEM_MESSAGE ? ",\"logprobs\":[],\"text\":"
                                                             : ",\"text\":");
        json_out_text(&p->base.out, inside->data ? inside->data : "", inside->size);
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
    if (!call_wants_part(p->base.c, 0, part))
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

static const size_t outs[] = {offsetof(response_reply, items), offsetof(response_reply, inside),
                              offsetof(response_reply, name)};
static const reply_kind reply = {
    .size = sizeof(response_reply),
    .outs = outs,
    .n_outs = sizeof outs / sizeof outs[0],
    .on_part = on_part,
    .begin = begin_response,
    .end_parts = close_item,
    .ping = ": ping\n\n",
};

static void on_end(call *c)
{
    response_reply *p = reply_finished(c);
    if (!p)
        return;
    const char *status = p->base.finish == LACE_FINISH_LENGTH ? "incomplete" : "completed";
    if (!call_request(c)->is_stream) {
        write_response(p, &p->base.out, status);
        return call_reply(c, 200, "application/json", &p->base.out);
    }
    begin_response(p);
    begin_event(p, p->base.finish == LACE_FINISH_LENGTH ? "response.incomplete"
                                                        : "response.completed");
    json_out_raw(&p->base.out, ",\"response\":");
    write_response(p, &p->base.out, status);
    openai_write_timings(&p->base.out, &p->base.stats, 1);
    end_event(p);
    call_write(c, &p->base.out);
    call_end(c);
}

static void on_prompt(call *c, const gen_event *e)
{
    response_reply *p = reply_state_of(c);
    if (!p)
        return;
    begin_response(p);
    begin_event(p, "response.in_progress");
    json_out_raw(&p->base.out, ",\"response\":");
    write_response(p, &p->base.out, "in_progress");
    openai_write_progress(&p->base.out, &e->stats);
    end_event(p);
    call_write(c, &p->base.out);
}

static const gen_sink sink = {.reply = &reply, .on_prompt = on_prompt, .on_end = on_end};

/* ---- Asking ---------------------------------------------------------------------------------- */

void api_responses(call *c)
{
    gen_start(c, responses_read, &sink);
}

void api_responses_count(call *c)
{
    gen_count(c, responses_read, "response.input_tokens");
}
