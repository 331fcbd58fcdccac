/* Walking a grammar's automaton: frames, threads and positions. See grammar_match.h. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/grammar_match_impl.h"

enum { FIRST_FRAMES_LIMIT = 1 << 16, MAX_STEPS = 20000000 };

bool thread_list_add(thread_list *l, grammar_thread t)
{
    if (!mem_grow(&l->data, l->n, &l->capacity, sizeof *l->data, 16))
        return false;
    l->data[l->n++] = t;
    return true;
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static uint32_t frame_hash(uint32_t then, uint32_t below)
{
    uint64_t x = ((uint64_t)then << 32 | below) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32);
}

static void insert_frame(grammar_matcher *m, uint32_t at)
{
    uint32_t mask = m->n_frame_slots - 1;
    uint32_t i = frame_hash(m->frames[at].then, m->frames[at].below) & mask;
    while (m->frame_table[i] != 0)
        i = (i + 1) & mask;
    m->frame_table[i] = at + 1;
}

static bool reserve_frame(grammar_matcher *m)
{
    if (m->n_frames < m->frames_capacity)
        return true;
    uint32_t capacity = m->frames_capacity ? 2 * m->frames_capacity : 256;
    grammar_frame *frames = mem_realloc(m->frames, capacity * sizeof *frames);
    if (!frames)
        return false;
    m->frames = frames;
    uint32_t *table = mem_calloc(2 * (size_t)capacity, sizeof *table);
    if (!table)
        return false;
    mem_free(m->frame_table);
    m->frame_table = table;
    m->n_frame_slots = 2 * capacity;
    m->frames_capacity = capacity;
    for (uint32_t i = 2; i < m->n_frames; i++)
        insert_frame(m, i);
    return true;
}

/* The frame that goes on in `then` above `below`; the same one for equal arguments. */
static uint32_t push_frame(grammar_matcher *m, uint32_t then, uint32_t below)
{
    uint32_t mask = m->n_frame_slots - 1;
    for (uint32_t i = frame_hash(then, below) & mask; m->frame_table[i] != 0; i = (i + 1) & mask) {
        uint32_t at = m->frame_table[i] - 1;
        if (m->frames[at].then == then && m->frames[at].below == below)
            return at;
    }
    if (!reserve_frame(m)) {
        m->is_out_of_memory = true;
        return below;
    }
    m->frames[m->n_frames] = (grammar_frame){then, below, m->frames[below].depth + 1};
    insert_frame(m, m->n_frames);
    return m->n_frames++;
}

/*
 * Throw away the frames that no position needs. A frame lies behind the one below it, so one pass
 * backwards finds them, and one forwards gives them new numbers.
 */
static void collect_frames(grammar_matcher *m)
{
    uint32_t *moved = mem_calloc(m->n_frames, sizeof *moved);
    if (!moved)
        return; /* then later */
    masks_forget(m);
    for (grammar_position *p = m->positions; p; p = p->following)
        for (uint32_t i = 0; i < p->threads.n; i++)
            moved[p->threads.data[i].frame] = 1;
    for (uint32_t i = m->n_frames; i-- > 2;)
        if (moved[i])
            moved[m->frames[i].below] = 1;
    uint32_t n = 2;
    moved[FRAME_BOTTOM] = FRAME_BOTTOM;
    moved[FRAME_UNKNOWN] = FRAME_UNKNOWN;
    memset(m->frame_table, 0, m->n_frame_slots * sizeof *m->frame_table);
    for (uint32_t i = 2; i < m->n_frames; i++) {
        if (!moved[i])
            continue;
        grammar_frame f = m->frames[i];
        m->frames[n] = (grammar_frame){f.then, moved[f.below], f.depth};
        insert_frame(m, n);
        moved[i] = n++;
    }
    m->n_frames = n;
    for (grammar_position *p = m->positions; p; p = p->following)
        for (uint32_t i = 0; i < p->threads.n; i++)
            p->threads.data[i].frame = moved[p->threads.data[i].frame];
    while (m->frames_limit < 2 * n)
        m->frames_limit *= 2;
    mem_free(moved);
}

/* ---- Threads --------------------------------------------------------------------------------- */

void matcher_begin_closure(grammar_matcher *m)
{
    m->seen.n = 0;
    if (++m->stamp == 0) {
        memset(m->slots, 0, SEEN_SLOTS * sizeof *m->slots);
        m->stamp = 1;
    }
    m->is_complete = m->is_left = false;
}

