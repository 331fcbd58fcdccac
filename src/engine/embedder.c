/*
 * Embedders: texts to vectors, by sessions that give out hidden states or scores.
 *
 * Texts are put together into batches as they come, whole, until the next one does not fit. Models
 * that are no encoders can read a text that is longer than a batch: it is computed alone, in
 * several evaluations.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

enum { ENCODER_TEXTS = 64, OTHER_TEXTS = 16 };

/* What sessions give out. */
typedef enum result_kind { RESULT_HIDDEN, RESULT_SCORES, N_RESULTS } result_kind;

struct lace_embedder {
    lace_model *model;
    lace_session_options options;      /* with defaults filled in */
    lace_pooling usual;                /* what LACE_POOLING_MODEL stands for */
    lace_session *sessions[N_RESULTS]; /* NULL until it is needed */
    lace_item *items;                  /* [n_batch] */
    int32_t *segments;                 /* [n_batch] */
    double *sum;                       /* [n_embd] */
};

/* Some texts of a run: those from `first` to the one before `end` that are of this kind. */
typedef struct text_group {
    const lace_embed_text *texts;
    size_t first, end;
    result_kind kind;
} text_group;

/* ---- Life ------------------------------------------------------------------------------------ */

lace_embedder_options lace_embedder_options_default(void)
{
    lace_embedder_options o = {.session = lace_session_options_default()};
    o.session.n_sequences = 0;
    return o;
}

/* The options of both sessions, but for what they give out. */
static lace_status fill_options(const lace_model *lm, const lace_embedder_options *given,
                                lace_session_options *out, lace_error *err)
{
    lace_embedder_options o = given ? *given : lace_embedder_options_default();
    lace_session_options *s = &o.session;
    if (!lm->m)
        return error_set(err, LACE_E_ARG, "the model was opened for its vocabulary alone");
    if (s->n_sequences == 0)
        s->n_sequences = lm->m->config.encoder.is_on ? ENCODER_TEXTS : OTHER_TEXTS;
    s->n_outputs = 0;
    s->kv_bytes = 0;
    s->kv_tokens = 0;
    s->wants_hidden = true;
    s->wants_scores = false;
    TRY(session_fill_options(lm, s, out, err));
    out->n_outputs = out->n_batch;
    out->kv_tokens = out->n_batch > out->n_context ? out->n_batch : out->n_context;
    if (lm->m->config.encoder.is_on && out->n_context > out->n_batch)
        out->n_context = out->n_batch;
    return LACE_OK;
}

lace_status lace_embedder_create(lace_model *lm, const lace_embedder_options *options,
                                 lace_embedder **out, lace_error *err)
{
    *out = NULL;
    lace_model_info info;
    lace_embedder *e = mem_calloc(1, sizeof *e);
    if (!e)
        return error_nomem(err, "an embedder");
    e->model = lm;
    lace_model_describe(lm, &info);
    e->usual = info.pooling;
    lace_status status = fill_options(lm, options, &e->options, err);
    if (status == LACE_OK &&
        (!(e->items = mem_calloc((size_t)e->options.n_batch, sizeof *e->items)) ||
         !(e->segments = mem_calloc((size_t)e->options.n_batch, sizeof *e->segments)) ||
         !(e->sum = mem_calloc((size_t)info.n_embd, sizeof *e->sum))))
        status = error_nomem(err, "an embedder");
    return GIVE_OR_FREE(status, e, out, lace_embedder_free);
}

void lace_embedder_free(lace_embedder *e)
{
    if (!e)
        return;
    for (int i = 0; i < N_RESULTS; i++)
        lace_session_free(e->sessions[i]);
    mem_free_all(e->items, e->segments, e->sum, e);
}

int32_t lace_embedder_context(const lace_embedder *e)
{
    return e->options.n_context;
}

int32_t lace_embedder_batch(const lace_embedder *e)
{
    return e->options.n_batch;
}

static lace_status find_session(lace_embedder *e, result_kind kind, lace_session **out,
                                lace_error *err)
{
    if (!e->sessions[kind]) {
        lace_session_options o = e->options;
        o.wants_hidden = kind == RESULT_HIDDEN;
        o.wants_scores = kind == RESULT_SCORES;
        TRY(lace_session_create(e->model, &o, &e->sessions[kind], err));
    }
    *out = e->sessions[kind];
    return LACE_OK;
}

/* ---- Pooling --------------------------------------------------------------------------------- */

static lace_pooling pooling_of(const lace_embedder *e, const lace_embed_text *t)
{
    return t->pooling == LACE_POOLING_MODEL ? e->usual : t->pooling;
}

/* Whether the result of a token is needed. */
static bool is_wanted(lace_pooling pooling, size_t token, size_t n_tokens)
{
    switch (pooling) {
    case LACE_POOLING_CLS:
    case LACE_POOLING_RANK:
        return token == 0;
    case LACE_POOLING_LAST:
        return token + 1 == n_tokens;
    default:
        return true;
    }
}

