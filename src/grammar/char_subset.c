/*
 * From an expression to a deterministic automaton over characters, with look-aheads and the ends of
 * a text anywhere.
 *
 * A look-ahead says what the rest of the text must, or must not, begin with. It is compiled first,
 * to an automaton of its own. Where the expression meets it, it becomes an obligation: a state of
 * that automaton, which goes along with the text and must accept, or must not, when the text ends.
 * So what is followed are places: a state of the expression with the obligations taken on so far.
 * States of the result are sets of places.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "grammar/char_automaton.h"

enum {
    MAX_NFA_STATES = 60000,
    MAX_LOOKS = 64,
    MAX_SET_BYTES = 32 << 20,
};

typedef struct char_look {
    const grammar_node *node; /* what it looks for; NULL: the end of the text */
    char_automaton a;
} char_look;

/* ---- The expression -------------------------------------------------------------------------- */

typedef enum char_edge_kind { CHAR_EMPTY, CHAR_SET, CHAR_START, CHAR_LOOK } char_edge_kind;

typedef struct char_edge {
    char_edge_kind kind;
    uint32_t to, next; /* next: of the same state; 0: none */
    uint32_t look;     /* CHAR_LOOK */
    bool is_negative;
    const grammar_node *set; /* CHAR_SET */
} char_edge;

typedef struct char_nfa {
    char_maker *m;
    uint32_t *first_edge; /* [n_states] */
    uint32_t n_states;
    size_t states_capacity;
    char_edge *edges; /* edges[0] is not used */
    uint32_t n_edges;
    size_t edges_capacity;
} char_nfa;

static lace_status nomem(const char_maker *m)
{
    return error_nomem(m->err, "a regex");
}

static lace_status count_work(const char_maker *m, uint32_t n)
{
    return work_goes_on(m->g->limit, n) ? LACE_OK
                                        : work_limit_error(m->g->limit, "the regex", m->err);
}

static lace_status add_state(char_nfa *n, uint32_t *out)
{
    if (n->n_states >= MAX_NFA_STATES)
        return char_too_large(n->m);
    if (!mem_grow(&n->first_edge, n->n_states, &n->states_capacity, sizeof *n->first_edge, 256))
        return nomem(n->m);
    n->first_edge[n->n_states] = 0;
    *out = n->n_states++;
    return LACE_OK;
}

static lace_status add_edge(char_nfa *n, uint32_t from, char_edge edge)
{
    TRY(count_work(n->m, 2));
    if (!mem_grow(&n->edges, n->n_edges, &n->edges_capacity, sizeof *n->edges, 256))
        return nomem(n->m);
    if (n->n_edges == 0)
        n->n_edges = 1;
    edge.next = n->first_edge[from];
    n->edges[n->n_edges] = edge;
    n->first_edge[from] = n->n_edges++;
    return LACE_OK;
}

static lace_status add_empty(char_nfa *n, uint32_t from, uint32_t to)
{
    return add_edge(n, from, (char_edge){.kind = CHAR_EMPTY, .to = to});
}

/* The automaton of what a look-ahead looks for, made once. */
static lace_status find_look(char_maker *m, const grammar_node *node, uint32_t *out)
{
    for (uint32_t i = 0; i < m->n_looks; i++)
        if (m->looks[i].node == node) {
            *out = i;
            return LACE_OK;
        }
    char_look look = {.node = node};
    const grammar_node *what = node ? node->children[0] : grammar_empty(m->g);
    lace_status status = char_compile(m, what, node != NULL, &look.a);
    if (status == LACE_OK && m->n_looks >= MAX_LOOKS)
        status =
            error_set(m->err, LACE_E_GRAMMAR, "the regex has more than %d look-aheads", MAX_LOOKS);
    if (status == LACE_OK && !m->looks) {
        m->looks = mem_calloc(MAX_LOOKS, sizeof *m->looks);
        status = m->looks ? LACE_OK : nomem(m);
    }
    if (status != LACE_OK) {
        char_automaton_deinit(&look.a);
        return status;
    }
    *out = m->n_looks++;
    m->looks[*out] = look;
    return LACE_OK;
}

