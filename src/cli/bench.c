/*
 * lace bench: how fast models run here, as a share of what the machine can do, and beside
 * llama.cpp.
 *
 * Every test is warmed up once and run several times; the median counts, and the spread is shown.
 * With --against, runs of both programs alternate, so that whatever happens on the machine
 * meanwhile happens to both; the ratio is taken pair by pair.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/progress.h"

typedef struct bench_args {
    const char *prompts, *gens, *depths, *sequences; /* lists: "512,2048" */
    int32_t n_repeats, n_threads, n_batch, kv_type, v_type;
    int32_t format; /* of BENCH_FORMATS */
    const char *against;
    bool trace, mmap;
    const char *device, *activation_sparsity;
    cli_ranks ranks;
    cli_place place;
    bool no_limits;
} bench_args;

/* clang-format off */
static const arg_option options[] = {
    {.kind = ARG_HEADING, .help = "Tests; each value may be a list, like 512,2048; 0 leaves a test out"},
    {"prompt", 'p', ARG_TEXT, offsetof(bench_args, prompts), .value = "N,...",
     .help = "read a prompt of N tokens: ppN (default 512)"},
    {"n-gen", 'n', ARG_TEXT, offsetof(bench_args, gens), .value = "N,...",
     .help = "generate N tokens: tgN (default 128)"},
    {"depth", 'd', ARG_TEXT, offsetof(bench_args, depths), .value = "N,...",
     .help = "with N tokens already in the context: @ dN (default 0)"},
    {"batch", 'b', ARG_TEXT, offsetof(bench_args, sequences), .value = "N,...",
     .help = "generate for N sequences at once: bN, total speed (default 1)"},
    {"repeat", 'r', ARG_INT, offsetof(bench_args, n_repeats), .low = 1, .high = BENCH_MAX_REPEATS,
     .value = "N", .help = "runs of each test, after one to warm up (default 5)"},
    {"against", 0, ARG_TEXT, offsetof(bench_args, against), .value = "PROGRAM",
     .help = "alternate with this llama-bench (or, for -b, llama-batched-bench) on the same files, and show the ratio"},
    {.kind = ARG_HEADING, .help = "Machine"},
    CLI_THREADS_OPTION(bench_args),
    {"ubatch", 'u', ARG_INT, offsetof(bench_args, n_batch), .low = 1, .high = CLI_MAX_BATCH,
     .value = "N", .help = "tokens of a prompt computed together (default 512, on a GPU 2048)"},
    CLI_KV_TYPE_OPTION(bench_args, "f16"),
    CLI_DEVICE_OPTION(bench_args),
    CLI_RANKS_OPTIONS(offsetof(bench_args, ranks)),
    CLI_PLACE_OPTIONS(offsetof(bench_args, place)),
    CLI_SPARSITY_OPTION(bench_args),
    CLI_MMAP_OPTION(bench_args),
    {.kind = ARG_HEADING, .help = "Results"},
    {"trace", 0, ARG_FLAG, offsetof(bench_args, trace),
     .help = "where the time goes: one more run, by operation"},
    {"no-limits", 0, ARG_FLAG, offsetof(bench_args, no_limits),
     .help = "do not measure what the machine can do"},
    {"output", 'o', ARG_CHOICE, offsetof(bench_args, format), .value = BENCH_FORMATS,
     .help = "how results are written (default table)"},
};
/* clang-format on */

enum { MAX_TESTS = 512 };

typedef struct list {
    int32_t at[BENCH_MAX_LIST];
    int n;
} list;

typedef struct bench {
    const bench_args *args;
    const bench_format *format;
    bench_test tests[MAX_TESTS];
    int n_tests;
    bench_model_options model_options;
    bench_report report;
    size_t max_rows;
    buf out;
    progress bar;
    size_t n_done, n_steps; /* runs so far, and in all */
    bench_reader *reader;   /* NULL without limits */
} bench;

/* ---- Tests ----------------------------------------------------------------------------------- */

static lace_status parse_list(const verb *v, const char *name, const char *words, int32_t low,
                              int32_t high, list *out, lace_error *err)
{
    out->n = 0;
    for (const char *at = words;; at++) {
        char *end;
        errno = 0;
        long n = strtol(at, &end, 10);
        bool is_number = end != at && at[0] > ' ' && at[0] != '+' && errno == 0;
        if (!is_number || (*end && *end != ',') || n < low || n > high)
            return args_error(v, err,
                              "--%s \"%.60s\": expected numbers from %d to %d, like 512,2048", name,
                              words, low, high);
        if (out->n == BENCH_MAX_LIST)
            return args_error(v, err, "--%s: more than %d numbers", name, BENCH_MAX_LIST);
        out->at[out->n++] = (int32_t)n;
        if (!*end)
            return LACE_OK;
        at = end;
    }
}

