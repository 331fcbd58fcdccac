/* Automata over characters: alphabets, products, fewest states, and back to a node. */
#include "grammar/char_automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum {
    MAX_LENGTH = 4096, /* that is counted by states */
    FEW_STATES = 64,   /* of which each may have its characters written out */
};

static lace_status nomem(const char_maker *m)
{
    return error_nomem(m->err, "a regex");
}

lace_status char_too_large(const char_maker *m)
{
    return error_set(m->err, LACE_E_GRAMMAR,
                     "the regex is too large: its conditions together need more than %d states",
                     CHAR_MAX_STATES);
}

static lace_status count_work(const char_maker *m, uint32_t n)
{
    return work_goes_on(m->g->limit, n) ? LACE_OK
                                        : work_limit_error(m->g->limit, "the regex", m->err);
}

/* ---- Automata -------------------------------------------------------------------------------- */

void char_automaton_deinit(char_automaton *a)
{
    mem_free_all(a->next, a->accepts);
    *a = (char_automaton){0};
}

lace_status char_add_state(char_maker *m, char_automaton *a, uint32_t *out)
{
    if (a->n_states >= CHAR_MAX_STATES ||
        ((uint64_t)a->n_states + 1) * a->n_classes > CHAR_MAX_TABLE)
        return char_too_large(m);
    TRY(count_work(m, 1 + a->n_classes / 4));
    if (a->n_states == a->capacity) {
        uint32_t capacity = a->capacity ? 2 * a->capacity : 64;
        uint32_t *next = mem_realloc(a->next, (size_t)capacity * a->n_classes * sizeof *next);
        if (next)
            a->next = next;
        bool *accepts = mem_realloc(a->accepts, capacity * sizeof *accepts);
        if (accepts)
            a->accepts = accepts;
        if (!next || !accepts)
            return nomem(m);
        a->capacity = capacity;
    }
    *out = a->n_states++;
    memset(a->next + (size_t)*out * a->n_classes, 0, a->n_classes * sizeof *a->next);
    a->accepts[*out] = false;
    return LACE_OK;
}

/* Texts of min to max characters, whichever they are. */
static lace_status make_lengths(char_maker *m, uint32_t min, uint32_t max, char_automaton *out)
{
    uint32_t last = max == GRAMMAR_NO_MAX ? min : max, state;
    *out = (char_automaton){.n_classes = m->alphabet.n_classes, .start = 1};
    if (last > MAX_LENGTH)
        return char_too_large(m);
    TRY(char_add_state(m, out, &state));
    for (uint32_t i = 0; i <= last; i++) {
        TRY(char_add_state(m, out, &state));
        out->accepts[state] = i >= min;
        uint32_t to = i < last ? state + 1 : max == GRAMMAR_NO_MAX ? state : 0;
        for (uint32_t k = 0; k < out->n_classes; k++)
            out->next[(size_t)state * out->n_classes + k] = to;
    }
    return LACE_OK;
}

/* ---- Products -------------------------------------------------------------------------------- */

typedef struct pair {
    uint32_t a, b;
} pair;

typedef struct product {
    char_maker *m;
    const char_automaton *a, *b;
    char_automaton *out;
    map known;
    arena memory;
    const pair **pairs; /* [out->capacity] of each state */
    uint32_t pairs_capacity;
} product;

static lace_status find_pair(product *p, pair which, uint32_t *out)
{
    *out = 0;
    if (which.a == 0 || which.b == 0)
        return LACE_OK;
    int32_t found = map_find(&p->known, (text){(const char *)&which, sizeof which});
    if (found >= 0) {
        *out = (uint32_t)found;
        return LACE_OK;
    }
    TRY(char_add_state(p->m, p->out, out));
    if (p->pairs_capacity < p->out->capacity) {
        const pair **pairs = mem_realloc(p->pairs, p->out->capacity * sizeof *pairs);
        if (!pairs)
            return nomem(p->m);
        p->pairs = pairs;
        p->pairs_capacity = p->out->capacity;
    }
    pair *copy = arena_alloc(&p->memory, 1, sizeof *copy);
    if (!copy)
        return nomem(p->m);
    *copy = which;
    p->pairs[*out] = copy;
    p->out->accepts[*out] = p->a->accepts[which.a] && p->b->accepts[which.b];
    return map_add(&p->known, (text){(const char *)copy, sizeof *copy}, (int32_t)*out) == LACE_OK
               ? LACE_OK
               : nomem(p->m);
}