void char_looks_deinit(char_maker *m)
{
    for (uint32_t i = 0; i < m->n_looks; i++)
        char_automaton_deinit(&m->looks[i].a);
    mem_free(m->looks);
    m->looks = NULL;
    m->n_looks = 0;
}

static lace_status add_node(char_nfa *n, const grammar_node *node, uint32_t from, uint32_t to);

static lace_status add_repeat(char_nfa *n, const grammar_node *node, uint32_t from, uint32_t to)
{
    const grammar_node *child = node->children[0];
    uint32_t at = from, next = from;
    for (uint32_t i = 0; i < node->min; i++, at = next) {
        TRY(add_state(n, &next));
        TRY(add_node(n, child, at, next));
    }
    if (node->max == GRAMMAR_NO_MAX) {
        TRY(add_state(n, &next));
        TRY(add_empty(n, at, next));
        TRY(add_node(n, child, next, next));
        return add_empty(n, next, to);
    }
    for (uint32_t i = node->min; i < node->max; i++, at = next) {
        TRY(add_empty(n, at, to));
        TRY(add_state(n, &next));
        TRY(add_node(n, child, at, next));
    }
    return add_empty(n, at, to);
}

static lace_status add_node(char_nfa *n, const grammar_node *node, uint32_t from, uint32_t to)
{
    char_edge edge = {.to = to};
    uint32_t next = to;
    switch (node->kind) {
    case NODE_EMPTY:
        return add_empty(n, from, to);
    case NODE_SET:
        edge.kind = CHAR_SET;
        edge.set = node;
        return add_edge(n, from, edge);
    case NODE_SEQ:
        for (uint32_t i = 0; i < node->n; i++, from = next) {
            next = to;
            if (i + 1 < node->n)
                TRY(add_state(n, &next));
            TRY(add_node(n, node->children[i], from, next));
        }
        return LACE_OK;
    case NODE_ALT:
        for (uint32_t i = 0; i < node->n; i++)
            TRY(add_node(n, node->children[i], from, to));
        return LACE_OK;
    case NODE_REPEAT:
        return add_repeat(n, node, from, to);
    case NODE_START:
        edge.kind = CHAR_START;
        return add_edge(n, from, edge);
    case NODE_END:
    case NODE_LOOK:
        edge.kind = CHAR_LOOK;
        edge.is_negative = node->kind == NODE_LOOK && node->min;
        TRY(find_look(n->m, node->kind == NODE_LOOK ? node : NULL, &edge.look));
        return add_edge(n, from, edge);
    default:
        return error_set(n->m->err, LACE_E_GRAMMAR,
                         "this regex cannot be combined with other regexes");
    }
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* A state of a look-ahead's automaton that must accept when the text ends, or must not. */
typedef struct obligation {
    uint32_t look, state;
    uint32_t is_negative;
} obligation;

typedef struct obligations {
    const obligation *list;
    uint32_t n;
} obligations;

typedef struct place {
    uint32_t state;
    uint32_t duty; /* which set of obligations; 0: none */
} place;

typedef struct place_list {
    place *data;
    uint32_t n;
    size_t capacity;
} place_list;

typedef struct subset {
    char_maker *m;
    const char_nfa *n;
    char_automaton *out;
    uint32_t end; /* of the NFA */

    arena memory;
    map known;  /* sets of places to states */
    text *sets; /* [out->capacity] of each state */
    uint32_t sets_capacity;

    map known_duties;
    obligations *duties;
    uint32_t n_duties;
    size_t duties_capacity;

    place_list *buckets; /* [n_classes] */
    place_list closed;
    place_list seen;  /* [NFA states] {closure, 1 + the last place of it with this state} */
    place_list older; /* of each place of `closed`: {1 + the one before with its state, 0} */
    uint32_t closure;
    obligation scratch[MAX_LOOKS * 4];
} subset;

static lace_status add_place(subset *s, place_list *l, place p)
{
    if (!mem_grow(&l->data, l->n, &l->capacity, sizeof *l->data, 16))
        return nomem(s->m);
    l->data[l->n++] = p;
    return LACE_OK;
}

/* From this state on every text is accepted. */
static bool accepts_all(const char_automaton *a, uint32_t state)
{
    for (uint32_t k = 0; k < a->n_classes; k++)
        if (a->next[(size_t)state * a->n_classes + k] != state)
            return false;
    return state != 0 && a->accepts[state];
}

static int compare_obligations(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(obligation));
}