/* x, n values long, with the length 1; a vector of zeros stays. */
static lace_status finish_vector(float *x, int64_t n, bool normalize, lace_error *err)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        square += (double)x[i] * (double)x[i];
    if (!isfinite(square))
        return error_set(err, LACE_E_NUMERIC, "the embedding is not finite");
    double scale = normalize && square > 0 ? 1 / sqrt(square) : 1;
    for (int64_t i = 0; i < n && scale != 1; i++)
        x[i] = (float)(x[i] * scale);
    return LACE_OK;
}

/* The results of tokens [begin, end) of a text, from result *row of the session on. */
static void pool_rows(lace_embedder *e, const lace_session *s, const lace_embed_text *t,
                      size_t begin, size_t end, size_t *row)
{
    lace_pooling pooling = pooling_of(e, t);
    size_t width = (size_t)runner_width(s->runner);
    if (begin == 0)
        memset(e->sum, 0, width * sizeof *e->sum);
    for (size_t i = begin; i < end; i++) {
        if (!is_wanted(pooling, i, t->n_tokens))
            continue;
        const float *x = lace_session_logits(s, (*row)++);
        if (pooling == LACE_POOLING_MEAN)
            for (size_t k = 0; k < width; k++)
                e->sum[k] += (double)x[k];
        else
            memcpy(t->out + (pooling == LACE_POOLING_NONE ? i * width : 0), x, width * sizeof *x);
    }
    if (end == t->n_tokens && pooling == LACE_POOLING_MEAN)
        for (size_t k = 0; k < width; k++)
            t->out[k] = (float)(e->sum[k] / (double)t->n_tokens);
}

static lace_status finish_text(const lace_embedder *e, const lace_session *s,
                               const lace_embed_text *t, lace_error *err)
{
    lace_pooling pooling = pooling_of(e, t);
    int64_t width = runner_width(s->runner);
    size_t n = pooling == LACE_POOLING_NONE ? t->n_tokens : 1;
    for (size_t i = 0; i < n; i++)
        TRY(finish_vector(t->out + i * (size_t)width, width,
                          t->normalize && pooling != LACE_POOLING_RANK, err));
    return LACE_OK;
}

/* ---- Running --------------------------------------------------------------------------------- */

static result_kind kind_of(const lace_embedder *e, const lace_embed_text *t)
{
    return pooling_of(e, t) == LACE_POOLING_RANK ? RESULT_SCORES : RESULT_HIDDEN;
}

/* Tokens [begin, end) of a text as items from `at` on. */
static void put_items(const lace_embedder *e, const lace_embed_text *t, size_t begin, size_t end,
                      int32_t sequence, size_t at)
{
    lace_pooling pooling = pooling_of(e, t);
    bool has_segments = e->model->m->config.encoder.n_segments > 1 && t->n_first > 0;
    for (size_t i = begin; i < end; i++, at++) {
        e->items[at] = (lace_item){.token = t->tokens[i],
                                   .sequence = sequence,
                                   .want_logits = is_wanted(pooling, i, t->n_tokens)};
        e->segments[at] = has_segments && i >= t->n_first;
    }
}

/* The texts of a group, which fit into a batch together. */
static lace_status run_together(lace_embedder *e, lace_session *s, const text_group *g,
                                lace_error *err)
{
    size_t n_items = 0, row = 0;
    int32_t sequence = 0;
    for (size_t i = g->first; i < g->end; i++) {
        const lace_embed_text *t = &g->texts[i];
        if (kind_of(e, t) != g->kind)
            continue;
        TRY(lace_session_truncate(s, sequence, 0, err));
        put_items(e, t, 0, t->n_tokens, sequence++, n_items);
        n_items += t->n_tokens;
    }
    TRY(session_eval_segments(s, e->items, n_items, e->segments, err));
    for (size_t i = g->first; i < g->end; i++)
        if (kind_of(e, &g->texts[i]) == g->kind) {
            pool_rows(e, s, &g->texts[i], 0, g->texts[i].n_tokens, &row);
            TRY(finish_text(e, s, &g->texts[i], err));
        }
    return LACE_OK;
}

/* One text, a batch at a time. */
static lace_status run_long(lace_embedder *e, lace_session *s, const lace_embed_text *t,
                            lace_error *err)
{
    size_t n_batch = (size_t)e->options.n_batch;
    TRY(lace_session_truncate(s, 0, 0, err));
    for (size_t begin = 0; begin < t->n_tokens; begin += n_batch) {
        size_t end = t->n_tokens - begin < n_batch ? t->n_tokens : begin + n_batch, row = 0;
        if (t->is_unwanted && t->is_unwanted(t->user))
            return error_set(err, LACE_E_CANCELLED, "cancelled between two batches");
        put_items(e, t, begin, end, 0, 0);
        TRY(lace_session_eval(s, e->items, end - begin, err));
        pool_rows(e, s, t, begin, end, &row);
    }
    return finish_text(e, s, t, err);
}

