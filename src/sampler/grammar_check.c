/*
 * What must hold of an automaton before it is walked: no rule calls itself before it has read a
 * byte (the walk would never end), and from every state the end of the rule can be reached (the
 * walk would lead into a dead end).
 */
#include <string.h>

#include "base/mem.h"
#include "sampler/grammar_automaton.h"

enum { MAX_PASSES = 100 };

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
    uint32_t *first_source; /* [n_states + 1] into sources: who comes here, by byte or call */
    uint32_t *sources;
} liveness;

static void set_alive(liveness *l, uint32_t state)
{
    if (!l->is_alive[state]) {
        l->is_alive[state] = true;
        l->work[l->n_work++] = state;
    }
}

/* Count (sources NULL) or list who leads to each state. A call leads from its state to both ends.
 */
static void list_sources(liveness *l, uint32_t *place, uint32_t *sources)
{
    grammar_automaton *a = l->a;
    for (uint32_t s = 1; s < a->n_states; s++) {
        uint32_t last = STATE_DEAD;
        for (uint32_t k = 0; k < a->n_classes; k++) {
            uint32_t to = a->next[(size_t)s * a->n_classes + k];
            if (to == STATE_DEAD || to == last)
                continue;
            last = to;
            if (sources)
                sources[place[to]] = s;
            place[to]++;
        }
        for (uint32_t c = a->first_call[s]; c < a->first_call[s + 1]; c++) {
            uint32_t ends[2] = {a->calls[c].start, a->calls[c].then};
            for (int i = 0; i < 2; i++) {
                if (sources)
                    sources[place[ends[i]]] = s;
                place[ends[i]]++;
            }
        }
    }
}

static bool comes_alive(const liveness *l, uint32_t s)
{
    const grammar_automaton *a = l->a;
    for (uint32_t c = a->first_call[s]; c < a->first_call[s + 1]; c++)
        if (l->is_alive[a->calls[c].start] && l->is_alive[a->calls[c].then])
            return true;
    for (uint32_t k = 0; k < a->n_classes; k++)
        if (l->is_alive[a->next[(size_t)s * a->n_classes + k]])
            return true;
    return false;
}

