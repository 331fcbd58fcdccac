/* One generation: choosing tokens, turning them into text, and knowing where the text ends. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/generation.h"
#include "engine/image.h"

enum {
    MAX_STOPS = 64,
    MAX_STOP_BYTES = 1024,
    MAX_BIASES = 1 << 20,
    MAX_REPLY_BYTES = 1 << 28, /* of text that waits to be given out */
    CONTEXT_TOKENS = 8,        /* of the prompt that the decoder sees first */
};

lace_generation_options lace_generation_options_default(void)
{
    return (lace_generation_options){
        .sampler = lace_sampler_options_default(),
        .max_tokens = -1,
        .reasoning = {.max_tokens = -1},
        .n_top = -1,
        .use_prefixes = true,
        .n_adapters = -1,
    };
}

const char *lace_cut_text(lace_cut cut)
{
    return cut == LACE_CUT_BUDGET ? "budget" : cut == LACE_CUT_LOOP ? "repetition" : "";
}

const char *lace_reuse_text(lace_reuse_end end)
{
    static const char *const texts[] = {"off", "all", "new", "differs", "given up"};
    size_t n = sizeof texts / sizeof texts[0];
    return (size_t)end < n ? texts[end] : "";
}

/* ---- Making one ------------------------------------------------------------------------------ */

static lace_status check_tokens(const char *what, const lace_token *tokens, size_t n,
                                int32_t n_vocab, lace_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return error_set(err, LACE_E_ARG, "%s %zu is token %d, expected 0 to %d", what, i,
                             tokens[i], n_vocab - 1);
    return LACE_OK;
}

/* The rows of an image, at this place of the prompt. */
static bool is_image(const lace_token *tokens, size_t n, const lace_image *image)
{
    lace_token row[64];
    for (int32_t i = 0; i < image->n; i += 64) {
        int32_t some = image->n - i < 64 ? image->n - i : 64;
        if (n < (size_t)(i + some))
            return false;
        image_tokens_of(image, i, some, row);
        if (memcmp(tokens + i, row, (size_t)some * sizeof *row) != 0)
            return false;
    }
    return true;
}

/* Where the images are; `spans` may be NULL. All else are tokens. */
static lace_status find_images(const lace_generation_options *o, int32_t n_vocab, image_span *spans,
                               lace_error *err)
{
    size_t at = 0, k = 0;
    while (at < o->n_prompt) {
        if (o->prompt[at] >= IMAGE_TOKENS) {
            TRY(check_tokens("prompt", o->prompt + at, 1, n_vocab, err));
            at++;
            continue;
        }
        if (k == o->n_images || !is_image(o->prompt + at, o->n_prompt - at, o->images[k]))
            return error_set(err, LACE_E_ARG,
                             "prompt %zu is a row of an image, and not of image %zu of %zu", at, k,
                             o->n_images);
        if (spans)
            spans[k] = image_span_of(o->images[k], (int32_t)at);
        at += (size_t)o->images[k++]->n;
    }
    if (k < o->n_images)
        return error_set(err, LACE_E_ARG, "the prompt has %zu of its %zu images", k, o->n_images);
    return LACE_OK;
}

static lace_status check_prompt(const lace_generation_options *o, const lace_token *tokens,
                                size_t n, int32_t n_vocab, int32_t n_context, bool fills_context,
                                lace_error *err)
{
    int32_t room = n_context - !fills_context;
    if (n == 0)
        return error_set(err, LACE_E_ARG, "the prompt is empty");
    if (n > (size_t)room)
        return error_set(
            err, LACE_E_CONTEXT,
            "the prompt has %zu tokens, but the context of %d tokens has room for %d and a reply",
            n, n_context, room);
    return o ? find_images(o, n_vocab, NULL, err) : check_tokens("prompt", tokens, n, n_vocab, err);
}