static void add_test(bench *b, bench_test test)
{
    bench_model_options *o = &b->model_options;
    int32_t n_context = test.depth + test.n_prompt + test.n_gen;
    if (test.n_prompt + test.n_gen == 0)
        return;
    o->n_context = n_context > o->n_context ? n_context : o->n_context;
    o->n_sequences = test.n_sequences > o->n_sequences ? test.n_sequences : o->n_sequences;
    b->tests[b->n_tests++] = test;
}

static lace_status list_tests(const verb *v, bench *b, lace_error *err)
{
    enum { MOST = 1 << 24 };
    const bench_args *a = b->args;
    list prompts, gens, depths, sequences;
    TRY(parse_list(v, "prompt", a->prompts, 0, MOST, &prompts, err));
    TRY(parse_list(v, "n-gen", a->gens, 0, MOST, &gens, err));
    TRY(parse_list(v, "depth", a->depths, 0, MOST, &depths, err));
    TRY(parse_list(v, "batch", a->sequences, 1, 4096, &sequences, err));
    if (depths.n * (prompts.n + gens.n * sequences.n) > MAX_TESTS)
        return args_error(v, err, "there are more than %d tests", MAX_TESTS);
    for (int d = 0; d < depths.n; d++) {
        for (int i = 0; i < prompts.n; i++)
            add_test(b, (bench_test){
                            .n_prompt = prompts.at[i], .depth = depths.at[d], .n_sequences = 1});
        for (int i = 0; i < gens.n; i++)
            for (int s = 0; s < sequences.n; s++)
                add_test(b, (bench_test){.n_gen = gens.at[i],
                                         .depth = depths.at[d],
                                         .n_sequences = sequences.at[s]});
    }
    if (b->n_tests == 0)
        return args_error(v, err, "nothing to test: -p and -n are both 0");
    return LACE_OK;
}

/* ---- Results --------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarize(bench_series *s)
{
    double sorted[BENCH_MAX_REPEATS], sum = 0, sum2 = 0;
    if (s->n == 0)
        return;
    memcpy(sorted, s->at, (size_t)s->n * sizeof sorted[0]);
    qsort(sorted, (size_t)s->n, sizeof sorted[0], compare_doubles);
    s->low = sorted[0];
    s->high = sorted[s->n - 1];
    s->median = (sorted[(s->n - 1) / 2] + sorted[s->n / 2]) / 2;
    for (int i = 0; i < s->n; i++)
        sum += s->at[i];
    for (int i = 0; i < s->n; i++)
        sum2 += (s->at[i] - sum / s->n) * (s->at[i] - sum / s->n);
    s->stddev = s->n > 1 ? sqrt(sum2 / (s->n - 1)) : 0;
}

/*
 * The limit that binds: a token takes no less time than its bytes need from memory, and no less
 * than its products need in the arithmetic of its weights' type.
 */
static void set_share(const bench_limits *l, bench_row *row)
{
    bool is_float = row->type[0] == 'f' || row->type[0] == 'b'; /* f32, f16, bf16 */
    double peak = is_float ? l->fp32 : l->int8;
    if (row->read.n == 0 || peak <= 0)
        return;
    double read_s = row->bytes / row->read.median, mac_s = row->macs / peak;
    row->limit_name = read_s > mac_s ? "read" : is_float ? "fp32" : "int8";
    row->limit_share = (read_s > mac_s ? read_s : mac_s) * row->own.median;
}

static lace_status flush(bench *b, lace_error *err)
{
    lace_status status = LACE_OK;
    progress_end(&b->bar);
    if (b->out.size > 0)
        status = cli_write(b->out.data, b->out.size, err);
    buf_clear(&b->out);
    return status;
}

/* What a format has written, or that it could not. */
static lace_status check_format(lace_status status, lace_error *err)
{
    return status == LACE_OK ? status : error_set(err, status, "cannot write the results");
}

/* ---- Running --------------------------------------------------------------------------------- */

static bool step(bench *b, const bench_row *row, const char *what)
{
    char line[160];
    snprintf(line, sizeof line, "%.40s %s, %s", row->model, row->name, what);
    return progress_report(&b->bar, line, (double)b->n_done++ / (double)b->n_steps);
}

/*
 * The other's run that belongs to the own one just made. What it cannot run is noted in the row, and
 * not tried again for this test.
 */
