/* Several ranks of one model, in this process or in several. */
#define _POSIX_C_SOURCE 200809L
#include "engine/together.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/mixed.h"
#include "base/mem.h"
#include "engine/hello.h"
#include "rank/rank_mpi.h"
#include "rank/record.h"
#include "runner/follower.h"
#include "runner/leader.h"

enum { TIMEOUT_MS = 5000, BEAT_S = 1 };

/* A thread that follows. */
typedef struct thread_follower {
    together *t;
    ranks *end;
    pthread_t thread;
} thread_follower;

struct together {
    ranks *end; /* this process's; with threads, rank 0's */
    together_options options;
    const model_source *source; /* while models are opened */
    thread_follower *followers; /* [n_followers] that have been started */
    int32_t n_followers;
    bool is_over; /* under the beat's lock */
    bool has_beat;
    pthread_t beat; /* tells the others that rank 0 lives */
    pthread_mutex_t beat_lock;
    pthread_cond_t beat_wake;
};

lace_status model_source_open(const model_source *s, weights **out, lace_error *err)
{
    return s->path ? weights_open(s->path, out, err)
                   : weights_open_memory(s->bytes, s->name, out, err);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* This rank's device: the one that all were given, its own of several, or of a kind its own number. */
static lace_status find_name(const together *t, const ranks *end, char out[DEVICE_NAME_BYTES],
                             lace_error *err)
{
    const char *all = t->options.where ? t->options.where : "cpu", *at = all;
    int32_t rank = end->shares.rank, n_names = 1;
    for (const char *c = all; *c; c++)
        n_names += *c == ',';
    if (n_names > 1 && n_names != end->shares.n_ranks)
        return error_set(err, LACE_E_ARG, "%d devices for %d ranks, expected one for each", n_names,
                         end->shares.n_ranks);
    for (int32_t i = 0; n_names > 1 && i < rank; i++)
        at = strchr(at, ',') + 1;
    int length = (int)strcspn(at, ",");
    bool is_kind =
        n_names == 1 && end->is_here && (strcmp(all, "cuda") == 0 || strcmp(all, "vulkan") == 0);
    int n = is_kind ? snprintf(out, DEVICE_NAME_BYTES, "%s:%d", all, rank)
                    : snprintf(out, DEVICE_NAME_BYTES, "%.*s", length, at);
    return n > 0 && n < DEVICE_NAME_BYTES
               ? LACE_OK
               : error_set(err, LACE_E_ARG, "device \"%.60s\", which is no name of one", at);
}

/* The model of one rank, bound, and its device. Takes `files`. */
static lace_status open_alone(weights *files, const char *name, const device_options *o,
                              model **out, device **d, lace_error *err)
{
    *d = NULL;
    TRY(model_create(files, "cpu", o, out, err));
    return device_open(name, o, d, err);
}

/* The model of one rank, which then says whether it has it. Takes `files`. */
static lace_status open_model(const together *t, ranks *end, weights *files, model **out,
                              char note[DEVICE_NOTE_BYTES], lace_error *err)
{
    device_options o = t->options.device;
    hello own = hello_of(files, (uint64_t)o.mode, o.level);
    char name[DEVICE_NAME_BYTES];
    device *d = NULL;
    lace_status status = hello_exchange(end, &own, &o.level, err);
    *out = NULL;
    if (status != LACE_OK) {
        weights_close(files);
        return status;
    }
    status = find_name(t, end, name, err);
    if (status == LACE_OK)
        status = open_alone(files, name, &o, out, &d, err);
    else
        weights_close(files);
    status = ranks_agree(end, status, err);
    if (status != LACE_OK) {
        device_close(d);
        return status;
    }
    status = device_join(d, end, note, err);
    if (status != LACE_OK) {
        device_close(d);
        return status;
    }
    return ranks_agree(end, model_cut(*out, name, &o, d, end, err), err);
}

static void *follow(void *arg)
{
    thread_follower *f = arg;
    weights *files;
    model *m = NULL;
    lace_error err = {0};
    char note[DEVICE_NOTE_BYTES]; /* rank 0 has the same */
    lace_status status = model_source_open(f->t->source, &files, &err);
    if (status != LACE_OK)
        ranks_fail(f->end, status, err.text);
    else if (open_model(f->t, f->end, files, &m, note, &err) == LACE_OK)
        follower_run(m, &err);
    model_free(m);
    return NULL;
}

/* Threads for all ranks behind the first. */
static lace_status start_threads(together *t, lace_error *err)
{
    rank_shares shares;
    ranks *ends[RANKS_MAX];
    TRY(rank_shares_parse(t->options.ranks, &shares, err));
    t->followers = mem_calloc((size_t)shares.n_ranks, sizeof *t->followers);
    if (!t->followers)
        return error_nomem(err, "a group of ranks");
    TRY(rank_threads_open(&shares, ends, err));
    t->end = ends[0];
    lace_status status = LACE_OK;
    for (int32_t i = 1; i < shares.n_ranks; i++) {
        thread_follower *f = &t->followers[t->n_followers];
        *f = (thread_follower){.t = t, .end = ends[i]};
        if (status == LACE_OK && pthread_create(&f->thread, NULL, follow, f) == 0) {
            t->n_followers++;
            continue;
        }
        ranks_close(ends[i]);
        status = error_set(err, LACE_E_NOMEM, "cannot start all of %d ranks", shares.n_ranks);
    }
    return status;
}

lace_status together_start(const together_options *o, const model_source *source, together **out,
                           lace_error *err)
{
    *out = NULL;
    together *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "a group of ranks");
    t->options = *o;
    t->source = source;
    pthread_mutex_init(&t->beat_lock, NULL);
    pthread_cond_init(&t->beat_wake, NULL);
    lace_status status;
    if (strncmp(o->ranks, "mpi", 3) == 0) {
        rank_mpi_options mpi = {.parts = o->ranks[3] == ':' ? o->ranks + 4 : NULL,
                                .net = o->net,
                                .deadline_ms = o->timeout_ms > 0 ? o->timeout_ms : TIMEOUT_MS};
        status = rank_mpi_open(&mpi, &t->end, err);
    } else {
        status = start_threads(t, err);
    }
    if (status != LACE_OK) {
        together_end(t);
        together_free(t);
        return status;
    }
    *out = t;
    return LACE_OK;
}

