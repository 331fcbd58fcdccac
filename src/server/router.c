/* Which models are loaded: the queue, the budget, and who goes when another one needs room. */
#define _GNU_SOURCE
#include "server/router.h"

#include <assert.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/system.h"

enum {
    STOP_S = 10,   /* for a child to end after SIGTERM */
    END_MS = 5000, /* for all of them, when the router ends */
    WAIT_MS = 10,
};

static void schedule(router *r);

/* ---- Models ---------------------------------------------------------------------------------- */

router_model *router_find(router *r, const char *name)
{
    static const char latest[] = ":latest";
    bool is_any = r->options->n_entries == 1 && !r->s->options.is_strict;
    if (!name || !name[0] || is_any || strcmp(name, SERVER_ANY_MODEL) == 0)
        return &r->models[r->options->default_index];
    size_t n = strlen(name), m = strlen(latest);
    if (n > m && strcmp(name + n - m, latest) == 0)
        n -= m;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < r->options->n_entries; i++) {
            const char *ours = r->models[i].entry->name;
            bool is_it = pass == 0 ? strcmp(ours, name) == 0
                                   : strlen(ours) == n && memcmp(ours, name, n) == 0;
            if (is_it)
                return &r->models[i];
        }
    return NULL;
}

/* Whether a child has its memory, or is about to. */
static bool holds_memory(const router_model *m)
{
    return m->state == MODEL_LOADING || m->state == MODEL_READY || m->state == MODEL_STOPPING;
}

uint64_t router_bytes_used(const router *r)
{
    uint64_t n = 0;
    for (size_t i = 0; i < r->options->n_entries; i++)
        n += holds_memory(&r->models[i]) ? r->models[i].n_bytes : 0;
    return n;
}

const char *router_state_word(const router_model *m)
{
    static const char *const words[] = {"unloaded", "waiting", "loading",  "waiting",
                                        "loading",  "ready",   "unloading"};
    return words[m->state];
}

bool router_queue_is_full(const router *r)
{
    return r->n_waiting >= r->s->options.max_queue;
}

/* ---- Those that wait ------------------------------------------------------------------------- */

static void enqueue(router_model *m)
{
    if (m->state != MODEL_UNLOADED || m->r->is_ending)
        return;
    m->state = MODEL_QUEUED;
    m->queued_ns = clock_ns();
}

void router_wait(forward *f)
{
    router_model *m = f->model;
    if (!f->deadline_ns)
        f->deadline_ns = clock_ns() + clock_seconds(m->r->options->load_timeout_s);
    f->next = NULL;
    f->is_waiting = true;
    *m->waiting_end = f;
    m->waiting_end = &f->next;
    m->r->n_waiting++;
    enqueue(m);
}

static void leave_queue(forward *f)
{
    router_model *m = f->model;
    forward **at = &m->waiting;
    while (*at && *at != f)
        at = &(*at)->next;
    assert(*at);
    *at = f->next;
    if (!f->next)
        m->waiting_end = at;
    f->is_waiting = false;
    m->r->n_waiting--;
}

/* Everybody who waits for a model is told why there will be none. */
static void fail_waiting(router_model *m, int status, const char *code, const char *message)
{
    while (m->waiting)
        call_end_with_error(m->waiting->c, status, code, message);
}

/* Give a request to its model, which is ready. */
static void hand_over(forward *f)
{
    router_model *m = f->model;
    if (f->kind == FORWARD_LOAD)
        return router_reply_done(f);
    f->is_active = true;
    m->n_active++;
    if (!f->is_glance)
        m->keep_alive_s = f->has_keep_alive ? f->keep_alive_s : m->entry->keep_alive_s;
    forward_send(f);
}

/* The requests that wait now; one that is put back meanwhile waits for the next time. */
static void hand_over_waiting(router_model *m)
{
    size_t n = 0;
    for (const forward *f = m->waiting; f; f = f->next)
        n++;
    while (n-- > 0 && m->waiting && m->state == MODEL_READY && !m->is_leaving) {
        forward *f = m->waiting;
        leave_queue(f);
        hand_over(f);
    }
}

