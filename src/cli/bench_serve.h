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

enum { BENCH_SERVE_MAX_LEVELS = 16, BENCH_SERVE_MAX_SERVERS = 4 };

/* ---- What is asked --------------------------------------------------------------------------- */

/* A number of tokens: fixed, evenly between two, or normal around a mean. */
typedef struct bench_serve_length {
    double low, high;       /* the bounds; equal: always this many */
    double mean, deviation; /* deviation 0: every number in the bounds is as likely */
} bench_serve_length;

/* "128", "64-256" or "128~32". LACE_E_ARG names the option. */
lace_status bench_serve_length_parse(bench_serve_length *out, const char *option, const char *text,
                                     lace_error *err);

/* Numbers that a seed repeats. */
typedef struct bench_serve_random {
    uint64_t state;
} bench_serve_random;

double bench_serve_random_unit(bench_serve_random *r); /* in (0, 1] */

typedef struct bench_serve_plan {
    bench_serve_length input, output;
    int32_t n_prefix;   /* tokens of the input that all requests share */
    int32_t n_requests; /* of a level; 0: eight for each that runs at once, at least 32 */
    uint64_t seed;
    float temperature;
    bool is_chat;    /* /v1/chat/completions, not /v1/completions */
    bool ends_early; /* the model may end its text before the length asked for */
    int32_t timeout_s;
    const char *key;
    double slo_first_s, slo_between_s, slo_total_s; /* what counts as good; 0: anything */
} bench_serve_plan;

/* "ttft:500,itl:50,e2e:10000", in milliseconds. */
lace_status bench_serve_slo_parse(bench_serve_plan *plan, const char *text, lace_error *err);

/* A server, and how it counts. */
typedef struct bench_serve_server {
    http_target target;
    char model[160];
    double tokens_per_word; /* of the prompts' words, by its tokenizer */
    double tokens_around;   /* what its template adds to every prompt */
    bool counts;            /* it says how many tokens there were */
} bench_serve_server;

/* The body of request number `i`, which is the same for the same seed. */
lace_status bench_serve_plan_body(const bench_serve_plan *plan, const bench_serve_server *server,
                                  int32_t i, buf *out);

/* ---- What happened --------------------------------------------------------------------------- */

typedef struct bench_serve_stats {
    double mean, p50, p90, p99, max; /* seconds */
    size_t n;
} bench_serve_stats;

/* Requests at once, or requests a second. */
typedef struct bench_serve_level {
    int32_t concurrency; /* 0: by rate */
    double rate;
} bench_serve_level;

typedef struct bench_serve_row {
    int server;
    bench_serve_level level;
    int32_t n_ok, n_failed, n_good;
    double seconds; /* from the first request to the last answer */
    uint64_t n_input, n_cached, n_output;
    bench_serve_stats first, between, total; /* to the first token, between tokens, to the end */
    char problem[160];                       /* of the first request that failed, or "" */
} bench_serve_row;

/* Ask the server for its model and how it counts. */
lace_status bench_serve_server_probe(bench_serve_server *server, const bench_serve_plan *plan,
                                     lace_error *err);

/* Called after every answer: how many of how many are there. False: stop. */
typedef bool (*bench_serve_progress_fn)(void *user, int32_t n_done, int32_t n_all);

lace_status bench_serve_run(const bench_serve_server *server, const bench_serve_plan *plan,
                            const bench_serve_level *level, bench_serve_progress_fn on_progress,
                            void *user, bench_serve_row *row, lace_error *err);

/* ---- Report ---------------------------------------------------------------------------------- */

typedef struct bench_serve_report {
    const bench_serve_plan *plan;
    const bench_serve_server *servers;
    int n_servers;
    const bench_serve_row *rows;
    size_t n_rows;
    char command[BENCH_COMMAND];
    char date[BENCH_DATE];
} bench_serve_report;

#define BENCH_SERVE_FORMATS "table|json|html"
lace_status bench_serve_report_head(const bench_serve_report *r, buf *out); /* of the table */
lace_status bench_serve_report_row(const bench_serve_report *r, const bench_serve_row *row,
                                   buf *out);
lace_status bench_serve_report_json(const bench_serve_report *r, buf *out);
lace_status bench_serve_report_html(const bench_serve_report *r, buf *out);

/* "8 at once", "4/s". Returns out. */
const char *bench_serve_level_name(const bench_serve_level *level, char out[32]);

#endif
