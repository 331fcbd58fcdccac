/* Building the rules of a grammar, and sets of characters. */
#include "grammar/grammar_ast.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const grammar_node empty_node = {.kind = NODE_EMPTY};

void grammar_ast_init(grammar_ast *g)
{
    *g = (grammar_ast){0};
    arena_init(&g->memory, GRAMMAR_MAX_MEMORY);
}

void grammar_ast_deinit(grammar_ast *g)
{
    arena_deinit(&g->memory);
    mem_free(g->rules);
    *g = (grammar_ast){0};
}

lace_status grammar_ast_check(const grammar_ast *g, lace_error *err)
{
    if (g->limit && g->limit->is_over)
        return work_limit_error(g->limit, "the grammar", err);
    if (g->is_too_large)
        return error_set(err, LACE_E_GRAMMAR,
                         "the grammar is too large: more than %d parts or %d MiB of them",
                         GRAMMAR_MAX_NODES, GRAMMAR_MAX_MEMORY >> 20);
    return g->is_out_of_memory ? error_nomem(err, "a grammar") : LACE_OK;
}

static void *allocate(grammar_ast *g, size_t n, size_t size)
{
    if (n > GRAMMAR_MAX_MEMORY / size || n * size > g->memory.max - g->memory.used) {
        g->is_too_large = true;
        return NULL;
    }
    void *p = arena_alloc(&g->memory, n, size);
    if (!p)
        g->is_out_of_memory = true;
    return p;
}

static grammar_node *add_node(grammar_ast *g, grammar_node_kind kind)
{
    if (g->n_nodes >= GRAMMAR_MAX_NODES)
        g->is_too_large = true;
    if (g->is_too_large || !work_goes_on(g->limit, 4))
        return NULL;
    grammar_node *node = allocate(g, 1, sizeof *node);
    if (node) {
        node->kind = kind;
        g->n_nodes++;
    }
    return node;
}

uint32_t grammar_add_rule(grammar_ast *g, text name)
{
    if (g->n_rules == g->rules_capacity) {
        uint32_t capacity = g->rules_capacity ? 2 * g->rules_capacity : 64;
        grammar_rule *rules =
            g->n_rules < GRAMMAR_MAX_NODES ? mem_realloc(g->rules, capacity * sizeof *rules) : NULL;
        if (!rules) {
            g->is_too_large = g->n_rules >= GRAMMAR_MAX_NODES;
            g->is_out_of_memory = !g->is_too_large;
            return 0;
        }
        g->rules = rules;
        g->rules_capacity = capacity;
    }
    g->rules[g->n_rules] = (grammar_rule){.name = name};
    return g->n_rules++;
}

/* A copy of items for a node, if there is one; NULL otherwise, and when memory is out. */
static void *copy_items(grammar_ast *g, const grammar_node *node, const void *items, size_t n,
                        size_t size)
{
    void *copy = node ? allocate(g, n ? n : 1, size) : NULL;
    if (copy && n)
        memcpy(copy, items, n * size);
    return copy;
}

const grammar_node *grammar_empty(grammar_ast *g)
{
    return &empty_node;
}

const grammar_node *grammar_set(grammar_ast *g, const code_range *ranges, size_t n)
{
    grammar_node *node = add_node(g, NODE_SET);
    code_range *copy = copy_items(g, node, ranges, n, sizeof *copy);
    if (!copy)
        return &empty_node;
    code_set set = {.ranges = copy, .n = n, .capacity = n};
    code_set_sort(&set);
    node->ranges = copy;
    node->n = (uint32_t)set.n;
    return node;
}

const grammar_node *grammar_bytes(grammar_ast *g, const char *bytes, size_t n)
{
    grammar_node *node = n > 0 ? add_node(g, NODE_BYTES) : NULL;
    char *copy = node ? allocate(g, n, 1) : NULL;
    if (!copy)
        return &empty_node;
    memcpy(copy, bytes, n);
    node->bytes = copy;
    node->n = (uint32_t)n;
    return node;
}

const grammar_node *grammar_text(grammar_ast *g, const char *terminated)
{
    return grammar_bytes(g, terminated, strlen(terminated));
}

const grammar_node *grammar_list(grammar_ast *g, grammar_node_kind kind,
                                 const grammar_node *const *children, size_t n)
{
    if (n == 1)
        return children[0];
    if (n == 0 && kind == NODE_SEQ)
        return &empty_node;
    grammar_node *node = add_node(g, kind);
    const grammar_node **copy = copy_items(g, node, children, n, sizeof *copy);
    if (!copy)
        return &empty_node;
    node->children = copy;
    node->n = (uint32_t)n;
    return node;
}

