/* One text after another, through a batcher of one sequence. */
#include "cli/writer.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/progress.h"

enum { LONG_PROMPT = 64 }; /* tokens; less needs no sign of life, once the weights are in memory */
static const uint64_t LARGE_BYTES =
    500 << 20; /* of weights, which the first tokens read from the disk */

/* ---- Life ------------------------------------------------------------------------------------ */

/* With DRY, no repetition goes over the ends of lines and the like. */
static lace_status find_breakers(writer *w, lace_error *err)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    lace_model_info info;
    if (w->options->sampler.dry_multiplier <= 0)
        return LACE_OK;
    lace_model_describe(w->model, &info);
    w->breakers = mem_calloc((size_t)info.n_vocab, sizeof *w->breakers);
    if (!w->breakers)
        return error_nomem(err, "a sampler");
    w->n_breakers = lace_tokens_with(w->model, breakers, sizeof breakers / sizeof breakers[0],
                                     w->breakers, (size_t)info.n_vocab);
    return LACE_OK;
}

static lace_status open_draft(writer *w, const lace_model_options *model_options, lace_error *err)
{
    lace_model_options o = lace_model_options_default();
    o.use_mmap = model_options->use_mmap;
    o.device = model_options->device;
    return w->options->draft ? cli_open_model(w->options->draft, &o, &w->draft, err) : LACE_OK;
}

lace_status writer_init(writer *w, const choose_options *options, lace_model *model,
                        const lace_model_options *model_options,
                        const lace_session_options *session_options, bool use_prefixes,
                        lace_error *err)
{
    *w = (writer){.options = options, .model = model};
    TRY(constraint_create(&options->constraint, model, &w->form, err));
    TRY(find_breakers(w, err));
    TRY(open_draft(w, model_options, err));
    lace_batcher_options o = lace_batcher_options_default();
    progress bar; /* while weights are packed */
    progress_init(&bar, &cli_stop);
    o.session = *session_options;
    o.session.n_sequences = 1;
    o.session.on_progress = progress_report;
    o.session.progress_user = &bar;
    o.use_prefixes = use_prefixes;
    o.draft = w->draft;
    o.use_lookup = options->lookup;
    o.use_mtp = options->mtp;
    o.n_draft = options->n_draft;
    o.guesses_always = true;
    lace_status status = lace_batcher_create(model, &o, &w->batcher, err);
    progress_end(&bar);
    if (status == LACE_OK)
        cli_note_long_context(model, o.session.n_context);
    return status;
}

void writer_deinit(writer *w)
{
    lace_batcher_free(w->batcher);
    lace_grammar_free(w->form);
    lace_model_close(w->draft);
    mem_free(w->breakers);
    *w = (writer){0};
}

/* ---- A text ---------------------------------------------------------------------------------- */

/* A text on its way. */
typedef struct writing {
    const writer *w;
    const writer_order *order;
    writer_report *report;
    progress bar;
    uint64_t begun_ns, packed_ns; /* of the part under way: the prompt, or the reply */
    size_t n_chosen, n_prompts;   /* tokens; prompts that were read, the first one and exchanges */
    bool is_over;
    lace_status status;
    lace_error *err;
} writing;

/* What packing the weights between evaluations has taken until now. */
static uint64_t packing_ns(const lace_model *model)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    return info.packing_ns;
}

/* What the part under way took, without the packing. The next one begins. */
static uint64_t end_part(writing *x)
{
    uint64_t now = clock_ns(), packed = packing_ns(x->w->model);
    uint64_t ns = now - x->begun_ns - (packed - x->packed_ns);
    x->report->packing_ns += packed - x->packed_ns;
    x->begun_ns = now;
    x->packed_ns = packed;
    return ns;
}

static void begin_reply(writing *x)
{
    progress_end(&x->bar);
    x->report->prompt_ns = end_part(x);
    x->report->is_read = true;
    if (x->order->on_begin && x->status == LACE_OK)
        x->status = x->order->on_begin(x->order->user, x->err);
    end_part(x); /* printing the prompt is no part of the reply's time */
}

/* Whether the weights of a large model may lie on the disk still. */
static bool begins_large(const writer *w)
{
    lace_model_info info;
    lace_model_describe(w->model, &info);
    return w->n_steps == 0 && info.weight_bytes >= LARGE_BYTES;
}

