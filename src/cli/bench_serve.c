/*
 * lace bench serve: put load on servers of OpenAI's kind and say what it did to latency. With
 * several servers each level of load is put on them in turn, so that they meet the same machine.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/bench_serve.h"
#include "cli/progress.h"

typedef struct bench_serve_args {
    const char *input, *output, *concurrency, *rate, *slo, *model, *key_file;
    int32_t n_prefix, n_requests, timeout_s, format;
    uint64_t seed;
    float temperature;
    bool chat, ends_early;
} bench_serve_args;

/* clang-format off */
static const arg_option options[] = {
    {.kind = ARG_HEADING, .help = "Load"},
    {"concurrency", 'c', ARG_TEXT, offsetof(bench_serve_args, concurrency), .value = "N,...",
     .help = "requests at once, one level after the other (default 1,4,16,32)"},
    {"rate", 'r', ARG_TEXT, offsetof(bench_serve_args, rate), .value = "X,...",
     .help = "requests a second at random times, in place of --concurrency"},
    {"requests", 'n', ARG_INT, offsetof(bench_serve_args, n_requests), .low = 1, .high = 10000000, .value = "N",
     .help = "requests of each level (default: 8 times the concurrency, or 20 s of --rate; at least 32)"},
    {.kind = ARG_HEADING, .help = "Requests"},
    {"input-len", 0, ARG_TEXT, offsetof(bench_serve_args, input), .value = "TOKENS",
     .help = "length of a prompt: 128 (default), 64-256 (evenly) or 128~32 (mean and deviation)"},
    {"output-len", 0, ARG_TEXT, offsetof(bench_serve_args, output), .value = "TOKENS",
     .help = "length of an answer, written in the same way (default 128)"},
    {"prefix-len", 'p', ARG_INT, offsetof(bench_serve_args, n_prefix), .low = 0, .high = 1 << 20, .value = "N",
     .help = "tokens that all prompts begin with (default 0)"},
    {"chat", 0, ARG_FLAG, offsetof(bench_serve_args, chat), .help = "use /v1/chat/completions in place of /v1/completions"},
    {"ends-early", 0, ARG_FLAG, offsetof(bench_serve_args, ends_early),
     .help = "let the model end its text before that length"},
    {"temp", 0, ARG_FLOAT, offsetof(bench_serve_args, temperature), .low = 0, .high = INFINITY, .value = "T",
     .help = "temperature (default 0)"},
    {"seed", 's', ARG_U64, offsetof(bench_serve_args, seed), .value = "S",
     .help = "the same seed sends the same requests (default 1)"},
    {.kind = ARG_HEADING, .help = "Servers"},
    {"model", 'm', ARG_TEXT, offsetof(bench_serve_args, model), .value = "NAME",
     .help = "model to ask for (default: the first that the server lists)"},
    {"api-key-file", 0, ARG_TEXT, offsetof(bench_serve_args, key_file), .value = "FILE",
     .help = "file with the API key in its first line (default: $OPENAI_API_KEY)"},
    {"timeout", 0, ARG_INT, offsetof(bench_serve_args, timeout_s), .low = 1, .high = 86400, .value = "S",
     .help = "seconds of silence after which a request has failed (default 600)"},
    {.kind = ARG_HEADING, .help = "Result"},
    {"slo", 0, ARG_TEXT, offsetof(bench_serve_args, slo), .value = "LIMITS",
     .help = "what counts as good, in ms: ttft:500,itl:50,e2e:10000"},
    {"output", 'o', ARG_CHOICE, offsetof(bench_serve_args, format), .value = BENCH_SERVE_FORMATS,
     .help = "how the result is written (default table)"},
};
/* clang-format on */

typedef struct load {
    bench_serve_plan plan;
    bench_serve_server servers[BENCH_SERVE_MAX_SERVERS];
    bench_serve_level levels[BENCH_SERVE_MAX_LEVELS];
    int n_levels;
    bench_serve_row rows[BENCH_SERVE_MAX_LEVELS * BENCH_SERVE_MAX_SERVERS];
    bench_serve_report report;
    buf key, out;
    progress bar;
    int n_runs;
} load;

static lace_status parse_levels(const verb *v, load *l, const char *list, bool is_rate,
                                lace_error *err)
{
    for (const char *at = list; *at;) {
        char *rest;
        double x = strtod(at, &rest);
        bool fits = is_rate ? x > 0 && x <= 1e5 : x >= 1 && x <= 60000 && x == floor(x);
        if (rest == at || !fits || (*rest && *rest != ',') || l->n_levels == BENCH_SERVE_MAX_LEVELS)
            return args_error(v, err, "--%s %.40s: expected at most %d numbers like 1,4,16",
                              is_rate ? "rate" : "concurrency", list, BENCH_SERVE_MAX_LEVELS);
        l->levels[l->n_levels++] = is_rate ? (bench_serve_level){.rate = x}
                                           : (bench_serve_level){.concurrency = (int32_t)x};
        at = *rest ? rest + 1 : rest;
    }
    return LACE_OK;
}

static lace_status read_key(load *l, const char *path, lace_error *err)
{
    l->plan.key = getenv("OPENAI_API_KEY");
    if (!path)
        return LACE_OK;
    TRY(file_read(path, &l->key, err));
    size_t n = l->key.data ? strcspn(l->key.data, "\r\n") : 0;
    if (n == 0)
        return error_set(err, LACE_E_ARG, "%s: the file has no key in it", path);
    l->key.data[n] = 0;
    l->plan.key = l->key.data;
    return LACE_OK;
}

