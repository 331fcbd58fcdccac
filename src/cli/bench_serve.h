/*
 * lace bench serve: load on a server of OpenAI's kind, and what it does to latency.
 *
 *     bench_serve.c          the verb: servers, levels of load, in which order
 *     bench_serve_plan.c     what is asked: lengths from a distribution, prompts of words, bodies
 *     bench_serve_run.c      one level of load on one server
 *     bench_serve_http.c     the HTTP client
 *     bench_serve_report.c   results as a table, as JSON, or as a page with charts
 */
#ifndef LACE_CLI_BENCH_SERVE_H
#define LACE_CLI_BENCH_SERVE_H

#include "base/buf.h"
#include "cli/bench.h"
#include "cli/bench_serve_http.h"
#include "lace.h"

enum { LOAD_MAX_LEVELS = 16, LOAD_MAX_SERVERS = 4 };

/* ---- What is asked --------------------------------------------------------------------------- */

/* A number of tokens: fixed, evenly between two, or normal around a mean. */
typedef struct load_length {
    double low, high;       /* the bounds; equal: always this many */
    double mean, deviation; /* deviation 0: every number in the bounds is as likely */
} load_length;

/* "128", "64-256" or "128~32". LACE_E_ARG names the option. */
lace_status load_length_parse(load_length *out, const char *option, const char *text,
                              lace_error *err);

/* Numbers that a seed repeats. */
typedef struct load_random {
    uint64_t state;
} load_random;

double load_random_unit(load_random *r); /* in (0, 1] */

typedef struct load_plan {
    load_length input, output;
    int32_t n_prefix;   /* tokens of the input that all requests share */
    int32_t n_requests; /* of a level; 0: eight for each that runs at once, at least 32 */
    uint64_t seed;
    float temperature;
    bool is_chat;    /* /v1/chat/completions, not /v1/completions */
    bool ends_early; /* the model may end its text before the length asked for */
    int32_t timeout_s;
    const char *key;
    double slo_first_s, slo_between_s, slo_total_s; /* what counts as good; 0: anything */
} load_plan;

/* "ttft:500,itl:50,e2e:10000", in milliseconds. */
lace_status load_slo_parse(load_plan *plan, const char *text, lace_error *err);

/* A server, and how it counts. */
typedef struct load_server {
    http_target target;
    char model[160];
    double tokens_per_word; /* of the prompts' words, by its tokenizer */
    double tokens_around;   /* what its template adds to every prompt */
    bool counts;            /* it says how many tokens there were */
} load_server;

/* The body of request number `i`, which is the same for the same seed. */
lace_status load_plan_body(const load_plan *plan, const load_server *server, int32_t i, buf *out);

/* ---- What happened --------------------------------------------------------------------------- */

typedef struct load_stats {
    double mean, p50, p90, p99, max; /* seconds */
    size_t n;
} load_stats;

/* Requests at once, or requests a second. */
typedef struct load_level {
    int32_t concurrency; /* 0: by rate */
    double rate;
} load_level;

typedef struct load_row {
    int server;
    load_level level;
    int32_t n_ok, n_failed, n_good;
    double seconds; /* from the first request to the last answer */
    uint64_t n_input, n_cached, n_output;
    load_stats first, between, total; /* to the first token, between tokens, to the end */
    char problem[160];                /* of the first request that failed, or "" */
} load_row;

/* Ask the server for its model and how it counts. */
lace_status load_server_probe(load_server *server, const load_plan *plan, lace_error *err);

/* Called after every answer: how many of how many are there. False: stop. */
typedef bool (*load_progress_fn)(void *user, int32_t n_done, int32_t n_all);

lace_status load_run(const load_server *server, const load_plan *plan, const load_level *level,
                     load_progress_fn on_progress, void *user, load_row *row, lace_error *err);

/* ---- Report ---------------------------------------------------------------------------------- */

typedef struct load_report {
    const load_plan *plan;
    const load_server *servers;
    int n_servers;
    const load_row *rows;
    size_t n_rows;
    char command[BENCH_COMMAND];
    char date[BENCH_DATE];
} load_report;

#define LOAD_FORMATS "table|json|html"
lace_status load_report_head(const load_report *r, buf *out); /* of the table */
lace_status load_report_row(const load_report *r, const load_row *row, buf *out);
lace_status load_report_json(const load_report *r, buf *out);
lace_status load_report_html(const load_report *r, buf *out);

/* "8 at once", "4/s". Returns out. */
const char *load_level_name(const load_level *level, char out[32]);

#endif