/* Whether a thread is new in this closure; then it is noted. */
static bool note_seen(grammar_matcher *m, grammar_thread t)
{
    uint64_t key = ((uint64_t)t.state << 32 | t.frame) * 0x9e3779b97f4a7c15u + t.count;
    uint32_t i = (uint32_t)(key * 0xd6e8feb86659fd93u >> 40) & (SEEN_SLOTS - 1);
    for (; m->slots[i].stamp == m->stamp; i = (i + 1) & (SEEN_SLOTS - 1))
        if (memcmp(&m->seen.data[m->slots[i].at], &t, sizeof t) == 0)
            return false;
    if (m->seen.n >= MAX_SEEN) {
        m->is_too_ambiguous = true;
        return false;
    }
    m->slots[i] = (seen_slot){m->stamp, m->seen.n};
    if (!thread_list_add(&m->seen, t)) {
        m->slots[i].stamp = 0;
        m->is_out_of_memory = true;
        return false;
    }
    return true;
}

static void add_thread(grammar_matcher *m, thread_list *l, grammar_thread t)
{
    if (!thread_list_add(l, t))
        m->is_out_of_memory = true;
}

/* The rule of a thread is over. */
static void pop_thread(grammar_matcher *m, grammar_thread t)
{
    if (t.frame == FRAME_BOTTOM) {
        m->is_complete = true;
    } else if (t.frame == FRAME_UNKNOWN) {
        m->is_left = true;
        m->left_rounds = t.count;
    } else {
        grammar_frame f = m->frames[t.frame];
        add_thread(m, &m->work, (grammar_thread){f.then, 0, f.below});
    }
}

static void call_rule(grammar_matcher *m, grammar_thread t, grammar_call call)
{
    uint32_t frame = t.frame;
    /* A call that is the last thing a rule does needs no frame, so lists do not pile them up. */
    if (!grammar_ends(m->a, call.then)) {
        if (m->frames[t.frame].depth >= MAX_DEPTH)
            return;
        frame = push_frame(m, call.then, t.frame);
    }
    add_thread(m, &m->work, (grammar_thread){call.start, 0, frame});
}

void matcher_close(grammar_matcher *m, grammar_thread first, thread_list *out)
{
    const grammar_automaton *a = m->a;
    m->work.n = 0;
    add_thread(m, &m->work, first);
    while (m->work.n > 0) {
        grammar_thread t = m->work.data[--m->work.n];
        m->is_too_ambiguous |= ++m->n_steps > MAX_STEPS;
        m->is_stopped |= !work_goes_on(m->limit, 1);
        bool is_new = note_seen(m, t);
        if (m->is_too_ambiguous || m->is_stopped || m->is_out_of_memory)
            return;
        if (!is_new)
            continue;
        uint8_t flags = a->flags[t.state];
        bool goes_on = flags & STATE_HAS_BYTES, ends = flags & STATE_ACCEPTS;
        uint32_t k = a->counter_of[t.state];
        if (k != 0 && t.state == a->counters[k - 1].start &&
            !(m->is_relative && t.frame == FRAME_UNKNOWN)) {
            goes_on = goes_on && t.count < a->counters[k - 1].max;
            ends = ends && t.count >= a->counters[k - 1].min;
        }
        if (goes_on)
            add_thread(m, out, t);
        if (ends)
            pop_thread(m, t);
        for (uint32_t c = a->first_call[t.state]; c < a->first_call[t.state + 1]; c++)
            call_rule(m, t, a->calls[c]);
    }
}

/* The rounds after a byte that led a counting thread to `to`. */
static uint32_t count_round(const grammar_matcher *m, grammar_thread t, uint32_t to)
{
    const grammar_counter *c = &m->a->counters[m->a->counter_of[to] - 1];
    if (to != c->start)
        return t.count;
    bool is_relative = m->is_relative && t.frame == FRAME_UNKNOWN;
    if (!is_relative && c->max == GRAMMAR_NO_MAX && t.count >= c->min)
        return c->min;
    return t.count + 1;
}

bool matcher_step(grammar_matcher *m, const thread_list *from, uint32_t begin, uint32_t end,
                  uint8_t byte, thread_list *out)
{
    const grammar_automaton *a = m->a;
    bool has_moved = false;
    uint32_t n_before = out->n;
    for (uint32_t i = begin; i < end; i++) {
        grammar_thread t = from->data[i];
        uint32_t to = grammar_next(a, t.state, byte);
        if (to == STATE_DEAD)
            continue;
        if (!has_moved)
            matcher_begin_closure(m);
        has_moved = true;
        t.count = a->counter_of[to] ? count_round(m, t, to) : 0;
        t.state = to;
        /* Most bytes: one thread, which goes to a state where nothing but bytes can follow. */
        if (end - begin == 1 && a->flags[to] == STATE_HAS_BYTES)
            add_thread(m, out, t);
        else
            matcher_close(m, t, out);
    }
    /* A thread that wanted a deeper stack than there is has moved to nowhere. */
    return has_moved && (out->n > n_before || m->is_complete || m->is_left);
}

