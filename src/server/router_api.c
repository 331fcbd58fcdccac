/* The routes of a server of several models: which model a request is for, and what is loaded. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "server/api.h"
#include "server/router.h"

enum { MAX_LISTING = 1 << 20, MAX_NAME = 512 };
static const double LONGEST_S = 1e9;

/* ---- What is loaded -------------------------------------------------------------------------- */

/* Seconds until an idle model goes; negative: it stays. */
static int64_t seconds_left(const router_model *m)
{
    if (m->entry->is_pinned || m->keep_alive_s < 0)
        return -1;
    int64_t idle = m->n_active ? 0 : (int64_t)((clock_ns() - m->used_ns) / clock_seconds(1));
    return m->keep_alive_s > idle ? m->keep_alive_s - idle : 0;
}

static int count_waiting(const router_model *m)
{
    int n = 0;
    for (const forward *f = m->waiting; f; f = f->next)
        n++;
    return n;
}

static void write_model(const router_model *m, json_out *out)
{
    bool is_ready = m->state == MODEL_READY;
    json_out_raw(out, "{\"id\":");
    json_out_string(out, m->entry->name);
    json_out_printf(out,
                    ",\"object\":\"model\",\"created\":%" PRId64
                    ",\"owned_by\":\"lace\",\"state\":\"%s\",\"status\":{\"value\":\"%s\"}"
                    ",\"pinned\":%s,\"requests_running\":%d,\"requests_waiting\":%d"
                    ",\"memory_bytes\":%" PRIu64 ",\"expires_in_s\":",
                    m->r->s->started_at, router_state_word(m),
                    is_ready                     ? "loaded"
                    : m->state == MODEL_UNLOADED ? "unloaded"
                                                 : "loading",
                    m->entry->is_pinned ? "true" : "false", m->n_active, count_waiting(m),
                    m->n_bytes);
    if (is_ready && seconds_left(m) >= 0)
        json_out_printf(out, "%" PRId64 "}", seconds_left(m));
    else
        json_out_raw(out, "null}");
}

static void list_models(call *c)
{
    const router *r = c->s->router;
    json_out out;
    json_out_init(&out, MAX_LISTING);
    json_out_printf(&out,
                    "{\"object\":\"list\",\"memory_bytes\":%" PRIu64 ",\"memory_limit\":%" PRIu64
                    ",\"default\":",
                    router_bytes_used(r), r->options->memory_bytes);
    json_out_string(&out, r->models[r->options->default_index].entry->name);
    json_out_raw(&out, ",\"data\":[");
    for (size_t i = 0; i < r->options->n_entries; i++) {
        json_out_raw(&out, i ? "," : "");
        write_model(&r->models[i], &out);
    }
    json_out_raw(&out, "]}");
    call_reply(c, 200, "application/json", &out);
}

static void refuse_name(call *c)
{
    call_fail(c, 404, "model", "model_not_found",
              "there is no such model here; GET /v1/models lists the models");
}

static void show_model(call *c)
{
    router *r = c->s->router;
    size_t n = strlen("/v1/models/");
    text path = call_path(c);
    for (size_t i = 0; i < r->options->n_entries; i++) {
        if (!api_path_is_name((text){path.data + n, path.size - n}, r->models[i].entry->name))
            continue;
        json_out out;
        json_out_init(&out, MAX_LISTING);
        write_model(&r->models[i], &out);
        return call_reply(c, 200, "application/json", &out);
    }
    refuse_name(c);
}

static void write_time(json_out *out, int64_t seconds)
{
    char line[32];
    time_t t = (time_t)seconds;
    struct tm parts;
    gmtime_r(&t, &parts);
    strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_out_string(out, line);
}

