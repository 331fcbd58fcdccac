/* From logits to the next token: sampler, form of the text, guesses ahead. */
#define _DEFAULT_SOURCE
#include "cli/choose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/progress.h"

choose_options choose_options_default(void)
{
    choose_options o = {.sampler = lace_sampler_options_default(), .n_draft = 8};
    o.sampler.seed = args_random_seed();
    return o;
}

static bool guesses(const choose_options *o)
{
    return o->draft || o->lookup;
}

int32_t choose_n_outputs(const choose_options *options)
{
    return guesses(options) ? options->n_draft + 1 : 1;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status create_masks(chooser *c, lace_error *err)
{
    if (!c->options->ignore_eos && !c->form.state)
        return LACE_OK;
    c->logits = mem_calloc((size_t)c->n_vocab, sizeof *c->logits);
    c->ends = mem_calloc((size_t)c->n_vocab, sizeof *c->ends);
    if (!c->logits || !c->ends)
        return error_nomem(err, "logits");
    for (lace_token t = 0; c->options->ignore_eos && t < c->n_vocab; t++)
        if (lace_token_is_end(c->model, t))
            c->ends[c->n_ends++] = t;
    return LACE_OK;
}

/* The second model, if there is one, and what guesses with it. */
static lace_status create_speculator(chooser *c, const lace_model_options *model_options,
                                     const lace_session_options *session_options, lace_error *err)
{
    if (c->options->draft) {
        lace_model_options m = lace_model_options_default();
        m.use_mmap = model_options->use_mmap;
        m.device = model_options->device;
        TRY(cli_open_model(c->options->draft, &m, &c->draft_model, err));
        progress bar;
        progress_init(&bar, &cli_stop);
        lace_session_options s = *session_options;
        s.n_outputs = 1;
        s.on_progress = progress_report;
        s.progress_user = &bar;
        lace_status status = lace_session_create(c->draft_model, &s, &c->draft, err);
        progress_end(&bar);
        TRY(status);
    }
    lace_speculator_options o = lace_speculator_options_default();
    o.draft = c->draft;
    o.use_lookup = c->options->lookup;
    o.n_draft = c->options->n_draft;
    return lace_speculator_create(c->session, 0, &o, &c->speculator, err);
}

lace_status chooser_init(chooser *c, const choose_options *options, lace_model *model,
                         lace_session *session, const lace_model_options *model_options,
                         const lace_session_options *session_options, lace_error *err)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    *c = (chooser){.options = options, .model = model, .session = session, .n_vocab = info.n_vocab};
    TRY(constraint_init(&c->form, &options->constraint, model, err));
    TRY(create_masks(c, err));
    return guesses(options) ? create_speculator(c, model_options, session_options, err) : LACE_OK;
}

void chooser_deinit(chooser *c)
{
    lace_speculator_free(c->speculator);
    lace_session_free(c->draft);
    lace_model_close(c->draft_model);
    lace_sampler_free(c->sampler);
    constraint_deinit(&c->form);
    mem_free(c->logits);
    mem_free(c->ends);
    *c = (chooser){0};
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* With DRY, no repetition goes over the ends of lines and the like. */
static lace_status create_sampler(chooser *c, uint64_t seed, lace_error *err)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    lace_sampler_options o = c->options->sampler;
    lace_token *tokens = mem_calloc((size_t)c->n_vocab, sizeof *tokens);
    if (!tokens)
        return error_nomem(err, "a sampler");
    o.seed = seed;
    o.dry_breakers = tokens;
    if (o.dry_multiplier > 0)
        o.n_dry_breakers = lace_tokens_with(
            c->model, breakers, sizeof breakers / sizeof breakers[0], tokens, (size_t)c->n_vocab);
    lace_sampler_free(c->sampler);
    c->sampler = NULL;
    lace_status status = lace_sampler_create(&o, c->n_vocab, &c->sampler, err);
    mem_free(tokens);
    return status;
}

lace_status chooser_begin(chooser *c, uint64_t seed, const lace_token *tokens, size_t n_tokens,
                          lace_error *err)
{
    TRY(create_sampler(c, seed, err));
    for (size_t i = 0; i < n_tokens; i++)
        lace_sampler_accept(c->sampler, tokens[i]);
    TRY(constraint_restart(&c->form, err));
    return chooser_resume(c, tokens, n_tokens, err);
}

lace_status chooser_resume(chooser *c, const lace_token *tokens, size_t n_tokens, lace_error *err)
{
    return c->speculator ? lace_speculator_begin(c->speculator, tokens, n_tokens, err) : LACE_OK;
}

bool chooser_is_plain(const chooser *c)
{
    return !c->speculator && !c->logits;
}

/* The logits without what leaves the form, and with ignore_eos without what ends the text. */
static lace_status current_logits(chooser *c, const float **out, lace_error *err)
{
    *out =
        c->speculator ? lace_speculator_logits(c->speculator) : lace_session_logits(c->session, 0);
    if (!c->logits)
        return LACE_OK;
    memcpy(c->logits, *out, (size_t)c->n_vocab * sizeof **out);
    for (size_t i = 0; i < c->n_ends; i++)
        c->logits[c->ends[i]] = -INFINITY;
    *out = c->logits;
    return c->form.state ? lace_grammar_state_mask(c->form.state, c->logits, err) : LACE_OK;
}

lace_status chooser_next(chooser *c, lace_token *token, lace_error *err)
{
    const float *logits;
    TRY(current_logits(c, &logits, err));
    TRY(lace_sampler_sample(c->sampler, logits, token, err));
    lace_sampler_accept(c->sampler, *token);
    return LACE_OK;
}

lace_status chooser_accept(chooser *c, lace_token token, bool *is_complete, lace_error *err)
{
    *is_complete = false;
    if (!c->form.state)
        return LACE_OK;
    TRY(lace_grammar_state_accept(c->form.state, token, err));
    *is_complete = lace_grammar_state_is_finished(c->form.state);
    return LACE_OK;
}

lace_status chooser_push(chooser *c, lace_token token, lace_error *err)
{
    lace_item item = {.token = token, .want_logits = true};
    return c->speculator ? lace_speculator_push(c->speculator, token, err)
                         : lace_session_eval(c->session, &item, 1, err);
}

/*
 * What was counted, and no ratio of speeds: the time without guesses is not known here. Whoever
 * wants it runs the text a second time.
 */
void chooser_append_counts(const chooser *c, char *line, size_t size)
{
    lace_speculation n;
    size_t used = strlen(line);
    if (!c->speculator)
        return;
    lace_speculator_count(c->speculator, &n);
    used += (size_t)snprintf(line + used, size - used, " | %llu of %llu guesses right (%.0f %%)",
                             (unsigned long long)n.n_accepted, (unsigned long long)n.n_guessed,
                             n.n_guessed ? 100.0 * (double)n.n_accepted / (double)n.n_guessed : 0);
    if (n.n_evals > 0 && used < size)
        snprintf(line + used, size - used, ", %.2f tokens an evaluation",
                 (double)n.n_tokens / (double)n.n_evals);
}