/* ---- Unloading ------------------------------------------------------------------------------- */

static void stop_model(router_model *m)
{
    m->state = MODEL_STOPPING;
    m->is_leaving = false;
    m->stop_ns = clock_ns() + clock_seconds(STOP_S);
    child_end(m, SIGTERM);
}

void router_leave(forward *f)
{
    router_model *m = f->model;
    if (!f->is_active)
        return;
    f->is_active = false;
    m->n_active--;
    if (!f->is_glance)
        m->used_ns = clock_ns();
    bool is_over = m->keep_alive_s == 0 && !m->entry->is_pinned && !m->waiting;
    if (m->state == MODEL_READY && m->n_active == 0 && (m->is_leaving || is_over))
        stop_model(m);
}

/* ---- Room ------------------------------------------------------------------------------------ */

/* Of those that may go, the one that was used longest ago; NULL: none. */
static router_model *find_victim(const router *r)
{
    router_model *found = NULL;
    for (size_t i = 0; i < r->options->n_entries; i++) {
        router_model *m = &r->models[i];
        bool may_go = m->state == MODEL_READY && !m->is_leaving && !m->entry->is_pinned;
        bool is_older =
            !found || (m->n_active == 0 && found->n_active > 0) ||
            ((m->n_active == 0) == (found->n_active == 0) && m->used_ns < found->used_ns);
        if (may_go && is_older)
            found = m;
    }
    return found;
}

/* What will be free once those that leave have left. */
static uint64_t bytes_kept(const router *r)
{
    uint64_t n = 0;
    for (size_t i = 0; i < r->options->n_entries; i++) {
        const router_model *m = &r->models[i];
        bool stays = holds_memory(m) && m->state != MODEL_STOPPING && !m->is_leaving;
        n += stays ? m->n_bytes : 0;
    }
    return n;
}

/* The child cannot be had: end it, and tell those who wait. Who was to make room may stay. */
static void give_up(router_model *m, const char *message)
{
    for (size_t i = 0; i < m->r->options->n_entries; i++)
        m->r->models[i].is_leaving = false;
    m->r->loading = NULL;
    m->state = MODEL_STOPPING;
    m->stop_ns = clock_ns() + clock_seconds(STOP_S);
    child_end(m, SIGKILL);
    fail_waiting(m, 503, "model_too_large", message);
}

/* Let those go that must, until the model that is being loaded has room; then it may load. */
static void make_room(router *r)
{
    router_model *m = r->loading, *victim;
    uint64_t budget = r->options->memory_bytes;
    while (m->n_bytes > budget || bytes_kept(r) > budget - m->n_bytes) {
        if (m->n_bytes > budget || !(victim = find_victim(r))) {
            char message[ROUTER_MAX_LINE];
            snprintf(message, sizeof message,
                     "model %.100s needs %.2f GB of memory, and %.2f GB are for models "
                     "(--models-memory), of which pinned models have %.2f GB",
                     m->entry->name, (double)m->n_bytes / 1e9, (double)budget / 1e9,
                     (double)bytes_kept(r) / 1e9);
            return give_up(m, message);
        }
        victim->is_leaving = true;
        if (victim->n_active == 0)
            stop_model(victim);
    }
    if (router_bytes_used(r) > budget - m->n_bytes)
        return; /* until they have ended */
    m->state = MODEL_LOADING;
    child_go(m);
}

/* Nobody waits for it any more, and it is not to be loaded for itself. */
static bool is_unwanted(const router_model *m)
{
    return !m->waiting && !m->entry->is_pinned;
}