/* All texts of a kind: as many of them together as fit into a batch. */
static lace_status run_kind(lace_embedder *e, const lace_embed_text *texts, size_t n_texts,
                            result_kind kind, lace_error *err)
{
    lace_session *s = NULL;
    text_group g = {.texts = texts, .kind = kind};
    size_t n_tokens = 0, n = 0;
    for (size_t i = 0; i < n_texts; i++) {
        const lace_embed_text *t = &texts[i];
        if (kind_of(e, t) != kind)
            continue;
        TRY(find_session(e, kind, &s, err));
        bool is_long = t->n_tokens > (size_t)e->options.n_batch;
        if (n > 0 && (is_long || n == (size_t)e->options.n_sequences ||
                      n_tokens + t->n_tokens > (size_t)e->options.n_batch)) {
            g.end = i;
            TRY(run_together(e, s, &g, err));
            n = 0;
        }
        if (is_long) {
            TRY(run_long(e, s, t, err));
            continue;
        }
        if (n++ == 0) {
            g.first = i;
            n_tokens = 0;
        }
        n_tokens += t->n_tokens;
    }
    g.end = n_texts;
    return n > 0 ? run_together(e, s, &g, err) : LACE_OK;
}

static lace_status check_text(const lace_embedder *e, const lace_embed_text *t, size_t number,
                              lace_error *err)
{
    if (t->n_tokens == 0)
        return error_set(err, LACE_E_ARG, "text %zu has no tokens", number);
    if (t->n_tokens > (size_t)e->options.n_context)
        return error_set(err, LACE_E_CONTEXT, "text %zu has %zu tokens, the context has %d", number,
                         t->n_tokens, e->options.n_context);
    if (t->pooling < LACE_POOLING_MODEL || t->pooling > LACE_POOLING_RANK)
        return error_set(err, LACE_E_ARG, "text %zu: there is no such pooling", number);
    return LACE_OK;
}

lace_status lace_embedder_run(lace_embedder *e, const lace_embed_text *texts, size_t n_texts,
                              lace_error *err)
{
    for (size_t i = 0; i < n_texts; i++)
        TRY(check_text(e, &texts[i], i, err));
    TRY(run_kind(e, texts, n_texts, RESULT_HIDDEN, err));
    return run_kind(e, texts, n_texts, RESULT_SCORES, err);
}

/* ---- One text -------------------------------------------------------------------------------- */

/* What has the room for a text of this size; no token but those around it stands for no byte. */
static lace_token *make_room(size_t n_bytes, size_t *capacity, lace_error *err)
{
    enum { AROUND = 4 };
    *capacity = n_bytes + AROUND;
    lace_token *tokens = mem_calloc(*capacity, sizeof *tokens);
    if (!tokens)
        error_nomem(err, "the tokens of a text");
    return tokens;
}

lace_status lace_embedder_embed(lace_embedder *e, const char *chars, size_t n_bytes, float *vector,
                                lace_error *err)
{
    size_t n = 0, capacity;
    lace_token *tokens = make_room(n_bytes, &capacity, err);
    if (!tokens)
        return LACE_E_NOMEM;
    lace_status status = lace_tokenize(e->model, chars, n_bytes, LACE_TOKENIZE_ADD_SPECIAL, tokens,
                                       capacity, &n, err);
    if (status == LACE_OK && e->usual == LACE_POOLING_NONE)
        status = error_set(err, LACE_E_UNSUPPORTED,
                           "the model gives a vector for each token; use lace_embedder_run");
    lace_embed_text one = {.tokens = tokens,
                           .n_tokens = n < capacity ? n : capacity,
                           .pooling = e->usual == LACE_POOLING_RANK ? LACE_POOLING_CLS : e->usual,
                           .normalize = true,
                           .out = vector};
    if (status == LACE_OK)
        status = lace_embedder_run(e, &one, 1, err);
    mem_free(tokens);
    return status;
}

lace_status lace_embedder_score(lace_embedder *e, const char *query, size_t n_query,
                                const char *chars, size_t n_bytes, float *score, lace_error *err)
{
    lace_model_info info;
    lace_model_describe(e->model, &info);
    if (info.n_classes < 1)
        return error_set(err, LACE_E_UNSUPPORTED, "the model is no reranker: it has no scores");
    size_t n = 0, n_first = 0, capacity;
    lace_token *tokens = make_room(n_query + n_bytes, &capacity, err);
    float *scores = tokens ? mem_calloc((size_t)info.n_classes, sizeof *scores) : NULL;
    lace_status status = scores ? LACE_OK : error_nomem(err, "scores");
    if (status == LACE_OK)
        status = lace_tokenize_pair(e->model, query, n_query, chars, n_bytes,
                                    (size_t)lace_embedder_context(e), tokens, capacity, &n,
                                    &n_first, err);
    lace_embed_text one = {.tokens = tokens,
                           .n_tokens = n < capacity ? n : capacity,
                           .n_first = n_first,
                           .pooling = LACE_POOLING_RANK,
                           .out = scores};
    if (status == LACE_OK)
        status = lace_embedder_run(e, &one, 1, err);
    if (status == LACE_OK)
        *score = scores[0];
    mem_free_all(tokens, scores);
    return status;
}
