/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's API. */
#include <string.h>

#include "server/anthropic.h"
#include "server/api.h"
#include "server/core.h"
#include "server/reply.h"

/* The kinds of blocks that a reply has. */
typedef enum block_kind { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_CALL } block_kind;

typedef struct message_reply {
    reply_state base; /* its `out`: the next events of a stream, or the list of blocks */
    json_out inside;  /* of the open block, when the reply is not a stream */
    block_kind open;
    int n_blocks, n_calls;
    bool has_begun;
} message_reply;

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void begin_event(message_reply *m, const char *name)
{
    call_begin_stream(m->base.c, "text/event-stream");
    json_out_printf(&m->base.out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void end_event(message_reply *m)
{
    json_out_raw(&m->base.out, "}\n\n");
}

/*
 * All tokens of the prompt count as input, also those that were found computed: "cache_read" is for
 * caches that a client asked for, and clients add the two up.
 */
static void write_usage(const message_reply *m, json_out *out)
{
    json_out_printf(out,
                    "{\"input_tokens\":%zu,\"cache_creation_input_tokens\":0,"
                    "\"cache_read_input_tokens\":0,\"output_tokens\":%d}",
                    call_request(m->base.c)->n_prompt, m->base.stats.n_generated);
}

static void write_head(const message_reply *m, json_out *out)
{
    json_out_printf(out,
                    "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
                    call_id(m->base.c));
    json_out_string(out, call_model_id(m->base.c));
}

/* The first event says the model and how long the prompt is. */
static void begin_message(void *arg)
{
    message_reply *m = arg;
    if (m->has_begun)
        return;
    m->has_begun = true;
    begin_event(m, "message_start");
    json_out_raw(&m->base.out, ",\"message\":");
    write_head(m, &m->base.out);
    json_out_raw(&m->base.out,
                 ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    write_usage(m, &m->base.out);
    json_out_raw(&m->base.out, "}");
    end_event(m);
}

static void close_block(message_reply *m)
{
    bool is_stream = call_request(m->base.c)->is_stream;
    if (m->open == BLOCK_NONE)
        return;
    if (is_stream) {
        begin_event(m, "content_block_stop");
        json_out_printf(&m->base.out, ",\"index\":%d", m->n_blocks - 1);
        end_event(m);
    } else if (m->open == BLOCK_CALL) {
        json_out_raw(&m->base.out, ",\"input\":");
        reply_write_arguments(&m->base.out, &m->inside.b);
        json_out_raw(&m->base.out, "}");
    } else {
        json_out_raw(&m->base.out, m->open == BLOCK_TEXT ? ",\"text\":" : ",\"thinking\":");
        json_out_text(&m->base.out, m->inside.b.data ? m->inside.b.data : "", m->inside.b.size);
        json_out_raw(&m->base.out, m->open == BLOCK_TEXT ? "}" : ",\"signature\":\"\"}");
    }
    buf_clear(&m->inside.b);
    m->open = BLOCK_NONE;
}

/* The head of a block, up to what it contains. */
static void open_block(message_reply *m, block_kind kind, const reply_event *part)
{
    static const char *const types[] = {"", "text", "thinking", "tool_use"};
    bool is_stream = call_request(m->base.c)->is_stream;
    close_block(m);
    if (is_stream) {
        begin_event(m, "content_block_start");
        json_out_printf(&m->base.out, ",\"index\":%d,\"content_block\":", m->n_blocks);
    } else if (m->n_blocks > 0) {
        json_out_raw(&m->base.out, ",");
    }
    json_out_printf(&m->base.out, "{\"type\":\"%s\"", types[kind]);
    if (kind == BLOCK_CALL) {
        json_out_printf(&m->base.out, ",\"id\":\"toolu_%s%d\",\"name\":", call_id(m->base.c),
                        part->call);
        json_out_text(&m->base.out, part->chars.data, part->chars.size);
    }
    if (is_stream) {
        json_out_raw(&m->base.out, kind == BLOCK_CALL   ? ",\"input\":{}}"
                                   : kind == BLOCK_TEXT ? ",\"text\":\"\"}"
                                                        : ",\"thinking\":\"\",\"signature\":\"\"}");
        end_event(m);
    }
    m->open = kind;
    m->n_blocks++;
}

static void add_to_block(message_reply *m, text chars)
{
    static const char *const deltas[] = {
        "", "{\"type\":\"text_delta\",\"text\":", "{\"type\":\"thinking_delta\",\"thinking\":",
        "{\"type\":\"input_json_delta\",\"partial_json\":"};
    if (!call_request(m->base.c)->is_stream)
        return json_out_bytes(&m->inside, chars.data, chars.size);
    begin_event(m, "content_block_delta");
    json_out_printf(&m->base.out, ",\"index\":%d,\"delta\":%s", m->n_blocks - 1, deltas[m->open]);
    json_out_text(&m->base.out, chars.data, chars.size);
    json_out_raw(&m->base.out, "}");
    end_event(m);
}

static lace_status on_part(void *arg, const reply_event *part)
{
    message_reply *m = arg;
    if (!call_wants_part(m->base.c, 0, part))
        return LACE_OK;
    block_kind kind = part->kind == REPLY_CONTENT     ? BLOCK_TEXT
                      : part->kind == REPLY_REASONING ? BLOCK_THINKING
                                                      : BLOCK_CALL;
    switch (part->kind) {
    case REPLY_CONTENT:
    case REPLY_REASONING:
        if (m->open != kind)
            open_block(m, kind, part);
        add_to_block(m, part->chars);
        break;
    case REPLY_CALL_BEGIN:
        m->n_calls++;
        open_block(m, BLOCK_CALL, part);
        break;
    case REPLY_CALL_ARGS:
        add_to_block(m, part->chars);
        break;
    case REPLY_CALL_END:
        close_block(m);
        break;
    }
    return LACE_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static const size_t outs[] = {offsetof(message_reply, inside)};
static const reply_kind reply = {
    .size = sizeof(message_reply),
    .outs = outs,
    .n_outs = sizeof outs / sizeof outs[0],
    .on_part = on_part,
    .begin = begin_message,
    .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
};

static void write_stop(const message_reply *m, json_out *out)
{
    const char *reason = m->base.finish == LACE_FINISH_LENGTH ? "max_tokens"
                         : m->base.stop                       ? "stop_sequence"
                         : m->n_calls                         ? "tool_use"
                                                              : "end_turn";
    json_out_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (m->base.stop)
        json_out_string(out, m->base.stop);
    else
        json_out_raw(out, "null");
}

static void end_stream(message_reply *m)
{
    begin_message(m);
    close_block(m);
    begin_event(m, "message_delta");
    json_out_raw(&m->base.out, ",\"delta\":{");
    write_stop(m, &m->base.out);
    json_out_raw(&m->base.out, "},\"usage\":");
    write_usage(m, &m->base.out);
    end_event(m);
    begin_event(m, "message_stop");
    end_event(m);
    call_write(m->base.c, &m->base.out);
    call_end(m->base.c);
}

static void on_end(call *c)
{
    message_reply *m = reply_finished(c);
    if (!m)
        return;
    if (call_request(c)->is_stream)
        return end_stream(m);
    close_block(m);
    json_out whole;
    json_out_init(&whole, REPLY_MAX_BYTES);
    write_head(m, &whole);
    json_out_raw(&whole, ",\"content\":[");
    if (m->base.out.b.size)
        json_out_bytes(&whole, m->base.out.b.data, m->base.out.b.size);
    json_out_raw(&whole, "],");
    write_stop(m, &whole);
    json_out_raw(&whole, ",\"usage\":");
    write_usage(m, &whole);
    json_out_raw(&whole, "}");
    whole.has_failed = whole.has_failed || m->base.out.has_failed;
    call_reply(c, 200, "application/json", &whole);
    json_out_deinit(&whole);
}

static const gen_sink sink = {.reply = &reply, .on_end = on_end};

/* ---- Asking ---------------------------------------------------------------------------------- */

/* {"type": "auto" | "any" | "tool" | "none"}: `any` and `tool` force a call. */
static bool read_choice(gen_request *r, call *c, const json_t *body)
{
    const json_t *choice = json_object_get(body, "tool_choice");
    const char *type = json_string_value(json_object_get(choice, "type"));
    const char *name = json_string_value(json_object_get(choice, "name"));
    r->parallel_calls = !json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
    if (!choice || json_is_null(choice) || (type && strcmp(type, "auto") == 0))
        return true;
    if (type && strcmp(type, "none") == 0) {
        json_decref(r->tools);
        r->tools = NULL;
        return true;
    }
    bool is_tool = type && strcmp(type, "tool") == 0;
    if (!is_tool && !(type && strcmp(type, "any") == 0))
        return call_refuse(c, "tool_choice", "tool_choice has no type auto, any, tool or none");
    if (is_tool && !name)
        return call_refuse(c, "tool_choice", "tool_choice of type tool has no name");
    if (!r->tools)
        return call_refuse(c, "tool_choice", "tool_choice demands a call, but there are no tools");
    return gen_force_call(r, c, is_tool ? name : NULL);
}

static bool refuse_field(call *c, const char *name)
{
    call_fail(c, 400, name, NULL, "%s is a field that /v1/messages does not have here", name);
    return false;
}

/* The form of the answer and the effort: "output_config", or in older clients "output_format". */
static bool read_output(gen_request *r, call *c, const json_t *body)
{
    const json_t *config = json_object_get(body, "output_config");
    const json_t *format = json_object_get(config, "format");
    json_t *effort = json_object_get(config, "effort");
    if (config && !json_is_null(config) && !json_is_object(config))
        return call_refuse(c, "output_config", "output_config is not an object");
    if (effort && !json_is_null(effort) && !json_is_string(effort))
        return call_refuse(c, "output_config", "output_config.effort is not a text");
    if (!format)
        format = json_object_get(body, "output_format");
    if (json_is_string(effort))
        json_object_set(r->kwargs, "reasoning_effort", effort);
    if (!format || json_is_null(format))
        return true;
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *schema = json_object_get(format, "schema");
    if (!type || strcmp(type, "json_schema") != 0 || !json_is_object(schema))
        return call_refuse(c, "output_config", "the format is not a json_schema with a schema");
    return gen_use_schema(r, c, "output_config", schema);
}

/* {"type": "enabled" | "adaptive" | "disabled"}, as templates know it, and "budget_tokens". */
static bool read_thinking(gen_request *r, call *c, const json_t *body)
{
    const json_t *thinking = json_object_get(body, "thinking");
    const char *mode = json_string_value(json_object_get(thinking, "type"));
    bool is_off = mode && strcmp(mode, "disabled") == 0;
    bool is_on = mode && (strcmp(mode, "enabled") == 0 || strcmp(mode, "adaptive") == 0);
    if (thinking && !json_is_null(thinking) && !is_on && !is_off)
        return call_refuse(c, "thinking", "thinking has no type enabled, adaptive or disabled");
    const json_t *budget = json_object_get(thinking, "budget_tokens");
    if (budget && (!json_is_integer(budget) || json_integer_value(budget) < 1 ||
                   json_integer_value(budget) > INT32_MAX))
        return call_refuse(c, "thinking", "thinking.budget_tokens is not a number of tokens");
    if (!gen_read_template(r, c, body))
        return false;
    if (is_on && budget)
        r->thinking_budget = (int32_t)json_integer_value(budget);
    if (mode && json_object_set_new(r->kwargs, "enable_thinking", json_boolean(is_on)) != 0)
        return call_nomem(c);
    return true;
}

/* The fields that have another name or another shape than OpenAI's. */
static bool read_controls(gen_request *r, call *c, const json_t *body)
{
    const json_t *max = json_object_get(body, "max_tokens");
    static const char *const foreign[] = {"response_format",
                                          "grammar",
                                          "regex",
                                          "json_schema",
                                          "structured_outputs",
                                          "n",
                                          "logprobs",
                                          "stop",
                                          "mcp_servers",
                                          "container",
                                          "timings_per_token",
                                          "return_progress"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        const json_t *value = json_object_get(body, foreign[i]);
        bool is_empty = json_is_array(value) && json_array_size(value) == 0;
        if (value && !json_is_null(value) && !is_empty)
            return refuse_field(c, foreign[i]);
    }
    const json_t *stops = json_object_get(body, "stop_sequences");
    if (stops && !json_is_null(stops) && !json_is_array(stops))
        return call_refuse(c, "stop_sequences", "stop_sequences is not a list");
    if (!json_is_integer(max) || json_integer_value(max) < 1)
        return call_refuse(c, "max_tokens", "max_tokens is missing, or no integer above 0");
    return gen_request_read(r, c, body, GEN_CHAT) && read_thinking(r, c, body) &&
           read_output(r, c, body) && (!json_is_array(stops) || gen_read_stops(r, c, stops));
}

static bool read_request(gen_request *r, call *c, json_t *body)
{
    static const field_name names[] = {{"stop", "stop_sequences"}, {NULL, NULL}};
    call_rename(c, names);
    return gen_check_model(c, body) && read_controls(r, c, body) &&
           anthropic_messages(c, body, &r->messages) && anthropic_tools(c, body, &r->tools) &&
           read_choice(r, c, body) && gen_request_chat(r, c);
}

void api_messages(call *c)
{
    gen_start(c, read_request, &sink);
}

void api_count_tokens(call *c)
{
    json_t *body = call_json(c);
    if (!body || !gen_check_model(c, body))
        return;
    gen_request r;
    gen_request_init(&r);
    if (read_thinking(&r, c, body) && anthropic_messages(c, body, &r.messages) &&
        anthropic_tools(c, body, &r.tools) && gen_request_chat(&r, c)) {
        json_out out;
        json_out_init(&out, 256);
        json_out_printf(&out, "{\"input_tokens\":%zu}", r.n_prompt);
        call_reply(c, 200, "application/json", &out);
        json_out_deinit(&out);
    }
    gen_request_deinit(&r);
}