lace_status matcher_check(grammar_matcher *m, lace_error *err)
{
    bool is_out_of_memory = m->is_out_of_memory, is_too_ambiguous = m->is_too_ambiguous;
    bool is_stopped = m->is_stopped;
    m->is_out_of_memory = m->is_too_ambiguous = m->is_stopped = false;
    if (is_out_of_memory)
        return error_nomem(err, "a grammar's position");
    if (is_too_ambiguous)
        return error_set(err, LACE_E_LIMIT,
                         "the grammar is too ambiguous: more than %d ways to read the text",
                         MAX_SEEN);
    if (is_stopped)
        return error_set(err, LACE_E_LIMIT,
                         "the grammar is too ambiguous: the tokens that may come next take longer "
                         "than %d ms to find",
                         m->limit ? (int)(m->limit->max_ns / 1000000) : 0);
    return LACE_OK;
}

/* ---- The core -------------------------------------------------------------------------------- */

/* A matcher of the core prepares what it can, and tries the beginning. */
static lace_status prepare_core(grammar_core *core, lace_error *err)
{
    grammar_matcher *m;
    grammar_position *p = NULL;
    core->prepared = mem_calloc(core->a.n_states, sizeof(local_set *));
    if (!core->prepared)
        return error_nomem(err, "a grammar");
    TRY(grammar_matcher_create(core, &m, err));
    lace_status status = grammar_position_create(m, &p, err);
    grammar_position_free(p);
    if (status == LACE_OK)
        masks_prepare(m);
    grammar_matcher_free(m);
    return status;
}

lace_status grammar_core_create(grammar_automaton *a, const grammar_vocab *v, grammar_core **out,
                                lace_error *err)
{
    *out = NULL;
    grammar_core *core = mem_calloc(1, sizeof *core);
    if (!core) {
        grammar_automaton_deinit(a);
        return error_nomem(err, "a grammar");
    }
    core->a = *a;
    *a = (grammar_automaton){0};
    core->v = v;
    atomic_init(&core->n_users, 1);
    size_t n = core->a.n_states;
    core->n_bytes = sizeof *core + n * (core->a.n_classes * sizeof *core->a.next + 32) +
                    core->a.first_call[n] * sizeof *core->a.calls;
    lace_status status = prepare_core(core, err);
    return GIVE_OR_FREE(status, core, out, grammar_core_unref);
}

grammar_core *grammar_core_ref(grammar_core *core)
{
    atomic_fetch_add(&core->n_users, 1);
    return core;
}

void grammar_core_unref(grammar_core *core)
{
    if (!core || atomic_fetch_sub(&core->n_users, 1) > 1)
        return;
    for (uint32_t s = 0; core->prepared && s < core->a.n_states; s++)
        local_set_free(core->prepared[s]);
    mem_free(core->prepared);
    grammar_automaton_deinit(&core->a);
    mem_free(core);
}

size_t grammar_core_bytes(const grammar_core *core)
{
    return core->n_bytes;
}

/* ---- The matcher ----------------------------------------------------------------------------- */

lace_status grammar_matcher_create(grammar_core *core, grammar_matcher **out, lace_error *err)
{
    *out = NULL;
    grammar_matcher *m = mem_calloc(1, sizeof *m);
    if (!m)
        return error_nomem(err, "a grammar");
    m->core = grammar_core_ref(core);
    m->a = &core->a;
    m->v = core->v;
    m->frames_limit = FIRST_FRAMES_LIMIT;
    m->slots = mem_calloc(SEEN_SLOTS, sizeof *m->slots);
    lace_status status = m->slots && reserve_frame(m) ? LACE_OK : error_nomem(err, "a grammar");
    if (status == LACE_OK) {
        m->frames[FRAME_BOTTOM] = m->frames[FRAME_UNKNOWN] = (grammar_frame){0};
        m->n_frames = 2;
        status = masks_init(m, err);
    }
    return GIVE_OR_FREE(status, m, out, grammar_matcher_free);
}

void grammar_matcher_free(grammar_matcher *m)
{
    if (!m)
        return;
    masks_deinit(m);
    grammar_core_unref(m->core);
    mem_free_all(m->frames, m->frame_table, m->work.data, m->seen.data, m->slots, m);
}

void grammar_matcher_limit(grammar_matcher *m, work_limit *limit)
{
    m->limit = limit;
}

