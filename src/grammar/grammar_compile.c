/*
 * From nondeterministic automata to deterministic ones, by sets of states, and the checks that make
 * a grammar safe to walk: every state can reach the end of its rule, and no rule can call itself
 * before it has read a byte.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "grammar/grammar_automaton.h"

enum {
    MAX_STATES = 250000,
    MAX_TABLE = 16 << 20, /* entries: states times classes */
    MAX_STEPS = 60000000, /* of following transitions, where no limit of time is given */
    MAX_SET_BYTES = 64 << 20,
};

/* A list of states. */
typedef struct state_list {
    uint32_t *data;
    uint32_t n;
    size_t capacity;
} state_list;

static bool list_add(state_list *l, uint32_t state)
{
    if (!mem_grow(&l->data, l->n, &l->capacity, sizeof *l->data, 64))
        return false;
    l->data[l->n++] = state;
    return true;
}

typedef struct unit_call {
    uint32_t from, unit, then;
} unit_call;

typedef struct compiler {
    const nfa *n;
    grammar_automaton *a;
    uint32_t states_capacity;
    unit_call *calls; /* of all states, in their order */
    uint32_t n_calls;
    size_t calls_capacity;
    uint32_t *starts; /* [n_units] */

    /* Of the unit being made: its sets, and which state stands for which. */
    arena sets;
    map known;
    text *set_of; /* [states_capacity] the NFA states, as bytes */
    state_list buckets[256];
    state_list closed;
    uint32_t *stamps; /* [NFA states] the last closure that had it */
    uint32_t stamp;
    uint64_t n_steps;
} compiler;

static lace_status too_large(lace_error *err)
{
    return error_set(err, LACE_E_GRAMMAR,
                     "the grammar is too large: more than %d states, or too long to prepare",
                     MAX_STATES);
}

/* Count steps of following transitions, and of what follows from each. */
static lace_status count_steps(compiler *c, uint64_t n, lace_error *err)
{
    c->n_steps += n;
    if (c->n_steps > MAX_STEPS)
        return too_large(err);
    if (!work_goes_on(c->n->limit, n < 1000000 ? (uint32_t)n : 1000000))
        return work_limit_error(c->n->limit, "the grammar", err);
    return LACE_OK;
}

static bool reserve_state(compiler *c)
{
    grammar_automaton *a = c->a;
    if (a->n_states < c->states_capacity)
        return true;
    uint32_t capacity = c->states_capacity ? 2 * c->states_capacity : 256;
    uint32_t *next = mem_realloc(a->next, (size_t)capacity * a->n_classes * sizeof *next);
    if (next)
        a->next = next;
    uint8_t *flags = mem_realloc(a->flags, capacity);
    if (flags)
        a->flags = flags;
    uint32_t *counter_of = mem_realloc(a->counter_of, capacity * sizeof *counter_of);
    if (counter_of)
        a->counter_of = counter_of;
    text *set_of = mem_realloc(c->set_of, capacity * sizeof *set_of);
    if (set_of)
        c->set_of = set_of;
    if (!next || !flags || !counter_of || !set_of)
        return false;
    c->states_capacity = capacity;
    return true;
}

static lace_status add_state(compiler *c, text set, uint32_t *out, lace_error *err)
{
    grammar_automaton *a = c->a;
    if (a->n_states >= MAX_STATES || (size_t)a->n_states * a->n_classes >= MAX_TABLE)
        return too_large(err);
    if (!reserve_state(c))
        return error_nomem(err, "a grammar");
    *out = a->n_states++;
    memset(a->next + (size_t)*out * a->n_classes, 0, a->n_classes * sizeof *a->next);
    a->flags[*out] = 0;
    a->counter_of[*out] = 0;
    c->set_of[*out] = set;
    return LACE_OK;
}

/* ---- Sets of states -------------------------------------------------------------------------- */