static lace_status find_alive(liveness *l, lace_error *err)
{
    grammar_automaton *a = l->a;
    size_t n = a->n_states;
    uint32_t *place = mem_calloc(n + 1, sizeof *place);
    l->is_alive = mem_calloc(n, sizeof *l->is_alive);
    l->work = mem_calloc(n, sizeof *l->work);
    l->first_source = mem_calloc(n + 1, sizeof *l->first_source);
    if (!place || !l->is_alive || !l->work || !l->first_source) {
        mem_free(place);
        return error_nomem(err, "a grammar");
    }
    list_sources(l, place, NULL);
    uint32_t total = 0;
    for (size_t s = 0; s < n; s++) {
        l->first_source[s] = total;
        total += place[s];
        place[s] = l->first_source[s];
    }
    l->first_source[n] = total;
    l->sources = mem_calloc(total ? total : 1, sizeof *l->sources);
    if (l->sources)
        list_sources(l, place, l->sources);
    mem_free(place);
    if (!l->sources)
        return error_nomem(err, "a grammar");
    for (uint32_t s = 1; s < n; s++)
        if (a->flags[s] & STATE_ACCEPTS)
            set_alive(l, s);
    while (l->n_work > 0) {
        uint32_t s = l->work[--l->n_work];
        for (uint32_t i = l->first_source[s]; i < l->first_source[s + 1]; i++)
            if (!l->is_alive[l->sources[i]] && comes_alive(l, l->sources[i]))
                set_alive(l, l->sources[i]);
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
    const uint32_t *starts; /* [n_units] */
    uint32_t n_units;
    uint32_t *unit_at; /* [n_states] of a state that begins a unit; others: n_units */
    bool *is_nullable; /* [n_units] */
    uint32_t *stamps;  /* [n_states] */
    uint32_t stamp;
    uint32_t *reached; /* [n_states] what a unit reaches without a byte */
    uint32_t n_reached;
} recursion;

/* What a unit reaches from its start before it has read a byte, over calls that match nothing. */
static void reach_without_byte(recursion *r, uint32_t unit)
{
    const grammar_automaton *a = r->a;
    r->stamp++;
    r->n_reached = 0;
    r->reached[r->n_reached++] = r->starts[unit];
    r->stamps[r->starts[unit]] = r->stamp;
    for (uint32_t i = 0; i < r->n_reached; i++) {
        uint32_t s = r->reached[i];
        for (uint32_t c = a->first_call[s]; c < a->first_call[s + 1]; c++) {
            uint32_t then = a->calls[c].then;
            if (r->is_nullable[r->unit_at[a->calls[c].start]] && r->stamps[then] != r->stamp) {
                r->stamps[then] = r->stamp;
                r->reached[r->n_reached++] = then;
            }
        }
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

/* Rules that match the empty text. False: it would take too long to find out. */
static bool find_nullable(recursion *r)
{
    /* In both directions by turns, so that chains of rules in either order take few passes. */
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        bool changed = false;
        for (uint32_t i = 0; i < r->n_units; i++) {
            uint32_t u = pass % 2 ? i : r->n_units - 1 - i;
            if (r->is_nullable[u])
                continue;
            reach_without_byte(r, u);
            for (uint32_t k = 0; k < r->n_reached && !r->is_nullable[u]; k++)
                r->is_nullable[u] = accepts_at_once(r->a, r->reached[k]);
            changed |= r->is_nullable[u];
        }
        if (!changed)
            return true;
    }
    return false;
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
                reach_without_byte(r, entering);
                for (uint32_t i = 0; i < r->n_reached; i++)
                    for (uint32_t c = a->first_call[r->reached[i]];
                         c < a->first_call[r->reached[i] + 1]; c++) {
                        if (n_callees == capacity) {
                            capacity = capacity ? 2 * capacity : 256;
                            uint32_t *more = mem_realloc(callees, capacity * sizeof *more);
                            if (!more) {
                                status = error_nomem(err, "a grammar");
                                goto end;
                            }
                            callees = more;
                        }
                        callees[n_callees++] = r->unit_at[a->calls[c].start];
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
    mem_free(colour);
    mem_free(way);
    mem_free(callees);
    mem_free(ends);
    return status;
}

static lace_status check_recursion(const grammar_automaton *a, const uint32_t *starts,
                                   const nfa_unit *units, uint32_t n_units, lace_error *err)
{
    recursion r = {.a = a, .starts = starts, .n_units = n_units};
    size_t n = a->n_states;
    r.unit_at = mem_calloc(n, sizeof *r.unit_at);
    r.is_nullable = mem_calloc(n_units, sizeof *r.is_nullable);
    r.stamps = mem_calloc(n, sizeof *r.stamps);
    r.reached = mem_calloc(n, sizeof *r.reached);
    lace_status status = LACE_OK;
    if (!r.unit_at || !r.is_nullable || !r.stamps || !r.reached) {
        status = error_nomem(err, "a grammar");
    } else {
        for (size_t s = 0; s < n; s++)
            r.unit_at[s] = n_units;
        for (uint32_t u = 0; u < n_units; u++)
            r.unit_at[starts[u]] = u;
        if (find_nullable(&r))
            status = find_circle(&r, units, err);
        else
            status = error_set(err, LACE_E_GRAMMAR, "the rules depend on each other too deeply");
    }
    mem_free(r.unit_at);
    mem_free(r.is_nullable);
    mem_free(r.stamps);
    mem_free(r.reached);
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
    mem_free(l.is_alive);
    mem_free(l.work);
    mem_free(l.first_source);
    mem_free(l.sources);
    return status;
}