/*
 * Add an obligation to a list of n, unless it is met already. False: it can never be met.
 */
static bool take_on(const subset *s, obligation *list, uint32_t *n, obligation o)
{
    const char_automaton *a = &s->m->looks[o.look].a;
    bool is_dead = o.state == 0, is_met = accepts_all(a, o.state);
    if (o.is_negative ? is_met : is_dead)
        return false;
    if (o.is_negative ? is_dead : is_met)
        return true;
    for (uint32_t i = 0; i < *n; i++)
        if (memcmp(&list[i], &o, sizeof o) == 0)
            return true;
    list[(*n)++] = o;
    return true;
}

static lace_status find_duty(subset *s, obligation *list, uint32_t n, uint32_t *out)
{
    *out = 0;
    if (n == 0)
        return LACE_OK;
    qsort(list, n, sizeof *list, compare_obligations);
    text key = {(const char *)list, n * sizeof *list};
    int32_t found = map_find(&s->known_duties, key);
    if (found >= 0) {
        *out = (uint32_t)found;
        return LACE_OK;
    }
    obligation *copy = arena_alloc(&s->memory, n, sizeof *copy);
    if (!copy)
        return char_too_large(s->m);
    memcpy(copy, list, n * sizeof *copy);
    if (!mem_grow(&s->duties, s->n_duties, &s->duties_capacity, sizeof *s->duties, 64))
        return nomem(s->m);
    *out = s->n_duties++;
    s->duties[*out] = (obligations){copy, n};
    return map_add(&s->known_duties, (text){(const char *)copy, key.size}, (int32_t)*out) == LACE_OK
               ? LACE_OK
               : nomem(s->m);
}

/* The obligations of a place with one more. *goes_on: they can be met. */
static lace_status add_duty(subset *s, uint32_t duty, obligation more, uint32_t *out, bool *goes_on)
{
    uint32_t n = s->duties[duty].n;
    enum { ROOM = sizeof s->scratch / sizeof s->scratch[0] };
    if (n + 1 > ROOM)
        return char_too_large(s->m);
    if (n)
        memcpy(s->scratch, s->duties[duty].list, n * sizeof *s->scratch);
    *goes_on = take_on(s, s->scratch, &n, more);
    *out = duty;
    return *goes_on ? find_duty(s, s->scratch, n, out) : LACE_OK;
}

/* The obligations after a character. */
static lace_status step_duty(subset *s, uint32_t duty, uint32_t class, uint32_t *out, bool *goes_on)
{
    obligations before = s->duties[duty];
    uint32_t n = 0;
    *goes_on = true;
    for (uint32_t i = 0; i < before.n && *goes_on; i++) {
        obligation o = before.list[i];
        const char_automaton *a = &s->m->looks[o.look].a;
        o.state = a->next[(size_t)o.state * a->n_classes + class];
        *goes_on = take_on(s, s->scratch, &n, o);
    }
    *out = 0;
    return *goes_on ? find_duty(s, s->scratch, n, out) : LACE_OK;
}

static bool is_met(const subset *s, uint32_t duty)
{
    for (uint32_t i = 0; i < s->duties[duty].n; i++) {
        obligation o = s->duties[duty].list[i];
        if (s->m->looks[o.look].a.accepts[o.state] == (bool)o.is_negative)
            return false;
    }
    return true;
}

/* ---- Sets of places -------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->state != y->state ? (x->state > y->state) - (x->state < y->state)
                                : (x->duty > y->duty) - (x->duty < y->duty);
}

/* A place, if it is new in the closure. */
static lace_status reach(subset *s, place p)
{
    place *seen = &s->seen.data[p.state];
    if (seen->state != s->closure)
        *seen = (place){s->closure, 0};
    for (uint32_t i = seen->duty; i > 0; i = s->older.data[i - 1].state)
        if (s->closed.data[i - 1].duty == p.duty)
            return LACE_OK;
    TRY(add_place(s, &s->older, (place){seen->duty, 0}));
    TRY(add_place(s, &s->closed, p));
    seen->duty = s->closed.n;
    return LACE_OK;
}