/* All models as Ollama lists them, or those that run. */
static void list_for_ollama(call *c, bool is_running)
{
    static const int64_t far_away = INT64_C(4102444800); /* the year 2100 */
    const router *r = c->s->router;
    bool is_first = true;
    json_out out;
    json_out_init(&out, MAX_LISTING);
    json_out_raw(&out, "{\"models\":[");
    for (size_t i = 0; i < r->options->n_entries; i++) {
        const router_model *m = &r->models[i];
        if (is_running && m->state != MODEL_READY)
            continue;
        json_out_raw(&out, is_first ? "{\"name\":" : ",{\"name\":");
        is_first = false;
        json_out_string(&out, m->entry->name);
        json_out_raw(&out, ",\"model\":");
        json_out_string(&out, m->entry->name);
        json_out_printf(&out, ",\"size\":%" PRIu64 ",\"digest\":\"%064zx\",\"details\":{}",
                        m->n_bytes, i + 1);
        json_out_printf(&out, ",\"%s\":", is_running ? "expires_at" : "modified_at");
        int64_t left = seconds_left(m);
        write_time(&out, !is_running ? c->s->started_at
                         : left >= 0 ? (int64_t)time(NULL) + left
                                     : far_away);
        if (is_running)
            json_out_printf(&out, ",\"size_vram\":0,\"requests\":%d,\"pinned\":%s", m->n_active,
                            m->entry->is_pinned ? "true" : "false");
        json_out_raw(&out, "}");
    }
    json_out_raw(&out, "]}");
    call_reply(c, 200, "application/json", &out);
}

/* ---- keep_alive ------------------------------------------------------------------------------ */

bool server_parse_keep_alive(const char *word, int64_t *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};
    double sum = 0;
    bool is_negative = word[0] == '-';
    const char *at = word + (is_negative || word[0] == '+');
    if (!*at)
        return false;
    while (*at) {
        char *end;
        if (!isdigit((unsigned char)*at) && *at != '.')
            return false;
        double x = strtod(at, &end);
        size_t i = 0, n = sizeof units / sizeof *units;
        while (i < n && strncmp(end, units[i].unit, strlen(units[i].unit)) != 0)
            i++;
        if (end == at || (i == n && (*end || at != word + (is_negative || word[0] == '+'))))
            return false;
        sum += x * (i < n ? units[i].seconds : 1); /* a number alone is seconds */
        at = end + (i < n ? strlen(units[i].unit) : 0);
    }
    if (!(sum < LONGEST_S))
        sum = LONGEST_S;
    *out = is_negative ? -1 : (int64_t)ceil(sum);
    return true;
}

/* The field of a request. False: answered. */
static bool read_keep_alive(call *c, const json_t *body, forward *f)
{
    const json_t *given = json_get(body, "keep_alive");
    if (!given || c->route->errors != ERRORS_OLLAMA)
        return true;
    f->has_keep_alive = true;
    if (json_is_number(given)) {
        double x = json_number_value(given);
        f->keep_alive_s = x < 0 ? -1 : x < LONGEST_S ? (int64_t)ceil(x) : (int64_t)LONGEST_S;
        return true;
    }
    const char *word = json_string_value(given);
    return (word && server_parse_keep_alive(word, &f->keep_alive_s)) ||
           call_refuse(c, "keep_alive",
                       "keep_alive is neither a number of seconds nor a time such as \"5m\"");
}

/* Ollama's way to unload: nothing is asked, and it shall be kept for no time. */
static bool asks_to_unload(const call *c, const json_t *body, const forward *f)
{
    const char *path = c->route->path;
    const json_t *asked = strcmp(path, "/api/generate") == 0 ? json_get(body, "prompt")
                          : strcmp(path, "/api/chat") == 0   ? json_get(body, "messages")
                                                             : body;
    return (!asked || json_string_length(asked) + json_array_size(asked) == 0) && asked != body &&
           f->has_keep_alive && f->keep_alive_s == 0;
}

void router_reply_done(forward *f)
{
    call *c = f->c;
    bool is_unload = f->kind == FORWARD_UNLOAD, is_chat = strcmp(c->route->path, "/api/chat") == 0;
    json_out out;
    json_out_init(&out, MAX_LISTING);
    json_out_raw(&out, c->route->errors == ERRORS_OLLAMA ? "{\"model\":"
                                                         : "{\"success\":true,\"model\":");
    json_out_string(&out, f->model->entry->name);
    if (c->route->errors == ERRORS_OLLAMA) {
        json_out_raw(&out, ",\"created_at\":");
        write_time(&out, c->created);
        json_out_raw(&out, is_chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
                                   : ",\"response\":\"\"");
        json_out_printf(&out, ",\"done\":true,\"done_reason\":\"%s\"",
                        is_unload ? "unload" : "load");
    }
    json_out_raw(&out, "}");
    router_cancel(c);
    call_reply(c, 200, "application/json", &out);
    json_out_deinit(&out);
    call_send_reply(c);
}

