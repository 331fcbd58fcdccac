/* JSON schema to grammar: objects and arrays. */
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "sampler/grammar_schema.h"

/* Edges of a graph in the making. */
typedef struct edge_list {
    grammar_edge *data;
    size_t n, capacity;
    bool is_out_of_memory;
} edge_list;

static void add_edge(edge_list *l, uint32_t from, uint32_t to, const grammar_node *node)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 64;
        grammar_edge *data = mem_realloc(l->data, capacity * sizeof *data);
        if (!data) {
            l->is_out_of_memory = true;
            return;
        }
        l->data = data;
        l->capacity = capacity;
    }
    l->data[l->n++] = (grammar_edge){from, to, node};
}

static const grammar_node *finish_net(schema_reader *r, edge_list *l, uint32_t n_points)
{
    r->g->is_out_of_memory |= l->is_out_of_memory;
    const grammar_node *node = grammar_net(r->g, n_points, l->data, l->n);
    mem_free(l->data);
    *l = (edge_list){0};
    return node;
}

/* A rule of its own: what is used in several places must not be written out in each. */
static const grammar_node *as_rule(schema_reader *r, const char *name, const grammar_node *body)
{
    uint32_t rule = grammar_add_rule(r->g, text_of(name));
    if (r->g->is_out_of_memory || r->g->is_too_large)
        return grammar_empty(r->g);
    r->g->rules[rule].body = body;
    return grammar_use(r->g, rule);
}

static const grammar_node *comma(schema_reader *r)
{
    return GRAMMAR_SEQ(r->g, grammar_text(r->g, ","), schema_space(r));
}

/* ---- Names of additional properties ---------------------------------------------------------- */

/* A node of the tree of names that are taken: its children by character. */
typedef struct name_node {
    uint32_t code;
    uint32_t child, sibling; /* 0: none */
    bool is_name;
} name_node;

typedef struct name_tree {
    name_node *nodes;
    uint32_t n, capacity;
} name_tree;

static uint32_t name_child(name_tree *t, uint32_t at, uint32_t code)
{
    for (uint32_t c = t->nodes[at].child; c; c = t->nodes[c].sibling)
        if (t->nodes[c].code == code)
            return c;
    if (t->n == t->capacity) {
        uint32_t capacity = 2 * t->capacity;
        name_node *nodes = mem_realloc(t->nodes, capacity * sizeof *nodes);
        if (!nodes)
            return 0;
        t->nodes = nodes;
        t->capacity = capacity;
    }
    t->nodes[t->n] = (name_node){.code = code, .sibling = t->nodes[at].child};
    t->nodes[at].child = t->n;
    return t->n++;
}

static bool add_name(name_tree *t, const char *name)
{
    uint32_t at = 0;
    size_t n = strlen(name);
    for (size_t i = 0; i < n;) {
        uint32_t code;
        i += (size_t)utf8_decode(name + i, n - i, &code);
        at = name_child(t, at, code);
        if (at == 0)
            return false;
    }
    t->nodes[at].is_name = true;
    return true;
}

/* The characters of a name, written plainly: no escapes, so that no name has two spellings. */
static const code_range name_characters[] = {
    {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, 0x10FFFF}};

/* A character that leads from a node of the tree to none of its children. */
static const grammar_node *other_character(schema_reader *r, const name_tree *t, uint32_t at)
{
    code_set set = {0};
    bool ok = code_set_add(&set, 0, 0x1F) && code_set_add(&set, '"', '"') &&
              code_set_add(&set, '\\', '\\');
    for (uint32_t c = t->nodes[at].child; c; c = t->nodes[c].sibling)
        ok = ok && code_set_add(&set, t->nodes[c].code, t->nodes[c].code);
    ok = ok && code_set_invert(&set);
    r->g->is_out_of_memory |= !ok;
    const grammar_node *node = grammar_set(r->g, set.ranges, set.n);
    code_set_deinit(&set);
    return node;
}

