/*
 * The inference thread: takes jobs, steps the batcher, and posts what each step brought.
 *
 * Jobs belong to their calls, on the event loop, which keeps them until their last event. So this
 * thread needs no lock but for the list of new jobs, and a cancelled job is one whose flag is set.
 */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/core.h"

#define STUCK_NS (UINT64_C(60) * 1000000000)
#define COUNT_NS (UINT64_C(20) * 1000000)

struct inference {
    server *s;
    lace_batcher *batcher;
    pthread_t thread;
    bool is_started;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    gen_job *fresh, **fresh_end; /* pushed, not yet taken */
    int32_t n_fresh;
    bool is_ending;
    lace_batcher_stats stats; /* after the last step */
    uint64_t stepped_ns;      /* when the last step ended */
    bool is_broken;
    atomic_int n_cancelled; /* flags set since they were last looked at */

    /* The thread's own. */
    gen_job *jobs; /* in the batcher */
    gen_event *events, **events_end;
    bool has_io_error;
    bool has_lost_device; /* the batcher is made anew when its jobs have ended */
    uint64_t counted_ns;
};

/* ---- The loop's side ------------------------------------------------------------------------- */

void inference_push(inference *w, gen_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->fresh_end = job;
    w->fresh_end = &job->next;
    w->n_fresh++;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void inference_cancel(inference *w, gen_job *job)
{
    if (!atomic_exchange(&job->is_cancelled, true))
        atomic_fetch_add(&w->n_cancelled, 1);
}

void inference_read(inference *w, inference_state *out)
{
    memset(out, 0, sizeof *out);
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    out->stats = w->stats;
    out->stats.n_waiting += w->n_fresh;
    out->is_broken = w->is_broken;
    bool has_work = w->stats.n_running + w->stats.n_waiting + w->n_fresh > 0;
    out->is_stuck = has_work && clock_ns() - w->stepped_ns > STUCK_NS;
    pthread_mutex_unlock(&w->lock);
}

/* ---- The thread's side ----------------------------------------------------------------------- */

static void remove_job(inference *w, gen_job *job)
{
    gen_job **at = &w->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->generation = NULL;
}

/* An event cannot be lost: the call would never end. So it waits for memory if it must. */
static gen_event *make_event(const char *chars, size_t n)
{
    gen_event *e;
    while (!(e = mem_alloc(sizeof *e + n + 1)))
        sched_yield();
    memset(e, 0, sizeof *e);
    e->n_text = n;
    memcpy(e->text, chars, n);
    e->text[n] = 0;
    return e;
}

static void add_event(inference *w, gen_event *e)
{
    *w->events_end = e;
    w->events_end = &e->next;
}

static void on_piece(void *user, const lace_piece *p)
{
    gen_job *job = user;
    inference *w = job->c->s->inference;
    const char *chars = p->error ? p->error->text : p->text;
    gen_event *e = make_event(chars, p->error ? strlen(chars) : p->n_bytes);
    e->c = job->c;
    e->choice = job->choice;
    e->token = p->token;
    e->is_prompt = p->is_prompt;
    e->logprob = p->logprob;
    e->n_top = p->n_top;
    if (p->n_top)
        memcpy(e->top, p->top, p->n_top * sizeof *p->top);
    e->finish = p->finish;
    e->stop = NULL;
    for (size_t i = 0; p->stop && i < job->c->request.options.n_stops; i++)
        if (strcmp(p->stop, job->c->request.options.stops[i]) == 0)
            e->stop = job->c->request.options.stops[i];
    e->status = p->error ? p->error->status : LACE_OK;
    e->stats = *p->stats;
    w->has_io_error = w->has_io_error || e->status == LACE_E_IO || e->status == LACE_E_RANK;
    w->has_lost_device = w->has_lost_device || e->status == LACE_E_DEVICE;
    add_event(w, e);
    if (p->finish != LACE_FINISH_NONE)
        remove_job(w, job);
}

/* A job that never came into the batcher ends with one event. */
static void end_unborn(inference *w, gen_job *job, lace_finish finish, const lace_error *err)
{
    gen_event *e = make_event(err ? err->text : "", err ? strlen(err->text) : 0);
    e->c = job->c;
    e->choice = job->choice;
    e->token = -1;
    e->finish = finish;
    e->status = err ? err->status : LACE_OK;
    e->stats.n_prompt = (int32_t)job->c->request.n_prompt;
    add_event(w, e);
}

/*
 * A device that failed is not used again, but may be opened anew with the next batcher. Nothing of
 * texts that are over is needed for that.
 */
static lace_status renew_batcher(inference *w, lace_error *err)
{
    if (!w->has_lost_device)
        return LACE_OK;
    if (w->jobs)
        return error_set(err, LACE_E_DEVICE, "the device is lost; it is opened anew shortly");
    lace_batcher_free(w->batcher);
    w->batcher = NULL;
    TRY(lace_batcher_create(w->s->model, &w->s->options.batcher, &w->batcher, err));
    w->has_lost_device = false;
    return LACE_OK;
}

static void add_job(inference *w, gen_job *job)
{
    lace_error lost = {0};
    if (atomic_load(&job->is_cancelled))
        return end_unborn(w, job, LACE_FINISH_CANCELLED, NULL);
    if (renew_batcher(w, &lost) != LACE_OK)
        return end_unborn(w, job, LACE_FINISH_ERROR, &lost);
    const gen_request *r = &job->c->request;
    lace_generation_options o = r->options;
    o.prompt = r->prompts ? r->prompts[job->choice / r->n_each].tokens : r->prompt;
    o.n_prompt = r->prompts ? r->prompts[job->choice / r->n_each].n : r->n_prompt;
    o.sampler.seed += (uint64_t)job->choice;
    o.owner = call_owner(job->c);
    o.on_piece = on_piece;
    o.user = job;
    lace_error err = {0};
    if (lace_batcher_add(w->batcher, &o, &job->generation, &err) != LACE_OK)
        return end_unborn(w, job, LACE_FINISH_ERROR, &err);
    job->next = w->jobs;
    w->jobs = job;
}

static void cancel_flagged(inference *w)
{
    if (atomic_exchange(&w->n_cancelled, 0) == 0)
        return;
    gen_job *next;
    for (gen_job *job = w->jobs; job; job = next) {
        next = job->next;
        if (atomic_load(&job->is_cancelled))
            lace_batcher_cancel(w->batcher, job->generation);
    }
}

static void post(inference *w, bool has_work)
{
    /* Counting walks over all kept pages: not in every step of a small model. */
    lace_batcher_stats stats = w->stats;
    uint64_t now = clock_ns();
    if (w->batcher && (!has_work || now - w->counted_ns > COUNT_NS)) {
        lace_batcher_count(w->batcher, &stats);
        w->counted_ns = now;
    }
    pthread_mutex_lock(&w->lock);
    w->stats = stats;
    w->stepped_ns = now;
    w->is_broken = w->is_broken || w->has_io_error;
    pthread_mutex_unlock(&w->lock);
    if (w->events)
        server_post_events(w->s, w->events);
    w->events = NULL;
    w->events_end = &w->events;
}

/*
 * Until there is something to do; with the lock held. Between steps it is time that the batcher has to
 * spare: what comes then is in the next step. Returns whether the next step is due.
 */
static bool wait_for_work(inference *w, bool has_work)
{
    while (!has_work && !w->fresh && !w->is_ending)
        pthread_cond_wait(&w->wake, &w->lock);
    uint64_t rest_ns = has_work && w->batcher ? lace_batcher_rest_ns(w->batcher) : 0;
    if (rest_ns == 0)
        return true;
    struct timespec until = clock_after(rest_ns);
    int status = 0;
    while (!w->fresh && !w->is_ending && status == 0)
        status = pthread_cond_timedwait(&w->wake, &w->lock, &until);
    return !w->fresh; /* there may be time for more */
}

static void *run_inference(void *arg)
{
    inference *w = arg;
    for (bool has_work = false;;) {
        pthread_mutex_lock(&w->lock);
        bool is_due = wait_for_work(w, has_work);
        gen_job *fresh = w->fresh;
        if (fresh && !has_work)
            w->stepped_ns = clock_ns(); /* idle until now */
        w->fresh = NULL;
        w->fresh_end = &w->fresh;
        w->n_fresh = 0;
        bool is_ending = w->is_ending;
        pthread_mutex_unlock(&w->lock);
        if (is_ending)
            return NULL;
        while (fresh) {
            gen_job *job = fresh;
            fresh = job->next;
            add_job(w, job);
        }
        cancel_flagged(w);
        if (is_due)
            has_work = w->batcher && lace_batcher_step(w->batcher);
        post(w, has_work);
    }
}

lace_status inference_create(server *s, inference **out, lace_error *err)
{
    *out = NULL;
    inference *w = mem_calloc(1, sizeof *w);
    if (!w)
        return error_nomem(err, "the inference thread");
    w->s = s;
    w->fresh_end = &w->fresh;
    w->events_end = &w->events;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    lace_status status = LACE_OK;
    if (!s->info.is_encoder) /* which generates nothing */
        status = lace_batcher_create(s->model, &s->options.batcher, &w->batcher, err);
    if (status == LACE_OK && w->batcher) {
        lace_batcher_count(w->batcher, &w->stats);
        w->is_started = pthread_create(&w->thread, NULL, run_inference, w) == 0;
        if (!w->is_started)
            status = error_set(err, LACE_E_NOMEM, "cannot start the inference thread");
    }
    return GIVE_OR_FREE(status, w, out, inference_free);
}

void inference_free(inference *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->is_ending = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->is_started)
        pthread_join(w->thread, NULL);
    lace_batcher_free(w->batcher);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}