void grammar_matcher_count(const grammar_matcher *m, grammar_counts *out)
{
    *out = m->counts;
    out->n_frames = m->n_frames;
}

/* ---- Positions ------------------------------------------------------------------------------- */

static int compare_threads(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(grammar_thread)); /* any order will do */
}

static grammar_position *add_position(grammar_matcher *m)
{
    grammar_position *p = mem_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->m = m;
    p->following = m->positions;
    if (m->positions)
        m->positions->previous = p;
    m->positions = p;
    return p;
}

lace_status grammar_position_create(grammar_matcher *m, grammar_position **out, lace_error *err)
{
    *out = NULL;
    grammar_position *p = add_position(m);
    if (!p)
        return error_nomem(err, "a grammar's position");
    m->n_steps = 0;
    matcher_begin_closure(m);
    matcher_close(m, (grammar_thread){m->a->start, 0, FRAME_BOTTOM}, &p->threads);
    p->is_complete = m->is_complete;
    lace_status status = matcher_check(m, err);
    if (status != LACE_OK) {
        grammar_position_free(p);
        return status;
    }
    if (p->threads.n > 1)
        qsort(p->threads.data, p->threads.n, sizeof *p->threads.data, compare_threads);
    *out = p;
    return LACE_OK;
}

lace_status grammar_position_clone(const grammar_position *p, grammar_position **out,
                                   lace_error *err)
{
    *out = NULL;
    grammar_position *q = add_position(p->m);
    if (!q)
        return error_nomem(err, "a grammar's position");
    q->is_complete = p->is_complete;
    q->is_ended = p->is_ended;
    for (uint32_t i = 0; i < p->threads.n; i++)
        if (!thread_list_add(&q->threads, p->threads.data[i])) {
            grammar_position_free(q);
            return error_nomem(err, "a grammar's position");
        }
    *out = q;
    return LACE_OK;
}

void grammar_position_free(grammar_position *p)
{
    if (!p)
        return;
    if (p->previous)
        p->previous->following = p->following;
    else
        p->m->positions = p->following;
    if (p->following)
        p->following->previous = p->previous;
    mem_free_all(p->threads.data, p);
}

lace_status grammar_position_advance(grammar_position *p, text bytes, lace_error *err)
{
    grammar_matcher *m = p->m;
    if (m->n_frames > m->frames_limit)
        collect_frames(m);
    m->n_steps = 0;
    /* The tree's scratch list holds the threads after each byte, the last ones at its end. */
    thread_list *walk = &m->walk;
    const thread_list *from = &p->threads;
    uint32_t begin = 0, end = p->threads.n;
    bool is_complete = p->is_complete;
    walk->n = 0;
    for (size_t i = 0; i < bytes.size; i++) {
        uint32_t next = walk->n;
        bool has_moved = matcher_step(m, from, begin, end, (uint8_t)bytes.data[i], walk);
        TRY(matcher_check(m, err));
        if (!has_moved)
            return error_set(err, LACE_E_GRAMMAR, "the text leaves the grammar at byte %zu of %zu",
                             i, bytes.size);
        /* A single thread may have gone the short way, which ends nothing. */
        is_complete = m->is_complete;
        from = walk;
        begin = next;
        end = walk->n;
    }
    thread_list kept = {0};
    for (uint32_t i = begin; i < end; i++)
        if (!thread_list_add(&kept, from->data[i])) {
            mem_free(kept.data);
            return error_nomem(err, "a grammar's position");
        }
    if (kept.n > 1)
        qsort(kept.data, kept.n, sizeof *kept.data, compare_threads);
    mem_free(p->threads.data);
    p->threads = kept;
    p->is_complete = is_complete;
    return LACE_OK;
}

lace_status grammar_position_accept(grammar_position *p, lace_token token, lace_error *err)
{
    const grammar_vocab *v = p->m->v;
    if (p->is_ended)
        return error_set(err, LACE_E_GRAMMAR, "token %d comes after the end", token);
    if (token < 0 || token >= v->n_vocab || v->kind[token] == GRAMMAR_TOKEN_OTHER)
        return error_set(err, LACE_E_GRAMMAR, "token %d is not a token of text", token);
    if (v->kind[token] != GRAMMAR_TOKEN_END)
        return grammar_position_advance(p, v->bytes[token], err);
    if (!p->is_complete)
        return error_set(err, LACE_E_GRAMMAR, "the text ends before the grammar allows it");
    p->is_ended = true;
    p->threads.n = 0;
    return LACE_OK;
}

bool grammar_position_is_complete(const grammar_position *p)
{
    return p->is_complete;
}

bool grammar_position_is_finished(const grammar_position *p)
{
    return p->is_complete && p->threads.n == 0;
}
