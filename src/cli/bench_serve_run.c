/*
 * One level of load on one server: so many requests at once, or so many a second at random times,
 * all in one event loop. Times are taken when bytes arrive.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/bench_serve.h"

enum { MAX_BODY = 64 << 20, MAX_ANSWER = 1 << 20 };

/* ---- Statistics ------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which a share q of them lies; values are sorted. */
static double quantile(const double *values, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? values[i] + (at - (double)i) * (values[i + 1] - values[i]) : values[n - 1];
}

/* Sorts the values. */
static void take_stats(bench_serve_stats *s, double *values, size_t n)
{
    *s = (bench_serve_stats){.n = n};
    if (n == 0)
        return;
    qsort(values, n, sizeof *values, compare_doubles);
    for (size_t i = 0; i < n; i++)
        s->mean += values[i] / (double)n;
    s->p50 = quantile(values, n, 0.5);
    s->p90 = quantile(values, n, 0.9);
    s->p99 = quantile(values, n, 0.99);
    s->max = values[n - 1];
}

/* Values that grow in number. */
typedef struct series {
    double *at;
    size_t n, capacity;
} series;

static bool series_add(series *s, double x)
{
    if (!mem_grow(&s->at, s->n, &s->capacity, sizeof *s->at, 1024))
        return false;
    s->at[s->n++] = x;
    return true;
}

/* ---- One request ----------------------------------------------------------------------------- */

typedef struct level_run level_run;

typedef struct flight {
    level_run *run;
    http_call *call;
    sse_reader events;
    buf answer; /* of a server that refuses: what it says */
    uint64_t begin_ns, first_ns, last_ns;
    int32_t n_pieces, n_prompt, n_cached, n_output; /* the last three: as the server counts */
    bool is_done;
    char problem[160];
    struct flight *next; /* of those under way */
} flight;

struct level_run {
    const bench_serve_server *server;
    const bench_serve_plan *plan;
    const bench_serve_level *level;
    struct event_base *base;
    struct event *arrival; /* by rate: the next request */
    struct event *watch;   /* looks for Ctrl-C */
    bench_serve_random random;
    flight *flights;
    int32_t n_all, n_started, n_ended;
    uint64_t begin_ns, end_ns;
    double next_s; /* by rate: when the next one is due, after begin_ns */
    series first, between, total;
    bench_serve_row *row;
    bench_serve_progress_fn on_progress;
    void *user;
    lace_status status;
    lace_error *err;
};

static void stop(level_run *run, lace_status status)
{
    if (run->status == LACE_OK)
        run->status = status;
    event_base_loopbreak(run->base);
}

/*
 * Whether a chunk brings text: a key of that name with a string that is not empty. Parsing every
 * chunk would take the time that is being measured; quotes inside of strings are escaped, so that
 * the key cannot be found in the text itself.
 */
static bool has_text(const char *data, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = strstr(data, key); at; at = strstr(at + n, key)) {
        const char *value = at + n + strspn(at + n, " ");
        if (*value++ != ':')
            continue;
        value += strspn(value, " ");
        if (value[0] == '"' && value[1] != '"')
            return true;
    }
    return false;
}