static lace_status check_options(const lace_generation_options *o, int32_t n_vocab,
                                 int32_t n_context, lace_error *err)
{
    TRY(check_prompt(o, o->prompt, o->n_prompt, n_vocab, n_context, o->fills_context, err));
    TRY(check_tokens("stop", o->stop_tokens, o->n_stop_tokens, n_vocab, err));
    if (o->max_tokens < -1 || o->min_tokens < 0 || o->n_top < -1 || o->n_top > LACE_MAX_TOP)
        return error_set(err, LACE_E_ARG,
                         "max_tokens %d, min_tokens %d or n_top %d is out of range", o->max_tokens,
                         o->min_tokens, o->n_top);
    if (o->n_stops > MAX_STOPS || o->n_biases > MAX_BIASES)
        return error_set(err, LACE_E_ARG, "there are more than %d stops or %d biases", MAX_STOPS,
                         MAX_BIASES);
    const lace_reasoning *r = &o->reasoning;
    const char *words[] = {r->begin, r->end};
    for (size_t i = 0; i < 2; i++)
        if (words[i] && (!words[i][0] || strlen(words[i]) > WATCH_WORD))
            return error_set(err, LACE_E_ARG, "a word around reasoning has not 1 to %d bytes",
                             WATCH_WORD);
    TRY(check_tokens("closing", r->closing, r->n_closing, n_vocab, err));
    for (size_t i = 0; i < o->n_stops; i++)
        if (o->stops[i][0] == 0 || strlen(o->stops[i]) > MAX_STOP_BYTES)
            return error_set(err, LACE_E_ARG, "stop %zu has %zu bytes, expected 1 to %d", i,
                             strlen(o->stops[i]), MAX_STOP_BYTES);
    for (size_t i = 0; i < o->n_biases; i++) {
        TRY(check_tokens("bias", &o->biases[i].token, 1, n_vocab, err));
        if (isnan(o->biases[i].bias) || o->biases[i].bias == INFINITY)
            return error_set(err, LACE_E_ARG, "the bias of token %d is not a number",
                             o->biases[i].token);
    }
    return LACE_OK;
}

/* A copy in the generation's memory; of nothing, something that is not NULL. */
static void *keep(lace_generation *g, const void *data, size_t n, size_t size)
{
    if (n == 0)
        return g;
    void *copy = arena_alloc(&g->memory, n, size);
    if (copy)
        memcpy(copy, data, n * size);
    return copy;
}

static bool copy_options(lace_generation *g)
{
    lace_generation_options *o = &g->options;
    const char **stops = keep(g, o->stops, o->n_stops, sizeof *stops);
    bool is_complete =
        stops && (o->stop_tokens = keep(g, o->stop_tokens, o->n_stop_tokens, sizeof(lace_token))) &&
        (o->biases = keep(g, o->biases, o->n_biases, sizeof(lace_bias)));
    lace_reasoning *r = &o->reasoning;
    const char **words[] = {&r->begin, &r->end};
    for (size_t i = 0; is_complete && i < 2; i++)
        is_complete = !*words[i] ||
                      (*words[i] = arena_strndup(&g->memory, *words[i], strlen(*words[i]))) != NULL;
    is_complete =
        is_complete && (r->closing = keep(g, r->closing, r->n_closing, sizeof(lace_token)));
    for (size_t i = 0; is_complete && i < o->n_stops; i++)
        is_complete = (stops[i] = arena_strndup(&g->memory, stops[i], strlen(stops[i]))) != NULL;
    o->stops = stops;
    return is_complete;
}

static bool needs_editing(const lace_generation_options *o)
{
    return o->n_biases > 0 || o->ignore_end || o->min_tokens > 0 || o->grammar;
}

/*
 * The decoder must know what came before, as some tokenizers write a token's space only inside a
 * text; the penalties count the prompt, too.
 */