static router_model *next_queued(const router *r)
{
    router_model *found = NULL;
    for (size_t i = 0; i < r->options->n_entries; i++) {
        router_model *m = &r->models[i];
        if (m->state == MODEL_QUEUED && is_unwanted(m))
            m->state = MODEL_UNLOADED;
        if (m->state == MODEL_QUEUED && (!found || m->queued_ns < found->queued_ns))
            found = m;
    }
    return found;
}

/* Load the next one, if none is being loaded. */
static void schedule(router *r)
{
    router_model *m;
    if (r->loading && r->loading->state == MODEL_FITTING)
        make_room(r);
    while (!r->loading && !r->is_ending && (m = next_queued(r))) {
        lace_error err = {0};
        m->state = MODEL_UNLOADED;
        m->n_bytes = 0;
        if (child_start(m, &err) != LACE_OK) {
            fail_waiting(m, 503, "model_not_loaded", err.text);
            continue;
        }
        m->state = MODEL_STARTING;
        m->started_ns = clock_ns();
        r->loading = m;
    }
}

/* ---- What children say ----------------------------------------------------------------------- */

void router_on_needs(router_model *m, uint64_t n_bytes)
{
    if (m->state != MODEL_STARTING)
        return;
    m->n_bytes = n_bytes;
    m->state = MODEL_FITTING;
    schedule(m->r);
}

void router_on_ready(router_model *m)
{
    if (m->state != MODEL_LOADING)
        return;
    m->state = MODEL_READY;
    m->used_ns = clock_ns();
    m->keep_alive_s = m->entry->keep_alive_s;
    m->r->loading = NULL;
    hand_over_waiting(m);
    schedule(m->r);
}

void router_on_exit(router_model *m, int status)
{
    router *r = m->r;
    bool was_loading = r->loading == m, was_asked = m->state == MODEL_STOPPING;
    char message[2 * ROUTER_MAX_LINE], how[64];
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "exit code %d", WEXITSTATUS(status));
    m->state = MODEL_UNLOADED;
    m->is_leaving = false;
    if (was_loading)
        r->loading = NULL;
    if (!was_asked && !was_loading && !r->is_ending)
        fprintf(stderr, "lace: the process of %s has ended (%s); it is started again when needed\n",
                m->entry->name, how);
    if (was_loading) {
        snprintf(message, sizeof message, "model %.100s cannot be loaded: %s", m->entry->name,
                 m->last_line[0] ? m->last_line : how);
        fail_waiting(m, 503, "model_not_loaded", message);
    }
    if (m->waiting || (m->entry->is_pinned && !was_loading && !was_asked))
        enqueue(m);
    schedule(r);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void unload(forward *f)
{
    router_model *m = f->model;
    m->keep_alive_s = 0;
    if (m->state == MODEL_READY && m->n_active == 0)
        stop_model(m);
    router_reply_done(f);
}

void router_submit(call *c)
{
    forward *f = c->forward;
    router_model *m = f->model;
    if (f->kind == FORWARD_UNLOAD) {
        unload(f);
    } else if (server_is_draining(c->s)) {
        call_end_with_error(c, 503, NULL, "the server is shutting down");
    } else if (m->state == MODEL_READY && !m->is_leaving) {
        hand_over(f);
    } else if (router_queue_is_full(m->r)) {
        call_end_with_error(c, 429, NULL, "too many requests are waiting; try again later");
    } else {
        router_wait(f);
    }
    schedule(m->r);
}

void router_cancel(call *c)
{
    forward *f = c->forward;
    if (!f)
        return;
    c->forward = NULL;
    forward_close(f);
    if (f->is_waiting)
        leave_queue(f);
    router_leave(f);
    mem_free(f);
}

/* ---- The clock ------------------------------------------------------------------------------- */

static void check_deadlines(router_model *m, uint64_t now)
{
    forward *next;
    for (forward *f = m->waiting; f; f = next) {
        next = f->next;
        if (now > f->deadline_ns)
            call_end_with_error(f->c, 503, "model_not_loaded",
                                "the model was not loaded in time (--load-timeout)");
    }
}

