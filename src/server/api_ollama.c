/*
 * Ollama's API: /api/chat and /api/generate, as lines of JSON with times in nanoseconds, and the
 * routes by which its clients look around.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "server/api.h"
#include "server/core.h"

enum { MAX_REPLY = 256 << 20 };

/* ---- Looking around -------------------------------------------------------------------------- */

static void write_time(json_out *out, int64_t seconds)
{
    char line[32];
    time_t t = (time_t)seconds;
    struct tm parts;
    gmtime_r(&t, &parts);
    strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_out_string(out, line);
}

static void write_parameters(json_out *out, uint64_t n)
{
    char line[32];
    if (n >= 1000000000)
        snprintf(line, sizeof line, "%.1fB", (double)n / 1e9);
    else
        snprintf(line, sizeof line, "%.1fM", (double)n / 1e6);
    json_out_string(out, line);
}

static void write_details(const server *s, json_out *out)
{
    json_out_raw(out, "{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":");
    json_out_string(out, s->info.architecture);
    json_out_raw(out, ",\"families\":[");
    json_out_string(out, s->info.architecture);
    json_out_raw(out, "],\"parameter_size\":");
    write_parameters(out, s->info.n_parameters);
    json_out_raw(out, ",\"quantization_level\":");
    json_out_string(out, s->info.type);
    json_out_raw(out, "}");
}

/* The one model, as /api/tags and /api/ps list it. */
static void reply_models(call *c, bool is_running)
{
    const server *s = call_server(c);
    json_out out;
    json_out_init(&out, 1 << 16);
    json_out_raw(&out, "{\"models\":[{\"name\":");
    json_out_string(&out, s->model_id);
    json_out_raw(&out, ",\"model\":");
    json_out_string(&out, s->model_id);
    json_out_printf(&out,
                    ",\"size\":%" PRIu64 ",\"digest\":\"\",\"details\":", s->info.weight_bytes);
    write_details(s, &out);
    if (is_running) {
        json_out_printf(
            &out, ",\"size_vram\":0,\"context_length\":%d,\"expires_at\":", s->limits.n_context);
        write_time(&out, INT64_C(4102444800)); /* it stays: the year 2100 */
    } else {
        json_out_raw(&out, ",\"modified_at\":");
        write_time(&out, s->started_at);
    }
    json_out_raw(&out, "}]}");
    call_reply(c, 200, "application/json", &out);
    json_out_deinit(&out);
}

void api_ollama_version(call *c)
{
    json_out out;
    json_out_init(&out, 256);
    json_out_raw(&out, "{\"version\":\"" LACE_VERSION "\"}");
    call_reply(c, 200, "application/json", &out);
    json_out_deinit(&out);
}

void api_ollama_tags(call *c)
{
    reply_models(c, false);
}

void api_ollama_ps(call *c)
{
    reply_models(c, true);
}

/* A model's name, which may end in ":latest". False: answered. */
/* Whether it is the name, alone or with Ollama's tag behind it. */
static bool is_tagged(const char *given, const char *name)
{
    size_t n = strlen(name);
    return strncmp(given, name, n) == 0 && (given[n] == 0 || strcmp(given + n, ":latest") == 0);
}

bool ollama_check_model(call *c, const json_t *body)
{
    const json_t *name = json_object_get(body, "model");
    if (!name)
        name = json_object_get(body, "name");
    const char *given = json_string_value(name), *own = call_server(c)->model_id;
    if (given && strlen(given) == json_string_length(name) &&
        (is_tagged(given, own) || is_tagged(given, SERVER_ANY_MODEL)))
        return true;
    if (!given)
        call_fail(c, 400, "model", NULL, "model is missing");
    else
        call_fail(c, 404, "model", NULL,
                  "there is no such model here; this server has \"%s\", also called \"%s\"", own,
                  SERVER_ANY_MODEL);
    return false;
}

void api_ollama_show(call *c)
{
    const server *s = call_server(c);
    const json_t *body = call_json(c);
    if (!body || !ollama_check_model(c, body))
        return;
    const chat_caps *caps = chat_template_caps(s->chat);
    json_out out;
    json_out_init(&out, 1 << 24);
    json_out_raw(&out, "{\"modelfile\":\"\",\"parameters\":\"\",\"license\":\"\",\"template\":");
    json_out_string(&out, s->info.chat_template);
    json_out_raw(&out, ",\"details\":");
    write_details(s, &out);
    json_out_raw(&out, ",\"model_info\":{\"general.architecture\":");
    json_out_string(&out, s->info.architecture);
    json_out_printf(&out, ",\"general.parameter_count\":%" PRIu64, s->info.n_parameters);
    const struct {
        const char *name;
        int32_t value;
    } rows[] = {{"context_length", s->limits.n_context},
                {"embedding_length", s->info.n_embd},
                {"block_count", s->info.n_layers},
                {"attention.head_count", s->info.n_heads},
                {"attention.head_count_kv", s->info.n_kv_heads},
                {"vocab_size", s->info.n_vocab}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        json_out_printf(&out, ",\"%s.%s\":%d", s->info.architecture, rows[i].name, rows[i].value);
    json_out_raw(&out, "},\"capabilities\":[\"completion\"");
    if (caps->takes_tools)
        json_out_raw(&out, ",\"tools\"");
    if (chat_template_reply_format(s->chat)->thinking)
        json_out_raw(&out, ",\"thinking\"");
    json_out_raw(&out, "],\"modified_at\":");
    write_time(&out, s->started_at);
    json_out_raw(&out, "}");
    call_reply(c, 200, "application/json", &out);
    json_out_deinit(&out);
}

/* ---- Replies --------------------------------------------------------------------------------- */

typedef struct line_reply {
    call *c;
    bool is_chat;
    reply_parser *parser;
    json_out out; /* lines of a stream */
    json_out content, thinking, calls, arguments;
    bool has_failed;
    lace_finish finish;
    lace_generation_stats stats;
} line_reply;

static void write_head(const line_reply *l, json_out *out)
{
    json_out_raw(out, "{\"model\":");
    json_out_string(out, call_server(l->c)->model_id);
    json_out_raw(out, ",\"created_at\":");
    write_time(out, l->c->created);
}

static void write_texts(const line_reply *l, json_out *out)
{
    const buf *content = &l->content.b, *thinking = &l->thinking.b;
    json_out_raw(out, l->is_chat ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                                 : ",\"response\":");
    json_out_text(out, content->data ? content->data : "", content->size);
    if (thinking->size) {
        json_out_raw(out, ",\"thinking\":");
        json_out_text(out, thinking->data, thinking->size);
    }
    if (l->calls.b.size) {
        json_out_raw(out, ",\"tool_calls\":[");
        json_out_bytes(out, l->calls.b.data, l->calls.b.size);
        json_out_raw(out, "]");
    }
    if (l->is_chat)
        json_out_raw(out, "}");
}

static void clear_texts(line_reply *l)
{
    buf_clear(&l->content.b);
    buf_clear(&l->thinking.b);
    buf_clear(&l->calls.b);
}

static void write_end(const line_reply *l, json_out *out)
{
    const lace_generation_stats *t = &l->stats;
    json_out_printf(
        out,
        ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%" PRIu64
        ",\"load_duration\":0,\"prompt_eval_count\":%d,\"prompt_eval_duration\":%" PRIu64
        ",\"eval_count\":%d,\"eval_duration\":%" PRIu64 "}",
        l->finish == LACE_FINISH_LENGTH ? "length" : "stop", clock_ns() - call_begin_ns(l->c),
        t->n_prompt, t->prompt_ns, t->n_generated, t->generate_ns);
}

/* {"function":{"name":...,"arguments":{...}}}; a call that broke off has no arguments. */
static void end_call(line_reply *l)
{
    json_error_t error;
    const buf *arguments = &l->arguments.b;
    json_t *value = json_loadb(arguments->data ? arguments->data : "", arguments->size, 0, &error);
    if (json_is_object(value))
        json_out_bytes(&l->calls, arguments->data, arguments->size);
    else
        json_out_raw(&l->calls, "{}");
    json_out_raw(&l->calls, "}}");
    json_decref(value);
    buf_clear(&l->arguments.b);
}

static lace_status on_part(void *arg, const reply_event *part)
{
    line_reply *l = arg;
    switch (part->kind) {
    case REPLY_CONTENT:
        json_out_bytes(&l->content, part->chars.data, part->chars.size);
        break;
    case REPLY_REASONING:
        json_out_bytes(&l->thinking, part->chars.data, part->chars.size);
        break;
    case REPLY_CALL_BEGIN:
        json_out_raw(&l->calls,
                     l->calls.b.size ? ",{\"function\":{\"name\":" : "{\"function\":{\"name\":");
        json_out_text(&l->calls, part->chars.data, part->chars.size);
        json_out_raw(&l->calls, ",\"arguments\":");
        break;
    case REPLY_CALL_ARGS:
        json_out_bytes(&l->arguments, part->chars.data, part->chars.size);
        break;
    case REPLY_CALL_END:
        end_call(l);
        break;
    }
    return LACE_OK;
}

static line_reply *state_of(call *c)
{
    line_reply *l = call_state(c);
    if (l)
        return l;
    l = mem_calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->c = c;
    l->is_chat = text_is(call_path(c), "/api/chat");
    json_out *outs[] = {&l->out, &l->content, &l->thinking, &l->calls, &l->arguments};
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++)
        json_out_init(outs[i], MAX_REPLY);
    l->has_failed = gen_make_parser(c, on_part, l, &l->parser) != LACE_OK;
    call_set_state(c, l);
    return l;
}

static void on_free(call *c)
{
    line_reply *l = call_state(c);
    if (!l)
        return;
    json_out *outs[] = {&l->out, &l->content, &l->thinking, &l->calls, &l->arguments};
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++)
        json_out_deinit(outs[i]);
    reply_parser_free(l->parser);
    mem_free(l);
}