/* A node with one child. */
static const grammar_node *add_parent(grammar_ast *g, grammar_node_kind kind,
                                      const grammar_node *child, uint32_t min, uint32_t max)
{
    grammar_node *node = add_node(g, kind);
    const grammar_node **copy = copy_items(g, node, &child, 1, sizeof *copy);
    if (!copy)
        return &empty_node;
    node->children = copy;
    node->n = 1;
    node->min = min;
    node->max = max;
    return node;
}

const grammar_node *grammar_repeat(grammar_ast *g, const grammar_node *child, uint32_t min,
                                   uint32_t max)
{
    if (child->kind == NODE_EMPTY || max == 0)
        return &empty_node;
    if (min == 1 && max == 1)
        return child;
    return add_parent(g, NODE_REPEAT, child, min, max);
}

const grammar_node *grammar_mark(grammar_ast *g, grammar_node_kind kind)
{
    const grammar_node *node = add_node(g, kind);
    return node ? node : &empty_node;
}

const grammar_node *grammar_look(grammar_ast *g, const grammar_node *child, bool is_negative)
{
    return add_parent(g, NODE_LOOK, child, is_negative, 0);
}

const grammar_node *grammar_use(grammar_ast *g, uint32_t rule)
{
    grammar_node *node = add_node(g, NODE_RULE);
    if (!node)
        return &empty_node;
    node->n = rule;
    return node;
}

const grammar_node *grammar_net(grammar_ast *g, uint32_t n_points, const grammar_edge *edges,
                                size_t n_edges)
{
    grammar_node *node = add_node(g, NODE_NET);
    grammar_edge *copy = copy_items(g, node, edges, n_edges, sizeof *copy);
    if (!copy)
        return &empty_node;
    node->edges = copy;
    node->n = (uint32_t)n_edges;
    node->max = n_points;
    return node;
}

/* ---- Sets ------------------------------------------------------------------------------------ */

bool code_set_add(code_set *s, uint32_t low, uint32_t high)
{
    if (!mem_grow(&s->ranges, s->n, &s->capacity, sizeof *s->ranges, 16))
        return false;
    s->ranges[s->n++] = (code_range){low, high};
    return true;
}

static int compare_ranges(const void *a, const void *b)
{
    uint32_t x = ((const code_range *)a)->low, y = ((const code_range *)b)->low;
    return (x > y) - (x < y);
}

void code_set_sort(code_set *s)
{
    if (s->n == 0)
        return;
    qsort(s->ranges, s->n, sizeof *s->ranges, compare_ranges);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        code_range r = s->ranges[i];
        if (n > 0 && r.low <= s->ranges[n - 1].high + 1) {
            if (r.high > s->ranges[n - 1].high)
                s->ranges[n - 1].high = r.high;
        } else {
            s->ranges[n++] = r;
        }
    }
    s->n = n;
}

bool code_set_invert(code_set *s)
{
    if (!code_set_add(s, 0xD800, 0xDFFF))
        return false;
    code_set_sort(s);
    code_set out = {0};
    uint32_t from = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->ranges[i].low > from && !code_set_add(&out, from, s->ranges[i].low - 1)) {
            code_set_deinit(&out);
            return false;
        }
        from = s->ranges[i].high + 1;
    }
    if (from <= 0x10FFFF && !code_set_add(&out, from, 0x10FFFF)) {
        code_set_deinit(&out);
        return false;
    }
    code_set_deinit(s);
    *s = out;
    return true;
}

void code_set_deinit(code_set *s)
{
    mem_free(s->ranges);
    *s = (code_set){0};
}

bool node_list_add(node_list *l, const grammar_node *node)
{
    if (!mem_grow(&l->nodes, l->n, &l->capacity, sizeof *l->nodes, 16))
        return false;
    l->nodes[l->n++] = node;
    return true;
}

void node_list_deinit(node_list *l)
{
    mem_free(l->nodes);
    *l = (node_list){0};
}

void edge_list_add(edge_list *l, uint32_t from, uint32_t to, const grammar_node *node)
{
    if (!mem_grow(&l->data, l->n, &l->capacity, sizeof *l->data, 64)) {
        l->is_out_of_memory = true;
        return;
    }
    l->data[l->n++] = (grammar_edge){from, to, node};
}

void edge_list_deinit(edge_list *l)
{
    mem_free(l->data);
    *l = (edge_list){0};
}
