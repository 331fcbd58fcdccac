/* Embeddings: hidden states of a text's tokens, pooled into one vector of length 1. */
#include "server/embed.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum { ROWS = 256 }; /* tokens that are computed together */

struct embedder {
    pthread_mutex_t lock;
    lace_model *model;
    lace_session_options options;
    lace_session *session; /* NULL until it is needed */
    int32_t n_embd;
    double *sum; /* [n_embd] */
};

lace_status embedder_create(lace_model *model, const lace_session_options *options, embedder **out,
                            lace_error *err)
{
    *out = NULL;
    embedder *e = mem_calloc(1, sizeof *e);
    lace_model_info info;
    lace_model_describe(model, &info);
    if (!e || !(e->sum = mem_calloc((size_t)info.n_embd, sizeof *e->sum))) {
        mem_free(e);
        return error_nomem(err, "embeddings");
    }
    pthread_mutex_init(&e->lock, NULL);
    e->model = model;
    e->n_embd = info.n_embd;
    e->options = *options;
    e->options.n_sequences = 1;
    e->options.n_batch = e->options.n_outputs = ROWS;
    e->options.kv_bytes = 0;
    e->options.wants_hidden = true;
    *out = e;
    return LACE_OK;
}

void embedder_free(embedder *e)
{
    if (!e)
        return;
    lace_session_free(e->session);
    pthread_mutex_destroy(&e->lock);
    mem_free(e->sum);
    mem_free(e);
}

static void add_row(embedder *e, const float *row)
{
    for (int32_t i = 0; i < e->n_embd; i++)
        e->sum[i] += (double)row[i];
}

/* The rows of tokens[from .. from + n) that the pooling wants, added up. */
static lace_status add_rows(embedder *e, const lace_token *tokens, size_t from, size_t n,
                            size_t n_all, embed_pooling pooling, lace_error *err)
{
    lace_item items[ROWS];
    size_t n_wanted = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_wanted = pooling == EMBED_MEAN || (pooling == EMBED_CLS && from + i == 0) ||
                         (pooling == EMBED_LAST && from + i + 1 == n_all);
        items[i] = (lace_item){.token = tokens[from + i], .want_logits = is_wanted};
        n_wanted += is_wanted;
    }
    TRY(lace_session_eval(e->session, items, n, err));
    for (size_t k = 0; k < n_wanted; k++)
        add_row(e, lace_session_logits(e->session, k));
    return LACE_OK;
}

static lace_status run(embedder *e, const lace_token *tokens, size_t n, embed_pooling pooling,
                       const atomic_bool *is_cancelled, float *out, lace_error *err)
{
    if (!e->session)
        TRY(lace_session_create(e->model, &e->options, &e->session, err));
    TRY(lace_session_truncate(e->session, 0, 0, err));
    memset(e->sum, 0, (size_t)e->n_embd * sizeof *e->sum);
    for (size_t from = 0; from < n; from += ROWS) {
        if (atomic_load(is_cancelled))
            return error_set(err, LACE_E_CANCELLED, "the client has disconnected");
        TRY(add_rows(e, tokens, from, n - from < ROWS ? n - from : ROWS, n, pooling, err));
    }
    double square = 0;
    for (int32_t i = 0; i < e->n_embd; i++)
        square += e->sum[i] * e->sum[i];
    if (!isfinite(square))
        return error_set(err, LACE_E_NUMERIC, "the embedding is not finite");
    double scale = square > 0 ? 1 / sqrt(square) : 0;
    for (int32_t i = 0; i < e->n_embd; i++)
        out[i] = (float)(e->sum[i] * scale);
    return LACE_OK;
}

lace_status embedder_run(embedder *e, const lace_token *tokens, size_t n, embed_pooling pooling,
                         const atomic_bool *is_cancelled, float *out, lace_error *err)
{
    pthread_mutex_lock(&e->lock);
    lace_status status = run(e, tokens, n, pooling, is_cancelled, out, err);
    pthread_mutex_unlock(&e->lock);
    return status;
}