static lace_status show_prompt(lace_generation *g, lace_error *err)
{
    const lace_sampler_options *o = &g->options.sampler;
    int32_t last_n = o->penalty_last_n;
    if (o->dry_multiplier > 0 && o->dry_last_n > last_n)
        last_n = o->dry_last_n;
    int32_t from = g->n_tokens > last_n ? g->n_tokens - last_n : 0;
    for (int32_t i = from; i < g->n_tokens; i++)
        if (g->tokens[i] >= 0)
            lace_sampler_accept(g->sampler, g->tokens[i]);
    from = g->n_tokens > CONTEXT_TOKENS ? g->n_tokens - CONTEXT_TOKENS : 0;
    text seen;
    for (int32_t i = from; i < g->n_tokens; i++)
        if (g->tokens[i] >= 0)
            TRY(decoder_push(g->decoder, g->tokens[i], &seen, err));
    return LACE_OK;
}

static lace_status choose_adapters(lace_generation *g, lace_error *err)
{
    lace_generation_options *o = &g->options;
    size_t n = (size_t)g->model->m->n_adapters;
    g->adapter_scales = arena_alloc(&g->memory, n + 1, sizeof *g->adapter_scales);
    if (!g->adapter_scales)
        return error_nomem(err, "a generation");
    TRY(adapters_choose(g->model, o->adapters, o->n_adapters, g->adapter_scales, err));
    o->adapters = NULL;
    return adapters_owner(g->model, g->adapter_scales, o->owner, &g->owner)
               ? LACE_OK
               : error_nomem(err, "a generation");
}

/* Images of the prompt, which the generation holds from now on. */
static lace_status take_images(lace_generation *g, lace_error *err)
{
    const lace_generation_options *o = &g->options;
    g->spans = arena_alloc(&g->memory, o->n_images + 1, sizeof *g->spans);
    g->images = arena_alloc(&g->memory, o->n_images + 1, sizeof *g->images);
    if (!g->spans || !g->images)
        return error_nomem(err, "a generation");
    TRY(find_images(o, g->n_vocab, g->spans, err));
    for (size_t i = 0; i < o->n_images; i++)
        g->images[g->n_images++] = image_ref(o->images[i]);
    g->options.images = NULL;
    if (g->n_images > 0) /* other tokens would be without them */
        g->options.on_full = NULL;
    return LACE_OK;
}

int32_t generation_cut(const lace_generation *g, int32_t at, int32_t n, int32_t room)
{
    for (int32_t i = 0; i < g->n_images; i++) {
        const image_span *s = &g->spans[i];
        int32_t end = s->start + s->n;
        if (at + n <= s->start || at + n >= end)
            continue;
        return s->start > at ? s->start - at : end - at <= room ? end - at : 0;
    }
    return n;
}

static lace_status fill(lace_generation *g, lace_error *err)
{
    const lace_generation_options *o = &g->options;
    g->n_tokens = (int32_t)o->n_prompt;
    g->capacity = g->n_tokens + 64;
    g->tokens = mem_calloc((size_t)g->capacity, sizeof *g->tokens);
    if (needs_editing(o))
        g->logits = mem_calloc((size_t)g->n_vocab, sizeof *g->logits);
    if (!g->tokens || !copy_options(g) || (needs_editing(o) && !g->logits))
        return error_nomem(err, "a generation");
    memcpy(g->tokens, o->prompt, o->n_prompt * sizeof *g->tokens);
    TRY(take_images(g, err));
    g->options.prompt = NULL;
    TRY(choose_adapters(g, err));
    if (o->grammar) /* which has no place for what closes reasoning */
        g->options.reasoning = (lace_reasoning){.max_tokens = -1};
    watch_init(&g->watch, &g->options.reasoning, o->breaks_loops);
    TRY(lace_sampler_create(&o->sampler, g->n_vocab, &g->sampler, err));
    if (o->grammar)
        TRY(lace_grammar_state_create(o->grammar, &g->form, err));
    g->options.grammar = NULL; /* the state has what it needs */
    if (g->model->tokens) {
        TRY(decoder_create(g->model->tokens, o->show_special, &g->decoder, err));
        TRY(show_prompt(g, err));
    }
    return LACE_OK;
}