static void on_event(call *c, const gen_event *e)
{
    line_reply *l = state_of(c);
    if (!l || l->has_failed)
        return;
    l->stats = e->stats;
    if (reply_parser_feed(l->parser, (text){e->text, e->n_text}, NULL) != LACE_OK)
        l->has_failed = true;
    if (e->finish != LACE_FINISH_NONE) {
        l->finish = e->finish;
        if (!l->has_failed && reply_parser_finish(l->parser, NULL) != LACE_OK)
            l->has_failed = true;
    }
    bool is_in_call = l->arguments.b.size > 0 ||
                      (l->calls.b.size > 0 && l->calls.b.data[l->calls.b.size - 1] == ':');
    bool has_news = l->content.b.size || l->thinking.b.size || l->calls.b.size;
    if (!call_request(c)->is_stream || is_in_call || !has_news)
        return;
    call_begin_stream(c, "application/x-ndjson");
    write_head(l, &l->out);
    write_texts(l, &l->out);
    json_out_raw(&l->out, ",\"done\":false}\n");
    clear_texts(l);
    call_write(c, &l->out);
}

static void on_end(call *c)
{
    line_reply *l = state_of(c);
    if (!l || l->has_failed)
        return call_is_streaming(c) ? call_end(c) : call_fail(c, 503, NULL, NULL, "out of memory");
    bool is_stream = call_request(c)->is_stream;
    write_head(l, &l->out);
    write_texts(l, &l->out);
    write_end(l, &l->out);
    l->out.has_failed = l->out.has_failed || l->content.has_failed || l->thinking.has_failed;
    if (!is_stream)
        return call_reply(c, 200, "application/json", &l->out);
    json_out_raw(&l->out, "\n");
    call_begin_stream(c, "application/x-ndjson");
    call_write(c, &l->out);
    call_end(c);
}

