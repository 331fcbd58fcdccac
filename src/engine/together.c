/* Several ranks of one model in this process. */
#include "engine/together.h"

#include <pthread.h>

#include "base/mem.h"
#include "rank/record.h"
#include "runner/follower.h"
#include "runner/leader.h"

/* A thread that follows. */
typedef struct thread_follower {
    const together *t;
    ranks *end;
    pthread_t thread;
} thread_follower;

struct together {
    ranks *end;                 /* rank 0's */
    const model_source *source; /* while models are opened */
    const char *where;
    device_options options;
    thread_follower *followers; /* [n_followers] that have been started */
    int32_t n_followers;
};

lace_status model_source_open(const model_source *s, weights **out, lace_error *err)
{
    return s->path ? weights_open(s->path, out, err)
                   : weights_open_memory(s->bytes, s->name, out, err);
}

static lace_status open_model(const thread_follower *f, model **out, lace_error *err)
{
    const together *t = f->t;
    weights *files;
    *out = NULL;
    TRY(model_source_open(t->source, &files, err));
    TRY(model_create(files, t->where, &t->options, out, err));
    return model_cut(*out, t->where, &t->options, f->end, err);
}

static void *follow(void *arg)
{
    thread_follower *f = arg;
    model *m;
    lace_error err = {0};
    lace_status status = open_model(f, &m, &err);
    if (ranks_agree(f->end, status, &err) == LACE_OK)
        follower_run(m, &err);
    model_free(m);
    return NULL;
}

lace_status together_start(const char *who, const model_source *source, const char *where,
                           const device_options *o, together **out, lace_error *err)
{
    rank_shares shares;
    ranks *ends[RANKS_MAX];
    *out = NULL;
    TRY(rank_shares_parse(who, &shares, err));
    together *t = mem_calloc(1, sizeof *t);
    thread_follower *followers = mem_calloc((size_t)shares.n_ranks, sizeof *followers);
    lace_status status = t && followers ? rank_threads_open(&shares, ends, err)
                                        : error_nomem(err, "a group of ranks");
    if (status != LACE_OK) {
        mem_free_all(t, followers);
        return status;
    }
    *t = (together){ends[0], source, where, *o, followers, 0};
    for (int32_t i = 1; i < shares.n_ranks; i++) {
        thread_follower *f = &followers[t->n_followers];
        *f = (thread_follower){.t = t, .end = ends[i]};
        if (status == LACE_OK && pthread_create(&f->thread, NULL, follow, f) == 0)
            t->n_followers++;
        else
            ranks_close(ends[i]);
        if (t->n_followers != i && status == LACE_OK)
            status = error_set(err, LACE_E_NOMEM, "cannot start rank %d of %d", i, shares.n_ranks);
    }
    if (status != LACE_OK) {
        together_end(t);
        together_free(t);
        return status;
    }
    *out = t;
    return LACE_OK;
}

lace_status together_join(together *t, lace_status status, lace_error *err)
{
    return ranks_agree(t->end, status, err);
}

ranks *together_ranks(const together *t)
{
    return t->end;
}

int32_t together_count(const together *t)
{
    return t ? t->end->shares.n_ranks : 1;
}

void together_end(together *t)
{
    if (!t)
        return;
    record_writer w = {0};
    record_begin(&w, RECORD_END, 0);
    if (w.has_failed || t->n_followers + 1 < t->end->shares.n_ranks)
        ranks_fail(t->end, LACE_E_NOMEM, "rank 0 has ended");
    else
        ranks_tell(t->end, w.words, w.n);
    record_deinit(&w);
    for (int32_t i = 0; i < t->n_followers; i++) {
        pthread_join(t->followers[i].thread, NULL);
        ranks_close(t->followers[i].end);
    }
    t->n_followers = 0;
}

void together_free(together *t)
{
    if (!t)
        return;
    ranks_close(t->end);
    mem_free_all(t->followers, t);
}