lace_status generation_create(const lace_model *lm, const lace_generation_options *options,
                              int32_t n_context, const lace_token *ends, size_t n_ends,
                              lace_generation **out, lace_error *err)
{
    *out = NULL;
    int32_t n_vocab = lm->n_vocab;
    TRY(check_options(options, n_vocab, n_context, err));
    lace_generation *g = mem_calloc(1, sizeof *g);
    if (!g)
        return error_nomem(err, "a generation");
    g->model = lm;
    g->options = *options;
    g->n_context = n_context + options->fills_context;
    g->guess = guess_none();
    g->n_vocab = n_vocab;
    g->ends = ends;
    g->n_ends = n_ends;
    g->sequence = g->row = g->token = -1;
    g->stats.n_prompt = (int32_t)options->n_prompt;
    g->added_ns = clock_ns();
    arena_init(&g->memory, SIZE_MAX);
    buf_init(&g->text, MAX_REPLY_BYTES);
    lace_status status = fill(g, err);
    return GIVE_OR_FREE(status, g, out, generation_free);
}

void generation_free(lace_generation *g)
{
    if (!g)
        return;
    for (int32_t i = 0; i < g->n_images; i++)
        lace_image_free(g->images[i]);
    lace_sampler_free(g->sampler);
    lace_grammar_state_free(g->form);
    decoder_free(g->decoder);
    buf_deinit(&g->text);
    arena_deinit(&g->memory);
    mem_free_all(g->logits, g->kept_logits, g->tokens, g);
}

/* ---- Choosing -------------------------------------------------------------------------------- */

void generation_fail(lace_generation *g, lace_status status, const lace_error *err)
{
    g->finish = LACE_FINISH_ERROR;
    if (err && err->text[0])
        g->error = *err;
    else
        error_set(&g->error, status, "%s", lace_status_text(status));
    g->error.status = status;
}

/* Whether the token behind the next n_ahead may not be one that ends the text. */
static bool bans_end(const lace_generation *g, int32_t n_ahead)
{
    return g->options.ignore_end || g->stats.n_generated + n_ahead < g->options.min_tokens;
}

static lace_status edit_logits(lace_generation *g, const float *logits, work_limit *limit,
                               const float **out, lace_error *err)
{
    const lace_generation_options *o = &g->options;
    *out = g->logits ? g->logits : logits;
    if (!g->logits)
        return LACE_OK;
    memcpy(g->logits, logits, (size_t)g->n_vocab * sizeof *logits);
    for (size_t i = 0; i < o->n_biases; i++)
        g->logits[o->biases[i].token] += o->biases[i].bias;
    if (bans_end(g, 0)) {
        for (size_t i = 0; i < g->n_ends; i++)
            g->logits[g->ends[i]] = -INFINITY;
        for (size_t i = 0; i < o->n_stop_tokens; i++)
            g->logits[o->stop_tokens[i]] = -INFINITY;
    }
    return g->form ? grammar_state_mask_within(g->form, limit, g->logits, err) : LACE_OK;
}

/* Keep the best n_top, best first, by insertion: n_top is small and most tokens
 * are not among them. */
static void rank_tokens(lace_generation *g, const float *logits)
{
    size_t n_top = (size_t)g->options.n_top, n = 0;
    if (n_top > (size_t)g->n_vocab)
        n_top = (size_t)g->n_vocab;
    for (int32_t t = 0; n_top > 0 && t < g->n_vocab; t++) {
        if (n == n_top && !(logits[t] > g->top[n - 1].logprob))
            continue;
        size_t at = n < n_top ? n++ : n - 1;
        for (; at > 0 && g->top[at - 1].logprob < logits[t]; at--)
            g->top[at] = g->top[at - 1];
        g->top[at] = (lace_logprob){t, logits[t]};
    }
    g->n_top = n;
}