static int compare_states(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* c->closed becomes what is reached from the seeds without a byte, sorted. */
static lace_status close_set(compiler *c, const state_list *seeds, lace_error *err)
{
    c->stamp++;
    c->closed.n = 0;
    bool ok = true;
    for (uint32_t i = 0; i < seeds->n; i++)
        if (c->stamps[seeds->data[i]] != c->stamp) {
            c->stamps[seeds->data[i]] = c->stamp;
            ok = ok && list_add(&c->closed, seeds->data[i]);
        }
    uint64_t n_edges = 0;
    for (uint32_t i = 0; ok && i < c->closed.n; i++) {
        for (uint32_t e = c->n->first_edge[c->closed.data[i]]; e; e = c->n->edges[e].next) {
            const nfa_edge *edge = &c->n->edges[e];
            n_edges++;
            if (edge->kind == EDGE_EMPTY && c->stamps[edge->to] != c->stamp) {
                c->stamps[edge->to] = c->stamp;
                ok = ok && list_add(&c->closed, edge->to);
            }
        }
    }
    if (!ok)
        return error_nomem(err, "a grammar");
    if (c->closed.n > 1)
        qsort(c->closed.data, c->closed.n, sizeof *c->closed.data, compare_states);
    return count_steps(c, 1 + n_edges + 4 * (uint64_t)c->closed.n, err);
}

/* The state that stands for the closure of the seeds; a new one if need be. */
static lace_status find_state(compiler *c, const state_list *seeds, uint32_t *out, lace_error *err)
{
    TRY(close_set(c, seeds, err));
    text set = {(const char *)c->closed.data, c->closed.n * sizeof *c->closed.data};
    int32_t found = map_find(&c->known, set);
    if (found >= 0) {
        *out = (uint32_t)found;
        return LACE_OK;
    }
    if (set.size > c->sets.max - c->sets.used)
        return too_large(err);
    char *copy = arena_strndup(&c->sets, set.data, set.size);
    if (!copy)
        return error_nomem(err, "a grammar");
    set.data = copy;
    TRY(add_state(c, set, out, err));
    if (map_add(&c->known, set, (int32_t)*out) != LACE_OK)
        return error_nomem(err, "a grammar");
    return LACE_OK;
}

static bool same_seeds(const state_list *a, const state_list *b)
{
    return a->n == b->n && memcmp(a->data, b->data, a->n * sizeof *a->data) == 0;
}

/* The states of an existing set; aligned, as they come from an arena. */
static const uint32_t *states_of(text set)
{
    return (const uint32_t *)(const void *)set.data;
}

static lace_status add_transitions(compiler *c, uint32_t state, lace_error *err)
{
    grammar_automaton *a = c->a;
    text set = c->set_of[state];
    for (uint32_t k = 0; k < a->n_classes; k++)
        c->buckets[k].n = 0;
    bool ok = true;
    uint64_t n_steps = a->n_classes;
    for (size_t i = 0; i < set.size / sizeof(uint32_t); i++)
        for (uint32_t e = c->n->first_edge[states_of(set)[i]]; e; e = c->n->edges[e].next) {
            const nfa_edge *edge = &c->n->edges[e];
            if (edge->kind != EDGE_BYTES)
                continue;
            for (uint32_t k = a->classes[edge->low]; k <= a->classes[edge->high]; k++) {
                ok = ok && list_add(&c->buckets[k], edge->to);
                n_steps++;
            }
        }
    if (!ok)
        return error_nomem(err, "a grammar");
    TRY(count_steps(c, n_steps, err));
    uint32_t target = STATE_DEAD;
    for (uint32_t k = 0; k < a->n_classes; k++) {
        if (c->buckets[k].n == 0)
            continue;
        /* Neighbours mostly lead to the same place. */
        if (k == 0 || !same_seeds(&c->buckets[k], &c->buckets[k - 1]))
            TRY(find_state(c, &c->buckets[k], &target, err));
        a->next[(size_t)state * a->n_classes + k] = target;
        a->flags[state] |= STATE_HAS_BYTES;
    }
    return LACE_OK;
}

static int compare_calls(const void *a, const void *b)
{
    const unit_call *x = a, *y = b;
    return x->unit != y->unit ? (x->unit > y->unit) - (x->unit < y->unit)
                              : (x->then > y->then) - (x->then < y->then);
}

static lace_status add_call(compiler *c, unit_call call, lace_error *err)
{
    if (!mem_grow(&c->calls, c->n_calls, &c->calls_capacity, sizeof *c->calls, 256))
        return error_nomem(err, "a grammar");
    c->calls[c->n_calls++] = call;
    return LACE_OK;
}

/* Calls of one rule from one state are one call, which goes on in the set of their targets. */
static lace_status add_calls(compiler *c, uint32_t state, lace_error *err)
{
    text set = c->set_of[state];
    uint32_t first = c->n_calls;
    for (size_t i = 0; i < set.size / sizeof(uint32_t); i++)
        for (uint32_t e = c->n->first_edge[states_of(set)[i]]; e; e = c->n->edges[e].next)
            if (c->n->edges[e].kind == EDGE_CALL)
                TRY(add_call(c, (unit_call){state, c->n->edges[e].rule, c->n->edges[e].to}, err));
    uint32_t end = c->n_calls;
    if (end > first)
        qsort(c->calls + first, end - first, sizeof *c->calls, compare_calls);
    uint32_t n_kept = first;
    for (uint32_t i = first; i < end;) {
        uint32_t unit = c->calls[i].unit, then;
        c->buckets[0].n = 0;
        for (; i < end && c->calls[i].unit == unit; i++)
            if (!list_add(&c->buckets[0], c->calls[i].then))
                return error_nomem(err, "a grammar");
        TRY(find_state(c, &c->buckets[0], &then, err));
        c->calls[n_kept++] = (unit_call){state, unit, then};
        c->a->flags[state] |= STATE_HAS_CALLS;
    }
    c->n_calls = n_kept;
    return LACE_OK;
}

/* In a unit that counts, the end of a round is the beginning of the next. */
static void make_counter(compiler *c, uint32_t first)
{
    grammar_automaton *a = c->a;
    for (uint32_t s = first; s < a->n_states; s++) {
        for (uint32_t k = 0; k < a->n_classes; k++) {
            uint32_t *to = &a->next[(size_t)s * a->n_classes + k];
            if (*to != STATE_DEAD && a->flags[*to] & STATE_ACCEPTS)
                *to = first;
        }
        a->counter_of[s] = a->n_counters; /* which has been added already */
    }
    a->flags[first] |= STATE_ACCEPTS;
}

static lace_status add_unit(compiler *c, uint32_t at, lace_error *err)
{
    const nfa_unit *u = &c->n->units[at];
    grammar_automaton *a = c->a;
    uint32_t first = a->n_states;
    map_deinit(&c->known);
    map_init(&c->known);
    arena_deinit(&c->sets);
    arena_init(&c->sets, MAX_SET_BYTES);

    c->buckets[0].n = 0;
    if (!list_add(&c->buckets[0], u->start))
        return error_nomem(err, "a grammar");
    TRY(find_state(c, &c->buckets[0], &c->starts[at], err));
    for (uint32_t s = first; s < a->n_states; s++) {
        TRY(add_transitions(c, s, err));
        TRY(add_calls(c, s, err));
        text set = c->set_of[s];
        for (size_t i = 0; i < set.size / sizeof(uint32_t); i++)
            if (states_of(set)[i] == u->end)
                a->flags[s] |= STATE_ACCEPTS;
    }
    if (u->counts) {
        a->counters[a->n_counters++] = (grammar_counter){first, u->min, u->max};
        make_counter(c, first);
    }
    return LACE_OK;
}

/* ---- What a byte is to the grammar ----------------------------------------------------------- */

static void make_classes(const nfa *n, grammar_automaton *a)
{
    uint32_t k = 0;
    for (int b = 0; b < 256; b++) {
        if (b > 0 && n->is_boundary[b])
            k++;
        a->classes[b] = (uint8_t)k;
    }
    a->n_classes = k + 1;
}

/* Calls in the automaton's own form. */
static lace_status finish_calls(compiler *c, lace_error *err)
{
    grammar_automaton *a = c->a;
    a->first_call = mem_calloc((size_t)a->n_states + 1, sizeof *a->first_call);
    a->calls = mem_calloc(c->n_calls ? c->n_calls : 1, sizeof *a->calls);
    if (!a->first_call || !a->calls)
        return error_nomem(err, "a grammar");
    uint32_t k = 0;
    for (uint32_t s = 0; s < a->n_states; s++) {
        a->first_call[s] = k;
        for (; k < c->n_calls && c->calls[k].from == s; k++)
            a->calls[k] = (grammar_call){c->starts[c->calls[k].unit], c->calls[k].then};
    }
    a->first_call[a->n_states] = k;
    return LACE_OK;
}

lace_status grammar_compile(const grammar_ast *g, grammar_automaton *out, lace_error *err)
{
    nfa n = {0};
    compiler c = {.n = &n, .a = out};
    lace_status status;
    *out = (grammar_automaton){0};
    map_init(&c.known);
    arena_init(&c.sets, MAX_SET_BYTES);
    TRY_GOTO(status, end, grammar_ast_check(g, err));
    TRY_GOTO(status, end, nfa_build(&n, g, err));
    make_classes(&n, out);
    c.starts = mem_calloc(n.n_units, sizeof *c.starts);
    c.stamps = mem_calloc(n.n_states, sizeof *c.stamps);
    out->counters = mem_calloc(n.n_units, sizeof *out->counters);
    if (!c.starts || !c.stamps || !out->counters) {
        status = error_nomem(err, "a grammar");
        goto end;
    }
    uint32_t dead;
    TRY_GOTO(status, end, add_state(&c, (text){"", 0}, &dead, err));
    for (uint32_t i = 0; i < n.n_units; i++)
        TRY_GOTO(status, end, add_unit(&c, i, err));
    out->start = c.starts[0];
    TRY_GOTO(status, end, finish_calls(&c, err));
    TRY_GOTO(status, end, grammar_check(out, c.starts, n.units, n.n_units, err));
end:
    nfa_deinit(&n);
    mem_free_all(c.calls, c.starts, c.stamps, c.set_of);
    for (int k = 0; k < 256; k++)
        mem_free(c.buckets[k].data);
    mem_free(c.closed.data);
    map_deinit(&c.known);
    arena_deinit(&c.sets);
    if (status != LACE_OK)
        grammar_automaton_deinit(out);
    return status;
}

void grammar_automaton_deinit(grammar_automaton *a)
{
    mem_free_all(a->next, a->flags, a->first_call, a->calls, a->counter_of, a->counters);
    *a = (grammar_automaton){0};
}