/* ---- Sending it on --------------------------------------------------------------------------- */

static forward *make_forward(call *c, const char *name)
{
    router_model *m = router_find(c->s->router, name);
    if (!m) {
        refuse_name(c);
        return NULL;
    }
    forward *f = mem_calloc(1, sizeof *f);
    if (!f) {
        call_nomem(c);
        return NULL;
    }
    f->c = c;
    f->model = m;
    return f;
}

/* On a worker: the body is read for the name of the model, and otherwise left as it is. */
static void forward_post(call *c)
{
    const json_t *body = call_json(c);
    if (!body)
        return;
    const json_t *name = json_get(body, "model");
    if (!name && c->route->errors == ERRORS_OLLAMA)
        name = json_get(body, "name"); /* as /api/show has it, too */
    if (name && !json_is_string(name)) {
        call_refuse(c, "model", "model is not the name of a model");
        return;
    }
    forward *f = make_forward(c, name ? json_string_value(name) : NULL);
    if (!f)
        return;
    f->kind = strcmp(c->route->path, "/models/load") == 0     ? FORWARD_LOAD
              : strcmp(c->route->path, "/models/unload") == 0 ? FORWARD_UNLOAD
                                                              : FORWARD_REQUEST;
    bool ok = read_keep_alive(c, body, f);
    if (ok && asks_to_unload(c, body, f))
        f->kind = FORWARD_UNLOAD;
    json_decref(c->json);
    c->json = NULL;
    if (!ok) {
        mem_free(f);
        return;
    }
    c->forward = f;
    c->outcome = OUTCOME_FORWARD;
}

/* "model=NAME" of a query, with %XX as bytes; "" if there is none. */
static void query_model(text query, char out[MAX_NAME])
{
    static const char key[] = "model=";
    size_t n = 0, at = strlen(key);
    out[0] = 0;
    if (query.size <= at || memcmp(query.data, key, at) != 0)
        return;
    for (; at < query.size && query.data[at] != '&' && n + 1 < MAX_NAME; at++, n++) {
        char pair[3] = "";
        if (query.data[at] == '%' && at + 2 < query.size)
            memcpy(pair, query.data + at + 1, 2);
        bool is_hex = isxdigit((unsigned char)pair[0]) && isxdigit((unsigned char)pair[1]);
        out[n] = is_hex ? (char)strtol(pair, NULL, 16) : query.data[at];
        at += is_hex ? 2 : 0;
    }
    out[n] = 0;
}

/* Of a model that is not loaded little is known, and asking does not load it. */
static void describe_unloaded(call *c, const router_model *m)
{
    json_out out;
    json_out_init(&out, MAX_LISTING);
    json_out_raw(&out, "{\"version\":\"" LACE_VERSION "\",\"role\":\"router\",\"model\":");
    json_out_string(&out, m->entry->name);
    json_out_printf(&out, ",\"state\":\"%s\"}", router_state_word(m));
    call_reply(c, 200, "application/json", &out);
}

/* GET of what a model's own server knows: /props, and /metrics with a name. */
static void forward_get(call *c, bool needs_name)
{
    char name[MAX_NAME];
    query_model(c->parser->query, name);
    if (needs_name && !name[0])
        return c->route->run(c);
    forward *f = make_forward(c, name);
    if (!f)
        return;
    if (f->model->state != MODEL_READY || f->model->is_leaving) {
        if (needs_name)
            c->route->run(c);
        else
            describe_unloaded(c, f->model);
        mem_free(f);
        return;
    }
    f->is_glance = true;
    c->forward = f;
    c->outcome = OUTCOME_FORWARD;
}

void router_run(call *c)
{
    const char *path = c->route->path;
    if (strcmp(c->route->method, "POST") == 0)
        forward_post(c);
    else if (strcmp(path, "/v1/models") == 0 || strcmp(path, "/models") == 0)
        list_models(c);
    else if (strcmp(path, "/v1/models/") == 0)
        show_model(c);
    else if (strcmp(path, "/api/tags") == 0)
        list_for_ollama(c, false);
    else if (strcmp(path, "/api/ps") == 0)
        list_for_ollama(c, true);
    else if (strcmp(path, "/props") == 0)
        forward_get(c, false);
    else if (strcmp(path, "/metrics") == 0)
        forward_get(c, true);
    else
        c->route->run(c); /* what needs no model */
}