static void find_logprobs(lace_generation *g, const float *logits)
{
    float max = logits[0];
    for (int32_t i = 1; i < g->n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    double sum = 0;
    for (int32_t i = 0; i < g->n_vocab; i++)
        sum += (double)expf(logits[i] - max);
    float norm = max + (float)log(sum);
    rank_tokens(g, logits);
    g->logprob = logits[g->token] - norm;
    for (size_t i = 0; i < g->n_top; i++)
        g->top[i].logprob -= norm;
}

/* Room for n tokens in all. */
static bool reserve_tokens(lace_generation *g, int32_t n)
{
    if (n <= g->capacity)
        return true;
    int32_t more = g->capacity + g->capacity / 2;
    more = more > n ? more : n;
    lace_token *grown = mem_realloc(g->tokens, (size_t)more * sizeof *grown);
    if (!grown)
        return false;
    g->tokens = grown;
    g->capacity = more;
    return true;
}

static bool append_token(lace_generation *g, lace_token token)
{
    if (!reserve_tokens(g, g->n_tokens + 1))
        return false;
    g->tokens[g->n_tokens++] = token;
    return true;
}

/* The first stop in the text, and where; NULL if there is none. */
static const char *find_stop(const lace_generation *g, size_t *at)
{
    const char *found = NULL;
    for (size_t i = 0; i < g->options.n_stops; i++) {
        const char *stop = g->options.stops[i];
        size_t n = strlen(stop);
        for (size_t j = 0; j + n <= g->text.size && (!found || j < *at); j++)
            if (memcmp(g->text.data + j, stop, n) == 0) {
                found = stop;
                *at = j;
            }
    }
    return found;
}

/* Bytes at the end of the text that may be the beginning of a stop. */
static size_t count_held(const lace_generation *g)
{
    size_t held = 0;
    for (size_t i = 0; i < g->options.n_stops; i++) {
        const char *stop = g->options.stops[i];
        size_t n = strlen(stop) - 1;
        for (n = n < g->text.size ? n : g->text.size; n > held; n--)
            if (memcmp(g->text.data + g->text.size - n, stop, n) == 0)
                held = n;
    }
    return held;
}

static bool is_listed(const lace_token *list, size_t n, lace_token token)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == token)
            return true;
    return false;
}

static void note_progress(lace_generation *g, text piece)
{
    int32_t n = g->stats.n_generated, kept = g->n_tokens < n ? g->n_tokens : n;
    watch_note(&g->watch, g->tokens + g->n_tokens - kept, kept, piece);
    g->stats.reasoning_cut = g->watch.reasoning_cut;
    g->stats.text_cut = g->watch.text_cut;
}

/* Text that the token completes goes to g->text; looks for stops in it. */
static lace_status add_text(lace_generation *g, bool is_last, lace_error *err)
{
    text piece = {"", 0};
    if (g->decoder && !is_last)
        TRY(decoder_push(g->decoder, g->token, &piece, err));
    else if (g->decoder)
        TRY(decoder_flush(g->decoder, &piece, err));
    TRY(buf_append(&g->text, piece.data, piece.size));
    if (!is_last)
        note_progress(g, piece);
    size_t at = 0;
    const char *stop = find_stop(g, &at);
    if (stop) {
        g->stop = stop;
        g->finish = LACE_FINISH_STOP;
        g->text.size = at;
    }
    return LACE_OK;
}