static const gen_sink sink = {.on_event = on_event, .on_end = on_end, .on_free = on_free};

/* ---- Asking ---------------------------------------------------------------------------------- */

/*
 * "options" in Ollama's words, as a body in ours. What speaks of the machine (num_ctx, num_gpu...)
 * was settled when the server started and is left out; the context is never less than was said.
 */
static bool read_options(gen_request *r, call *c, const json_t *body)
{
    static const struct {
        const char *theirs, *ours;
    } names[] = {{"temperature", "temperature"},
                 {"top_k", "top_k"},
                 {"top_p", "top_p"},
                 {"min_p", "min_p"},
                 {"typical_p", "typical_p"},
                 {"seed", "seed"},
                 {"stop", "stop"},
                 {"repeat_penalty", "repeat_penalty"},
                 {"repeat_last_n", "repeat_last_n"},
                 {"presence_penalty", "presence_penalty"},
                 {"frequency_penalty", "frequency_penalty"},
                 {"mirostat", "mirostat"},
                 {"mirostat_tau", "mirostat_tau"},
                 {"mirostat_eta", "mirostat_eta"},
                 {"num_predict", "max_tokens"}};
    static const char *const machine[] = {
        "num_ctx",          "num_keep", "num_gpu",    "main_gpu",  "num_thread",
        "num_batch",        "use_mmap", "use_mlock",  "numa",      "low_vram",
        "penalize_newline", "f16_kv",   "vocab_only", "logits_all"};
    const json_t *options = json_object_get(body, "options");
    const json_t *n_predict = json_object_get(options, "num_predict");
    const json_t *n_context = json_object_get(options, "num_ctx");
    if (options && !json_is_null(options) && !json_is_object(options))
        return call_refuse(c, "options", "options is not an object");
    if (json_is_integer(n_context) &&
        json_integer_value(n_context) > call_server(c)->limits.n_context) {
        call_fail(c, 400, "num_ctx", NULL,
                  "num_ctx is %" JSON_INTEGER_FORMAT ", the server's context has %d tokens",
                  json_integer_value(n_context), call_server(c)->limits.n_context);
        return false;
    }
    json_t *ours = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)options, key, value)
    {
        const char *name = NULL;
        bool is_known = false;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (strcmp(key, names[i].theirs) == 0)
                name = names[i].ours;
        for (size_t i = 0; i < sizeof machine / sizeof machine[0]; i++)
            is_known = is_known || strcmp(key, machine[i]) == 0;
        if (name)
            json_object_set(ours, name, value);
        else if (!is_known) {
            json_decref(ours);
            call_fail(c, 400, "options", NULL, "options.%.60s is not known here", key);
            return false;
        }
    }
    if (json_is_integer(n_predict) && json_integer_value(n_predict) < 0)
        json_object_del(ours, "max_tokens"); /* -1: without a limit */
    bool ok = ours && gen_request_read(r, c, ours, GEN_CHAT);
    json_decref(ours);
    static const char *const not_done[] = {"template", "context", "logprobs", "images"};
    for (size_t i = 0; ok && i < sizeof not_done / sizeof not_done[0]; i++) {
        value = json_object_get(body, not_done[i]);
        if (json_is_true(value) || json_string_length(value) > 0 || json_array_size(value) > 0) {
            call_fail(c, 400, not_done[i], NULL, "%s is not supported here", not_done[i]);
            return false;
        }
    }
    const json_t *stream = json_object_get(body, "stream");
    if (stream && !json_is_boolean(stream))
        return call_refuse(c, "stream", "stream is not a boolean");
    r->is_stream = !json_is_false(stream);
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

