/* A bar for measurements: which window, and what is known so far. */
#include "cli/measure_bar.h"

#include <stdio.h>

#include "cli/cli.h"

static bool show_window(void *user, const measure_state *s)
{
    progress *bar = user;
    char what[96];
    if (s->n_done == 0 && s->part == 0) { /* the weights are packed, another work begins */
        progress_end(bar);
        progress_init(bar, bar->stop);
        progress_show(bar, "window 1");
        return true;
    }
    if (s->now.n == 0)
        snprintf(what, sizeof what, "window 1 of %d", s->n_windows);
    else if (s->has_base)
        snprintf(what, sizeof what, "window %d of %d: ppl %.3f +- %.3f, kld %.5f", s->n_done + 1,
                 s->n_windows, s->now.perplexity.mean, s->now.perplexity.error, s->now.kld.mean);
    else
        snprintf(what, sizeof what, "window %d of %d: perplexity %.4f +- %.4f", s->n_done + 1,
                 s->n_windows, s->now.perplexity.mean, s->now.perplexity.error);
    return progress_report(bar, what, (s->n_done + s->part) / s->n_windows);
}

measure_watch measure_bar_watch(progress *bar)
{
    return (measure_watch){.on_progress = progress_report, .on_window = show_window, .user = bar};
}

lace_status measure_models_shown(lace_model *tested, lace_model *base, const buf *source,
                                 const measure_options *options, quality_result *out,
                                 int32_t *n_windows, lace_error *err)
{
    progress bar;
    measure_options o = *options;
    progress_init(&bar, &cli_stop);
    o.watch = measure_bar_watch(&bar);
    lace_status status =
        measure_models(tested, base, (text){source->data, source->size}, &o, out, n_windows, err);
    progress_end(&bar);
    return status;
}