static void read_counts(flight *f, const char *data, size_t n_bytes)
{
    json_t *chunk;
    if (json_read((span){(const uint8_t *)data, n_bytes}, 0, &chunk, NULL) != LACE_OK)
        return;
    const json_t *usage = json_object_get(chunk, "usage");
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    const json_t *error = json_object_get(chunk, "error");
    if (json_is_object(usage)) {
        f->n_prompt = (int32_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
        f->n_output = (int32_t)json_integer_value(json_object_get(usage, "completion_tokens"));
        f->n_cached = (int32_t)json_integer_value(json_object_get(details, "cached_tokens"));
    }
    if (error && !f->problem[0]) {
        const char *message = json_string_value(json_object_get(error, "message"));
        snprintf(f->problem, sizeof f->problem, "%.150s", message ? message : "an error");
    }
    json_decref(chunk);
}

static void on_chunk(void *user, const char *data, size_t n_bytes)
{
    flight *f = user;
    if (n_bytes == 6 && memcmp(data, "[DONE]", 6) == 0) {
        f->is_done = true;
        return;
    }
    if (has_text(data, "\"content\"") || has_text(data, "\"text\"") ||
        has_text(data, "\"reasoning_content\"")) {
        uint64_t now = clock_ns();
        if (f->n_pieces++ == 0)
            f->first_ns = now;
        else if (!series_add(&f->run->between, (double)(now - f->last_ns) / 1e9))
            stop(f->run, LACE_E_NOMEM);
        f->last_ns = now;
    }
    if (strstr(data, "\"usage\"") || strstr(data, "\"error\""))
        read_counts(f, data, n_bytes);
}

static void on_body(void *user, const char *data, size_t n_bytes)
{
    flight *f = user;
    lace_status status = sse_reader_feed(&f->events, data, n_bytes, on_chunk, f);
    if (status == LACE_OK && f->n_pieces == 0 && !f->is_done && f->answer.size < 2048)
        status = buf_append(&f->answer, data, n_bytes);
    if (status != LACE_OK)
        stop(f->run, status);
}

static void flight_free(flight *f)
{
    level_run *run = f->run;
    flight **at = &run->flights;
    while (*at && *at != f)
        at = &(*at)->next;
    if (*at)
        *at = f->next;
    http_call_cancel(f->call);
    sse_reader_deinit(&f->events);
    buf_deinit(&f->answer);
    mem_free(f);
}

static void start_more(level_run *run);

/* What a refusal says: the message in its JSON. */
static void read_refusal(flight *f, int status)
{
    if (f->answer.size)
        read_counts(f, f->answer.data, f->answer.size);
    if (!f->problem[0])
        snprintf(f->problem, sizeof f->problem, "HTTP status %d", status);
}

static void on_end(void *user, int status, const char *problem)
{
    flight *f = user;
    level_run *run = f->run;
    bench_serve_row *row = run->row;
    uint64_t now = clock_ns();
    f->call = NULL;
    if (problem && !f->problem[0])
        snprintf(f->problem, sizeof f->problem, "%.150s", problem);
    else if (status != 200)
        read_refusal(f, status);
    else if (!f->is_done && !f->problem[0])
        snprintf(f->problem, sizeof f->problem, "the stream ended without [DONE]");
    run->end_ns = now;
    run->n_ended++;
    if (f->problem[0]) {
        row->n_failed++;
        if (!row->problem[0])
            snprintf(row->problem, sizeof row->problem, "%s", f->problem);
    } else {
        int32_t n_output = f->n_output ? f->n_output : f->n_pieces;
        double first = f->n_pieces ? (double)(f->first_ns - f->begin_ns) / 1e9 : 0;
        double total = (double)(now - f->begin_ns) / 1e9;
        double between =
            n_output > 1 ? (double)(f->last_ns - f->first_ns) / 1e9 / (n_output - 1) : 0;
        const bench_serve_plan *p = run->plan;
        row->n_ok++;
        row->n_input += (uint64_t)f->n_prompt;
        row->n_cached += (uint64_t)f->n_cached;
        row->n_output += (uint64_t)n_output;
        row->n_good += (p->slo_first_s <= 0 || first <= p->slo_first_s) &&
                       (p->slo_between_s <= 0 || between <= p->slo_between_s) &&
                       (p->slo_total_s <= 0 || total <= p->slo_total_s);
        if ((f->n_pieces && !series_add(&run->first, first)) || !series_add(&run->total, total))
            stop(run, LACE_E_NOMEM);
    }
    flight_free(f);
    if (run->on_progress && !run->on_progress(run->user, run->n_ended, run->n_all))
        stop(run, LACE_E_CANCELLED);
    else if (run->n_ended == run->n_all)
        event_base_loopbreak(run->base);
    else if (run->level->concurrency)
        start_more(run);
}

static lace_status start_one(level_run *run)
{
    buf body;
    flight *f = mem_calloc(1, sizeof *f);
    if (!f)
        return error_nomem(run->err, "a request");
    f->run = run;
    sse_reader_init(&f->events);
    buf_init(&f->answer, MAX_ANSWER);
    f->next = run->flights;
    run->flights = f;
    buf_init(&body, MAX_BODY);
    lace_status status = bench_serve_plan_body(run->plan, run->server, run->n_started, &body);
    http_request r = {
        .path = run->plan->is_chat ? "/v1/chat/completions" : "/v1/completions",
        .key = run->plan->key,
        .body = body.data,
        .timeout_s = run->plan->timeout_s,
    };
    http_handler handler = {.on_body = on_body, .on_end = on_end, .user = f};
    f->begin_ns = clock_ns();
    if (status == LACE_OK)
        status = http_call_start(run->base, &run->server->target, &r, &handler, &f->call, run->err);
    buf_deinit(&body);
    if (status != LACE_OK)
        flight_free(f);
    else if (run->n_started++ == 0)
        run->begin_ns = f->begin_ns;
    return status;
}

static void start_more(level_run *run)
{
    while (run->n_started < run->n_all && run->n_started - run->n_ended < run->level->concurrency) {
        lace_status status = start_one(run);
        if (status != LACE_OK) {
            stop(run, status);
            return;
        }
    }
}

/* By rate: times between requests are exponential, as if many strangers came independently. */
static void on_arrival(evutil_socket_t fd, short what, void *arg)
{
    level_run *run = arg;
    for (;;) {
        double now = run->begin_ns ? (double)(clock_ns() - run->begin_ns) / 1e9 : 0;
        if (run->n_started == run->n_all)
            return;
        if (run->n_started && now < run->next_s) {
            double wait = run->next_s - now;
            struct timeval t = {.tv_sec = (time_t)wait,
                                .tv_usec = (suseconds_t)((wait - floor(wait)) * 1e6)};
            evtimer_add(run->arrival, &t);
            return;
        }
        lace_status status = start_one(run);
        if (status != LACE_OK) {
            stop(run, status);
            return;
        }
        run->next_s += -log(bench_serve_random_unit(&run->random)) / run->level->rate;
    }
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    if (cli_stop)
        stop(arg, LACE_E_CANCELLED);
}

/* ---- A level --------------------------------------------------------------------------------- */

static int32_t count_requests(const bench_serve_plan *plan, const bench_serve_level *level)
{
    if (plan->n_requests)
        return plan->n_requests;
    double n = level->concurrency ? 8.0 * level->concurrency : 20 * level->rate;
    return n < 32 ? 32 : n > 100000 ? 100000 : (int32_t)n;
}

lace_status bench_serve_run(const bench_serve_server *server, const bench_serve_plan *plan,
                            const bench_serve_level *level, bench_serve_progress_fn on_progress,
                            void *user, bench_serve_row *row, lace_error *err)
{
    level_run run = {.server = server,
                     .plan = plan,
                     .level = level,
                     .random = {plan->seed ^ 0xa11},
                     .n_all = count_requests(plan, level),
                     .row = row,
                     .on_progress = on_progress,
                     .user = user,
                     .err = err};
    struct timeval tenth = {.tv_usec = 100000};
    row->level = *level;
    run.base = event_base_new();
    run.arrival = run.base ? evtimer_new(run.base, on_arrival, &run) : NULL;
    run.watch = run.base ? event_new(run.base, -1, EV_PERSIST, on_watch, &run) : NULL;
    if (!run.arrival || !run.watch)
        run.status = error_nomem(err, "an event loop");
    if (run.status == LACE_OK) {
        event_add(run.watch, &tenth);
        if (level->concurrency)
            start_more(&run);
        else
            on_arrival(-1, 0, &run);
        if (run.status == LACE_OK)
            event_base_dispatch(run.base);
    }
    while (run.flights)
        flight_free(run.flights);
    row->seconds = (double)(run.end_ns - run.begin_ns) / 1e9;
    take_stats(&row->first, run.first.at, run.first.n);
    take_stats(&row->between, run.between.at, run.between.n);
    take_stats(&row->total, run.total.at, run.total.n);
    mem_free_all(run.first.at, run.between.at, run.total.at);
    if (run.arrival)
        event_free(run.arrival);
    if (run.watch)
        event_free(run.watch);
    if (run.base)
        event_base_free(run.base);
    if (run.status == LACE_E_NOMEM)
        return error_nomem(err, "results");
    return run.status;
}

/* ---- Getting to know a server ---------------------------------------------------------------- */

typedef struct fetch {
    struct event_base *base;
    buf answer;
    int status;
    char problem[160];
} fetch;

static void fetch_body(void *user, const char *data, size_t n_bytes)
{
    fetch *f = user;
    if (buf_append(&f->answer, data, n_bytes) != LACE_OK)
        event_base_loopbreak(f->base);
}

static void fetch_end(void *user, int status, const char *problem)
{
    fetch *f = user;
    f->status = status;
    if (problem)
        snprintf(f->problem, sizeof f->problem, "%.150s", problem);
    event_base_loopbreak(f->base);
}

/* The model's name, from the list of models. */
static lace_status find_model(bench_serve_server *server, const bench_serve_plan *plan,
                              lace_error *err)
{
    fetch f = {.base = event_base_new()};
    if (!f.base)
        return error_nomem(err, "an event loop");
    buf_init(&f.answer, MAX_ANSWER);
    http_call *call;
    http_request r = {.path = "/v1/models", .key = plan->key, .timeout_s = 30};
    http_handler handler = {.on_body = fetch_body, .on_end = fetch_end, .user = &f};
    json_t *list = NULL;
    lace_status status = http_call_start(f.base, &server->target, &r, &handler, &call, err);
    if (status == LACE_OK)
        event_base_dispatch(f.base);
    if (status == LACE_OK && f.problem[0])
        status = error_set(err, LACE_E_IO, "%s/v1/models: %s; is a server running there?",
                           server->target.url, f.problem);
    else if (status == LACE_OK && f.status != 200)
        status =
            error_set(err, LACE_E_IO, "%s/v1/models: HTTP status %d", server->target.url, f.status);
    if (status == LACE_OK) {
        status = json_read((span){(const uint8_t *)f.answer.data, f.answer.size}, 0, &list, err);
        if (status != LACE_OK)
            error_prefix(err, status, server->target.url);
    }
    const json_t *first = json_array_get(json_object_get(list, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    if (status == LACE_OK && (!id || strlen(id) >= sizeof server->model))
        status = error_set(err, LACE_E_JSON, "%s/v1/models: the server lists no model",
                           server->target.url);
    if (status == LACE_OK)
        snprintf(server->model, sizeof server->model, "%s", id);
    json_decref(list);
    buf_deinit(&f.answer);
    event_base_free(f.base);
    return status;
}

/* How many tokens the server counts for a prompt of n words. */
static lace_status count_tokens(const bench_serve_server *server, const bench_serve_plan *plan,
                                int32_t n_words, double *out, lace_error *err)
{
    bench_serve_plan probe = *plan;
    bench_serve_row row = {.n_ok = 0};
    bench_serve_server plain = *server;
    plain.tokens_per_word = 1;
    plain.tokens_around = 0;
    probe.n_requests = 1;
    probe.n_prefix = 0;
    probe.input = (bench_serve_length){.low = n_words, .high = n_words, .mean = n_words};
    probe.output = (bench_serve_length){.low = 1, .high = 1, .mean = 1};
    bench_serve_level one = {.concurrency = 1};
    TRY(bench_serve_run(&plain, &probe, &one, NULL, NULL, &row, err));
    if (row.n_ok == 0)
        return error_set(err, LACE_E_IO, "%s: %s", server->target.url, row.problem);
    *out = (double)row.n_input;
    return LACE_OK;
}

lace_status bench_serve_server_probe(bench_serve_server *server, const bench_serve_plan *plan,
                                     lace_error *err)
{
    enum { FEW = 16, MANY = 80 };
    double few, many;
    if (!server->model[0])
        TRY(find_model(server, plan, err));
    TRY(count_tokens(server, plan, FEW, &few, err));
    TRY(count_tokens(server, plan, MANY, &many, err));
    server->counts = many > few;
    server->tokens_per_word = server->counts ? (many - few) / (MANY - FEW) : 1;
    server->tokens_around = server->counts ? few - FEW * server->tokens_per_word : 0;
    if (server->tokens_around < 0)
        server->tokens_around = 0;
    return LACE_OK;
}
