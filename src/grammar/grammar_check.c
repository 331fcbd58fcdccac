/*
 * What must hold of an automaton before it is walked: no rule calls itself before it has read a
 * byte (the walk would never end), and from every state the end of the rule can be reached (the
 * walk would lead into a dead end).
 */
#include <string.h>

#include "base/mem.h"
#include "grammar/grammar_automaton.h"

/* Numbers in stretches: those of i are items[first[i] .. first[i + 1]). */
typedef struct stretches {
    uint32_t *first; /* [n + 1] */
    uint32_t *items;
} stretches;

static void stretches_deinit(stretches *s)
{
    mem_free_all(s->first, s->items);
    *s = (stretches){0};
}

/* Which calls lead to each state: start there, or go on there. */
static bool list_calls(const grammar_automaton *a, bool of_starts, bool of_thens, stretches *out)
{
    uint32_t n = a->n_states, n_calls = a->first_call[n];
    out->first = mem_calloc((size_t)n + 2, sizeof *out->first);
    out->items = mem_calloc(2 * (size_t)n_calls + 1, sizeof *out->items);
    if (!out->first || !out->items)
        return false;
    uint32_t *place = out->first + 1; /* one behind, so that filling leaves the beginnings */
    for (uint32_t c = 0; c < n_calls; c++) {
        if (of_starts)
            place[a->calls[c].start + 1]++;
        if (of_thens)
            place[a->calls[c].then + 1]++;
    }
    for (uint32_t s = 1; s <= n; s++)
        place[s] += place[s - 1];
    for (uint32_t c = 0; c < n_calls; c++) {
        if (of_starts)
            out->items[place[a->calls[c].start]++] = c;
        if (of_thens)
            out->items[place[a->calls[c].then]++] = c;
    }
    return true;
}

/* [number of calls] the state that each is made from; NULL: out of memory. */
static uint32_t *list_callers(const grammar_automaton *a)
{
    uint32_t *from = mem_calloc((size_t)a->first_call[a->n_states] + 1, sizeof *from);
    for (uint32_t s = 0; from && s < a->n_states; s++)
        for (uint32_t c = a->first_call[s]; c < a->first_call[s + 1]; c++)
            from[c] = s;
    return from;
}

/* ---- States that lead nowhere ---------------------------------------------------------------- */

/*
 * A state is alive if its rule can end there, or a byte leads to a live state, or a rule that can
 * end is called and the state after it is alive. From the ends backwards, over lists of who leads
 * where, in time linear in their length.
 */
typedef struct liveness {
    grammar_automaton *a;
    bool *is_alive; /* [n_states] */
    uint32_t *work; /* [n_states] states whose consequences are to be seen */
    uint32_t n_work;
    stretches sources; /* who comes to each state by a byte */
    stretches calls;   /* which calls concern it */
    uint32_t *callers; /* of all calls */
} liveness;

static void set_alive(liveness *l, uint32_t state)
{
    if (!l->is_alive[state]) {
        l->is_alive[state] = true;
        l->work[l->n_work++] = state;
    }
}

/* Count (items NULL) or list who leads to each state by a byte. */
static void visit_sources(const grammar_automaton *a, uint32_t *place, uint32_t *items)
{
    for (uint32_t s = 1; s < a->n_states; s++) {
        uint32_t last = STATE_DEAD;
        for (uint32_t k = 0; k < a->n_classes; k++) {
            uint32_t to = a->next[(size_t)s * a->n_classes + k];
            if (to == STATE_DEAD || to == last)
                continue;
            last = to;
            if (items)
                items[place[to]++] = s;
            else
                place[to + 1]++;
        }
    }
}

static bool list_sources(liveness *l)
{
    const grammar_automaton *a = l->a;
    l->sources.first = mem_calloc((size_t)a->n_states + 2, sizeof *l->sources.first);
    if (!l->sources.first)
        return false;
    uint32_t *place = l->sources.first + 1;
    visit_sources(a, place, NULL);
    for (uint32_t s = 1; s <= a->n_states; s++)
        place[s] += place[s - 1];
    l->sources.items = mem_calloc((size_t)place[a->n_states] + 1, sizeof *l->sources.items);
    if (l->sources.items)
        visit_sources(a, place, l->sources.items);
    return l->sources.items;
}