static lace_status follow_pairs(product *p)
{
    uint32_t n_classes = p->out->n_classes, dead;
    TRY(char_add_state(p->m, p->out, &dead));
    TRY(find_pair(p, (pair){p->a->start, p->b->start}, &p->out->start));
    for (uint32_t s = 1; s < p->out->n_states; s++) {
        pair at = *p->pairs[s];
        for (uint32_t k = 0; k < n_classes; k++) {
            uint32_t to;
            pair next = {p->a->next[(size_t)at.a * n_classes + k],
                         p->b->next[(size_t)at.b * n_classes + k]};
            TRY(find_pair(p, next, &to));
            p->out->next[(size_t)s * n_classes + k] = to;
        }
        TRY(count_work(p->m, 2 * n_classes));
    }
    return LACE_OK;
}

/* a becomes what both match. */
static lace_status intersect(char_maker *m, char_automaton *a, const char_automaton *b)
{
    char_automaton both = {.n_classes = a->n_classes};
    product p = {.m = m, .a = a, .b = b, .out = &both};
    map_init(&p.known);
    arena_init(&p.memory, SIZE_MAX / 4);
    lace_status status = follow_pairs(&p);
    map_deinit(&p.known);
    arena_deinit(&p.memory);
    mem_free(p.pairs);
    char_automaton_deinit(a);
    *a = both;
    return status == LACE_OK ? char_minimize(m, a) : status;
}

/* ---- The alphabet ---------------------------------------------------------------------------- */

typedef struct cut_list {
    uint32_t *data;
    size_t n, capacity;
} cut_list;

static bool add_cut(cut_list *l, uint32_t cut)
{
    if (!mem_grow(&l->data, l->n, &l->capacity, sizeof *l->data, 64))
        return false;
    l->data[l->n++] = cut;
    return true;
}

