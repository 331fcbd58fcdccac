/* Reading surgery rules, measuring what they need, applying them. */
#include "cli/surgery_run.h"

#include "base/file.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "compress/imatrix_collect.h"
#include "compress/prune_feedback.h"

enum { MAX_RULES_BYTES = 1 << 20 };

lace_status surgery_read(const char *path, surgery **out, lace_error *err)
{
    buf source;
    buf_init(&source, MAX_RULES_BYTES);
    *out = NULL;
    lace_status status = file_read(path, &source, err);
    if (status == LACE_OK)
        status = surgery_parse((text){source.data ? source.data : "", source.size}, path, out, err);
    buf_deinit(&source);
    return status;
}

/* Walk the model over a text. */
static lace_status collect(const char *path, const surgery *s, const surgery_inputs *from,
                           progress *bar, surgery_stats *out, lace_error *err)
{
    buf source;
    buf_init(&source, CLI_MAX_TEXT);
    walk_options o = walk_options_default();
    o.n_threads = from->n_threads;
    o.use_int8 = !prune_needs_hessians(s); /* Hessians are added up from floats */
    o.on_progress = progress_report;
    o.progress_user = bar;
    imatrix_options how = {
        .n_windows = from->n_windows, .on_progress = progress_report, .progress_user = bar};
    weights *files = NULL;
    walk *w = NULL;
    token_list tokens = {0};
    int64_t n_windows;
    lace_status status = file_read(from->calibrate, &source, err);
    if (status == LACE_OK)
        status = weights_open(path, &files, err);
    if (status == LACE_OK)
        status = walk_open(files, &o, &w, err);
    if (status == LACE_OK)
        status = walk_tokenize(w, source.data ? source.data : "", source.size, &tokens, err);
    if (status == LACE_OK)
        status =
            imatrix_collect(w, tokens.data, tokens.size, &how, &out->importance, &n_windows, err);
    if (status == LACE_OK && prune_needs_hessians(s))
        status = prune_hessians_collect(w, s, tokens.data, tokens.size, from->n_windows,
                                        progress_report, bar, &out->hessians, err);
    token_list_deinit(&tokens);
    walk_close(w);
    buf_deinit(&source);
    return status;
}

lace_status surgery_read_inputs(const char *path, const surgery *s, const surgery_inputs *from,
                                surgery_stats *out, lace_error *err)
{
    *out = (surgery_stats){0};
    if (prune_needs_hessians(s) && !from->calibrate)
        return error_set(err, LACE_E_ARG,
                         "sparsegpt needs the inputs of matrices: give --calibrate TEXT");
    if (prune_needs_inputs(s) && !from->calibrate && !from->imatrix)
        return error_set(err, LACE_E_ARG,
                         "the rules need the inputs of matrices: give --calibrate TEXT or "
                         "--imatrix FILE (only magnitude needs neither)");
    lace_status status = LACE_OK;
    if (from->calibrate) {
        progress bar;
        progress_init(&bar, &cli_stop);
        status = collect(path, s, from, &bar, out, err);
        progress_end(&bar);
    } else if (from->imatrix) {
        status = imatrix_read(from->imatrix, &out->importance, err);
    }
    if (status != LACE_OK)
        surgery_stats_deinit(out);
    return status;
}

void surgery_stats_deinit(surgery_stats *stats)
{
    imatrix_free(stats->importance);
    prune_hessians_free(stats->hessians);
    *stats = (surgery_stats){0};
}

lace_status surgery_apply(const char *path, const surgery *s, const surgery_stats *stats,
                          int32_t n_threads, buf *out, prune_result *result, lace_error *err)
{
    progress bar;
    progress_init(&bar, &cli_stop);
    prune_options o = prune_options_default();
    o.importance = stats->importance;
    o.hessians = stats->hessians;
    o.n_threads = n_threads;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    lace_status status = prune_model(path, s, &o, out, result, err);
    progress_end(&bar);
    return status;
}

lace_status surgery_open(const char *path, const char *rules, const char *imatrix_path,
                         const lace_model_options *options, buf *pruned, lace_model **out,
                         lace_error *err)
{
    *out = NULL;
    if (!path)
        return error_set(err, LACE_E_ARG, "--surgery needs a MODEL in f16, bf16 or f32");
    surgery *s;
    surgery_stats stats = {0};
    prune_result r = {0};
    surgery_inputs from = {.imatrix = imatrix_path};
    TRY(surgery_read(rules, &s, err));
    lace_status status = surgery_read_inputs(path, s, &from, &stats, err);
    if (status == LACE_OK)
        status = surgery_apply(path, s, &stats, 0, pruned, &r, err);
    if (status == LACE_OK)
        status = lace_model_open_memory(pruned->data, pruned->size, path, options, out, err);
    prune_result_deinit(&r);
    surgery_stats_deinit(&stats);
    surgery_free(s);
    return status;
}
