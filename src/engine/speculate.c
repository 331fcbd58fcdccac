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
 * Guesses come from the text itself (where its last tokens stood before, what followed?), or from a
 * smaller model. How many are made follows what was accepted: two more after all were, one more
 * than were right otherwise.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

enum {
    MAX_DRAFT = 32,    /* as far back as every cache can go */
    LONGEST_MATCH = 4, /* tokens that must stand before, from the longest to the shortest */
    SHORTEST_MATCH = 2,
};

struct lace_speculator {
    lace_session *session, *draft;
    int32_t sequence;
    bool use_lookup;
    int32_t n_draft, n_now; /* the most to guess; how many to guess next */

    lace_token *text; /* [n_context] */
    int32_t n_text;
    lace_token guesses[MAX_DRAFT];
    int32_t n_guesses,
        n_right; /* of the last evaluation; how many of them are in the text by now */
    size_t row;  /* of the session's logits: the next token's */

    lace_token *held; /* [n_context of the draft] what the draft's sequence holds */
    int32_t n_held;
    lace_item *items; /* [n_context] */

    lace_speculation count;
};

lace_speculator_options lace_speculator_options_default(void)
{
    return (lace_speculator_options){.n_draft = 8};
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* A token of one model must mean the same to the other. */
static lace_status check_vocabulary(const lace_model *a, const lace_model *b, lace_error *err)
{
    int32_t n_a = a->n_vocab, n_b = b->n_vocab;
    if (!a->tokens || !b->tokens) {
        if (n_a == n_b)
            return LACE_OK;
        return error_set(
            err, LACE_E_VOCAB,
            "the draft model computes %d tokens, the model %d: it cannot be a draft for this model",
            n_b, n_a);
    }
    size_t n = tokenizer_n_tokens(a->tokens);
    if (n != tokenizer_n_tokens(b->tokens))
        return error_set(
            err, LACE_E_VOCAB,
            "the draft model has %zu tokens, the model %zu: it cannot be a draft for this model",
            tokenizer_n_tokens(b->tokens), n);
    for (lace_token i = 0; (size_t)i < n; i++) {
        text x = tokenizer_token_bytes(a->tokens, i), y = tokenizer_token_bytes(b->tokens, i);
        if (!text_equals(x, y))
            return error_set(err, LACE_E_VOCAB,
                             "the draft model has another vocabulary: its token %d is \"%.*s\", "
                             "the model's \"%.*s\"",
                             i, text_width(y), y.data, text_width(x), x.data);
    }
    return LACE_OK;
}

static lace_status check_options(const lace_session *s, int32_t sequence,
                                 const lace_speculator_options *o, lace_error *err)
{
    if (sequence < 0 || sequence >= s->options.n_sequences)
        return error_set(err, LACE_E_ARG, "sequence is %d, expected 0 to %d", sequence,
                         s->options.n_sequences - 1);
    if (o->n_draft < 1 || o->n_draft > MAX_DRAFT)
        return error_set(err, LACE_E_ARG, "n_draft is %d, expected 1 to %d", o->n_draft, MAX_DRAFT);
    if (o->n_draft >= s->options.n_outputs || o->n_draft >= s->options.n_batch)
        return error_set(err, LACE_E_ARG,
                         "n_draft is %d, expected less than the session's n_outputs (%d) and "
                         "n_batch (%d)",
                         o->n_draft, s->options.n_outputs, s->options.n_batch);
    if (o->draft == s)
        return error_set(err, LACE_E_ARG, "a session cannot be its own draft");
    return o->draft ? check_vocabulary(s->model, o->draft->model, err) : LACE_OK;
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
    sp->draft = o.draft;
    sp->sequence = sequence;
    sp->use_lookup = o.use_lookup;
    sp->n_draft = o.n_draft;
    sp->n_now = (o.n_draft + 1) / 2;
    sp->text = mem_calloc((size_t)s->options.n_context, sizeof *sp->text);
    sp->items = mem_calloc((size_t)s->options.n_context, sizeof *sp->items);
    if (o.draft)
        sp->held = mem_calloc((size_t)o.draft->options.n_context, sizeof *sp->held);
    if (!sp->text || !sp->items || (o.draft && !sp->held)) {
        lace_speculator_free(sp);
        return error_nomem(err, "a speculator");
    }
    *out = sp;
    return LACE_OK;
}

void lace_speculator_free(lace_speculator *sp)
{
    if (!sp)
        return;
    if (lace_session_length(sp->session, sp->sequence) > sp->n_text && sp->n_text > 0)
        lace_session_truncate(sp->session, sp->sequence, sp->n_text, NULL);
    mem_free(sp->text);
    mem_free(sp->items);
    mem_free(sp->held);
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
    sp->n_guesses = sp->n_right = 0;
    sp->row = (size_t)sp->session->n_logits - 1;
    return LACE_OK;
}

/* ---- Guesses --------------------------------------------------------------------------------- */

/* What followed the last place where the text's last tokens stood before. Returns how many. */
static int32_t look_up(lace_speculator *sp, int32_t n_text, int32_t most)
{
    const lace_token *t = sp->text;
    int32_t longest = LONGEST_MATCH < n_text - 1 ? LONGEST_MATCH : n_text - 1;
    for (int32_t n = longest; n >= SHORTEST_MATCH; n--) {
        const lace_token *last = t + n_text - n;
        for (int32_t at = n_text - n - 1; at >= 0; at--) {
            if (t[at] != last[0] || memcmp(t + at, last, (size_t)n * sizeof *t) != 0)
                continue;
            int32_t from = at + n, count = n_text - from < most ? n_text - from : most;
            memcpy(sp->guesses, t + from, (size_t)count * sizeof *t);
            return count;
        }
    }
    return 0;
}

static lace_token find_top(const float *logits, int32_t n)
{
    lace_token top = 0;
    for (lace_token i = 1; i < n; i++)
        if (logits[i] > logits[top])
            top = i;
    return top;
}

/* Let the draft's sequence hold the text, and compute what it would say next. */
static lace_status catch_up(lace_speculator *sp, int32_t n_text, lace_error *err)
{
    int32_t n = 0;
    while (n < sp->n_held && n < n_text - 1 && sp->held[n] == sp->text[n])
        n++;
    lace_status status = lace_session_truncate(sp->draft, 0, n, err);
    if (status == LACE_E_UNSUPPORTED) { /* layers with a window cannot go back so far */
        n = 0;
        status = lace_session_truncate(sp->draft, 0, 0, err);
    }
    TRY(status);
    sp->n_held = n;
    for (int32_t i = n; i < n_text; i++)
        sp->items[i - n] = (lace_item){.token = sp->text[i], .want_logits = i + 1 == n_text};
    TRY(lace_session_eval(sp->draft, sp->items, (size_t)(n_text - n), err));
    memcpy(sp->held + n, sp->text + n, (size_t)(n_text - n) * sizeof *sp->text);
    sp->n_held = n_text;
    return LACE_OK;
}

static lace_status ask_draft(lace_speculator *sp, int32_t n_text, int32_t most, int32_t *n_out,
                             lace_error *err)
{
    int32_t n_known = sp->session->model->m->config.n_vocab;
    int32_t n_vocab = sp->draft->model->m->config.n_vocab;
    *n_out = 0;
    if (n_text + most > sp->draft->options.n_context)
        return LACE_OK; /* a shorter context than the model's: no more guesses */
    TRY(catch_up(sp, n_text, err));
    while (*n_out < most) {
        lace_token guess = find_top(lace_session_logits(sp->draft, 0), n_vocab);
        if (guess >= n_known)
            return LACE_OK; /* padding that only the draft has */
        sp->guesses[(*n_out)++] = guess;
        if (*n_out == most || lace_token_is_end(sp->draft->model, guess))
            return LACE_OK;
        lace_item item = {.token = guess, .want_logits = true};
        TRY(lace_session_eval(sp->draft, &item, 1, err));
        sp->held[sp->n_held++] = guess;
    }
    return LACE_OK;
}

/* Guesses for what follows the first n_text tokens of the text. */
static lace_status guess(lace_speculator *sp, int32_t n_text, lace_error *err)
{
    int32_t room = sp->session->options.n_context - n_text;
    int32_t most = sp->n_now < room ? sp->n_now : room;
    sp->n_guesses = sp->n_right = 0;
    if (most < 1)
        return LACE_OK;
    if (sp->use_lookup)
        sp->n_guesses = look_up(sp, n_text, most);
    if (sp->n_guesses > 0 || !sp->draft)
        return LACE_OK;
    return ask_draft(sp, n_text, most, &sp->n_guesses, err);
}

/* The last guesses are judged: count them, and learn how many to make next. */
static void judge(lace_speculator *sp)
{
    if (sp->n_guesses == 0)
        return;
    sp->count.n_guessed += (uint64_t)sp->n_guesses;
    sp->count.n_accepted += (uint64_t)sp->n_right;
    sp->n_now = sp->n_right == sp->n_guesses ? sp->n_now + 2 : sp->n_right + 1;
    if (sp->n_now > sp->n_draft)
        sp->n_now = sp->n_draft;
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

const float *lace_speculator_logits(const lace_speculator *sp)
{
    return lace_session_logits(sp->session, sp->row);
}

static lace_status eval_with_guesses(lace_speculator *sp, lace_token token, lace_error *err)
{
    lace_item items[1 + MAX_DRAFT];
    for (int32_t i = 0; i <= sp->n_guesses; i++)
        items[i] = (lace_item){.token = i == 0 ? token : sp->guesses[i - 1],
                               .sequence = sp->sequence,
                               .want_logits = true};
    return lace_session_eval(sp->session, items, (size_t)(1 + sp->n_guesses), err);
}

lace_status lace_speculator_push(lace_speculator *sp, lace_token token, lace_error *err)
{
    if (sp->n_text >= sp->session->options.n_context)
        return error_set(err, LACE_E_CONTEXT, "the context of %d tokens is full",
                         sp->session->options.n_context);
    if (sp->n_right < sp->n_guesses && sp->guesses[sp->n_right] == token) {
        sp->text[sp->n_text++] = token;
        sp->n_right++;
        sp->row++;
    } else {
        judge(sp);
        sp->n_guesses = sp->n_right = 0;
        TRY(lace_session_truncate(sp->session, sp->sequence, sp->n_text, err));
        sp->text[sp->n_text] = token;
        TRY(guess(sp, sp->n_text + 1, err));
        TRY(eval_with_guesses(sp, token, err));
        sp->n_text++;
        sp->row = 0;
        sp->count.n_evals++;
    }
    sp->count.n_tokens++;
    return LACE_OK;
}

void lace_speculator_count(const lace_speculator *sp, lace_speculation *out)
{
    *out = sp->count;
    /* Guesses that nobody has judged yet count as far as they were right. */
    out->n_guessed += (uint64_t)sp->n_right;
    out->n_accepted += (uint64_t)sp->n_right;
}
