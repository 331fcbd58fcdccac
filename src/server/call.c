/* Calls: what a route decides, how it is sent, and what becomes of a call whose client leaves. */
#include "server/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "base/system.h"
#include "server/core.h"
#include "server/reply.h"
#include "server/router.h"

enum {
    PING_S = 10,            /* a stream is not silent for longer */
    MAX_ANSWER = 512 << 20, /* bytes of an answer in memory */
};

/* ---- Life ------------------------------------------------------------------------------------ */

static void make_id(char id[25])
{
    unsigned char bytes[12];
    if (!system_random(bytes, sizeof bytes)) {
        uint64_t now = clock_ns();
        memcpy(bytes, &now, sizeof now);
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

call *call_create(conn *from, const route *r)
{
    call *c = mem_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    server *s = from->s;
    c->s = s;
    c->conn = from;
    c->route = r;
    c->parser = from->parser;
    c->key = access_key(s, c->parser);
    from->parser = NULL;
    from->active = c;
    memcpy(c->client, from->client, sizeof c->client);
    c->turn = c->key ? c->key : (uint64_t)(uintptr_t)from;
    c->begin_ns = c->last_write_ns = clock_ns();
    c->created = (int64_t)time(NULL);
    json_out_init(&c->body, MAX_ANSWER);
    make_id(c->id);
    c->next = s->calls;
    if (c->next)
        c->next->prev = c;
    s->calls = c;
    s->n_calls++;
    return c;
}

static void free_call(call *c)
{
    server *s = c->s;
    router_cancel(c);
    if (c->sink)
        reply_free(c);
    for (int i = 0; c->notes && i < c->request.n_choices; i++)
        reply_note_deinit(&c->notes[i]);
    gen_request_deinit(&c->request); /* all zeros, if nothing was generated */
    mem_free_all(c->jobs, c->notes);
    json_decref(c->json);
    json_out_deinit(&c->body);
    parser_free(s, c->parser);
    *(c->prev ? &c->prev->next : &s->calls) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->n_calls--;
    mem_free(c);
}

/* A call is gone when nobody holds it any more: no worker, no generation, no client. */
static void free_if_done(call *c)
{
    if (!c->is_working && c->n_left == 0 && !c->conn)
        free_call(c);
}

void call_free_all(server *s)
{
    while (s->calls)
        free_call(s->calls);
}

/* ---- What was asked -------------------------------------------------------------------------- */

server *call_server(const call *c)
{
    return c->s;
}

text call_path(const call *c)
{
    return c->parser->path;
}

uint64_t call_begin_ns(const call *c)
{
    return c->begin_ns;
}

const char *call_id(const call *c)
{
    return c->id;
}

/* The body as JSON of a kind, "object" or "list". */
static json_t *read_json(call *c, const char *kind)
{
    lace_error err = {0};
    const buf *body = &c->parser->body;
    span bytes = {(const uint8_t *)body->data, body->size};
    if (body->size == 0)
        call_fail(c, 400, NULL, NULL, "the body is empty, expected a JSON %s", kind);
    else if (json_read(bytes, 0, &c->json, &err) != LACE_OK) {
        error_prefix(&err, err.status, "the body");
        call_fail_error(c, NULL, &err);
    } else if (kind[0] == 'o' ? !json_is_object(c->json) : !json_is_array(c->json))
        call_fail(c, 400, NULL, NULL, "the body is %s, expected a JSON %s", json_kind(c->json),
                  kind);
    else
        return c->json;
    return NULL;
}

json_t *call_json(call *c)
{
    return read_json(c, "object");
}

json_t *call_json_list(call *c)
{
    return read_json(c, "list");
}

/* ---- What is answered ------------------------------------------------------------------------ */

bool call_run(call *c)
{
    json_heap_failed(); /* forget what others were short of */
    if (!atomic_load(&c->is_gone))
        c->s->router ? router_run(c) : c->route->run(c);
    if (json_heap_failed()) { /* a message, a tool or a constraint may be missing */
        gen_request_deinit(&c->request);
        call_nomem(c);
    }
    if (c->wants_time && !c->is_slow && c->outcome == OUTCOME_NONE) {
        json_decref(c->json); /* the route may have changed it */
        c->json = NULL;
        return false;
    }
    if (c->outcome != OUTCOME_FORWARD)
        buf_deinit(&c->parser->body); /* the values have all that is still needed */
    if (c->outcome == OUTCOME_NONE)
        call_fail(c, 500, NULL, NULL, "the route gave no answer");
    return true;
}

bool call_is_unwanted(void *c)
{
    return atomic_load(&((call *)c)->is_gone);
}

void call_reply(call *c, int status, const char *type, json_out *body)
{
    if (body->has_failed)
        return call_fail(c, 500, NULL, NULL, "the answer does not fit into memory");
    c->outcome = OUTCOME_REPLY;
    c->status = status;
    c->type = type;
    json_out_deinit(&c->body);
    c->body = *body;
    json_out_init(body, body->b.max);
}

void call_reply_static(call *c, int status, const char *type, const char *extra_headers,
                       const void *data, size_t n)
{
    c->outcome = OUTCOME_REPLY;
    c->status = status;
    c->type = type;
    c->extra_headers = extra_headers;
    c->static_body = data;
    c->n_static_body = n;
}

/* A name as the client has it. */
static const char *their_name(const call *c, const char *ours)
{
    for (const field_name *n = c->names; ours && n && n->ours; n++)
        if (strcmp(n->ours, ours) == 0)
            return n->theirs;
    return ours;
}

/* An error in the style of the call's route; a message that begins with a field names it, too. */
static void write_error(const call *c, json_out *out, int status, const char *param,
                        const char *code, const char *message)
{
    char renamed[sizeof((lace_error *)NULL)->text + 64];
    const char *theirs = their_name(c, param);
    size_t n = param ? strlen(param) : 0;
    if (theirs != param && strncmp(message, param, n) == 0 && strchr(" :[.", message[n])) {
        snprintf(renamed, sizeof renamed, "%s%s", theirs, message + n);
        message = renamed;
    }
    errors_write(out, c->route->errors, status, theirs, code, message);
}

static void set_error(call *c, int status, const char *param, const char *code, const char *message)
{
    buf_clear(&c->body.b);
    c->body.has_failed = false;
    write_error(c, &c->body, status, param, code, message);
    c->outcome = OUTCOME_REPLY;
    c->status = status;
    c->type = "application/json";
    c->extra_headers = status == 429 || status == 503 ? "Retry-After: 1\r\n" : NULL;
}

void call_fail(call *c, int status, const char *param, const char *code, const char *format, ...)
{
    lace_error line;
    char message[sizeof line.text];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    set_error(c, status, param, code, message);
}

static int http_status_of(lace_status status)
{
    switch (status) {
    case LACE_E_NOMEM:
    case LACE_E_RANK:
    case LACE_E_DEVICE: /* it may be there again at the next try */
        return 503;
    case LACE_E_NUMERIC:
    case LACE_E_IO:
        return 500;
    default:
        return 400;
    }
}

static const char *error_code(lace_status status)
{
    return status == LACE_E_CONTEXT   ? "context_length_exceeded"
           : status == LACE_E_NUMERIC ? "numeric_error"
                                      : NULL;
}

void call_fail_error(call *c, const char *param, const lace_error *err)
{
    set_error(c, http_status_of(err->status), param, error_code(err->status), err->text);
}

bool call_refuse(call *c, const char *param, const char *message)
{
    set_error(c, 400, param, "invalid_value", message);
    return false;
}

bool call_nomem(call *c)
{
    set_error(c, 503, NULL, NULL, "out of memory");
    return false;
}

bool call_append(call *c, json_t *list, json_t *item)
{
    return (item && json_array_append_new(list, item) == 0) || call_nomem(c);
}

void call_rename(call *c, const field_name *names)
{
    c->names = names;
}

void call_generate(call *c, gen_request *request, const gen_sink *sink)
{
    c->jobs = mem_calloc((size_t)request->n_choices, sizeof *c->jobs);
    if (!c->jobs)
        return call_fail(c, 503, NULL, NULL, "out of memory");
    c->request = *request;
    memset(request, 0, sizeof *request); /* nothing left to free */
    c->sink = sink;
    c->outcome = OUTCOME_GENERATE;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* The answer is complete; the connection may go on without the call. */
void call_finish(call *c)
{
    c->is_ended = true;
    metrics_count_status(&c->s->metrics, c->status);
    metrics_observe(&c->s->metrics.end_to_end, clock_ns() - c->begin_ns);
    log_call(c);
    conn *to = c->conn;
    c->conn = NULL;
    bool keeps_alive = c->parser->keeps_alive && !server_is_draining(c->s);
    free_if_done(c);
    conn_call_done(to, keeps_alive);
}

void call_send_reply(call *c)
{
    const void *data = c->static_body ? c->static_body : c->body.b.data;
    size_t n = c->static_body ? c->n_static_body : c->body.b.size;
    bool keeps_alive = c->parser->keeps_alive && !server_is_draining(c->s);
    char extra[1024];
    snprintf(extra, sizeof extra, "X-Request-Id: %s\r\n%s", c->id,
             c->extra_headers ? c->extra_headers : "");
    conn_answer(c->conn, c->status, c->type, extra, data, n, keeps_alive,
                text_is(c->parser->method, "HEAD"));
    call_finish(c);
}

static void submit(call *c)
{
    server *s = c->s;
    int n = c->request.n_choices;
    if (server_is_draining(s) || server_queue_is_full(s)) {
        gen_request_deinit(&c->request);
        if (server_is_draining(s))
            call_fail(c, 503, NULL, NULL, "the server is shutting down");
        else
            call_fail(c, 429, NULL, NULL, "too many requests are waiting; try again later");
        return call_send_reply(c);
    }
    c->notes = c->request.is_noted ? mem_calloc((size_t)n, sizeof *c->notes) : NULL;
    for (int i = 0; c->notes && i < n; i++)
        reply_note_init(&c->notes[i]);
    c->n_left = n;
    s->n_jobs += n;
    s->metrics.n_prompt_tokens += c->request.n_prompt;
    for (int i = 0; i < n; i++) {
        c->jobs[i].c = c;
        c->jobs[i].choice = i;
        inference_push(s->inference, &c->jobs[i]);
    }
}

/* The client has gone, or the server ends; and no other thread has the call. */
static void note_abandoned(call *c)
{
    c->s->metrics.n_disconnected += !c->s->is_cut;
    c->status = c->s->is_cut ? 503 : 499;
    log_call(c);
}

void call_dispatch(call *c)
{
    c->is_working = false;
    c->s->n_jobs -= !c->s->router && (c->route->flags & ROUTE_EMBEDS);
    if (!c->conn) {
        note_abandoned(c);
        router_cancel(c);
        free_if_done(c);
    } else if (c->outcome == OUTCOME_GENERATE)
        submit(c);
    else if (c->outcome == OUTCOME_FORWARD)
        router_submit(c);
    else
        call_send_reply(c);
}

/* Its generations end soon. */
static void cancel_jobs(call *c)
{
    router_cancel(c);
    for (int i = 0; c->n_left > 0 && i < c->request.n_choices; i++)
        inference_cancel(c->s->inference, &c->jobs[i]);
}

void call_abandon(call *c)
{
    c->conn = NULL;
    atomic_store(&c->is_gone, true);
    if (c->is_working)
        return; /* call_dispatch will see it */
    note_abandoned(c);
    cancel_jobs(c);
    free_if_done(c);
}

/* ---- Streams --------------------------------------------------------------------------------- */

void call_begin_stream(call *c, const char *type)
{
    if (c->is_streaming || !c->conn)
        return;
    c->is_streaming = true;
    c->status = 200;
    bool keeps_alive = c->parser->keeps_alive && !server_is_draining(c->s);
    char head[1024];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nCache-Control: no-cache\r\n"
                     "X-Accel-Buffering: no\r\nX-Content-Type-Options: nosniff\r\n"
                     "X-Request-Id: %s\r\n%s%s%s\r\n",
                     type, c->id, c->conn->cors,
                     c->parser->is_1_0 ? "" : "Transfer-Encoding: chunked\r\n",
                     keeps_alive ? "" : "Connection: close\r\n");
    conn_write(c->conn, head, (size_t)n);
}

bool call_is_streaming(const call *c)
{
    return c->is_streaming;
}

void call_write(call *c, json_out *out)
{
    if (c->conn && out->b.size) {
        char line[32];
        c->last_write_ns = clock_ns();
        if (!c->parser->is_1_0)
            conn_write(c->conn, line, (size_t)snprintf(line, sizeof line, "%zx\r\n", out->b.size));
        conn_write(c->conn, out->b.data, out->b.size);
        if (!c->parser->is_1_0)
            conn_write(c->conn, "\r\n", 2);
    }
    buf_clear(&out->b);
}

void call_end(call *c)
{
    if (c->conn && !c->is_ended && !c->parser->is_1_0)
        conn_write(c->conn, "0\r\n\r\n", 5);
    c->is_ended = true;
}

/* ---- Generations ----------------------------------------------------------------------------- */

const gen_request *call_request(const call *c)
{
    return &c->request;
}

bool call_wants_part(call *c, int choice, const reply_event *part)
{
    gen_job *job = &c->jobs[choice];
    if (c->request.parallel_calls)
        return true;
    if (job->is_satisfied)
        return false;
    if (part->kind == REPLY_CALL_END)
        call_satisfy(c, choice);
    return true;
}

void call_satisfy(call *c, int choice)
{
    c->jobs[choice].is_satisfied = true;
    inference_cancel(c->s->inference, &c->jobs[choice]);
}

void *call_state(const call *c)
{
    return c->state;
}

void call_set_state(call *c, void *state)
{
    c->state = state;
}

/* The key itself, and not its number: what is kept in files outlives a list of keys. */
uint64_t call_owner(const call *c)
{
    digest d;
    uint64_t owner = UINT64_MAX - c->key;
    if (c->key == 0 || c->s->options.shares_prefixes)
        return 0;
    const char *key = c->s->keys[c->key - 1];
    if (digest_of(key, strlen(key), NULL, 0, &d))
        memcpy(&owner, d.bytes, sizeof owner);
    return owner;
}

/* A reply that the model has ended by itself is kept as it wrote it. */
static void keep_reply(call *c, const gen_event *e)
{
    reply_note *n = c->notes ? &c->notes[e->choice] : NULL;
    if (n && e->finish == LACE_FINISH_STOP && !c->jobs[e->choice].is_satisfied && n->n_tokens > 0 &&
        lace_token_is_end(c->s->model, n->tokens[n->n_tokens - 1]))
        kept_replies_add(c->s->replies, n, c->request.opening_text, &c->request.behind);
}

static void observe(call *c, const gen_event *e)
{
    metrics *m = &c->s->metrics;
    uint64_t now = clock_ns();
    if (e->token >= 0) {
        c->n_generated++;
        if (e->stats.n_generated == 1) {
            if (e->choice == 0) {
                c->n_reused = e->stats.n_cached;
                c->reuse_end = e->stats.reuse_end;
            }
            metrics_observe(&m->first_token, now - c->begin_ns);
            metrics_observe(&m->queue, e->stats.queue_ns);
            metrics_observe(&m->prompt, e->stats.prompt_ns);
            m->n_cached_tokens += (uint64_t)e->stats.n_cached;
        } else if (c->last_token_ns) {
            metrics_observe(&m->inter_token, now - c->last_token_ns);
        }
        c->last_token_ns = now;
    }
    if (e->finish != LACE_FINISH_NONE) {
        c->reasoning_cut = e->stats.reasoning_cut;
        c->text_cut = e->stats.text_cut;
    }
    if (e->finish != LACE_FINISH_NONE)
        m->n_finished[e->finish]++;
}

/* The call ends with an error: as the answer, or in the stream if the head is sent already. */
void call_end_with_error(call *c, int status, const char *code, const char *message)
{
    c->has_error = true;
    cancel_jobs(c);
    if (!c->is_streaming) {
        set_error(c, status, NULL, code, message);
        return call_send_reply(c);
    }
    json_out out;
    json_out_init(&out, MAX_ANSWER);
    bool is_ndjson = c->route->errors == ERRORS_OLLAMA;
    if (!is_ndjson)
        json_out_raw(&out,
                     c->route->errors == ERRORS_ANTHROPIC ? "event: error\ndata: " : "data: ");
    write_error(c, &out, status, NULL, code, message);
    json_out_raw(&out, is_ndjson ? "\n" : "\n\n");
    call_write(c, &out);
    json_out_deinit(&out);
    call_end(c);
    call_finish(c);
}

/* One choice failed: the whole call does, and its other choices are of no use. */
static void fail_generation(call *c, const gen_event *e)
{
    if (e->finish == LACE_FINISH_CANCELLED)
        call_end_with_error(c, 504, "timeout", "the request took longer than the server allows");
    else
        call_end_with_error(c, http_status_of(e->status), error_code(e->status), e->text);
}

/* ---- The end of the server ------------------------------------------------------------------- */

/* A worker has the call: it is not to be touched, only its connection. */
static void cut_working(call *c, const char *message)
{
    json_out body;
    json_out_init(&body, 4096);
    errors_write(&body, c->route->errors, 503, NULL, NULL, message);
    conn *to = c->conn;
    c->conn = NULL;
    atomic_store(&c->is_gone, true);
    conn_answer(to, 503, "application/json", NULL, body.b.data, body.b.size, false,
                text_is(c->parser->method, "HEAD"));
    json_out_deinit(&body);
    conn_call_done(to, false);
}

void call_cut_all(server *s)
{
    static const char message[] = "the server has shut down before the answer was complete";
    call *next;
    for (call *c = s->calls; c; c = next) {
        next = c->next;
        if (!c->conn || c->is_ended)
            continue;
        if (c->is_working)
            cut_working(c, message);
        else
            call_end_with_error(c, 503, NULL, message);
    }
}

/* ---- Events ---------------------------------------------------------------------------------- */

void call_event(gen_event *e)
{
    call *c = e->c;
    if (e->finish != LACE_FINISH_NONE && c->jobs[e->choice].is_satisfied)
        e->finish = LACE_FINISH_STOP;
    observe(c, e);
    if (e->finish != LACE_FINISH_NONE) {
        c->n_left--;
        c->s->n_jobs--;
    }
    bool is_live = c->conn && !c->is_ended && !c->has_error;
    if (is_live && (e->finish == LACE_FINISH_ERROR || e->finish == LACE_FINISH_CANCELLED)) {
        fail_generation(c, e);
    } else if (is_live && e->is_prompt) {
        if (c->sink->on_prompt && c->request.is_stream)
            c->sink->on_prompt(c, e);
    } else if (is_live) {
        if (c->notes && e->token >= 0)
            reply_note_token(&c->notes[e->choice], e->token);
        reply_take(c, e);
        keep_reply(c, e);
        if (c->n_left == 0) {
            c->sink->on_end(c);
            if (c->is_streaming)
                call_finish(c);
            else
                call_send_reply(c);
        }
    } else {
        free_if_done(c);
    }
    mem_free(e);
}

void call_tick(server *s, uint64_t now)
{
    call *next;
    for (call *c = s->calls; c; c = next) {
        next = c->next;
        uint64_t limit = clock_seconds(s->options.timeout_s);
        if (limit && now - c->begin_ns > limit && c->n_left > 0 && !c->is_timed_out) {
            c->is_timed_out = true;
            s->metrics.n_timed_out++;
            cancel_jobs(c);
        }
        if (c->conn && c->n_left > 0 && c->request.is_stream &&
            now - c->last_write_ns > clock_seconds(PING_S))
            reply_ping(c);
    }
}