/* A name in its quotes that is none of the properties' names. */
static lace_status read_other_name(schema_reader *r, const json_t *properties,
                                   const grammar_node **out)
{
    grammar_ast *g = r->g;
    name_tree t = {.nodes = mem_calloc(16, sizeof *t.nodes), .n = 1, .capacity = 16};
    bool ok = t.nodes;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)properties, key, value) ok = ok && add_name(&t, key);
    if (!ok) {
        mem_free(t.nodes);
        return error_nomem(r->err, "a JSON schema");
    }
    edge_list edges = {0};
    uint32_t free_point = t.n, end = t.n + 1;
    for (uint32_t i = 0; i < t.n; i++) {
        add_edge(&edges, i, free_point, other_character(r, &t, i));
        if (i > 0 && !t.nodes[i].is_name)
            add_edge(&edges, i, end, grammar_empty(g));
        for (uint32_t c = t.nodes[i].child; c; c = t.nodes[c].sibling) {
            char bytes[4];
            int n = utf8_encode(t.nodes[c].code, bytes);
            add_edge(&edges, i, c, grammar_bytes(g, bytes, (size_t)n));
        }
    }
    add_edge(&edges, free_point, free_point, grammar_set(g, name_characters, 4));
    add_edge(&edges, free_point, end, grammar_empty(g));
    mem_free(t.nodes);
    const grammar_node *quote = grammar_text(g, "\"");
    *out = GRAMMAR_SEQ(g, quote, finish_net(r, &edges, end + 1), quote);
    return LACE_OK;
}

/* ---- Objects --------------------------------------------------------------------------------- */

typedef struct object_parts {
    const json_t *properties; /* or NULL */
    const json_t *required;   /* or NULL */
    const json_t *others;     /* what additional properties are; NULL: there are none */
    uint32_t min, max;        /* how many */
} object_parts;

static bool is_required(const object_parts *o, const char *name)
{
    for (size_t i = 0; i < json_array_size(o->required); i++) {
        const char *entry = json_string_value(json_array_get(o->required, i));
        if (entry && strcmp(entry, name) == 0)
            return true;
    }
    return false;
}

static lace_status check_object(schema_reader *r, const json_t *schema, object_parts *o)
{
    const json_t *others = json_object_get(schema, "additionalProperties");
    o->properties = json_object_get(schema, "properties");
    o->required = json_object_get(schema, "required");
    if (o->properties && !json_is_object(o->properties))
        return schema_fail(r, "properties", "%s, expected an object", json_kind(o->properties));
    if (o->required && !json_is_array(o->required))
        return schema_fail(r, "required", "%s, expected a list", json_kind(o->required));
    for (size_t i = 0; i < json_array_size(o->required); i++)
        if (!json_is_string(json_array_get(o->required, i)))
            return schema_fail(r, "required", "entry %zu is no text", i);
    if (others && !json_is_boolean(others) && !json_is_object(others))
        return schema_fail(r, "additionalProperties", "%s, expected a schema", json_kind(others));
    /* Without a word on them, an object with properties has no others, one without has any. */
    if (others ? !json_is_false(others) : json_object_size(o->properties) == 0)
        o->others = others ? others : json_true();
    TRY(schema_count(r, schema, "minProperties", 0, &o->min));
    TRY(schema_count(r, schema, "maxProperties", GRAMMAR_NO_MAX, &o->max));
    if (o->max < o->min)
        return schema_fail(r, "maxProperties", "%u, but minProperties is %u", o->max, o->min);
    size_t n_properties = json_object_size(o->properties);
    size_t n_required = json_array_size(o->required);
    if (n_properties + n_required == 0)
        return o->min > 0 && !o->others
                   ? schema_fail(r, "minProperties", "%u, but no property is allowed", o->min)
                   : LACE_OK;
    /* Beside properties, a count may only say what holds anyway. */
    if (o->min > n_required)
        return schema_fail(r, "minProperties", "together with properties is not supported");
    if (o->max < GRAMMAR_NO_MAX && (o->others || n_properties + n_required > o->max))
        return schema_fail(r, "maxProperties", "together with properties is not supported");
    o->min = 0;
    o->max = GRAMMAR_NO_MAX;
    return LACE_OK;
}

/* "name": value */
static const grammar_node *read_pair(schema_reader *r, const grammar_node *name,
                                     const grammar_node *value)
{
    grammar_ast *g = r->g;
    return GRAMMAR_SEQ(g, name, grammar_text(g, ":"), grammar_repeat(g, grammar_text(g, " "), 0, 1),
                       value);
}