/* s->closed becomes what is reached from the seeds without a character, sorted. */
static lace_status close_places(subset *s, const place_list *seeds, bool at_start)
{
    s->closed.n = s->older.n = 0;
    s->closure++;
    for (uint32_t i = 0; i < seeds->n; i++)
        TRY(reach(s, seeds->data[i]));
    for (uint32_t i = 0; i < s->closed.n; i++) {
        place p = s->closed.data[i];
        for (uint32_t e = s->n->first_edge[p.state]; e; e = s->n->edges[e].next) {
            const char_edge *edge = &s->n->edges[e];
            place to = {edge->to, p.duty};
            bool goes_on = edge->kind == CHAR_EMPTY || (edge->kind == CHAR_START && at_start);
            TRY(count_work(s->m, 2));
            if (edge->kind == CHAR_LOOK) {
                obligation o = {edge->look, s->m->looks[edge->look].a.start, edge->is_negative};
                TRY(add_duty(s, p.duty, o, &to.duty, &goes_on));
            }
            if (goes_on)
                TRY(reach(s, to));
        }
    }
    if (s->closed.n > 1)
        qsort(s->closed.data, s->closed.n, sizeof *s->closed.data, compare_places);
    return count_work(s->m, 4 * s->closed.n);
}

static lace_status find_state(subset *s, const place_list *seeds, bool at_start, uint32_t *out)
{
    TRY(close_places(s, seeds, at_start));
    *out = 0;
    if (s->closed.n == 0)
        return LACE_OK;
    text key = {(const char *)s->closed.data, s->closed.n * sizeof *s->closed.data};
    int32_t found = at_start ? -1 : map_find(&s->known, key);
    if (found >= 0) {
        *out = (uint32_t)found;
        return LACE_OK;
    }
    TRY(char_add_state(s->m, s->out, out));
    if (s->sets_capacity < s->out->capacity) {
        text *sets = mem_realloc(s->sets, s->out->capacity * sizeof *sets);
        if (!sets)
            return nomem(s->m);
        s->sets = sets;
        s->sets_capacity = s->out->capacity;
    }
    place *copy = arena_alloc(&s->memory, s->closed.n, sizeof *copy);
    if (!copy)
        return char_too_large(s->m);
    memcpy(copy, s->closed.data, key.size);
    key.data = (const char *)copy;
    s->sets[*out] = key;
    for (uint32_t i = 0; i < s->closed.n; i++)
        s->out->accepts[*out] |= copy[i].state == s->end && is_met(s, copy[i].duty);
    if (!at_start && map_add(&s->known, key, (int32_t)*out) != LACE_OK)
        return nomem(s->m);
    return LACE_OK;
}

/* ---- Following ------------------------------------------------------------------------------- */

/* Where a set of characters leads a place, for each class. */
static lace_status follow_set(subset *s, place p, const char_edge *edge)
{
    const char_alphabet *a = &s->m->alphabet;
    for (uint32_t i = 0; i < edge->set->n; i++) {
        uint32_t low = 0, high = a->n_cuts;
        while (low < high) {
            uint32_t mid = (low + high) / 2;
            if (a->cuts[mid] < edge->set->ranges[i].low)
                low = mid + 1;
            else
                high = mid;
        }
        for (uint32_t c = low; c < a->n_cuts && a->cuts[c] <= edge->set->ranges[i].high; c++) {
            place to = {edge->to, 0};
            place_list *bucket = &s->buckets[a->class_of[c]];
            bool goes_on = true;
            TRY(count_work(s->m, 1));
            /* A class may lie in several stretches: once is enough. */
            if (bucket->n > 0 && bucket->data[bucket->n - 1].state == to.state && p.duty == 0 &&
                bucket->data[bucket->n - 1].duty == 0)
                continue;
            if (p.duty)
                TRY(step_duty(s, p.duty, a->class_of[c], &to.duty, &goes_on));
            if (goes_on)
                TRY(add_place(s, bucket, to));
        }
    }
    return LACE_OK;
}