static json_t *read_think(const json_t *think)
{
    json_t *kwargs = json_object();
    if (kwargs && json_is_boolean(think))
        json_object_set_new(kwargs, "enable_thinking", json_boolean(json_is_true(think)));
    if (kwargs && json_is_string(think))
        json_object_set(kwargs, "reasoning_effort", (json_t *)think);
    return kwargs;
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
        if (json_array_size(images) > 0)
            return call_refuse(c, "messages", "images are not supported");
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

static bool read_chat(gen_request *r, call *c, json_t *body)
{
    json_t *tools = json_object_get(body, "tools");
    r->tools = json_array_size(tools) ? json_incref(tools) : NULL;
    r->kwargs = read_think(json_object_get(body, "think"));
    return ollama_check_model(c, body) && read_options(r, c, body) &&
           read_format(r, c, json_object_get(body, "format")) &&
           read_messages(c, json_object_get(body, "messages"), &r->messages) &&
           gen_request_chat(r, c);
}

void api_ollama_chat(call *c)
{
    gen_start(c, read_chat, &sink);
}

/* The prompt as a conversation of one message, unless it is to be taken as it is. */
static bool use_prompt(gen_request *r, call *c, const json_t *body)
{
    json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
    if (!json_is_string(prompt))
        return call_refuse(c, "prompt", "prompt is missing or no string");
    const json_t *suffix = json_object_get(body, "suffix");
    if (json_string_length(suffix) > 0)
        return gen_request_infill(r, c,
                                  (text){json_string_value(prompt), json_string_length(prompt)},
                                  (text){json_string_value(suffix), json_string_length(suffix)});
    if (json_is_true(json_object_get(body, "raw")))
        return gen_request_text(r, c, json_string_value(prompt), json_string_length(prompt));
    r->messages = json_array();
    r->kwargs = read_think(json_object_get(body, "think"));
    if (json_string_length(system) > 0)
        json_array_append_new(r->messages,
                              json_pack("{s:s, s:O}", "role", "system", "content", system));
    json_array_append_new(r->messages, json_pack("{s:s, s:O}", "role", "user", "content", prompt));
    return gen_request_chat(r, c);
}

static bool read_generate(gen_request *r, call *c, json_t *body)
{
    return ollama_check_model(c, body) && read_options(r, c, body) &&
           read_format(r, c, json_object_get(body, "format")) && use_prompt(r, c, body);
}

void api_ollama_generate(call *c)
{
    gen_start(c, read_generate, &sink);
}