static int compare_cuts(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Depth is that of the expression, which its reader bounds. */
static lace_status visit_sets(char_maker *m, const grammar_node *node,
                              lace_status (*visit)(char_maker *, const grammar_node *, void *),
                              void *arg)
{
    TRY(count_work(m, 1));
    if (node->kind == NODE_SET)
        return visit(m, node, arg);
    if (node->kind == NODE_SEQ || node->kind == NODE_ALT || node->kind == NODE_REPEAT ||
        node->kind == NODE_LOOK)
        for (uint32_t i = 0; i < node->n; i++)
            TRY(visit_sets(m, node->children[i], visit, arg));
    return LACE_OK;
}

static lace_status add_cuts(char_maker *m, const grammar_node *set, void *arg)
{
    cut_list *l = arg;
    for (uint32_t i = 0; i < set->n; i++)
        if (!add_cut(l, set->ranges[i].low) || !add_cut(l, set->ranges[i].high + 1))
            return nomem(m);
    return count_work(m, set->n);
}

static uint32_t find_cut(const char_alphabet *a, uint32_t code)
{
    uint32_t low = 0, high = a->n_cuts;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (a->cuts[mid] < code)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Stretches of a class that a set has only in part become a class of their own. */
static lace_status split_classes(char_maker *m, const grammar_node *set, void *arg)
{
    char_alphabet *a = &m->alphabet;
    uint32_t *moved = arg; /* [n_cuts + 1] the new class of an old one; 0: none yet */
    uint32_t n_before = a->n_classes, n_inside = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t end = find_cut(a, set->ranges[i].high + 1);
        for (uint32_t c = find_cut(a, set->ranges[i].low); c < end; c++, n_inside++) {
            uint32_t *to = &moved[a->class_of[c]];
            if (*to == 0)
                *to = a->n_classes++;
            a->class_of[c] = *to;
        }
    }
    /* Classes that have moved as a whole leave a number unused; those are closed at the end. */
    memset(moved, 0, n_before * sizeof *moved);
    return count_work(m, 1 + n_inside);
}

/* Number the classes that are left from 0. */
static void close_classes(char_alphabet *a, uint32_t *number, uint32_t n_numbers)
{
    memset(number, 0, n_numbers * sizeof *number);
    uint32_t n = 0;
    for (uint32_t c = 0; c < a->n_cuts; c++) {
        if (number[a->class_of[c]] == 0)
            number[a->class_of[c]] = ++n;
        a->class_of[c] = number[a->class_of[c]] - 1;
    }
    a->n_classes = n;
}

static lace_status split_and_close(char_maker *m, const grammar_node *set, void *arg)
{
    TRY(split_classes(m, set, arg));
    char_alphabet *a = &m->alphabet;
    uint32_t *moved = arg;
    if (a->n_classes > a->n_cuts) { /* numbers are out: give those of classes that are gone again */
        close_classes(a, moved, 2 * a->n_cuts + 2);
        memset(moved, 0, (2 * (size_t)a->n_cuts + 2) * sizeof *moved);
        return count_work(m, a->n_cuts);
    }
    return LACE_OK;
}

static lace_status make_alphabet(char_maker *m, const grammar_node *const *nodes, size_t n)
{
    char_alphabet *a = &m->alphabet;
    cut_list l = {0};
    lace_status status =
        add_cut(&l, 0) && add_cut(&l, 0x110000) && add_cut(&l, 0xD800) && add_cut(&l, 0xE000)
            ? LACE_OK
            : nomem(m);
    for (size_t i = 0; i < n && status == LACE_OK; i++)
        status = visit_sets(m, nodes[i], add_cuts, &l);
    if (status != LACE_OK) {
        mem_free(l.data);
        return status;
    }
    qsort(l.data, l.n, sizeof *l.data, compare_cuts);
    size_t kept = 1;
    for (size_t i = 1; i < l.n; i++)
        if (l.data[i] != l.data[kept - 1])
            l.data[kept++] = l.data[i];
    a->cuts = l.data;
    a->n_cuts = (uint32_t)kept - 1;
    a->class_of = mem_calloc(a->n_cuts, sizeof *a->class_of);
    a->n_classes = 1;
    uint32_t *moved = mem_calloc(2 * (size_t)a->n_cuts + 2, sizeof *moved);
    status = a->class_of && moved ? LACE_OK : nomem(m);
    for (size_t i = 0; i < n && status == LACE_OK; i++)
        status = visit_sets(m, nodes[i], split_and_close, moved);
    if (status == LACE_OK)
        close_classes(a, moved, 2 * a->n_cuts + 2);
    mem_free(moved);
    return status;
}

/* ---- Fewest states --------------------------------------------------------------------------- */

/*
 * Valmari and Lehtinen, "Efficient minimization of DFAs with partial transition functions": blocks
 * of states and of transitions are split by each other until nothing changes.
 */
typedef struct partition {
    uint32_t n_blocks;
    uint32_t *items, *place, *block; /* [n] the items by block; where each is; in which */
    uint32_t *first, *end, *marked;  /* [n] of each block */
    uint32_t *touched;               /* blocks with marks */
    uint32_t n_touched;
} partition;

static bool partition_init(partition *p, uint32_t n)
{
    size_t size = n ? n : 1;
    *p = (partition){.n_blocks = n > 0};
    bool ok = (p->items = mem_calloc(size, sizeof *p->items)) &&
              (p->place = mem_calloc(size, sizeof *p->place)) &&
              (p->block = mem_calloc(size, sizeof *p->block)) &&
              (p->first = mem_calloc(size, sizeof *p->first)) &&
              (p->end = mem_calloc(size, sizeof *p->end)) &&
              (p->marked = mem_calloc(size, sizeof *p->marked)) &&
              (p->touched = mem_calloc(size, sizeof *p->touched));
    for (uint32_t i = 0; ok && i < n; i++)
        p->items[i] = p->place[i] = i;
    if (ok && n > 0)
        p->end[0] = n;
    return ok;
}

static void partition_deinit(partition *p)
{
    mem_free_all(p->items, p->place, p->block, p->first, p->end, p->marked, p->touched);
}

static void mark_item(partition *p, uint32_t item)
{
    uint32_t b = p->block[item], i = p->place[item], j = p->first[b] + p->marked[b];
    if (i < j)
        return;
    p->items[i] = p->items[j];
    p->place[p->items[i]] = i;
    p->items[j] = item;
    p->place[item] = j;
    if (p->marked[b]++ == 0)
        p->touched[p->n_touched++] = b;
}

/* What is marked becomes a block, or the rest does if that is less. */
static void split_blocks(partition *p)
{
    while (p->n_touched > 0) {
        uint32_t b = p->touched[--p->n_touched], j = p->first[b] + p->marked[b];
        if (j == p->end[b]) {
            p->marked[b] = 0;
            continue;
        }
        uint32_t fresh = p->n_blocks++;
        if (p->marked[b] <= p->end[b] - j) {
            p->first[fresh] = p->first[b];
            p->end[fresh] = p->first[b] = j;
        } else {
            p->end[fresh] = p->end[b];
            p->first[fresh] = p->end[b] = j;
        }
        for (uint32_t i = p->first[fresh]; i < p->end[fresh]; i++)
            p->block[p->items[i]] = fresh;
        p->marked[b] = p->marked[fresh] = 0;
    }
}

typedef struct minimizer {
    char_maker *m;
    const char_automaton *a;
    bool *is_useful;     /* [n_states] reached from the start, and an end from it */
    uint32_t *from, *to; /* [n_edges] transitions between useful states, by class */
    uint32_t n_edges;
    uint32_t *first_class;       /* [n_classes + 1] into them */
    uint32_t *first_into, *into; /* those that lead to a state */
    partition states, edges;
} minimizer;

static void minimizer_deinit(minimizer *z)
{
    mem_free_all(z->is_useful, z->from, z->to, z->first_class, z->first_into, z->into);
    partition_deinit(&z->states);
    partition_deinit(&z->edges);
}

/* Transitions by the state that they lead to; all states are reached, as they were made so. */
static lace_status list_into(minimizer *z)
{
    uint32_t n = z->a->n_states;
    mem_free_all(z->first_into, z->into);
    z->first_into = mem_calloc((size_t)n + 2, sizeof *z->first_into);
    z->into = mem_calloc((size_t)z->n_edges + 1, sizeof *z->into);
    if (!z->first_into || !z->into)
        return nomem(z->m);
    uint32_t *place = z->first_into + 1;
    for (uint32_t e = 0; e < z->n_edges; e++)
        place[z->to[e] + 1]++;
    for (uint32_t s = 1; s <= n; s++)
        place[s] += place[s - 1];
    for (uint32_t e = 0; e < z->n_edges; e++)
        z->into[place[z->to[e]]++] = e;
    return LACE_OK;
}

static lace_status list_edges(minimizer *z)
{
    const char_automaton *a = z->a;
    size_t size = (size_t)a->n_states * a->n_classes + 1;
    z->n_edges = 0;
    if (!z->from)
        z->from = mem_calloc(size, sizeof *z->from);
    if (!z->to)
        z->to = mem_calloc(size, sizeof *z->to);
    if (!z->first_class)
        z->first_class = mem_calloc((size_t)a->n_classes + 1, sizeof *z->first_class);
    if (!z->from || !z->to || !z->first_class)
        return nomem(z->m);
    for (uint32_t k = 0; k < a->n_classes; k++) {
        z->first_class[k] = z->n_edges;
        for (uint32_t s = 1; s < a->n_states; s++) {
            uint32_t to = a->next[(size_t)s * a->n_classes + k];
            if (to == 0 || !z->is_useful[s] || !z->is_useful[to])
                continue;
            z->from[z->n_edges] = s;
            z->to[z->n_edges++] = to;
        }
        TRY(count_work(z->m, a->n_states));
    }
    z->first_class[a->n_classes] = z->n_edges;
    return list_into(z);
}

/* States from which no end is reached are of no use. */
static lace_status find_useful(minimizer *z)
{
    const char_automaton *a = z->a;
    uint32_t n = a->n_states, n_work = 0;
    uint32_t *work = mem_calloc(n, sizeof *work);
    z->is_useful = mem_calloc(n, sizeof *z->is_useful);
    lace_status status = work && z->is_useful ? LACE_OK : nomem(z->m);
    for (uint32_t s = 1; s < n && status == LACE_OK; s++)
        z->is_useful[s] = true; /* for list_edges, to see all */
    if (status == LACE_OK)
        status = list_edges(z);
    for (uint32_t s = 1; s < n && status == LACE_OK; s++) {
        z->is_useful[s] = a->accepts[s];
        if (a->accepts[s])
            work[n_work++] = s;
    }
    while (n_work > 0 && status == LACE_OK) {
        uint32_t s = work[--n_work];
        for (uint32_t i = z->first_into[s]; i < z->first_into[s + 1]; i++) {
            uint32_t from = z->from[z->into[i]];
            if (!z->is_useful[from]) {
                z->is_useful[from] = true;
                work[n_work++] = from;
            }
        }
        status = count_work(z->m, 1 + z->first_into[s + 1] - z->first_into[s]);
    }
    mem_free(work);
    return status == LACE_OK ? list_edges(z) : status;
}

static lace_status refine(minimizer *z)
{
    const char_automaton *a = z->a;
    partition *b = &z->states, *c = &z->edges;
    if (!partition_init(b, a->n_states) || !partition_init(c, z->n_edges))
        return nomem(z->m);
    /* Ends, and what is of no use, are blocks of their own. */
    for (uint32_t s = 0; s < a->n_states; s++)
        if (z->is_useful[s] && a->accepts[s])
            mark_item(b, s);
    split_blocks(b);
    for (uint32_t s = 0; s < a->n_states; s++)
        if (!z->is_useful[s])
            mark_item(b, s);
    split_blocks(b);
    c->n_blocks = 0;
    for (uint32_t k = 0; k < a->n_classes; k++) {
        if (z->first_class[k] == z->first_class[k + 1])
            continue;
        uint32_t fresh = c->n_blocks++;
        c->first[fresh] = z->first_class[k];
        c->end[fresh] = z->first_class[k + 1];
        for (uint32_t e = z->first_class[k]; e < z->first_class[k + 1]; e++)
            c->block[e] = fresh;
    }
    for (uint32_t i = 0, k = 1; i < c->n_blocks; i++) {
        TRY(count_work(z->m, 2 * (c->end[i] - c->first[i])));
        for (uint32_t e = c->first[i]; e < c->end[i]; e++)
            mark_item(b, z->from[c->items[e]]);
        split_blocks(b);
        for (; k < b->n_blocks; k++) {
            for (uint32_t s = b->first[k]; s < b->end[k]; s++)
                for (uint32_t e = z->first_into[b->items[s]]; e < z->first_into[b->items[s] + 1];
                     e++)
                    mark_item(c, z->into[e]);
            split_blocks(c);
        }
    }
    return LACE_OK;
}

lace_status char_minimize(char_maker *m, char_automaton *a)
{
    minimizer z = {.m = m, .a = a};
    char_automaton out = {.n_classes = a->n_classes};
    uint32_t state = 0, dead_block;
    lace_status status;
    TRY_GOTO(status, end, find_useful(&z));
    TRY_GOTO(status, end, refine(&z));
    /* The block of state 0 stays number 0: it and the first are exchanged. */
    dead_block = z.states.block[0];
    for (uint32_t i = 0; i < z.states.n_blocks; i++)
        TRY_GOTO(status, end, char_add_state(m, &out, &state));
#define NUMBER(s)                                                                                  \
    (z.states.block[s] == dead_block ? 0 : z.states.block[s] == 0 ? dead_block : z.states.block[s])
    for (uint32_t s = 1; s < a->n_states; s++)
        if (z.is_useful[s])
            out.accepts[NUMBER(s)] = a->accepts[s];
    for (uint32_t k = 0; k < a->n_classes; k++)
        for (uint32_t e = z.first_class[k]; e < z.first_class[k + 1]; e++)
            out.next[(size_t)NUMBER(z.from[e]) * out.n_classes + k] = NUMBER(z.to[e]);
    out.start = NUMBER(a->start);
#undef NUMBER
    char_automaton_deinit(a);
    *a = out;
    out = (char_automaton){0};
end:
    minimizer_deinit(&z);
    char_automaton_deinit(&out);
    return status;
}

/* ---- Back to a node -------------------------------------------------------------------------- */

/* Nodes of sets of classes, so that each is made once. */
typedef struct set_nodes {
    char_maker *m;
    map known;
    arena memory;
    node_list nodes;
    bool is_json, as_rules;
} set_nodes;

static lace_status find_set(set_nodes *n, const uint8_t *classes, const grammar_node **out)
{
    char_maker *m = n->m;
    const char_alphabet *a = &m->alphabet;
    int32_t found = map_find(&n->known, (text){(const char *)classes, a->n_classes});
    if (found >= 0) {
        *out = n->nodes.nodes[found];
        return LACE_OK;
    }
    code_set set = {0};
    bool ok = true;
    for (uint32_t c = 0; c < a->n_cuts && ok; c++)
        if (classes[a->class_of[c]] && a->cuts[c] != 0xD800)
            ok = code_set_add(&set, a->cuts[c], a->cuts[c + 1] - 1);
    code_set_sort(&set);
    bool is_wide = set.n > 0 && set.ranges[set.n - 1].high >= 0x80;
    *out = n->is_json ? grammar_json_set(m->g, &set) : grammar_set(m->g, set.ranges, set.n);
    code_set_deinit(&set);
    if (n->as_rules && is_wide) {
        uint32_t rule = grammar_add_rule(m->g, text_of("character"));
        TRY(grammar_ast_check(m->g, m->err));
        m->g->rules[rule].body = *out;
        *out = grammar_use(m->g, rule);
    }
    char *key = arena_strndup(&n->memory, (const char *)classes, a->n_classes);
    TRY(count_work(m, a->n_cuts));
    if (!ok || !key || !node_list_add(&n->nodes, *out) ||
        map_add(&n->known, (text){key, a->n_classes}, (int32_t)n->nodes.n - 1) != LACE_OK)
        return nomem(m);
    return LACE_OK;
}

/* Edges of a state: one for each state that it leads to. */
static lace_status add_state_edges(set_nodes *n, const char_automaton *a, uint32_t s,
                                   uint8_t *classes, edge_list *edges)
{
    const uint32_t *next = a->next + (size_t)s * a->n_classes;
    for (uint32_t k = 0; k < a->n_classes; k++) {
        const grammar_node *node;
        bool is_first = next[k] != 0;
        for (uint32_t i = 0; i < k && is_first; i++)
            is_first = next[i] != next[k];
        if (!is_first)
            continue;
        for (uint32_t i = 0; i < a->n_classes; i++)
            classes[i] = next[i] == next[k];
        TRY(count_work(n->m, a->n_classes));
        TRY(find_set(n, classes, &node));
        edge_list_add(edges, s, next[k], node);
    }
    if (a->accepts[s])
        edge_list_add(edges, s, a->n_states, grammar_empty(n->m->g));
    return LACE_OK;
}

/* Point 0 is the start, which state 0 leaves free. */
static lace_status make_node(char_maker *m, const char_automaton *a, bool is_json,
                             const grammar_node **out)
{
    set_nodes n = {.m = m, .is_json = is_json, .as_rules = a->n_states > FEW_STATES};
    edge_list edges = {0};
    uint8_t *classes = mem_calloc(a->n_classes, sizeof *classes);
    lace_status status = classes ? LACE_OK : nomem(m);
    map_init(&n.known);
    arena_init(&n.memory, SIZE_MAX / 4);
    if (a->start != 0)
        edge_list_add(&edges, 0, a->start, grammar_empty(m->g));
    for (uint32_t s = 1; s < a->n_states && status == LACE_OK; s++)
        status = add_state_edges(&n, a, s, classes, &edges);
    m->g->is_out_of_memory |= edges.is_out_of_memory;
    if (status == LACE_OK)
        *out = grammar_net(m->g, a->n_states + 1, edges.data, edges.n);
    edge_list_deinit(&edges);
    map_deinit(&n.known);
    arena_deinit(&n.memory);
    node_list_deinit(&n.nodes);
    mem_free(classes);
    return status;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static lace_status add_node(char_maker *m, const grammar_node *node, char_automaton *all)
{
    char_automaton one = {0};
    lace_status status = char_compile(m, node, false, &one);
    if (status == LACE_OK && all->n_states == 0) {
        *all = one;
        return LACE_OK;
    }
    if (status == LACE_OK)
        status = intersect(m, all, &one);
    char_automaton_deinit(&one);
    return status;
}

lace_status grammar_all_of(grammar_ast *g, const grammar_node *const *nodes, size_t n, uint32_t min,
                           uint32_t max, bool is_json, const grammar_node **out, lace_error *err)
{
    char_maker m = {.g = g, .err = err};
    char_automaton all = {0}, lengths = {0};
    *out = NULL;
    lace_status status = make_alphabet(&m, nodes, n);
    for (size_t i = 0; i < n && status == LACE_OK; i++)
        status = add_node(&m, nodes[i], &all);
    if (status == LACE_OK && (min > 0 || max != GRAMMAR_NO_MAX)) {
        status = make_lengths(&m, min, max, &lengths);
        if (status == LACE_OK)
            status = intersect(&m, &all, &lengths);
    }
    if (status == LACE_OK && (all.start == 0 || all.n_states <= 1))
        status = error_set(err, LACE_E_GRAMMAR, "no text matches all conditions at once");
    if (status == LACE_OK)
        status = make_node(&m, &all, is_json, out);
    char_automaton_deinit(&all);
    char_automaton_deinit(&lengths);
    char_looks_deinit(&m);
    mem_free_all(m.alphabet.cuts, m.alphabet.class_of);
    return status == LACE_OK ? grammar_ast_check(g, err) : status;
}
