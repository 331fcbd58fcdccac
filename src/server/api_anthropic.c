/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's API. */
#include <inttypes.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "server/anthropic.h"
#include "server/api.h"
#include "server/core.h"

enum { MAX_REPLY = 256 << 20 };

/* The kinds of blocks that a reply has. */
typedef enum block_kind { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_CALL } block_kind;

typedef struct message_reply {
    call *c;
    reply_parser *parser;
    json_out out;    /* the next events of a stream, or the list of blocks */
    json_out inside; /* of the open block, when the reply is not a stream */
    block_kind open;
    int n_blocks, n_calls;
    bool has_begun;
    bool has_failed;
    lace_finish finish;
    const char *stop;
    lace_generation_stats stats;
} message_reply;

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void begin_event(message_reply *m, const char *name)
{
    call_begin_stream(m->c, "text/event-stream");
    json_out_printf(&m->out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void end_event(message_reply *m)
{
    json_out_raw(&m->out, "}\n\n");
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
                    call_request(m->c)->n_prompt, m->stats.n_generated);
}

static void write_head(const message_reply *m, json_out *out)
{
    json_out_printf(
        out,
        "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", call_id(m->c));
    json_out_string(out, call_server(m->c)->model_id);
}

/* The first event says the model and how long the prompt is. */
static void begin_message(message_reply *m)
{
    if (m->has_begun)
        return;
    m->has_begun = true;
    begin_event(m, "message_start");
    json_out_raw(&m->out, ",\"message\":");
    write_head(m, &m->out);
    json_out_raw(&m->out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    write_usage(m, &m->out);
    json_out_raw(&m->out, "}");
    end_event(m);
}

static void close_block(message_reply *m)
{
    bool is_stream = call_request(m->c)->is_stream;
    if (m->open == BLOCK_NONE)
        return;
    if (is_stream) {
        begin_event(m, "content_block_stop");
        json_out_printf(&m->out, ",\"index\":%d", m->n_blocks - 1);
        end_event(m);
    } else if (m->open == BLOCK_CALL) {
        /* The arguments are JSON already, unless the model broke off. */
        json_error_t error;
        json_t *input =
            json_loadb(m->inside.b.data ? m->inside.b.data : "", m->inside.b.size, 0, &error);
        json_out_raw(&m->out, ",\"input\":");
        if (json_is_object(input))
            json_out_bytes(&m->out, m->inside.b.data, m->inside.b.size);
        else
            json_out_raw(&m->out, "{}");
        json_out_raw(&m->out, "}");
        json_decref(input);
    } else {
        json_out_raw(&m->out, m->open == BLOCK_TEXT ? ",\"text\":" : ",\"thinking\":");
        json_out_text(&m->out, m->inside.b.data ? m->inside.b.data : "", m->inside.b.size);
        json_out_raw(&m->out, m->open == BLOCK_TEXT ? "}" : ",\"signature\":\"\"}");
    }
    buf_clear(&m->inside.b);
    m->open = BLOCK_NONE;
}

/* The head of a block, up to what it contains. */
static void open_block(message_reply *m, block_kind kind, const reply_event *part)
{
    static const char *const types[] = {"", "text", "thinking", "tool_use"};
    bool is_stream = call_request(m->c)->is_stream;
    close_block(m);
    if (is_stream) {
        begin_event(m, "content_block_start");
        json_out_printf(&m->out, ",\"index\":%d,\"content_block\":", m->n_blocks);
    } else if (m->n_blocks > 0) {
        json_out_raw(&m->out, ",");
    }
    json_out_printf(&m->out, "{\"type\":\"%s\"", types[kind]);
    if (kind == BLOCK_CALL) {
        json_out_printf(&m->out, ",\"id\":\"toolu_%s%d\",\"name\":", call_id(m->c), part->call);
        json_out_text(&m->out, part->chars.data, part->chars.size);
    }
    if (is_stream) {
        json_out_raw(&m->out, kind == BLOCK_CALL   ? ",\"input\":{}}"
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
    if (!call_request(m->c)->is_stream)
        return json_out_bytes(&m->inside, chars.data, chars.size);
    begin_event(m, "content_block_delta");
    json_out_printf(&m->out, ",\"index\":%d,\"delta\":%s", m->n_blocks - 1, deltas[m->open]);
    json_out_text(&m->out, chars.data, chars.size);
    json_out_raw(&m->out, "}");
    end_event(m);
}

static lace_status on_part(void *arg, const reply_event *part)
{
    message_reply *m = arg;
    if (!call_wants_part(m->c, 0, part))
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

static message_reply *state_of(call *c)
{
    message_reply *m = call_state(c);
    if (m)
        return m;
    m = mem_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->c = c;
    json_out_init(&m->out, MAX_REPLY);
    json_out_init(&m->inside, MAX_REPLY);
    m->has_failed = gen_make_parser(c, on_part, m, &m->parser) != LACE_OK;
    call_set_state(c, m);
    return m;
}

static void on_free(call *c)
{
    message_reply *m = call_state(c);
    if (!m)
        return;
    reply_parser_free(m->parser);
    json_out_deinit(&m->out);
    json_out_deinit(&m->inside);
    mem_free(m);
}

static void on_event(call *c, const gen_event *e)
{
    message_reply *m = state_of(c);
    bool is_stream = call_request(c)->is_stream;
    if (!m || m->has_failed)
        return;
    m->stats = e->stats;
    if (is_stream)
        begin_message(m);
    if (reply_parser_feed(m->parser, (text){e->text, e->n_text}, NULL) != LACE_OK)
        m->has_failed = true;
    if (e->finish != LACE_FINISH_NONE) {
        m->finish = e->finish;
        m->stop = e->stop;
        if (!m->has_failed && reply_parser_finish(m->parser, NULL) != LACE_OK)
            m->has_failed = true;
    }
    if (is_stream && m->out.b.size > 0)
        call_write(c, &m->out);
}

static void write_stop(const message_reply *m, json_out *out)
{
    const char *reason = m->finish == LACE_FINISH_LENGTH ? "max_tokens"
                         : m->stop                       ? "stop_sequence"
                         : m->n_calls                    ? "tool_use"
                                                         : "end_turn";
    json_out_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (m->stop)
        json_out_string(out, m->stop);
    else
        json_out_raw(out, "null");
}

static void end_stream(message_reply *m)
{
    begin_message(m);
    close_block(m);
    begin_event(m, "message_delta");
    json_out_raw(&m->out, ",\"delta\":{");
    write_stop(m, &m->out);
    json_out_raw(&m->out, "},\"usage\":");
    write_usage(m, &m->out);
    end_event(m);
    begin_event(m, "message_stop");
    end_event(m);
    call_write(m->c, &m->out);
    call_end(m->c);
}

static void on_end(call *c)
{
    message_reply *m = state_of(c);
    if (!m || m->has_failed) {
        if (call_is_streaming(c))
            return call_end(c);
        return call_fail(c, 503, NULL, NULL, "out of memory");
    }
    if (call_request(c)->is_stream)
        return end_stream(m);
    close_block(m);
    json_out whole;
    json_out_init(&whole, MAX_REPLY);
    write_head(m, &whole);
    json_out_raw(&whole, ",\"content\":[");
    if (m->out.b.size)
        json_out_bytes(&whole, m->out.b.data, m->out.b.size);
    json_out_raw(&whole, "],");
    write_stop(m, &whole);
    json_out_raw(&whole, ",\"usage\":");
    write_usage(m, &whole);
    json_out_raw(&whole, "}");
    whole.has_failed = whole.has_failed || m->out.has_failed || m->inside.has_failed;
    call_reply(c, 200, "application/json", &whole);
    json_out_deinit(&whole);
}

static void on_ping(call *c)
{
    json_out out;
    json_out_init(&out, 256);
    json_out_raw(&out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
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
        return call_refuse(c, "tool_choice", "tool_choice demands a call, and there are no tools");
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

/* The fields that have another name or another shape than OpenAI's. */
static bool read_controls(gen_request *r, call *c, const json_t *body)
{
    const json_t *max = json_object_get(body, "max_tokens");
    const json_t *thinking = json_object_get(body, "thinking");
    const char *mode = json_string_value(json_object_get(thinking, "type"));
    static const char *const foreign[] = {
        "response_format", "grammar", "regex",       "json_schema", "structured_outputs", "n",
        "logprobs",        "stop",    "mcp_servers", "container"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        const json_t *value = json_object_get(body, foreign[i]);
        bool is_empty = json_is_array(value) && json_array_size(value) == 0;
        if (value && !json_is_null(value) && !is_empty)
            return refuse_field(c, foreign[i]);
    }
    const json_t *stops = json_object_get(body, "stop_sequences");
    if (stops && !json_is_null(stops) && !json_is_array(stops))
        return call_refuse(c, "stop_sequences", "stop_sequences is not a list");
    if (!json_is_integer(max))
        return call_refuse(c, "max_tokens", "max_tokens is missing or no integer");
    if (thinking && !json_is_null(thinking) && !mode)
        return call_refuse(c, "thinking", "thinking has no type");
    r->kwargs = json_object();
    if (mode)
        json_object_set_new(r->kwargs, "enable_thinking",
                            json_boolean(strcmp(mode, "disabled") != 0));
    return gen_request_read(r, c, body, GEN_CHAT) && read_output(r, c, body) &&
           (!json_is_array(stops) || gen_read_stops(r, c, stops));
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
    if (anthropic_messages(c, body, &r.messages) && anthropic_tools(c, body, &r.tools) &&
        gen_request_chat(&r, c)) {
        json_out out;
        json_out_init(&out, 256);
        json_out_printf(&out, "{\"input_tokens\":%zu}", r.n_prompt);
        call_reply(c, 200, "application/json", &out);
        json_out_deinit(&out);
    }
    gen_request_deinit(&r);
}
