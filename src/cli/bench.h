/*
 * lace bench: speed, measured so that one can believe it.
 *
 *     bench.c          the verb: which tests, in which order
 *     bench_limits.c   what the machine can do at most
 *     bench_model.c    one test of one model
 *     bench_rival.c    the same test by an installed llama-bench
 *     bench_format.c   results as a table, CSV, Markdown or JSON
 *     bench_html.c     results as a page with charts
 *     bench_svg.c      what pages of results share
 */
#ifndef LACE_CLI_BENCH_H
#define LACE_CLI_BENCH_H

#include "base/buf.h"
#include "cli/cli.h"
#include "lace.h"

enum { BENCH_MAX_REPEATS = 100, BENCH_MAX_LIST = 16, BENCH_MAX_OPS = 32 };

/* ---- The machine ----------------------------------------------------------------------------- */

/* What all threads together can do in a second, each alone with its task. 0: not measured. */
typedef struct bench_limits {
    double read; /* bytes from memory */
    double int8; /* multiply-adds of int8, added up in int32 */
    double fp32; /* multiply-adds of f32 */
} bench_limits;

/* Takes about two seconds and a GiB. */
lace_status bench_measure_limits(int32_t n_threads, bench_limits *out, lace_error *err);

/*
 * The speed of reading alone, to be measured again beside each run: on a machine that others use
 * too, it may be half of what it was a minute before.
 */
typedef struct bench_reader bench_reader;
lace_status bench_reader_create(int32_t n_threads, bench_reader **out, lace_error *err);
void bench_reader_free(bench_reader *r);
double bench_reader_measure(bench_reader *r); /* bytes in a second, the best of a few trials */

/* The processor's own name, and the level of instructions in use. */
void bench_describe_cpu(char name[128], const char **level);

/* ---- Tests ----------------------------------------------------------------------------------- */

/* One of n_prompt and n_gen is 0. */
typedef struct bench_test {
    int32_t n_prompt;    /* tokens read together: "pp512" */
    int32_t n_gen;       /* tokens generated one after the other: "tg128" */
    int32_t depth;       /* tokens already in the context: "tg128 @ d2000" */
    int32_t n_sequences; /* that generate at once: "tg128 b8"; speeds are the total */
} bench_test;

/* Tokens per second of several runs. */
typedef struct bench_series {
    double at[BENCH_MAX_REPEATS];
    int n;
    double median, stddev, low, high; /* of the numbers above */
} bench_series;

/* One operation of a step, all layers together. */
typedef struct bench_op {
    const char *name;
    uint64_t n_calls, ns, n_bytes, n_macs;
} bench_op;

/* A line of the result. */
typedef struct bench_row {
    char model[128];  /* the file's name */
    char type[16];    /* of most weights */
    char device[64];  /* where it ran: "cpu", or the name of a GPU */
    char backend[16]; /* what runs it: cpu, or another */
    uint64_t weight_bytes, n_parameters;
    char name[48]; /* of the test */
    bench_test test;
    bench_series own;
    bench_series rival; /* n is 0 without one */
    bench_series ratio; /* own / rival of each pair of runs */
    char problem[400];  /* why the rival could not run this; "": it could, or was not asked */

    bench_series read;           /* bytes in a second, beside each own run; n may be 0 */
    double bytes, macs;          /* that one token must move and do, by the trace */
    const char *limit_name;      /* what binds it: "read", "int8", "fp32"; NULL: unknown */
    double limit_share;          /* of it that was reached; above 1 where caches hold the weights */
    bench_op ops[BENCH_MAX_OPS]; /* one traced run, slowest first; n_ops is 0 without --trace */
    int n_ops;
} bench_row;

enum { BENCH_COMMAND = 512, BENCH_DATE = 32 };

/* When a benchmark runs, and the words that start it: `words`, then the arguments. */
void bench_describe_run(const char *words, int argc, char **argv, char date[BENCH_DATE],
                        char command[BENCH_COMMAND]);

/* Everything there is to report. */
typedef struct bench_report {
    char cpu[128];
    const char *level;
    const char *kv_type;
    const char *rival; /* path of the other program, or NULL */
    char command[BENCH_COMMAND];
    char date[BENCH_DATE]; /* 2026-08-19 */
    int32_t n_threads, n_repeats;
    int name_width; /* of the longest name of a model */
    bench_limits limits;
    bench_row *rows;
    size_t n_rows;
} bench_report;

/* ---- One model ------------------------------------------------------------------------------- */

typedef struct bench_model bench_model;

typedef struct bench_model_options {
    int32_t n_context, n_sequences; /* the most that any test needs */
    int32_t n_batch, n_threads;
    lace_kv_type kv_type, v_type;
    bool use_mmap;
    const char *activation_sparsity; /* thresholds, or NULL */
    const char *device;
    cli_ranks *ranks;
    cli_place *place;
} bench_model_options;

/* What a path is called in results: the file's name; NULL: the built-in model's. */
const char *bench_model_name(const char *path);

/* Open the model at a path (NULL: the built-in one) and load its weights. */
lace_status bench_model_open(const char *path, const bench_model_options *options,
                             bench_model **out, lace_error *err);
void bench_model_close(bench_model *b);

/* Fill in what a row says of the model and of the test. */
void bench_model_describe(const bench_model *b, const bench_test *test, bench_row *out);

/* Run a test once. *ns is its time. */
lace_status bench_model_run(bench_model *b, const bench_test *test, uint64_t *ns, lace_error *err);

/* Run it with a trace, and set bytes, macs, and with has_ops the operations. */
lace_status bench_model_trace(bench_model *b, const bench_test *test, bool has_ops, bench_row *row,
                              lace_error *err);

/* ---- The rival ------------------------------------------------------------------------------- */

/* LACE_E_ARG if there is no such program. A name without a slash is looked for in PATH when it is started. */
lace_status bench_rival_find(const char *program, lace_error *err);

/* llama-bench runs one sequence; llama-batched-bench, known by its name, generates for several. */
bool bench_rival_can(const char *program, const bench_test *test);

/*
 * The test once more, by the program; tokens per second. LACE_E_ARG: there is no such program. Other
 * failures are of this model and test, as of a file that it cannot load.
 */
lace_status bench_rival_run(const char *program, const char *model, const bench_test *test,
                            int32_t n_threads, lace_kv_type kv_type, double *out, lace_error *err);

/* ---- Formats --------------------------------------------------------------------------------- */

/* How results are written: begin, each row as it comes, end. Any may be NULL. */
typedef struct bench_format {
    const char *name;
    lace_status (*begin)(const bench_report *r, buf *out);
    lace_status (*row)(const bench_report *r, const bench_row *row, buf *out);
    lace_status (*end)(const bench_report *r, buf *out);
} bench_format;

#define BENCH_FORMATS "table|json|csv|md|html"
extern const bench_format bench_formats[]; /* in that order */

lace_status bench_html_page(const bench_report *r, buf *out);

/* "12.3 GB/s": what a number of bytes or of multiply-adds in a second is called. */
const char *bench_format_rate(double per_second, const char *unit, char out[32]);

#endif