/* Required names that are no properties are properties of any value. */
static lace_status add_required(schema_reader *r, object_parts *o)
{
    json_t *all = NULL;
    for (size_t i = 0; i < json_array_size(o->required); i++) {
        const char *name = json_string_value(json_array_get(o->required, i));
        if (json_object_get(all ? all : o->properties, name))
            continue;
        if (!all)
            TRY(schema_own(r, o->properties ? json_copy((json_t *)o->properties) : json_object(),
                           &all));
        if (json_object_set(all, name, o->others ? (json_t *)o->others : json_true()) != 0)
            return error_nomem(r->err, "a JSON schema");
    }
    if (all)
        o->properties = all;
    return LACE_OK;
}

/*
 * Properties in their order, those that are not required left out at will. Two points in front of
 * each: one for "nothing written yet", one for "needs a comma".
 */
static lace_status add_properties(schema_reader *r, const object_parts *o, int depth,
                                  edge_list *edges, uint32_t *n_points)
{
    grammar_ast *g = r->g;
    uint32_t at = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o->properties, key, value)
    {
        const grammar_node *node;
        json_t *name;
        TRY(schema_read(r, value, depth + 1, &node));
        if (node->kind == NODE_SEQ || node->kind == NODE_NET || node->kind == NODE_ALT)
            node = as_rule(r, "value", node); /* it is used twice */
        TRY(schema_own(r, json_string(key), &name));
        const grammar_node *pair = read_pair(r, schema_literal(r, name), node);
        add_edge(edges, at, at + 3, pair);
        add_edge(edges, at + 1, at + 3, GRAMMAR_SEQ(g, comma(r), pair));
        if (!is_required(o, key)) {
            add_edge(edges, at, at + 2, grammar_empty(g));
            add_edge(edges, at + 1, at + 3, grammar_empty(g));
        }
        at += 2;
    }
    *n_points = at + 2;
    return LACE_OK;
}

static lace_status add_others(schema_reader *r, const object_parts *o, int depth, edge_list *edges,
                              uint32_t *n_points)
{
    grammar_ast *g = r->g;
    const grammar_node *name = NULL, *value = NULL;
    uint32_t first = *n_points - 2, next = *n_points - 1;
    if (json_object_size(o->properties) > 0)
        TRY(read_other_name(r, o->properties, &name));
    else
        name = schema_any_string(r);
    TRY(schema_read(r, o->others, depth + 1, &value));
    const grammar_node *pair = as_rule(r, "pair", read_pair(r, name, value));
    const grammar_node *more = GRAMMAR_SEQ(g, comma(r), pair);
    if (o->min == 0 && o->max == GRAMMAR_NO_MAX) {
        add_edge(edges, first, next, pair);
        add_edge(edges, next, next, more);
        return LACE_OK;
    }
    /* Only where there are no properties: see check_object. */
    uint32_t after = *n_points;
    *n_points += 2;
    if (o->min == 0)
        add_edge(edges, first, after, grammar_empty(g));
    if (o->max > 0) {
        uint32_t most = o->max == GRAMMAR_NO_MAX ? o->max : o->max - 1;
        add_edge(edges, first, after + 1,
                 GRAMMAR_SEQ(g, pair, grammar_repeat(g, more, o->min > 0 ? o->min - 1 : 0, most)));
    }
    return LACE_OK;
}

