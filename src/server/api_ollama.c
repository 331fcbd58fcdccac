/*
 * Ollama's API: /api/chat and /api/generate, as lines of JSON with times in nanoseconds, and the
 * routes by which its clients look around. This is how they are answered; ollama_in.c reads them.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "server/api.h"
#include "server/core.h"
#include "server/ollama.h"
#include "server/openai.h"
#include "server/reply.h"

/* The version of Ollama whose API this is; clients look at it to see what they may ask for. */
#define OLLAMA_VERSION "0.12.11"

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

/* Clients show the first digits of a digest, and tell models apart by it. Weights are not read for
 * it: it is of what is known about the model. */
static void write_digest(const server *s, json_out *out)
{
    char digits[65], known[512];
    snprintf(known, sizeof known, "%s %s %s %" PRIu64 " %" PRIu64, s->model_id,
             s->info.architecture, s->info.type, s->info.n_parameters, s->info.weight_bytes);
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (int i = 0; i < 4; i++) {
        for (const char *p = known; *p; p++)
            hash = (hash ^ (unsigned char)*p) * UINT64_C(1099511628211);
        snprintf(digits + 16 * i, 17, "%016" PRIx64, hash);
    }
    json_out_string(out, digits);
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
    json_out_printf(&out, ",\"size\":%" PRIu64 ",\"digest\":", s->info.weight_bytes);
    write_digest(s, &out);
    json_out_raw(&out, ",\"details\":");
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
    json_out_raw(&out, "{\"version\":\"" OLLAMA_VERSION "\",\"lace\":\"" LACE_VERSION "\"}");
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

void api_ollama_show(call *c)
{
    const server *s = call_server(c);
    const json_t *body = call_json(c);
    if (!body || !ollama_check_name(c, body, true)) /* what another one is like is not known */
        return;
    const chat_caps *caps = chat_template_caps(s->chat);
    json_out out;
    json_out_init(&out, 1 << 24);
    json_out_raw(&out, "{\"modelfile\":\"\",\"parameters\":\"\",\"license\":\"\",\"template\":");
    json_out_string(&out, s->chat_source);
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
    if (s->options.batcher.session.tower)
        json_out_raw(&out, ",\"vision\"");
    json_out_raw(&out, "],\"modified_at\":");
    write_time(&out, s->started_at);
    json_out_raw(&out, "}");
    call_reply(c, 200, "application/json", &out);
    json_out_deinit(&out);
}

/* ---- Replies --------------------------------------------------------------------------------- */

typedef struct line_reply {
    reply_state base;                                       /* its `out`: lines of a stream */
    json_out content, thinking, calls, arguments, logprobs; /* since the last line */
} line_reply;

static void write_head(const call *c, json_out *out)
{
    json_out_raw(out, "{\"model\":");
    json_out_string(out, call_model_id(c));
    json_out_raw(out, ",\"created_at\":");
    write_time(out, c->created);
}

void ollama_reply_loaded(call *c, bool is_chat, bool is_unload)
{
    json_out out;
    json_out_init(&out, 4096);
    write_head(c, &out);
    json_out_raw(&out, is_chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
                               : ",\"response\":\"\"");
    json_out_printf(&out, ",\"done\":true,\"done_reason\":\"%s\"}", is_unload ? "unload" : "load");
    call_reply(c, 200, "application/json", &out);
    json_out_deinit(&out);
}

static void write_texts(const line_reply *l, json_out *out)
{
    const buf *content = &l->content.b, *thinking = &l->thinking.b;
    bool is_chat = text_is(call_path(l->base.c), "/api/chat");
    json_out_raw(out,
                 is_chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
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
    if (is_chat)
        json_out_raw(out, "}");
    if (l->logprobs.b.size) {
        json_out_raw(out, ",\"logprobs\":[");
        json_out_bytes(out, l->logprobs.b.data, l->logprobs.b.size);
        json_out_raw(out, "]");
    }
}

static void clear_texts(line_reply *l)
{
    buf_clear(&l->logprobs.b);
    buf_clear(&l->content.b);
    buf_clear(&l->thinking.b);
    buf_clear(&l->calls.b);
}

static void write_end(const line_reply *l, json_out *out)
{
    const lace_generation_stats *t = &l->base.stats;
    json_out_printf(
        out,
        ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%" PRIu64
        ",\"load_duration\":0,\"prompt_eval_count\":%d,\"prompt_eval_duration\":%" PRIu64
        ",\"eval_count\":%d,\"eval_duration\":%" PRIu64 "}",
        l->base.finish == LACE_FINISH_LENGTH ? "length" : "stop",
        clock_ns() - call_begin_ns(l->base.c), t->n_prompt, t->prompt_ns, t->n_generated,
        t->generate_ns);
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
        /* {"function":{"name":...,"arguments":{...}}} */
        json_out_raw(&l->calls,
                     l->calls.b.size ? ",{\"function\":{\"name\":" : "{\"function\":{\"name\":");
        json_out_text(&l->calls, part->chars.data, part->chars.size);
        json_out_raw(&l->calls, ",\"arguments\":");
        break;
    case REPLY_CALL_ARGS:
        json_out_bytes(&l->arguments, part->chars.data, part->chars.size);
        break;
    case REPLY_CALL_END:
        reply_write_arguments(&l->calls, &l->arguments.b);
        json_out_raw(&l->calls, "}}");
        buf_clear(&l->arguments.b);
        break;
    }
    return LACE_OK;
}

static void on_token(void *arg, const gen_event *e)
{
    line_reply *l = arg;
    openai_add_logprob(l->base.c, &l->logprobs, e);
}

/* A line, if there is something new and no call is being written. */
static void write_line(void *arg)
{
    line_reply *l = arg;
    bool is_in_call = l->arguments.b.size > 0 ||
                      (l->calls.b.size > 0 && l->calls.b.data[l->calls.b.size - 1] == ':');
    bool has_news = l->content.b.size || l->thinking.b.size || l->calls.b.size;
    if (is_in_call || !has_news)
        return;
    call_begin_stream(l->base.c, "application/x-ndjson");
    write_head(l->base.c, &l->base.out);
    write_texts(l, &l->base.out);
    json_out_raw(&l->base.out, ",\"done\":false}\n");
    clear_texts(l);
}

static void on_end(call *c)
{
    line_reply *l = reply_finished(c);
    if (!l)
        return;
    json_out *out = &l->base.out;
    write_head(c, out);
    write_texts(l, out);
    write_end(l, out);
    if (!call_request(c)->is_stream)
        return call_reply(c, 200, "application/json", out);
    json_out_raw(out, "\n");
    call_begin_stream(c, "application/x-ndjson");
    call_write(c, out);
    call_end(c);
}

static const size_t outs[] = {offsetof(line_reply, content), offsetof(line_reply, thinking),
                              offsetof(line_reply, calls), offsetof(line_reply, arguments),
                              offsetof(line_reply, logprobs)};
static const reply_kind reply = {.size = sizeof(line_reply),
                                 .outs = outs,
                                 .n_outs = sizeof outs / sizeof outs[0],
                                 .on_part = on_part,
                                 .on_token = on_token,
                                 .end_event = write_line};
static const gen_sink sink = {.reply = &reply, .on_end = on_end};

/* ---- Asking ---------------------------------------------------------------------------------- */

void api_ollama_chat(call *c)
{
    gen_start(c, ollama_read_chat, &sink);
}

void api_ollama_generate(call *c)
{
    gen_start(c, ollama_read_generate, &sink);
}
