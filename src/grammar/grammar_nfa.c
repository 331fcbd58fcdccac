/*
 * From the rules of a grammar to nondeterministic automata over bytes, in the manner of Thompson:
 * each node becomes a way from one state to another. Characters become their UTF-8 bytes here.
 */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar_automaton.h"

enum {
    MAX_EDGES = 2000000,
    COUNT_FROM = 8, /* repetitions up to so many are written out */
};

static bool is_stopped(const nfa *n)
{
    return n->is_too_large || n->is_out_of_memory || (n->limit && n->limit->is_over);
}

static uint32_t add_state(nfa *n)
{
    if (!mem_grow(&n->first_edge, n->n_states, &n->states_capacity, sizeof *n->first_edge, 256)) {
        n->is_out_of_memory = true;
        return 0;
    }
    n->first_edge[n->n_states] = 0;
    return n->n_states++;
}

static void add_edge(nfa *n, uint32_t from, nfa_edge edge)
{
    if (n->n_edges >= MAX_EDGES)
        n->is_too_large = true;
    work_goes_on(n->limit, 2);
    if (is_stopped(n))
        return;
    if (!mem_grow(&n->edges, n->n_edges, &n->edges_capacity, sizeof *n->edges, 256)) {
        n->is_out_of_memory = true;
        return;
    }
    edge.next = n->first_edge[from];
    n->edges[n->n_edges] = edge;
    n->first_edge[from] = n->n_edges++;
}

static void add_empty(nfa *n, uint32_t from, uint32_t to)
{
    add_edge(n, from, (nfa_edge){.kind = EDGE_EMPTY, .to = to});
}

static void add_bytes(nfa *n, uint32_t from, uint32_t to, uint8_t low, uint8_t high)
{
    n->is_boundary[low] = n->is_boundary[high + 1] = true;
    add_edge(n, from, (nfa_edge){.kind = EDGE_BYTES, .low = low, .high = high, .to = to});
}

/* ---- Characters ------------------------------------------------------------------------------ */