static lace_status read_args(const verb *v, load *l, const bench_serve_args *a,
                             const positional *words, lace_error *err)
{
    if (words->count == 0)
        return args_error(v, err, "a server is missing: give http://HOST:PORT");
    if (a->concurrency && a->rate)
        return args_error(v, err, "--concurrency and --rate exclude each other");
    bench_serve_plan *p = &l->plan;
    *p = (bench_serve_plan){.n_prefix = a->n_prefix,
                            .n_requests = a->n_requests,
                            .seed = a->seed,
                            .temperature = a->temperature,
                            .is_chat = a->chat,
                            .ends_early = a->ends_early,
                            .timeout_s = a->timeout_s};
    TRY(bench_serve_length_parse(&p->input, "input-len", a->input, err));
    TRY(bench_serve_length_parse(&p->output, "output-len", a->output, err));
    if (a->slo)
        TRY(bench_serve_slo_parse(p, a->slo, err));
    TRY(parse_levels(v, l,
                     a->rate          ? a->rate
                     : a->concurrency ? a->concurrency
                                      : "1,4,16,32",
                     a->rate != NULL, err));
    for (int i = 0; i < words->count; i++) {
        bench_serve_server *s = &l->servers[i];
        TRY(http_target_init(&s->target, words->at[i], err));
        if (a->model && strlen(a->model) >= sizeof s->model)
            return args_error(v, err, "--model %.40s...: too long", a->model);
        if (a->model)
            snprintf(s->model, sizeof s->model, "%s", a->model);
    }
    return read_key(l, a->key_file, err);
}

static bool on_progress(void *user, int32_t n_done, int32_t n_all)
{
    load *l = user;
    const bench_serve_row *row = &l->rows[l->report.n_rows];
    char name[32], line[200];
    snprintf(line, sizeof line, "%.60s, %s, %d of %d", l->servers[row->server].target.url,
             bench_serve_level_name(&row->level, name), n_done, n_all);
    double done = ((double)l->report.n_rows + (double)n_done / n_all) / l->n_runs;
    return progress_report(&l->bar, line, done) && !cli_stop;
}

static lace_status flush(load *l, lace_error *err)
{
    progress_end(&l->bar);
    lace_status status = l->out.size ? cli_write(l->out.data, l->out.size, err) : LACE_OK;
    buf_clear(&l->out);
    return status;
}

static lace_status run_all(load *l, int32_t format, lace_error *err)
{
    bench_serve_report *r = &l->report;
    for (int i = 0; i < r->n_servers; i++)
        TRY(bench_serve_server_probe(&l->servers[i], &l->plan, err));
    if (format == 0)
        TRY(bench_serve_report_head(r, &l->out));
    TRY(flush(l, err));
    for (int i = 0; i < l->n_levels; i++)
        for (int k = 0; k < r->n_servers; k++) {
            bench_serve_row *row = &l->rows[r->n_rows];
            *row = (bench_serve_row){.server = k, .level = l->levels[i]};
            TRY(bench_serve_run(&l->servers[k], &l->plan, &l->levels[i], on_progress, l, row, err));
            r->n_rows++;
            if (format == 0)
                TRY(bench_serve_report_row(r, row, &l->out));
            TRY(flush(l, err));
        }
    if (format)
        TRY(format == 1 ? bench_serve_report_json(r, &l->out)
                        : bench_serve_report_html(r, &l->out));
    TRY(flush(l, err));
    /* A server that answered nothing at all has not been measured. */
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].n_ok == 0)
            return error_set(err, LACE_E_IO, "%s: no request succeeded: %s",
                             l->servers[r->rows[i].server].target.url, r->rows[i].problem);
    return LACE_OK;
}

static lace_status bench_serve_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    bench_serve_args a = {.input = "128", .output = "128", .seed = 1, .timeout_s = 600};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    load *l = mem_calloc(1, sizeof *l);
    if (!l)
        return error_nomem(err, "results");
    buf_init(&l->key, 4096);
    buf_init(&l->out, 16 << 20);
    lace_status status = read_args(v, l, &a, &words, err);
    l->n_runs = l->n_levels * words.count;
    l->report = (bench_serve_report){
        .plan = &l->plan, .servers = l->servers, .n_servers = words.count, .rows = l->rows};
    bench_describe_run("lace bench serve", argc, argv, l->report.date, l->report.command);
    cli_catch_stop();
    progress_init(&l->bar, &cli_stop);
    if (status == LACE_OK)
        status = run_all(l, a.format, err);
    progress_end(&l->bar);
    buf_deinit(&l->key);
    buf_deinit(&l->out);
    mem_free(l);
    return status;
}

VERB(bench_serve, "bench serve", "URL [URL...] [options]",
     "put load on a server, and see what it does to latency", 0, BENCH_SERVE_MAX_SERVERS,
     .description =
         "Works with every server that has /v1/completions or /v1/chat/completions with\n"
         "streams: lace serve, llama-server, vLLM. Prompts are common words; two short requests\n"
         "find out first how many tokens the server makes of them. Shows the time to the first\n"
         "token, between tokens and to the end (median, 90th and 99th percentile), and\n"
         "with --slo how many requests a second were good enough. Several servers get the same\n"
         "load in turn.\n",
     .examples =
         "  lace bench serve http://127.0.0.1:8080\n"
         "  lace bench serve http://127.0.0.1:8080 -c 1,8,64 --slo ttft:500,itl:50\n"
         "  lace bench serve http://127.0.0.1:8080 --rate 2,4 --input-len 64-512\n"
         "  lace bench serve http://127.0.0.1:8080 http://127.0.0.1:8081 -o html > load.html\n")
