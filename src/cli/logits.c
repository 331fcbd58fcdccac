/* lace logits: what a model predicts after each of given tokens, as raw
 * numbers for other programs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/file_write.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/progress.h"

typedef struct logits_args {
    const char *tokens, *output;
    int32_t n_batch, n_threads, kv_type, v_type;
    bool exact, mmap;
    const char *device;
    cli_ranks ranks;
    cli_place place;
    cli_loras loras;
    bool force;
} logits_args;

/* clang-format off */
static const arg_option options[] = {
    {"tokens", 0, ARG_TEXT, offsetof(logits_args, tokens), .value = "FILE",
     .help = "the tokens: raw little-endian int32; - is standard input", .is_needed = true},
    {"output", 'o', ARG_TEXT, offsetof(logits_args, output), .value = "OUT",
     .help = "where the logits go: raw f32, one row of the vocabulary for each token", .is_needed = true},
    {"batch", 'b', ARG_INT, offsetof(logits_args, n_batch), .low = 1, .high = CLI_MAX_BATCH,
     .value = "N", .help = "tokens computed together (default 512)"},
    CLI_THREADS_OPTION(logits_args),
    CLI_KV_TYPE_OPTION(logits_args, "f32"),
    CLI_EXACT_OPTION(logits_args),
    CLI_DEVICE_OPTION(logits_args),
    CLI_RANKS_OPTIONS(offsetof(logits_args, ranks)),
    CLI_PLACE_OPTIONS(offsetof(logits_args, place)),
    CLI_LORA_OPTIONS(offsetof(logits_args, loras)),
    CLI_MMAP_OPTION(logits_args),
    OUTPUT_FORCE_OPTION(logits_args),
};
/* clang-format on */

/* Read and check the tokens; *out is to be freed with mem_free. */
static lace_status read_tokens(const char *path, int32_t n_vocab, lace_token **out, size_t *n_out,
                               lace_error *err)
{
    *out = NULL;
    *n_out = 0;
    buf raw;
    buf_init(&raw, (size_t)CLI_MAX_CONTEXT * sizeof(lace_token));
    lace_status status = file_read(path, &raw, err);
    size_t n = raw.size / sizeof(lace_token);
    lace_token *tokens = NULL;
    if (status == LACE_OK && (raw.size % sizeof(lace_token) != 0 || n == 0))
        status = error_set(err, LACE_E_ARG, "%s: %zu bytes, expected int32 tokens: a multiple of 4",
                           path, raw.size);
    if (status == LACE_OK && !(tokens = mem_calloc(n, sizeof *tokens)))
        status = error_nomem(err, "tokens");
    for (size_t i = 0; i < n && status == LACE_OK; i++) {
        tokens[i] = (lace_token)load_u32(raw.data + i * sizeof *tokens);
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            status = error_set(err, LACE_E_ARG, "%s: token %zu is %d, expected 0 to %d", path, i,
                               tokens[i], n_vocab - 1);
    }
    buf_deinit(&raw);
    if (status != LACE_OK) {
        mem_free(tokens);
        return status;
    }
    *out = tokens;
    *n_out = n;
    return LACE_OK;
}

/* Evaluate batch by batch and append every row to the file. */
static lace_status write_logits(lace_session *session, const lace_token *tokens, size_t n,
                                size_t n_batch, size_t n_vocab, file_writer *w, lace_error *err)
{
    lace_item *items = mem_calloc(n_batch, sizeof *items);
    if (!items)
        return error_nomem(err, "a batch");
    progress bar;
    progress_init(&bar, &cli_stop);
    lace_status status = LACE_OK;
    for (size_t from = 0; from < n && status == LACE_OK; from += n_batch) {
        size_t count = n - from < n_batch ? n - from : n_batch;
        for (size_t i = 0; i < count; i++)
            items[i] = (lace_item){.token = tokens[from + i], .want_logits = true};
        status = lace_session_eval(session, items, count, err);
        for (size_t i = 0; i < count && status == LACE_OK; i++)
            status =
                file_writer_write(w, lace_session_logits(session, i), n_vocab * sizeof(float), err);
        if (!progress_report(&bar, "computing", (double)(from + count) / (double)n))
            status = LACE_E_CANCELLED;
    }
    progress_end(&bar);
    mem_free(items);
    return status;
}

static lace_status compute(lace_model *model, const logits_args *a, const output *made,
                           lace_error *err)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    lace_token *tokens = NULL;
    size_t n;
    lace_session *session = NULL;
    file_writer *w = NULL;
    progress bar;
    progress_init(&bar, &cli_stop);
    lace_status status = read_tokens(a->tokens, info.n_vocab, &tokens, &n, err);
    if (status != LACE_OK)
        return status;

    lace_session_options o = lace_session_options_default();
    o.n_context = (int32_t)n;
    o.n_batch = (size_t)a->n_batch < n ? a->n_batch : (int32_t)n;
    o.n_outputs = o.n_batch;
    o.n_threads = a->n_threads;
    o.kv_type = (lace_kv_type)a->kv_type;
    o.v_type = (lace_kv_type)a->v_type;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    /* The file first: if it cannot be written, no time is lost. */
    TRY_GOTO(status, end, file_writer_create_by(made->path, &made->rules, &w, err));
    TRY_GOTO(status, end, lace_session_create(model, &o, &session, err));
    progress_end(&bar);
    TRY_GOTO(status, end,
             write_logits(session, tokens, n, (size_t)o.n_batch, (size_t)info.n_vocab, w, err));
    status = file_writer_commit(w, err);
    w = NULL;
end:
    progress_end(&bar);
    file_writer_abort(w);
    lace_session_free(session);
    mem_free(tokens);
    return status;
}

static lace_status logits_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    logits_args a = {
        .n_batch = 512, .kv_type = LACE_KV_F32, .v_type = LACE_KV_SAME, .device = "auto"};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    output made;
    const char *const inputs[] = {words.at[0], a.tokens};
    TRY(output_begin(&made, a.output, a.force, inputs, 2, err));
    cli_catch_stop();
    lace_model_options model_options = lace_model_options_default();
    model_options.use_exact = a.exact;
    model_options.use_mmap = a.mmap;
    model_options.device = a.device;
    cli_use_ranks(&a.ranks, &model_options);
    TRY(cli_use_place(&a.place, 0, &model_options, err));
    model_options.use_vocab = false; /* ids come in, numbers go out */
    lace_model *model;
    TRY(lace_model_open(words.at[0], &model_options, &model, err));
    lace_status status = cli_add_loras(model, &a.loras, err);
    if (status == LACE_OK)
        status = compute(model, &a, &made, err);
    lace_model_close(model);
    return status;
}

VERB(logits, "logits", "MODEL --tokens FILE -o OUT [options]",
     "write what a model predicts after each token, as raw numbers", 1, 1,
     .description =
         "For comparing engines. OUT gets f32 [tokens, vocabulary]; it appears when complete.\n",
     .examples = "  lace logits model.gguf --tokens ids.i32 -o logits.f32\n"
                 "  lace logits model-q4_k.gguf --tokens ids.i32 -o logits.f32 --exact\n")