static bool all_are(const uint8_t *bytes, int n, uint8_t value)
{
    for (int i = 0; i < n; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

/*
 * All UTF-8 sequences of n bytes from a to b. Where the first bytes differ, what lies between them
 * has free continuation bytes, and the two ends are ranges of their own, one byte shorter.
 */
static void add_sequences(nfa *n, uint32_t from, uint32_t to, const uint8_t *a, const uint8_t *b,
                          int n_bytes)
{
    static const uint8_t lowest[3] = {0x80, 0x80, 0x80}, highest[3] = {0xBF, 0xBF, 0xBF};
    if (n_bytes == 1) {
        add_bytes(n, from, to, a[0], b[0]);
        return;
    }
    int rest = n_bytes - 1;
    if (a[0] == b[0]) {
        uint32_t mid = add_state(n);
        add_bytes(n, from, mid, a[0], a[0]);
        add_sequences(n, mid, to, a + 1, b + 1, rest);
        return;
    }
    uint8_t low = a[0], high = b[0];
    if (!all_are(a + 1, rest, 0x80)) {
        uint32_t mid = add_state(n);
        add_bytes(n, from, mid, low, low);
        add_sequences(n, mid, to, a + 1, highest, rest);
        low++;
    }
    if (!all_are(b + 1, rest, 0xBF)) {
        uint32_t mid = add_state(n);
        add_bytes(n, from, mid, high, high);
        add_sequences(n, mid, to, lowest, b + 1, rest);
        high--;
    }
    if (low <= high) {
        uint32_t mid = add_state(n);
        add_bytes(n, from, mid, low, high);
        add_sequences(n, mid, to, lowest, highest, rest);
    }
}

/* Where the length of the encoding changes, and the surrogates, which have none. */
static const code_range encodings[] = {
    {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};

static void add_characters(nfa *n, uint32_t from, uint32_t to, code_range r)
{
    for (size_t i = 0; i < sizeof encodings / sizeof encodings[0]; i++) {
        uint32_t low = r.low > encodings[i].low ? r.low : encodings[i].low;
        uint32_t high = r.high < encodings[i].high ? r.high : encodings[i].high;
        if (low > high)
            continue;
        char a[4], b[4];
        int n_bytes = utf8_encode(low, a);
        utf8_encode(high, b);
        add_sequences(n, from, to, (const uint8_t *)a, (const uint8_t *)b, n_bytes);
    }
}

/* ---- Repetitions that count ------------------------------------------------------------------ */

/*
 * The first bytes of a node whose matches are never the beginning of another match, and call
 * nothing; false for other nodes. Of such a node one always knows when a round is over.
 */
static bool first_bytes(nfa *n, const grammar_node *node, bool first[256])
{
    if (!work_goes_on(n->limit, 16))
        return false;
    switch (node->kind) {
    case NODE_SET:
        for (uint32_t i = 0; i < node->n; i++)
            for (size_t k = 0; k < sizeof encodings / sizeof encodings[0]; k++) {
                code_range r = node->ranges[i], e = encodings[k];
                if (r.low > e.high || r.high < e.low)
                    continue;
                char a[4], b[4];
                utf8_encode(r.low > e.low ? r.low : e.low, a);
                utf8_encode(r.high < e.high ? r.high : e.high, b);
                for (int byte = (uint8_t)a[0]; byte <= (uint8_t)b[0]; byte++)
                    first[byte] = true;
            }
        return true;
    case NODE_BYTES:
        first[(uint8_t)node->bytes[0]] = true;
        return true;
    case NODE_SEQ:
        for (uint32_t i = 1; i < node->n; i++) {
            bool inner[256] = {0};
            if (!first_bytes(n, node->children[i], inner))
                return false;
        }
        return first_bytes(n, node->children[0], first);
    case NODE_ALT:
        for (uint32_t i = 0; i < node->n; i++) {
            bool other[256] = {0};
            if (!first_bytes(n, node->children[i], other))
                return false;
            for (int b = 0; b < 256; b++) {
                if (first[b] && other[b])
                    return false;
                first[b] |= other[b];
            }
        }
        return node->n > 0;
    case NODE_REPEAT:
        return node->min == node->max && node->max < COUNT_FROM &&
               first_bytes(n, node->children[0], first);
    default:
        return false;
    }
}

static uint32_t add_unit(nfa *n, nfa_unit unit)
{
    if (!mem_grow(&n->units, n->n_units, &n->units_capacity, sizeof *n->units, 256)) {
        n->is_out_of_memory = true;
        return 0;
    }
    unit.start = add_state(n);
    unit.end = add_state(n);
    n->units[n->n_units] = unit;
    return n->n_units++;
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

static void add_node(nfa *n, const grammar_node *node, uint32_t from, uint32_t to);

static void add_repeat(nfa *n, const grammar_node *node, uint32_t from, uint32_t to)
{
    const grammar_node *child = node->children[0];
    bool first[256] = {0};
    uint32_t written = node->max == GRAMMAR_NO_MAX ? node->min : node->max;
    if (written > COUNT_FROM && first_bytes(n, child, first)) {
        nfa_unit unit = {.node = child, .counts = true, .min = node->min, .max = node->max};
        uint32_t at = add_unit(n, unit);
        add_edge(n, from, (nfa_edge){.kind = EDGE_CALL, .rule = at, .to = to});
        return;
    }
    uint32_t at = from;
    for (uint32_t i = 0; i < node->min && !is_stopped(n); i++) {
        uint32_t next = add_state(n);
        add_node(n, child, at, next);
        at = next;
    }
    if (node->max == GRAMMAR_NO_MAX) {
        uint32_t loop = add_state(n);
        add_empty(n, at, loop);
        add_node(n, child, loop, loop);
        add_empty(n, loop, to);
        return;
    }
    for (uint32_t i = node->min; i < node->max && !is_stopped(n); i++) {
        uint32_t next = add_state(n);
        add_empty(n, at, to);
        add_node(n, child, at, next);
        at = next;
    }
    add_empty(n, at, to);
}

static void add_call(nfa *n, uint32_t rule, uint32_t from, uint32_t to)
{
    if (n->unit_of_rule[rule] == 0) {
        nfa_unit unit = {.node = n->rules[rule].body, .name = n->rules[rule].name};
        n->unit_of_rule[rule] = add_unit(n, unit) + 1;
    }
    add_edge(n, from, (nfa_edge){.kind = EDGE_CALL, .rule = n->unit_of_rule[rule] - 1, .to = to});
}

static void add_net(nfa *n, const grammar_node *node, uint32_t from, uint32_t to)
{
    uint32_t first = n->n_states;
    for (uint32_t i = 0; i < node->max && !is_stopped(n); i++)
        add_state(n);
    if (is_stopped(n))
        return;
    add_empty(n, from, first);
    add_empty(n, first + node->max - 1, to);
    for (uint32_t i = 0; i < node->n && !is_stopped(n); i++)
        add_node(n, node->edges[i].node, first + node->edges[i].from, first + node->edges[i].to);
}

/* A way from one state to another. Depth is that of the node, which the readers bound. */
static void add_node(nfa *n, const grammar_node *node, uint32_t from, uint32_t to)
{
    if (is_stopped(n))
        return;
    switch (node->kind) {
    case NODE_EMPTY:
        add_empty(n, from, to);
        break;
    case NODE_SET:
        for (uint32_t i = 0; i < node->n; i++)
            add_characters(n, from, to, node->ranges[i]);
        break;
    case NODE_BYTES:
        for (uint32_t i = 0; i < node->n; i++) {
            uint32_t next = i + 1 < node->n ? add_state(n) : to;
            add_bytes(n, from, next, (uint8_t)node->bytes[i], (uint8_t)node->bytes[i]);
            from = next;
        }
        break;
    case NODE_SEQ:
        for (uint32_t i = 0; i < node->n; i++) {
            uint32_t next = i + 1 < node->n ? add_state(n) : to;
            add_node(n, node->children[i], from, next);
            from = next;
        }
        break;
    case NODE_ALT:
        for (uint32_t i = 0; i < node->n; i++)
            add_node(n, node->children[i], from, to);
        break;
    case NODE_REPEAT:
        add_repeat(n, node, from, to);
        break;
    case NODE_RULE:
        add_call(n, node->n, from, to);
        break;
    case NODE_NET:
        add_net(n, node, from, to);
        break;
    case NODE_START:
    case NODE_END:
    case NODE_LOOK:
        assert(!"combined before, by grammar_all_of");
        break;
    }
}

lace_status nfa_build(nfa *n, const grammar_ast *g, lace_error *err)
{
    *n = (nfa){.n_edges = 1, .rules = g->rules, .limit = g->limit};
    n->unit_of_rule = mem_calloc(g->n_rules ? g->n_rules : 1, sizeof *n->unit_of_rule);
    n->is_out_of_memory =
        !n->unit_of_rule || !mem_grow(&n->edges, 0, &n->edges_capacity, sizeof *n->edges, 256);
    if (!is_stopped(n)) {
        nfa_unit root = {.node = g->rules[g->root].body, .name = g->rules[g->root].name};
        n->unit_of_rule[g->root] = add_unit(n, root) + 1;
    }
    /* Units are added while others are built. */
    for (uint32_t i = 0; i < n->n_units && !is_stopped(n); i++) {
        const grammar_node *node = n->units[i].node;
        if (!node)
            return error_set(err, LACE_E_GRAMMAR, "the rule \"%.*s\" is used but not defined",
                             text_width(n->units[i].name), n->units[i].name.data);
        add_node(n, node, n->units[i].start, n->units[i].end);
    }
    if (n->is_too_large)
        return error_set(err, LACE_E_GRAMMAR,
                         "the grammar is too large: its repetitions need more than %d transitions",
                         MAX_EDGES);
    TRY(grammar_ast_check(g, err)); /* the limit of time */
    return n->is_out_of_memory ? error_nomem(err, "a grammar") : LACE_OK;
}

void nfa_deinit(nfa *n)
{
    mem_free_all(n->first_edge, n->edges, n->units, n->unit_of_rule);
    *n = (nfa){0};
}