static bool same_places(const place_list *a, const place_list *b)
{
    return a->n == b->n && memcmp(a->data, b->data, a->n * sizeof *a->data) == 0;
}

static lace_status follow_state(subset *s, uint32_t state)
{
    uint32_t n_classes = s->out->n_classes;
    text set = s->sets[state];
    const place *places = (const place *)(const void *)set.data;
    for (uint32_t k = 0; k < n_classes; k++)
        s->buckets[k].n = 0;
    for (size_t i = 0; i < set.size / sizeof *places; i++)
        for (uint32_t e = s->n->first_edge[places[i].state]; e; e = s->n->edges[e].next)
            if (s->n->edges[e].kind == CHAR_SET)
                TRY(follow_set(s, places[i], &s->n->edges[e]));
    uint32_t to = 0;
    for (uint32_t k = 0; k < n_classes; k++) {
        if (s->buckets[k].n == 0)
            continue;
        if (k == 0 || !same_places(&s->buckets[k], &s->buckets[k - 1]))
            TRY(find_state(s, &s->buckets[k], false, &to));
        s->out->next[(size_t)state * n_classes + k] = to;
    }
    return LACE_OK;
}

static lace_status follow_all(subset *s, uint32_t start)
{
    uint32_t dead;
    place_list first = {.data = &(place){start, 0}, .n = 1, .capacity = 1};
    s->duties = mem_calloc(64, sizeof *s->duties);
    s->duties_capacity = 64;
    s->n_duties = 1; /* none at all */
    s->buckets = mem_calloc(s->out->n_classes, sizeof *s->buckets);
    s->seen.data = mem_calloc(s->n->n_states, sizeof *s->seen.data);
    if (!s->duties || !s->buckets || !s->seen.data)
        return nomem(s->m);
    TRY(char_add_state(s->m, s->out, &dead));
    TRY(find_state(s, &first, true, &s->out->start));
    /* The set of the start is kept for no other state: only there the text begins. */
    for (uint32_t i = 1; i < s->out->n_states; i++)
        TRY(follow_state(s, i));
    return LACE_OK;
}

static lace_status determinize(char_maker *m, const char_nfa *n, uint32_t start, uint32_t end,
                               char_automaton *out)
{
    subset s = {.m = m, .n = n, .out = out, .end = end};
    *out = (char_automaton){.n_classes = m->alphabet.n_classes};
    map_init(&s.known);
    map_init(&s.known_duties);
    arena_init(&s.memory, MAX_SET_BYTES);
    lace_status status = follow_all(&s, start);
    for (uint32_t k = 0; s.buckets && k < out->n_classes; k++)
        mem_free(s.buckets[k].data);
    mem_free_all(s.buckets, s.closed.data, s.sets, s.duties);
    map_deinit(&s.known);
    map_deinit(&s.known_duties);
    mem_free_all(s.seen.data, s.older.data);
    arena_deinit(&s.memory);
    return status == LACE_OK ? char_minimize(m, out) : status;
}

lace_status char_compile(char_maker *m, const grammar_node *node, bool is_open, char_automaton *out)
{
    static const code_range all[] = {{0, 0x10FFFF}};
    static const grammar_node any = {.kind = NODE_SET, .n = 1, .ranges = all};
    char_nfa n = {.m = m};
    uint32_t start = 0, end = 0;
    *out = (char_automaton){0};
    lace_status status;
    TRY_GOTO(status, end, add_state(&n, &start));
    TRY_GOTO(status, end, add_state(&n, &end));
    TRY_GOTO(status, end, add_node(&n, node, start, end));
    if (is_open)
        TRY_GOTO(status, end,
                 add_edge(&n, end, (char_edge){.kind = CHAR_SET, .to = end, .set = &any}));
    TRY_GOTO(status, end, determinize(m, &n, start, end, out));
end:
    mem_free_all(n.first_edge, n.edges);
    return status;
}