/* ---- The beat -------------------------------------------------------------------------------- */

/* Every second, unless rank 0 is telling something anyway. */
static void *beat(void *arg)
{
    together *t = arg;
    record_writer w = {0};
    record_begin(&w, RECORD_IDLE, 0);
    pthread_mutex_lock(&t->beat_lock);
    while (!t->is_over && !w.has_failed) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += BEAT_S;
        pthread_cond_timedwait(&t->beat_wake, &t->beat_lock, &until);
        if (t->is_over || pthread_mutex_trylock(&t->end->lock) != 0)
            continue;
        ranks_tell(t->end, w.words, w.n);
        pthread_mutex_unlock(&t->end->lock);
    }
    pthread_mutex_unlock(&t->beat_lock);
    record_deinit(&w);
    return NULL;
}

lace_status together_open(together *t, weights *files, model **out, char note[DEVICE_NOTE_BYTES],
                          lace_error *err)
{
    TRY(open_model(t, t->end, files, out, note, err));
    if (t->end->is_here || together_follows(t))
        return LACE_OK;
    t->has_beat = pthread_create(&t->beat, NULL, beat, t) == 0;
    return t->has_beat ? LACE_OK : error_set(err, LACE_E_NOMEM, "cannot start a thread");
}

bool together_follows(const together *t)
{
    return t->end->shares.rank > 0;
}

lace_status together_follow(together *t, model *m, lace_error *err)
{
    TRY(follower_run(m, err));
    return error_set(err, LACE_E_FOLLOWED, "%s", lace_status_text(LACE_E_FOLLOWED));
}

int32_t together_count(const together *t)
{
    return t && t->end->is_here ? t->end->shares.n_ranks : 1;
}

void together_hurry(together *t)
{
    if (t)
        atomic_store(&t->end->hurries, true);
}

/* ---- The end --------------------------------------------------------------------------------- */

static void stop_beat(together *t)
{
    pthread_mutex_lock(&t->beat_lock);
    t->is_over = true;
    pthread_cond_signal(&t->beat_wake);
    pthread_mutex_unlock(&t->beat_lock);
    if (t->has_beat)
        pthread_join(t->beat, NULL);
    t->has_beat = false;
}

void together_end(together *t)
{
    if (!t || !t->end)
        return;
    stop_beat(t);
    if (!together_follows(t)) {
        record_writer w = {0};
        record_begin(&w, RECORD_END, 0);
        bool is_whole = !t->end->is_here || t->n_followers + 1 == t->end->shares.n_ranks;
        if (w.has_failed || !is_whole)
            ranks_fail(t->end, LACE_E_NOMEM, "rank 0 has ended");
        else
            ranks_tell(t->end, w.words, w.n);
        record_deinit(&w);
    }
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
    pthread_cond_destroy(&t->beat_wake);
    pthread_mutex_destroy(&t->beat_lock);
    mem_free_all(t->followers, t);
}