static lace_status run_rival(bench *b, const char *path, const bench_test *test, bench_row *row,
                             lace_error *err)
{
    const bench_args *a = b->args;
    lace_error why = {LACE_OK, ""};
    double speed;
    if (!step(b, row, "the other's turn"))
        return LACE_E_CANCELLED;
    lace_status status = bench_rival_run(a->against, path, test, b->report.n_threads,
                                         (lace_kv_type)a->kv_type, &speed, &why);
    if (status == LACE_OK) {
        row->rival.at[row->rival.n++] = speed;
        row->ratio.at[row->ratio.n++] = row->own.at[row->own.n - 1] / speed;
        return LACE_OK;
    }
    if (status == LACE_E_CANCELLED || status == LACE_E_ARG) {
        *err = why;
        return status;
    }
    snprintf(row->problem, sizeof row->problem, "%.399s", why.text);
    row->rival.n = row->ratio.n = 0;
    return LACE_OK;
}

static lace_status run_test(bench *b, bench_model *model, const char *path, const bench_test *test,
                            bench_row *row, lace_error *err)
{
    const bench_args *a = b->args;
    bool has_rival = a->against && bench_rival_can(a->against, test);
    double n_tokens = (double)(test->n_prompt + test->n_gen) * (double)test->n_sequences;
    bench_model_describe(model, test, row);
    if (!step(b, row, "warm-up"))
        return LACE_E_CANCELLED;
    TRY(bench_model_trace(model, test, false, row, err));
    for (int i = 0; i < a->n_repeats; i++) {
        char what[32];
        uint64_t ns;
        snprintf(what, sizeof what, "run %d of %d", i + 1, a->n_repeats);
        if (!step(b, row, what))
            return LACE_E_CANCELLED;
        if (b->reader)
            row->read.at[row->read.n++] = bench_reader_measure(b->reader);
        TRY(bench_model_run(model, test, &ns, err));
        row->own.at[row->own.n++] = n_tokens * 1e9 / (double)(ns ? ns : 1);
        if (has_rival && !row->problem[0])
            TRY(run_rival(b, path, test, row, err));
    }
    if (a->trace) {
        progress_show(&b->bar, "tracing");
        TRY(bench_model_trace(model, test, true, row, err));
    }
    summarize(&row->own);
    summarize(&row->read);
    summarize(&row->rival);
    summarize(&row->ratio);
    set_share(&b->report.limits, row);
    return LACE_OK;
}

static lace_status run_model(bench *b, const char *path, lace_error *err)
{
    bench_model *model;
    progress_end(&b->bar);
    TRY(bench_model_open(path, &b->model_options, &model, err));
    lace_status status = LACE_OK;
    for (int i = 0; i < b->n_tests && status == LACE_OK; i++) {
        bench_row *row = &b->report.rows[b->report.n_rows];
        status = run_test(b, model, path, &b->tests[i], row, err);
        if (status != LACE_OK)
            break;
        b->report.n_rows++;
        if (b->format->row)
            status = check_format(b->format->row(&b->report, row, &b->out), err);
        if (status == LACE_OK)
            status = flush(b, err);
    }
    bench_model_close(model);
    return status;
}

/* A model that cannot be opened is an error now, and not after some minutes of others. */
static lace_status check_models(const positional *words, lace_error *err)
{
    lace_model_options o = lace_model_options_default();
    o.use_vocab = false;
    for (int i = 0; i < words->count; i++) {
        lace_model *model;
        TRY(cli_open_model(words->at[i], &o, &model, err));
        lace_model_close(model);
    }
    return LACE_OK;
}

/*
 * Why there is no number of the other: a line for each model, behind the results. If it could run
 * nothing at all, nothing was compared, and that is an error.
 */
static lace_status report_problems(const bench_report *r, lace_error *err)
{
    const bench_row *first = NULL, *last = NULL;
    bool has_any = false;
    for (size_t i = 0; i < r->n_rows; i++)
        has_any |= r->rows[i].rival.n > 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        const bench_row *row = &r->rows[i];
        if (!row->problem[0])
            continue;
        first = first ? first : row;
        if (has_any && (!last || strcmp(last->model, row->model) != 0))
            fprintf(stderr, "lace: n/a for %s: %s\n", row->model, row->problem);
        last = row;
    }
    return first && !has_any ? error_set(err, LACE_E_IO, "%s", first->problem) : LACE_OK;
}

