/*
 * Speculation: guess tokens, evaluate them together with the one that was chosen, keep what fits.
 *
 * The session always holds the text so far and then the guesses that are not judged yet:
 *
 *     text: | t0 t1 ... tn-1 | g0 g1 g2 |      logits after tn-1, g0, g1, g2 are there
 *
 * If the next token chosen is g0, the text grows by it and nothing needs to be computed. If it is
 * not, the guesses are dropped, new ones are made, and token and guesses are evaluated at once.
 *
 * The batcher does the same inside its steps (advance.c); this is for callers who choose by
 * themselves.
 */
#include <string.h>

#include "base/mem.h"
#include "engine/guess.h"

struct lace_speculator {
    lace_session *session;
    int32_t sequence;
    guess_source source;
    guesses guess;

    lace_token *text; /* [n_context] */
    int32_t n_text;
    size_t row; /* of the session's logits: the next token's */

    lace_speculation count;
};

lace_speculator_options lace_speculator_options_default(void)
{
    return (lace_speculator_options){.n_draft = 8};
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status check_options(const lace_session *s, int32_t sequence,
                                 const lace_speculator_options *o, lace_error *err)
{
    if (sequence < 0 || sequence >= s->options.n_sequences)
        return error_set(err, LACE_E_ARG, "sequence is %d, expected 0 to %d", sequence,
                         s->options.n_sequences - 1);
    if (o->n_draft < 1 || o->n_draft > GUESS_MOST)
        return error_set(err, LACE_E_ARG, "n_draft is %d, expected 1 to %d", o->n_draft,
                         GUESS_MOST);
    if (o->n_draft >= s->options.n_outputs || o->n_draft >= s->options.n_batch)
        return error_set(err, LACE_E_ARG,
                         "n_draft is %d, expected less than the session's n_outputs (%d) and "
                         "n_batch (%d)",
                         o->n_draft, s->options.n_outputs, s->options.n_batch);
    if (o->use_mtp && !s->predictor)
        return error_set(err, LACE_E_ARG,
                         "use_mtp of a speculator needs a session that was made with use_mtp");
    if (o->draft == s)
        return error_set(err, LACE_E_ARG, "a session cannot be its own draft");
    return LACE_OK;
}

lace_status lace_speculator_create(lace_session *s, int32_t sequence,
                                   const lace_speculator_options *options, lace_speculator **out,
                                   lace_error *err)
{
    *out = NULL;
    lace_speculator_options o = options ? *options : lace_speculator_options_default();
    TRY(check_options(s, sequence, &o, err));
    lace_speculator *sp = mem_calloc(1, sizeof *sp);
    if (!sp)
        return error_nomem(err, "a speculator");
    sp->session = s;
    sp->sequence = sequence;
    sp->guess = guess_none();
    lace_status status =
        guess_source_init(&sp->source, s->model, o.draft, 1, o.use_lookup, o.n_draft, err);
    sp->source.predictor = status == LACE_OK && o.use_mtp ? s->predictor : NULL;
    sp->text = mem_calloc((size_t)s->options.n_context, sizeof *sp->text);
    if (status == LACE_OK && !sp->text)
        status = error_nomem(err, "a speculator");
    return GIVE_OR_FREE(status, sp, out, lace_speculator_free);
}

void lace_speculator_free(lace_speculator *sp)
{
    if (!sp)
        return;
    if (lace_session_length(sp->session, sp->sequence) > sp->n_text && sp->n_text > 0)
        lace_session_truncate(sp->session, sp->sequence, sp->n_text, NULL);
    guess_source_deinit(&sp->source);
    mem_free(sp->text);
    mem_free(sp);
}

lace_status lace_speculator_begin(lace_speculator *sp, const lace_token *tokens, size_t n_tokens,
                                  lace_error *err)
{
    int32_t n = lace_session_length(sp->session, sp->sequence);
    if (n == 0 || n_tokens != (size_t)n || sp->session->n_logits == 0)
        return error_set(err, LACE_E_ARG,
                         "%zu tokens are given, the sequence holds %d with %d rows of logits",
                         n_tokens, n, sp->session->n_logits);
    lace_speculator_count(sp, &sp->count); /* what is left of an earlier text */
    memcpy(sp->text, tokens, n_tokens * sizeof *tokens);
    sp->n_text = n;
    sp->guess.n = sp->guess.n_right = 0;
    sp->row = (size_t)sp->session->n_logits - 1;
    return LACE_OK;
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

const float *lace_speculator_logits(const lace_speculator *sp)
{
    return lace_session_logits(sp->session, sp->row);
}

static lace_status eval_with_guesses(lace_speculator *sp, lace_token token, lace_error *err)
{
    lace_item items[1 + GUESS_MOST];
    for (int32_t i = 0; i <= sp->guess.n; i++)
        items[i] = (lace_item){.token = i == 0 ? token : sp->guess.tokens[i - 1],
                               .sequence = sp->sequence,
                               .want_logits = true};
    return lace_session_eval(sp->session, items, (size_t)(1 + sp->guess.n), err);
}

/* The guesses that are left are wrong; new ones are made, and evaluated with the token. */
static lace_status begin_anew(lace_speculator *sp, lace_token token, lace_error *err)
{
    int32_t n_right = sp->guess.n_right, n_judged = guess_judge(&sp->source, &sp->guess, true);
    sp->count.n_guessed += (uint64_t)n_judged;
    sp->count.n_accepted += (uint64_t)n_right;
    TRY(lace_session_truncate(sp->session, sp->sequence, sp->n_text, err));
    sp->text[sp->n_text] = token;
    guess_request request = {.to = &sp->guess,
                             .text = sp->text,
                             .n_text = sp->n_text + 1,
                             .sequence = sp->sequence,
                             .most = sp->session->options.n_context - sp->n_text - 1};
    TRY(guess_make(&sp->source, &request, 1, err));
    if (sp->guess.n > 0)
        session_mark(sp->session, sp->sequence);
    TRY(eval_with_guesses(sp, token, err));
    sp->row = 0;
    sp->count.n_evals++;
    return LACE_OK;
}

lace_status lace_speculator_push(lace_speculator *sp, lace_token token, lace_error *err)
{
    if (sp->n_text >= sp->session->options.n_context)
        return error_set(err, LACE_E_CONTEXT, "the context of %d tokens is full",
                         sp->session->options.n_context);
    if (guess_next(&sp->guess) == token) {
        sp->text[sp->n_text] = token;
        sp->guess.n_right++;
        sp->row++;
    } else {
        TRY(begin_anew(sp, token, err));
    }
    sp->n_text++;
    sp->count.n_tokens++;
    return LACE_OK;
}

void lace_speculator_count(const lace_speculator *sp, lace_speculation *out)
{
    *out = sp->count;
    /* Guesses that nobody has judged yet count as far as they were right. */
    out->n_guessed += (uint64_t)sp->guess.n_right;
    out->n_accepted += (uint64_t)sp->guess.n_right;
}
