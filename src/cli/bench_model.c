/* One test of one model: tokens that mean nothing, in the pattern of real use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/progress.h"

struct bench_model {
    lace_model *model;
    lace_session *session;
    lace_model_info info;
    char name[128];
    lace_item *items; /* [n_items] */
    size_t n_items;
    lace_token *firsts; /* [n_sequences] */
    uint64_t random;
};

const char *bench_model_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return !path ? "built-in" : slash && slash[1] ? slash + 1 : path;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status create_session(bench_model *b, const bench_model_options *o, lace_error *err)
{
    progress bar;
    progress_init(&bar, &cli_stop);
    lace_session_options so = lace_session_options_default();
    so.n_context = o->n_context;
    so.n_sequences = o->n_sequences;
    so.n_batch = b->info.is_encoder ? 0 : o->n_batch; /* encoders read a text at once */
    so.wants_hidden = b->info.is_encoder;
    so.n_threads = o->n_threads;
    so.kv_type = o->kv_type;
    so.v_type = o->v_type;
    so.on_progress = progress_report;
    so.progress_user = &bar;
    lace_status status = lace_session_create(b->model, &so, &b->session, err);
    progress_end(&bar);
    return status;
}

lace_status bench_model_open(const char *path, const bench_model_options *o, bench_model **out,
                             lace_error *err)
{
    *out = NULL;
    bench_model *b = mem_calloc(1, sizeof *b);
    if (!b)
        return error_nomem(err, "a model");
    lace_model_options mo = lace_model_options_default();
    mo.use_mmap = o->use_mmap;
    mo.device = o->device;
    cli_use_ranks(o->ranks, &mo);
    mo.activation_sparsity = o->activation_sparsity;
    mo.use_vocab = false; /* any token will do */
    snprintf(b->name, sizeof b->name, "%s", bench_model_name(path));
    b->random = 1;
    b->n_items = (size_t)(o->n_context > o->n_sequences ? o->n_context : o->n_sequences);
    b->items = mem_calloc(b->n_items, sizeof *b->items);
    b->firsts = mem_calloc((size_t)o->n_sequences, sizeof *b->firsts);
    lace_status status = b->items && b->firsts ? LACE_OK : error_nomem(err, "a batch");
    if (status == LACE_OK)
        status = cli_use_place(o->place, o->n_context, &mo, err);
    if (status == LACE_OK)
        status = cli_open_model(path, &mo, &b->model, err);
    if (status == LACE_OK) {
        lace_model_describe(b->model, &b->info);
        status = create_session(b, o, err);
    }
    return GIVE_OR_FREE(status, b, out, bench_model_close);
}

void bench_model_close(bench_model *b)
{
    if (!b)
        return;
    lace_session_free(b->session);
    lace_model_close(b->model);
    mem_free_all(b->items, b->firsts, b);
}

void bench_model_describe(const bench_model *b, const bench_test *test, bench_row *out)
{
    *out = (bench_row){
        .weight_bytes = b->info.weight_bytes, .n_parameters = b->info.n_parameters, .test = *test};
    snprintf(out->model, sizeof out->model, "%s", b->name);
    snprintf(out->type, sizeof out->type, "%s", b->info.type);
    snprintf(out->device, sizeof out->device, "%s", b->info.device);
    snprintf(out->backend, sizeof out->backend, "%s", b->info.backend);
    int n = snprintf(out->name, sizeof out->name, "%s%d", test->n_prompt ? "pp" : "tg",
                     test->n_prompt ? test->n_prompt : test->n_gen);
    if (test->n_sequences > 1)
        n += snprintf(out->name + n, sizeof out->name - (size_t)n, " b%d", test->n_sequences);
    if (test->depth > 0)
        snprintf(out->name + n, sizeof out->name - (size_t)n, " @ d%d", test->depth);
}

/* ---- Running --------------------------------------------------------------------------------- */

static lace_token random_token(bench_model *b)
{
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (lace_token)((b->random >> 33) % (uint64_t)b->info.n_vocab);
}

/* n tokens for one sequence, of which only the last has logits, as for a prompt. */
static lace_status append_tokens(bench_model *b, int32_t sequence, int32_t n, lace_error *err)
{
    for (int32_t i = 0; i < n; i++)
        b->items[i] =
            (lace_item){.token = random_token(b), .sequence = sequence, .want_logits = i + 1 == n};
    return lace_session_eval(b->session, b->items, (size_t)n, err);
}