static lace_status find_alive(liveness *l, lace_error *err)
{
    grammar_automaton *a = l->a;
    size_t n = a->n_states;
    l->is_alive = mem_calloc(n, sizeof *l->is_alive);
    l->work = mem_calloc(n, sizeof *l->work);
    l->callers = list_callers(a);
    if (!l->is_alive || !l->work || !l->callers || !list_calls(a, true, true, &l->calls) ||
        !list_sources(l))
        return error_nomem(err, "a grammar");
    for (uint32_t s = 1; s < n; s++)
        if (a->flags[s] & STATE_ACCEPTS)
            set_alive(l, s);
    while (l->n_work > 0) {
        uint32_t s = l->work[--l->n_work];
        for (uint32_t i = l->sources.first[s]; i < l->sources.first[s + 1]; i++)
            set_alive(l, l->sources.items[i]);
        for (uint32_t i = l->calls.first[s]; i < l->calls.first[s + 1]; i++) {
            uint32_t c = l->calls.items[i];
            if (l->is_alive[a->calls[c].start] && l->is_alive[a->calls[c].then])
                set_alive(l, l->callers[c]);
        }
    }
    return LACE_OK;
}

static void cut_dead(liveness *l)
{
    grammar_automaton *a = l->a;
    uint32_t n_kept = 0;
    for (uint32_t s = 0; s < a->n_states; s++) {
        uint32_t begin = a->first_call[s], end = a->first_call[s + 1];
        bool has_bytes = false;
        for (uint32_t k = 0; k < a->n_classes; k++) {
            uint32_t *to = &a->next[(size_t)s * a->n_classes + k];
            if (!l->is_alive[*to])
                *to = STATE_DEAD;
            has_bytes |= *to != STATE_DEAD;
        }
        a->first_call[s] = n_kept;
        for (uint32_t c = begin; c < end; c++)
            if (l->is_alive[a->calls[c].start] && l->is_alive[a->calls[c].then])
                a->calls[n_kept++] = a->calls[c];
        a->flags[s] = (uint8_t)((a->flags[s] & STATE_ACCEPTS) | (has_bytes ? STATE_HAS_BYTES : 0) |
                                (n_kept > a->first_call[s] ? STATE_HAS_CALLS : 0));
    }
    a->first_call[a->n_states] = n_kept;
}

/* ---- Left recursion -------------------------------------------------------------------------- */

/* Rules by the states they begin in. */
typedef struct recursion {
    const grammar_automaton *a;
    const uint32_t *starts; /* [n_units] ascending: the states of a unit lie together */
    uint32_t n_units;
    uint32_t *unit_of; /* [n_states] */
    bool *is_nullable; /* [n_units] */
    bool *is_reached;  /* [n_states] from its unit's start, before a byte is read */
    uint32_t *work;    /* [n_states] reached, and not yet looked at */
    uint32_t n_work;
    stretches calls;   /* those that start in a state */
    uint32_t *callers; /* of all calls */
} recursion;

static void reach(recursion *r, uint32_t state)
{
    if (!r->is_reached[state]) {
        r->is_reached[state] = true;
        r->work[r->n_work++] = state;
    }
}

/* A counting rule is over at once only if no round is asked for. */
static bool accepts_at_once(const grammar_automaton *a, uint32_t state)
{
    if (!(a->flags[state] & STATE_ACCEPTS))
        return false;
    uint32_t k = a->counter_of[state];
    return k == 0 || a->counters[k - 1].min == 0;
}

/*
 * Rules that match the empty text, and what is reached without a byte. A call is passed when both
 * its state is reached and its rule may be empty, whichever is seen last.
 */
static void find_nullable(recursion *r)
{
    const grammar_automaton *a = r->a;
    for (uint32_t u = 0; u < r->n_units; u++)
        reach(r, r->starts[u]);
    while (r->n_work > 0) {
        uint32_t s = r->work[--r->n_work], unit = r->unit_of[s], start = r->starts[unit];
        for (uint32_t c = a->first_call[s]; c < a->first_call[s + 1]; c++)
            if (r->is_nullable[r->unit_of[a->calls[c].start]])
                reach(r, a->calls[c].then);
        if (r->is_nullable[unit] || !accepts_at_once(a, s))
            continue;
        r->is_nullable[unit] = true;
        for (uint32_t i = r->calls.first[start]; i < r->calls.first[start + 1]; i++)
            if (r->is_reached[r->callers[r->calls.items[i]]])
                reach(r, a->calls[r->calls.items[i]].then);
    }
}