/* Where the text ends, unless a stop has ended it. */
static void find_end(lace_generation *g, bool is_end)
{
    if (g->finish != LACE_FINISH_NONE)
        return;
    int32_t max = g->options.max_tokens;
    if (is_end)
        g->finish = LACE_FINISH_STOP;
    else if (g->stats.text_cut != LACE_CUT_NONE)
        g->finish = LACE_FINISH_LENGTH;
    else if (max >= 0 && g->stats.n_generated >= max)
        g->finish = LACE_FINISH_LENGTH;
    else if (g->n_tokens >= g->n_context && g->options.on_full)
        g->is_full = true;
    else if (g->n_tokens >= g->n_context)
        g->finish = LACE_FINISH_LENGTH;
}

/* Every token of a list is banned by the rule. */
static void add_bans(choice_rule *rule, const lace_token *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rule->edits[rule->n_edits++] = (choice_edit){tokens[i], -INFINITY};
}

/* What edit_logits does, but for the grammar. False if there is too much of it. */
static bool add_edits(const lace_generation *g, int32_t n_ahead, choice_rule *rule)
{
    const lace_generation_options *o = &g->options;
    bool bans_ends = bans_end(g, n_ahead);
    size_t n_bans = bans_ends ? g->n_ends + o->n_stop_tokens : 0;
    if (o->n_biases + n_bans > CHOICE_MAX_EDITS)
        return false;
    for (size_t i = 0; i < o->n_biases; i++)
        rule->edits[rule->n_edits++] = (choice_edit){o->biases[i].token, o->biases[i].bias};
    if (bans_ends) {
        add_bans(rule, g->ends, g->n_ends);
        add_bans(rule, o->stop_tokens, o->n_stop_tokens);
    }
    return true;
}

choice_rule generation_rule(const lace_generation *g, int32_t n_ahead)
{
    choice_rule rule = {0};
    bool is_plain = !g->form && g->options.n_top < 0 && watch_free(&g->watch) > n_ahead &&
                    session_rule(g->sampler, &rule) &&
                    (!g->ahead.session || session_follows(g->ahead.session, &rule)) &&
                    add_edits(g, n_ahead, &rule);
    rule.goes_on = is_plain && n_ahead > 0;
    return is_plain ? rule : (choice_rule){.temperature = -1};
}

/* The model gave a choice, but the request's biases and its grammar leave none of it. */
static bool is_all_forbidden(const lace_generation *g, const float *logits, const float *edited)
{
    if (edited == logits)
        return false;
    bool is_possible = false;
    for (int32_t i = 0; i < g->n_vocab; i++) {
        if (edited[i] != -INFINITY)
            return false;
        is_possible = is_possible || logits[i] > -INFINITY;
    }
    return is_possible;
}

static lace_status choose_token(lace_generation *g, int32_t word, const float *logits,
                                work_limit *limit, lace_error *err)
{
    lace_token forced = watch_forced(&g->watch);
    g->was_forced = forced >= 0;
    if (g->was_forced) {
        g->token = forced;
    } else if (word == CHOICE_REFUSED) {
        const float *edited;
        TRY(edit_logits(g, logits, limit, &edited, err));
        if (is_all_forbidden(g, logits, edited))
            return error_set(err, LACE_E_ARG,
                             "no token is left: the request's biases and constraints forbid all %d",
                             g->n_vocab);
        TRY(lace_sampler_sample(g->sampler, edited, &g->token, err));
    } else {
        g->token = (word & CHOICE_TOKEN) - 1;
        if (word & CHOICE_DREW)
            sampler_skip_draw(g->sampler);
    }
    lace_sampler_accept(g->sampler, g->token);
    if (g->options.n_top >= 0)
        find_logprobs(g, logits);
    return LACE_OK;
}