/* Bring every sequence of the test to its depth; not part of the time. */
static lace_status prepare(bench_model *b, const bench_test *test, lace_error *err)
{
    for (int32_t s = 0; s < test->n_sequences; s++) {
        int32_t n = lace_session_length(b->session, s);
        if (n > test->depth) {
            lace_status status = lace_session_truncate(b->session, s, test->depth, err);
            n = test->depth;
            if (status == LACE_E_UNSUPPORTED) { /* a sliding window: it can only start anew */
                status = lace_session_truncate(b->session, s, 0, err);
                n = 0;
            }
            TRY(status);
        }
        if (n < test->depth)
            TRY(append_tokens(b, s, test->depth - n, err));
    }
    return LACE_OK;
}

static bool go_on(void *user, lace_token token)
{
    return !cli_stop;
}

static bool go_on_together(void *user, const lace_token *tokens)
{
    return !cli_stop;
}

lace_status bench_model_run(bench_model *b, const bench_test *test, uint64_t *ns, lace_error *err)
{
    TRY(prepare(b, test, err));
    uint64_t begin = clock_ns();
    if (test->n_prompt)
        TRY(append_tokens(b, 0, test->n_prompt, err));
    /* Sequences go on by themselves, as texts do; the best token costs what any other does. */
    if (test->n_gen > 0 && test->n_sequences == 1)
        TRY(lace_session_continue(b->session, 0, random_token(b), test->n_gen, NULL, go_on, NULL,
                                  err));
    if (test->n_gen > 0 && test->n_sequences > 1) {
        for (int32_t s = 0; s < test->n_sequences; s++)
            b->firsts[s] = random_token(b);
        TRY(lace_session_continue_all(b->session, b->firsts, test->n_sequences, test->n_gen,
                                      go_on_together, NULL, err));
    }
    *ns = clock_ns() - begin;
    return cli_stop ? LACE_E_CANCELLED : LACE_OK;
}

/* ---- Traces ---------------------------------------------------------------------------------- */

static int compare_ops(const void *a, const void *b)
{
    uint64_t x = ((const bench_op *)a)->ns, y = ((const bench_op *)b)->ns;
    return (x < y) - (x > y);
}

static void add_op(bench_row *row, const lace_trace_row *t)
{
    int i = 0;
    while (i < row->n_ops && strcmp(row->ops[i].name, t->operation) != 0)
        i++;
    if (i == BENCH_MAX_OPS)
        return;
    if (i == row->n_ops)
        row->ops[row->n_ops++] = (bench_op){.name = t->operation};
    row->ops[i].n_calls += t->n_calls;
    row->ops[i].ns += t->ns;
    row->ops[i].n_bytes += t->n_bytes;
    row->ops[i].n_macs += t->n_macs;
}

lace_status bench_model_trace(bench_model *b, const bench_test *test, bool has_ops, bench_row *row,
                              lace_error *err)
{
    uint64_t ns;
    TRY(prepare(b, test, err));
    TRY(lace_session_trace(b->session, true, err));
    lace_status status = bench_model_run(b, test, &ns, err);
    size_t n = lace_session_trace_rows(b->session, NULL, 0);
    lace_trace_row *rows = mem_calloc(n, sizeof *rows);
    if (status == LACE_OK && !rows)
        status = error_nomem(err, "a trace");
    if (status == LACE_OK) {
        lace_session_trace_rows(b->session, rows, n);
        double bytes = 0, macs = 0;
        for (size_t i = 0; i < n; i++) {
            bytes += (double)rows[i].n_bytes;
            macs += (double)rows[i].n_macs;
            if (has_ops)
                add_op(row, &rows[i]);
        }
        double n_tokens =
            (double)(test->n_prompt ? test->n_prompt : test->n_gen) * (double)test->n_sequences;
        row->bytes = bytes / n_tokens;
        row->macs = macs / n_tokens;
        qsort(row->ops, (size_t)row->n_ops, sizeof row->ops[0], compare_ops);
    }
    mem_free(rows);
    lace_session_trace(b->session, false, NULL);
    return status;
}