/*
 * A circle among "may call before a byte": depth first, with a list of own, as there may be a
 * hundred thousand rules. A unit is on the way while colour is 1, done when it is 2.
 */
static lace_status find_circle(recursion *r, const nfa_unit *units, lace_error *err)
{
    const grammar_automaton *a = r->a;
    uint8_t *colour = mem_calloc(r->n_units, sizeof *colour);
    uint32_t *way = mem_calloc((size_t)r->n_units + 1, sizeof *way);
    uint32_t *callees = NULL; /* of the units on the way, one stretch after the other */
    uint32_t *ends = mem_calloc((size_t)r->n_units + 1, sizeof *ends);
    uint32_t n_callees = 0, capacity = 0, n_way = 0;
    lace_status status = colour && way && ends ? LACE_OK : error_nomem(err, "a grammar");
    for (uint32_t root = 0; root < r->n_units && status == LACE_OK; root++) {
        uint32_t entering = colour[root] == 0 ? root : r->n_units;
        while (entering < r->n_units || n_way > 0) {
            if (entering < r->n_units) {
                colour[entering] = 1;
                ends[n_way] = n_callees;
                way[n_way++] = entering;
                uint32_t end = entering + 1 < r->n_units ? r->starts[entering + 1] : a->n_states;
                for (uint32_t s = r->starts[entering]; s < end; s++)
                    for (uint32_t c = a->first_call[s];
                         r->is_reached[s] && c < a->first_call[s + 1]; c++) {
                        if (n_callees == capacity) {
                            capacity = capacity ? 2 * capacity : 256;
                            uint32_t *more = mem_realloc(callees, capacity * sizeof *more);
                            if (!more) {
                                status = error_nomem(err, "a grammar");
                                goto end;
                            }
                            callees = more;
                        }
                        callees[n_callees++] = r->unit_of[a->calls[c].start];
                    }
                entering = r->n_units;
            }
            if (n_callees == ends[n_way - 1]) {
                colour[way[--n_way]] = 2;
                continue;
            }
            uint32_t callee = callees[--n_callees];
            if (colour[callee] == 1) {
                status = error_set(err, LACE_E_GRAMMAR,
                                   "left recursion: the rule \"%.*s\" can begin with itself",
                                   text_width(units[callee].name), units[callee].name.data);
                goto end;
            }
            if (colour[callee] == 0)
                entering = callee;
        }
    }
end:
    mem_free_all(colour, way, callees, ends);
    return status;
}

static lace_status check_recursion(const grammar_automaton *a, const uint32_t *starts,
                                   const nfa_unit *units, uint32_t n_units, lace_error *err)
{
    recursion r = {.a = a, .starts = starts, .n_units = n_units};
    size_t n = a->n_states;
    r.unit_of = mem_calloc(n, sizeof *r.unit_of);
    r.is_nullable = mem_calloc(n_units, sizeof *r.is_nullable);
    r.is_reached = mem_calloc(n, sizeof *r.is_reached);
    r.work = mem_calloc(n, sizeof *r.work);
    r.callers = list_callers(a);
    lace_status status = LACE_OK;
    if (!r.unit_of || !r.is_nullable || !r.is_reached || !r.work || !r.callers ||
        !list_calls(a, true, false, &r.calls)) {
        status = error_nomem(err, "a grammar");
    } else {
        for (uint32_t s = starts[0], u = 0; s < n; s++) {
            u += u + 1 < n_units && starts[u + 1] == s;
            r.unit_of[s] = u;
        }
        find_nullable(&r);
        status = find_circle(&r, units, err);
    }
    mem_free_all(r.unit_of, r.is_nullable, r.is_reached, r.work, r.callers);
    stretches_deinit(&r.calls);
    return status;
}

lace_status grammar_check(grammar_automaton *a, const uint32_t *starts, const nfa_unit *units,
                          uint32_t n_units, lace_error *err)
{
    TRY(check_recursion(a, starts, units, n_units, err));
    liveness l = {.a = a};
    lace_status status = find_alive(&l, err);
    if (status == LACE_OK) {
        cut_dead(&l);
        if (!l.is_alive[a->start])
            status = error_set(err, LACE_E_GRAMMAR,
                               "no text matches the grammar: the rule \"%.*s\" never ends",
                               text_width(units[0].name), units[0].name.data);
    }
    mem_free_all(l.is_alive, l.work, l.callers);
    stretches_deinit(&l.sources);
    stretches_deinit(&l.calls);
    return status;
}