static lace_status choose(lace_generation *g, int32_t word, const float *logits, work_limit *limit,
                          lace_error *err)
{
    const lace_generation_options *o = &g->options;
    if (o->max_tokens == 0) {
        g->finish = LACE_FINISH_LENGTH;
        return LACE_OK;
    }
    TRY(choose_token(g, word, logits, limit, err));
    if (!append_token(g, g->token))
        return error_nomem(err, "tokens");
    g->stats.n_generated++;
    bool is_end = is_listed(g->ends, g->n_ends, g->token) ||
                  is_listed(o->stop_tokens, o->n_stop_tokens, g->token);
    if (!is_end)
        TRY(add_text(g, false, err));
    if (!is_end && g->form) {
        TRY(lace_grammar_state_accept(g->form, g->token, err));
        is_end = lace_grammar_state_is_finished(g->form); /* no need to ask for the end token */
    }
    find_end(g, is_end);
    if (g->finish != LACE_FINISH_NONE && !g->stop)
        TRY(add_text(g, true, err));
    g->n_text = g->text.size - (g->finish == LACE_FINISH_NONE ? count_held(g) : 0);
    return LACE_OK;
}

bool generation_try_choose(lace_generation *g, int32_t word, const float *logits, work_limit *limit)
{
    lace_error err = {0};
    g->token = -1;
    g->logprob = NAN;
    g->n_top = 0;
    lace_status status = choose(g, word, logits, limit, &err);
    if (status == LACE_E_LIMIT && limit && limit->is_over && g->token < 0) {
        generation_fail(g, status, &err); /* for whoever does not try again */
        return false;
    }
    if (status != LACE_OK)
        generation_fail(g, status, &err);
    return true;
}

void generation_choose(lace_generation *g, int32_t word, const float *logits)
{
    generation_try_choose(g, word, logits, NULL);
}

static lace_status set_text(lace_generation *g, const lace_token *tokens, size_t n, lace_error *err)
{
    TRY(check_prompt(NULL, tokens, n, g->n_vocab, g->n_context, false, err));
    if (!reserve_tokens(g, (int32_t)n))
        return error_nomem(err, "tokens");
    memcpy(g->tokens, tokens, n * sizeof *tokens);
    g->n_tokens = g->stats.n_prompt = (int32_t)n;
    g->stats.n_read = 0;
    return LACE_OK;
}

bool generation_refill(lace_generation *g)
{
    lace_error err = {0};
    const lace_token *tokens = NULL;
    size_t n = g->options.on_full(g->options.user, &tokens);
    g->is_full = false;
    if (n == 0)
        g->finish = LACE_FINISH_LENGTH;
    lace_status status = n == 0 ? add_text(g, true, &err) : set_text(g, tokens, n, &err);
    g->n_text = n == 0 ? g->text.size : 0;
    if (status != LACE_OK)
        generation_fail(g, status, &err);
    return g->finish == LACE_FINISH_NONE;
}

bool generation_keep_logits(lace_generation *g, const float *logits)
{
    if (!g->kept_logits)
        g->kept_logits = mem_calloc((size_t)g->n_vocab, sizeof *g->kept_logits);
    if (!g->kept_logits)
        return false;
    memcpy(g->kept_logits, logits, (size_t)g->n_vocab * sizeof *logits);
    return true;
}

void generation_show_prompt(lace_generation *g)
{
    lace_piece piece = {.token = -1, .is_prompt = true, .text = "", .stats = &g->stats};
    if (g->options.on_piece)
        g->options.on_piece(g->options.user, &piece);
}

void generation_deliver(lace_generation *g)
{
    lace_piece piece = {
        .token = g->token,
        .text = g->text.data ? g->text.data : "",
        .n_bytes = g->finish == LACE_FINISH_ERROR ? 0 : g->n_text,
        .logprob = g->logprob,
        .top = g->top,
        .n_top = g->n_top,
        .finish = g->finish,
        .stop = g->stop,
        .error = g->finish == LACE_FINISH_ERROR ? &g->error : NULL,
        .stats = &g->stats,
    };
    if (g->options.on_piece)
        g->options.on_piece(g->options.user, &piece);
    if (g->n_text) {
        memmove(g->text.data, g->text.data + g->n_text, g->text.size - g->n_text);
        g->text.size -= g->n_text;
        g->n_text = 0;
    }
    g->token = -1;
}