/* How far the prompt is read; a bar only before there is text on the screen. */
static void show_prompt(writing *x, const lace_generation_stats *s)
{
    x->report->n_used = (size_t)s->n_read;
    if (!x->report->is_read) {
        x->report->n_cached = (size_t)s->n_cached;
        bool is_first = s->n_read == s->n_cached;
        if (is_first && begins_large(x->w))
            progress_show(&x->bar, "reading the model and the prompt");
        else if (is_first && s->n_prompt - s->n_cached > LONG_PROMPT)
            progress_show(&x->bar, "reading the prompt");
        else
            progress_report(&x->bar, "reading the prompt", (double)s->n_read / (double)s->n_prompt);
    }
    if (s->n_read < s->n_prompt)
        return;
    x->n_prompts++;
    if (!x->report->is_read)
        begin_reply(x);
}

static writer_end find_end(const writing *x, const lace_piece *p, bool is_end)
{
    int32_t max = x->order->max_tokens;
    if (p->finish == LACE_FINISH_STOP)
        return is_end ? WRITER_ENDED : WRITER_COMPLETE;
    if (p->finish == LACE_FINISH_LENGTH)
        return max >= 0 && x->report->n_generated >= (size_t)max ? WRITER_CUT : WRITER_FULL;
    return WRITER_STOPPED;
}

static void on_piece(void *user, const lace_piece *p)
{
    writing *x = user;
    if (p->is_prompt) {
        show_prompt(x, p->stats);
        return;
    }
    bool is_end = p->token >= 0 && lace_token_is_end(x->w->model, p->token);
    bool is_text = p->token >= 0 && !is_end;
    x->n_chosen += p->token >= 0;
    x->report->n_generated += is_text;
    x->report->n_used += is_text && p->finish == LACE_FINISH_NONE;
    x->is_over = p->finish != LACE_FINISH_NONE;
    if (p->error) {
        x->status = p->error->status;
        if (x->err)
            *x->err = *p->error;
        return;
    }
    if (x->is_over)
        x->report->end = find_end(x, p, is_end);
    if (x->status == LACE_OK)
        x->status = x->order->on_piece(x->order->user, is_text ? p->token : -1,
                                       (text){p->text, p->n_bytes}, x->err);
}

static size_t on_full(void *user, const lace_token **tokens)
{
    writing *x = user;
    return x->status == LACE_OK ? x->order->on_full(x->order->user, tokens) : 0;
}

lace_status writer_write(writer *w, const writer_order *order, writer_report *report,
                         lace_error *err)
{
    *report = (writer_report){.end = WRITER_STOPPED};
    writing x = {.w = w, .order = order, .report = report, .err = err};
    lace_generation_options o = lace_generation_options_default();
    o.prompt = order->prompt;
    o.n_prompt = order->n_prompt;
    o.images = order->images;
    o.n_images = order->n_images;
    o.sampler = w->options->sampler;
    o.sampler.seed = order->seed;
    o.sampler.dry_breakers = w->breakers;
    o.sampler.n_dry_breakers = w->n_breakers;
    o.max_tokens = order->max_tokens;
    o.ignore_end = w->options->ignore_eos;
    o.grammar = w->form;
    o.shows_prompt = true;
    o.fills_context = true;
    o.on_full = order->on_full ? on_full : NULL;
    o.on_piece = on_piece;
    o.user = &x;
    progress_init(&x.bar, NULL);
    x.begun_ns = clock_ns();
    x.packed_ns = packing_ns(w->model);
    lace_generation *g;
    TRY(lace_batcher_add(w->batcher, &o, &g, err));
    while (!x.is_over && x.status == LACE_OK && !*order->stop && lace_batcher_step(w->batcher))
        continue;
    if (!x.is_over)
        lace_batcher_cancel(w->batcher, g);
    progress_end(&x.bar);
    *(report->is_read ? &report->generate_ns : &report->prompt_ns) = end_part(&x);
    report->n_steps = x.n_chosen > x.n_prompts ? x.n_chosen - x.n_prompts : 0;
    w->n_steps += report->n_steps;
    return x.status;
}

/*
 * What was counted, and no ratio of speeds: the time without guesses is not known here. Whoever
 * wants it runs the text a second time.
 */
void writer_append_counts(const writer *w, char *line, size_t size)
{
    lace_batcher_stats n;
    size_t used = strlen(line);
    if (!w->draft && !w->options->lookup && !w->options->mtp)
        return;
    lace_batcher_count(w->batcher, &n);
    used += (size_t)snprintf(line + used, size - used, " | %llu of %llu guesses right (%.0f %%)",
                             (unsigned long long)n.n_accepted, (unsigned long long)n.n_guessed,
                             n.n_guessed ? 100.0 * (double)n.n_accepted / (double)n.n_guessed : 0);
    if (w->n_steps > n.n_accepted && used < size)
        snprintf(line + used, size - used, ", %.2f tokens an evaluation",
                 (double)w->n_steps / (double)(w->n_steps - n.n_accepted));
}