static void check_model(router_model *m, uint64_t now)
{
    check_deadlines(m, now);
    bool is_idle = m->state == MODEL_READY && m->n_active == 0 && !m->waiting;
    bool is_over = m->keep_alive_s >= 0 && now - m->used_ns >= clock_seconds(m->keep_alive_s);
    if (is_idle && is_over && !m->entry->is_pinned)
        stop_model(m);
    if (m->state == MODEL_STOPPING && now > m->stop_ns)
        child_end(m, SIGKILL);
    /* Nobody wants it any more, or it hangs: the next one may load. */
    bool is_late = now - m->started_ns > clock_seconds(m->r->options->load_timeout_s);
    if (m->r->loading == m && is_unwanted(m) && (m->state == MODEL_FITTING || is_late))
        give_up(m, "");
    hand_over_waiting(m);
}

void router_tick(router *r, uint64_t now)
{
    child_reap(r);
    for (size_t i = 0; i < r->options->n_entries; i++)
        check_model(&r->models[i], now);
    schedule(r);
}

static void on_child(evutil_socket_t number, short what, void *arg)
{
    child_reap(arg);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status make_folder(router *r, lace_error *err)
{
    const char *base = getenv("TMPDIR");
    int n =
        snprintf(r->folder, sizeof r->folder, "%s/lace-XXXXXX", base && base[0] ? base : "/tmp");
    if (n < 0 || (size_t)n >= sizeof r->folder || !mkdtemp(r->folder)) {
        r->folder[0] = 0;
        return error_set(err, LACE_E_IO, "cannot make a folder for sockets below %.100s",
                         base && base[0] ? base : "/tmp");
    }
    return LACE_OK;
}

lace_status router_create(server *s, const router_options *options, router **out, lace_error *err)
{
    *out = NULL;
    if (!system_has_children())
        return error_set(err, LACE_E_UNSUPPORTED,
                         "several models need a process for each, which lace cannot start on this "
                         "system; serve one model: lace serve MODEL");
    router *r = mem_calloc(1, sizeof *r);
    if (!r)
        return error_nomem(err, "a router");
    r->s = s;
    r->options = options;
    r->models = mem_calloc(options->n_entries, sizeof *r->models);
    lace_status status = r->models ? make_folder(r, err) : error_nomem(err, "a router");
    for (size_t i = 0; status == LACE_OK && i < options->n_entries; i++) {
        router_model *m = &r->models[i];
        m->entry = &options->entries[i];
        m->r = r;
        m->index = i;
        m->in_fd = -1;
        m->waiting_end = &m->waiting;
        snprintf(m->socket, sizeof m->socket, "%s/%zu", r->folder, i);
        if (m->entry->is_pinned)
            enqueue(m);
    }
    r->child_event = status == LACE_OK ? evsignal_new(s->base, SIGCHLD, on_child, r) : NULL;
    if (status == LACE_OK && (!r->child_event || event_add(r->child_event, NULL) != 0))
        status = error_nomem(err, "a router");
    return GIVE_OR_FREE(status, r, out, router_free);
}

static bool has_children(const router *r)
{
    for (size_t i = 0; r->models && i < r->options->n_entries; i++)
        if (r->models[i].pid)
            return true;
    return false;
}

void router_free(router *r)
{
    if (!r)
        return;
    r->is_ending = true;
    for (size_t i = 0; r->models && i < r->options->n_entries; i++)
        child_end(&r->models[i], SIGTERM);
    for (int waited = 0; has_children(r); waited += WAIT_MS) {
        struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
        nanosleep(&pause, NULL);
        for (size_t i = 0; waited > END_MS && i < r->options->n_entries; i++)
            child_end(&r->models[i], SIGKILL);
        child_reap(r);
    }
    if (r->child_event)
        event_free(r->child_event);
    if (r->folder[0])
        rmdir(r->folder);
    mem_free_all(r->models, r);
}