lace_status schema_read_object(schema_reader *r, const json_t *schema, int depth,
                               const grammar_node **out)
{
    grammar_ast *g = r->g;
    object_parts o = {0};
    TRY(check_object(r, schema, &o));
    if (json_is_false(json_object_get(schema, "additionalProperties")))
        for (size_t i = 0; i < json_array_size(o.required); i++) {
            const char *name = json_string_value(json_array_get(o.required, i));
            if (!json_object_get(o.properties, name))
                return schema_fail(r, "required",
                                   "\"%.40s\" is no property, and "
                                   "additionalProperties is false",
                                   name);
        }
    TRY(add_required(r, &o));
    edge_list edges = {0};
    uint32_t n_points = 0;
    lace_status status = add_properties(r, &o, depth, &edges, &n_points);
    if (status == LACE_OK && o.others)
        status = add_others(r, &o, depth, &edges, &n_points);
    if (status != LACE_OK) {
        mem_free(edges.data);
        return status;
    }
    /* Both last points lead to the end, which follows them. */
    add_edge(&edges, n_points - 2, n_points, grammar_empty(g));
    add_edge(&edges, n_points - 1, n_points, schema_space(r));
    const grammar_node *body =
        GRAMMAR_SEQ(g, grammar_text(g, "{"), schema_space(r), finish_net(r, &edges, n_points + 1),
                    grammar_text(g, "}"));
    *out = as_rule(r, "object", body);
    return LACE_OK;
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

static lace_status read_array(schema_reader *r, const json_t *first, const json_t *items,
                              uint32_t min, uint32_t max, int depth, edge_list *edges,
                              uint32_t *n_points)
{
    grammar_ast *g = r->g;
    uint32_t n_first = (uint32_t)json_array_size(first);
    if (n_first > max)
        n_first = max;
    /* Point i + 1 is behind i entries, point 0 the start; the end comes last. */
    uint32_t end = n_first + 2;
    *n_points = end + 1;
    add_edge(edges, 0, 1, grammar_empty(g));
    for (uint32_t i = 0; i < n_first; i++) {
        const grammar_node *node;
        TRY(schema_read(r, json_array_get(first, i), depth + 1, &node));
        add_edge(edges, i + 1, i + 2, i > 0 ? GRAMMAR_SEQ(g, comma(r), node) : node);
        if (i >= min)
            add_edge(edges, i + 1, end, i > 0 ? schema_space(r) : grammar_empty(g));
    }
    if (n_first >= min)
        add_edge(edges, n_first + 1, end, n_first > 0 ? schema_space(r) : grammar_empty(g));
    if (!items || max <= n_first)
        return LACE_OK;
    const grammar_node *item;
    TRY(schema_read(r, items, depth + 1, &item));
    item = as_rule(r, "item", item);
    const grammar_node *more = GRAMMAR_SEQ(g, comma(r), item);
    uint32_t least = min > n_first ? min - n_first : 1;
    uint32_t most = max == GRAMMAR_NO_MAX ? max : max - n_first;
    const grammar_node *rest =
        n_first > 0 ? grammar_repeat(g, more, least, most)
                    : GRAMMAR_SEQ(g, item,
                                  grammar_repeat(g, more, least - 1,
                                                 most == GRAMMAR_NO_MAX ? most : most - 1));
    add_edge(edges, n_first + 1, end, GRAMMAR_SEQ(g, rest, schema_space(r)));
    return LACE_OK;
}

lace_status schema_read_array(schema_reader *r, const json_t *schema, int depth,
                              const grammar_node **out)
{
    grammar_ast *g = r->g;
    const json_t *first = json_object_get(schema, "prefixItems");
    const json_t *items = json_object_get(schema, "items");
    uint32_t min, max;
    TRY(schema_count(r, schema, "minItems", 0, &min));
    TRY(schema_count(r, schema, "maxItems", GRAMMAR_NO_MAX, &max));
    if (max < min)
        return schema_fail(r, "maxItems", "%u, but minItems is %u", max, min);
    if (json_is_array(items)) { /* as older drafts write prefixItems */
        if (first)
            return schema_fail(r, "items", "a list, together with prefixItems");
        first = items;
        items = json_object_get(schema, "additionalItems");
    } else if (json_object_get(schema, "additionalItems")) {
        return schema_fail(r, "additionalItems", "is supported only where items is a list");
    }
    if (first && !json_is_array(first))
        return schema_fail(r, "prefixItems", "%s, expected a list", json_kind(first));
    if (json_is_false(items))
        items = NULL;
    else if (!items && (!first || min > json_array_size(first)))
        items = json_true();
    if (!items && min > json_array_size(first))
        return schema_fail(r, "minItems", "%u, but there are %zu items", min,
                           json_array_size(first));
    edge_list edges = {0};
    uint32_t n_points = 0;
    lace_status status = read_array(r, first, items, min, max, depth, &edges, &n_points);
    if (status != LACE_OK) {
        mem_free(edges.data);
        return status;
    }
    const grammar_node *body = GRAMMAR_SEQ(g, grammar_text(g, "["), schema_space(r),
                                           finish_net(r, &edges, n_points), grammar_text(g, "]"));
    *out = as_rule(r, "array", body);
    return LACE_OK;
}