static lace_status run_all(bench *b, const positional *words, lace_error *err)
{
    bench_report *r = &b->report;
    int n_models = words->count > 0 ? words->count : 1;
    TRY(check_models(words, err));
    for (int i = 0; i < n_models; i++) {
        int width = (int)strlen(bench_model_name(words->at[i]));
        r->name_width = width > r->name_width ? width : r->name_width;
    }
    b->max_rows = (size_t)n_models * (size_t)b->n_tests;
    b->n_steps = b->max_rows * (size_t)(1 + b->args->n_repeats * (b->args->against ? 2 : 1));
    r->rows = mem_calloc(b->max_rows, sizeof *r->rows);
    if (!r->rows)
        return error_nomem(err, "results");
    if (!b->args->no_limits) {
        progress_show(&b->bar, "measuring the machine");
        TRY(bench_measure_limits(r->n_threads, &r->limits, err));
        TRY(bench_reader_create(r->n_threads, &b->reader, err));
    }
    if (b->format->begin)
        TRY(check_format(b->format->begin(r, &b->out), err));
    TRY(flush(b, err));
    for (int i = 0; i < n_models; i++)
        TRY(run_model(b, words->at[i], err));
    if (b->format->end)
        TRY(check_format(b->format->end(r, &b->out), err));
    TRY(flush(b, err));
    return report_problems(r, err);
}

/* ---- The verb -------------------------------------------------------------------------------- */

void bench_describe_run(const char *words, int argc, char **argv, char date[BENCH_DATE],
                        char command[BENCH_COMMAND])
{
    time_t now = time(NULL);
    struct tm day;
    if (gmtime_r(&now, &day))
        strftime(date, BENCH_DATE, "%Y-%m-%d", &day);
    snprintf(command, BENCH_COMMAND, "%s", words);
    for (int i = 0; i < argc; i++) {
        size_t used = strlen(command);
        snprintf(command + used, BENCH_COMMAND - used, " %s", argv[i]);
    }
}

static void describe_run(bench *b, int argc, char **argv)
{
    bench_report *r = &b->report;
    r->n_threads = b->args->n_threads ? b->args->n_threads : cpu_count();
    r->n_repeats = b->args->n_repeats;
    r->kv_type = cli_kv_names[b->args->kv_type];
    r->rival = b->args->against;
    bench_describe_cpu(r->cpu, &r->level);
    bench_describe_run("lace bench", argc, argv, r->date, r->command);
}

static lace_status bench_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    bench_args a = {.prompts = "512",
                    .gens = "128",
                    .depths = "0",
                    .sequences = "1",
                    .n_repeats = 5,
                    .kv_type = LACE_KV_F16,
                    .v_type = LACE_KV_SAME,
                    .device = "auto"};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (a.against && words.count == 0)
        return args_error(v, err, "--against needs a MODEL that both can read");
    if (a.against)
        TRY(bench_rival_find(a.against, err));
    static bench b; /* some ten kilobytes */
    b = (bench){.args = &a, .format = &bench_formats[a.format]};
    TRY(list_tests(v, &b, err));
    describe_run(&b, argc, argv);
    b.model_options.n_batch = a.n_batch;
    b.model_options.n_threads = b.report.n_threads;
    b.model_options.kv_type = (lace_kv_type)a.kv_type;
    b.model_options.v_type = (lace_kv_type)a.v_type;
    b.model_options.use_mmap = a.mmap;
    b.model_options.device = a.device;
    b.model_options.ranks = &a.ranks;
    b.model_options.place = &a.place;
    b.model_options.activation_sparsity = a.activation_sparsity;
    cli_catch_stop();
    progress_init(&b.bar, &cli_stop);
    buf_init(&b.out, 64 << 20);
    lace_status status = run_all(&b, &words, err);
    progress_end(&b.bar);
    buf_deinit(&b.out);
    bench_reader_free(b.reader);
    mem_free(b.report.rows);
    return status;
}

VERB(bench, "bench", "[MODEL...] [options]", "measure speed, as a share of what the machine can do",
     0, ARGS_MAX_POSITIONAL,
     .description =
         "Measures the machine first: how fast it reads memory and multiplies. Then reads a\n"
         "prompt (pp512) and generates (tg128), and shows the median of the runs, their standard\n"
         "deviation, and the share of the limit that binds: memory for generation, arithmetic\n"
         "for prompts. Without MODEL, the built-in model runs. What the program of --against "
         "cannot\n"
         "load is n/a there.\n",
     .examples = "  lace bench model.gguf\n"
                 "  lace bench model.gguf -p 512,2048 -n 128 -d 0,2000 --trace\n"
                 "  lace bench a.gguf b.gguf --against llama-bench -o html > report.html\n"
                 "  lace bench model.gguf -p 0 -b 1,2,4,8 -o csv >> results.csv\n")
