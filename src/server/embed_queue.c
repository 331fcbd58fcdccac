/* Embeddings and scores of several requests together. */
#include "server/embed_queue.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_TEXTS = 256 }; /* of a batch */

/* What one thread waits for. */
typedef struct embed_job {
    struct embed_job *next;
    lace_embed_text *texts;
    size_t n_texts, n_taken, n_done;
    const atomic_bool *is_cancelled;
    lace_error err; /* .status is LACE_OK while nothing has failed */
} embed_job;

/* A text of a batch, and whose it is. */
typedef struct taken_text {
    embed_job *job;
    lace_embed_text text;
} taken_text;

struct embedder {
    lace_embedder *texts; /* used by the thread that leads */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_leader;
    embed_job *first, **end; /* with texts that nobody has taken */
};

lace_status embedder_create(lace_model *model, const lace_session_options *options, embedder **out,
                            lace_error *err)
{
    *out = NULL;
    embedder *e = mem_calloc(1, sizeof *e);
    if (!e)
        return error_nomem(err, "embeddings");
    lace_embedder_options o = lace_embedder_options_default();
    o.session = *options;
    o.session.n_sequences = 0;
    o.session.n_batch = 0;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->end = &e->first;
    lace_status status = lace_embedder_create(model, &o, &e->texts, err);
    return GIVE_OR_FREE(status, e, out, embedder_free);
}

void embedder_free(embedder *e)
{
    if (!e)
        return;
    lace_embedder_free(e->texts);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    mem_free(e);
}

int32_t embedder_context(const embedder *e)
{
    return lace_embedder_context(e->texts);
}

/* ---- Taking ---------------------------------------------------------------------------------- */

static bool is_unwanted(void *user)
{
    return atomic_load((const atomic_bool *)user);
}

static void fail(embed_job *j, const lace_error *err)
{
    if (j->err.status == LACE_OK)
        j->err = *err;
}

/* The rest of a job that nobody wants any more need not be computed. */
static void drop_cancelled(embed_job *j)
{
    lace_error err;
    if (j->n_taken == j->n_texts || !atomic_load(j->is_cancelled))
        return;
    error_set(&err, LACE_E_CANCELLED, "the client has disconnected");
    fail(j, &err);
    j->n_done += j->n_texts - j->n_taken;
    j->n_taken = j->n_texts;
}

/* Under the lock: leave out the jobs that have no text left. */
static void drop_taken(embedder *e)
{
    embed_job **at = &e->first;
    while (*at) {
        if ((*at)->n_taken == (*at)->n_texts)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    e->end = at;
}

/*
 * Under the lock: the texts of the next batch, one of each job in turn, so that a large request
 * does not keep small ones waiting. Returns how many.
 */
static size_t take_texts(embedder *e, taken_text *out)
{
    size_t n = 0, n_tokens = 0, most = (size_t)lace_embedder_batch(e->texts);
    bool has_more = true;
    for (embed_job *j = e->first; j; j = j->next)
        drop_cancelled(j);
    while (has_more) {
        has_more = false;
        for (embed_job *j = e->first; j && n < MAX_TEXTS; j = j->next) {
            if (j->n_taken == j->n_texts)
                continue;
            const lace_embed_text *t = &j->texts[j->n_taken];
            if (n > 0 && n_tokens + t->n_tokens > most)
                continue;
            out[n++] = (taken_text){j, *t};
            n_tokens += t->n_tokens;
            j->n_taken++;
            has_more = true;
        }
    }
    drop_taken(e);
    return n;
}

/* ---- Computing ------------------------------------------------------------------------------- */

/* A batch of texts; if it fails, each by itself, so that a text fails for no other. */
static void compute(embedder *e, taken_text *taken, size_t n)
{
    lace_embed_text texts[MAX_TEXTS];
    lace_error err = {0};
    for (size_t i = 0; i < n; i++)
        texts[i] = taken[i].text;
    lace_status status = lace_embedder_run(e->texts, texts, n, &err);
    if (status == LACE_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        lace_status own = n > 1 ? lace_embedder_run(e->texts, &texts[i], 1, &err) : status;
        if (own != LACE_OK)
            fail(taken[i].job, &err);
    }
}

/* Compute one batch. Under the lock, which it gives back meanwhile. */
static void lead(embedder *e)
{
    taken_text taken[MAX_TEXTS];
    size_t n = take_texts(e, taken);
    e->has_leader = true;
    pthread_mutex_unlock(&e->lock);
    if (n > 0)
        compute(e, taken, n);
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < n; i++)
        taken[i].job->n_done++;
    e->has_leader = false;
    pthread_cond_broadcast(&e->changed);
}

lace_status embedder_run(embedder *e, lace_embed_text *texts, size_t n_texts,
                         const atomic_bool *is_cancelled, lace_error *err)
{
    embed_job j = {.texts = texts, .n_texts = n_texts, .is_cancelled = is_cancelled};
    for (size_t i = 0; i < n_texts; i++) {
        texts[i].is_unwanted = is_unwanted;
        texts[i].user = (void *)is_cancelled;
    }
    pthread_mutex_lock(&e->lock);
    *e->end = &j;
    e->end = &j.next;
    while (j.n_done < j.n_texts) {
        if (e->has_leader)
            pthread_cond_wait(&e->changed, &e->lock);
        else
            lead(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (j.err.status != LACE_OK && err)
        *err = j.err;
    return j.err.status;
}
