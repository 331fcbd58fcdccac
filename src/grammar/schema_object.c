/*
 * JSON schema to grammar: objects.
 *
 * Properties come in their order, and those that are not required may be left out. Behind property
 * i the names of those up to the next required one may follow, so what a name can be depends on i.
 * A tree of names for each i would make the grammar grow with the square of the properties. But the
 * tree behind property i is that behind property i + 1 and one name more: only the points on the
 * way of that name are new, all others are shared. So the points are as many as the letters of all
 * names, and what follows a letter is never in doubt.
 *
 *     start --"--> tree 0 --n a m e "--> : value --> after 0 --, "--> tree 1 --...--> end
 */
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar_schema.h"

enum {
    NO_POINT = UINT32_MAX,
    OTHER_CODE = UINT32_MAX, /* the edge of all characters that no other edge has */
    MAX_EDGES = 2000000,
};

/* ---- The graph ------------------------------------------------------------------------------- */

typedef struct name_edge {
    uint32_t code; /* the character that it begins with, or OTHER_CODE */
    uint32_t to;
    const grammar_node *node;
} name_edge;

/* A point and its edges, which lie one behind the other. */
typedef struct name_point {
    uint32_t first, n;
} name_point;

typedef struct object_graph {
    schema_reader *r;
    name_point *points;
    uint32_t n_points;
    size_t points_capacity;
    name_edge *edges;
    uint32_t n_edges;
    size_t edges_capacity;
    const grammar_node *letters[128]; /* a character as a node; NULL: not made yet */
    const grammar_node *not_ascii;    /* likewise: any character from U+0080 on */
} object_graph;

static lace_status nomem(const schema_reader *r)
{
    return error_nomem(r->err, "a JSON schema");
}

/* A point without edges; edges are added to the newest one. */
static lace_status add_point(object_graph *o, uint32_t *out)
{
    if (!mem_grow(&o->points, o->n_points, &o->points_capacity, sizeof *o->points, 64))
        return nomem(o->r);
    o->points[o->n_points] = (name_point){o->n_edges, 0};
    *out = o->n_points++;
    return LACE_OK;
}

static lace_status add_edge(object_graph *o, uint32_t from, name_edge edge)
{
    name_point *p = &o->points[from];
    if (p->n == 0)
        p->first = o->n_edges;
    if (o->n_edges >= MAX_EDGES) {
        o->r->g->is_too_large = true;
        return grammar_ast_check(o->r->g, o->r->err);
    }
    if (!mem_grow(&o->edges, o->n_edges, &o->edges_capacity, sizeof *o->edges, 256))
        return nomem(o->r);
    o->edges[o->n_edges++] = edge;
    p->n++;
    return LACE_OK;
}

static const grammar_node *letter(object_graph *o, uint32_t code)
{
    char bytes[4];
    if (code < 128 && o->letters[code])
        return o->letters[code];
    int n = utf8_encode(code, bytes);
    const grammar_node *node = grammar_bytes(o->r->g, bytes, (size_t)n);
    if (code < 128)
        o->letters[code] = node;
    return node;
}

/*
 * The tree `root` (or none) and a name more: its way, character by character, in new points that
 * have the edges of the old ones besides. The last character has the edge `last`.
 */
static lace_status add_name(object_graph *o, uint32_t root, const char *name, size_t n,
                            name_edge last, uint32_t *out)
{
    uint32_t at = 0;
    TRY(add_point(o, &at));
    *out = at;
    for (size_t i = 0; i < n;) {
        name_edge edge = last;
        uint32_t below = NO_POINT;
        i += (size_t)utf8_decode(name + i, n - i, &edge.code);
        name_point old = root == NO_POINT ? (name_point){0} : o->points[root];
        for (uint32_t k = old.first; k < old.first + old.n; k++) {
            if (o->edges[k].code == edge.code)
                below = o->edges[k].to;
            else
                TRY(add_edge(o, at, o->edges[k]));
        }
        TRY(schema_spend(o->r, 1 + old.n / 8));
        if (i >= n)
            return add_edge(o, at, edge);
        edge.to = at + 1; /* the next point */
        edge.node = letter(o, edge.code);
        TRY(add_edge(o, at, edge));
        TRY(add_point(o, &at));
        root = below;
    }
    return LACE_OK;
}

/* ---- Names of additional properties ---------------------------------------------------------- */

/* The characters of a name, written plainly: no escapes, so that no name has two spellings. */
static const code_range name_characters[] = {
    {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, 0x10FFFF}};

static bool is_plain(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == '"' || *name == '\\')
            return false;
    return true;
}

/* A character that none of a point's edges has. Those from U+0080 on are a rule, if all can be. */
static const grammar_node *other_character(object_graph *o, uint32_t point)
{
    grammar_ast *g = o->r->g;
    code_set set = {0};
    bool ok = code_set_add(&set, 0, 0x1F) && code_set_add(&set, '"', '"') &&
              code_set_add(&set, '\\', '\\'),
         is_ascii = true;
    const name_point *p = &o->points[point];
    for (uint32_t i = p->first; i < p->first + p->n; i++) {
        uint32_t code = o->edges[i].code;
        is_ascii &= code < 0x80;
        ok = ok && code_set_add(&set, code, code);
    }
    if (is_ascii)
        ok = ok && code_set_add(&set, 0x80, 0x10FFFF);
    ok = ok && code_set_invert(&set);
    g->is_out_of_memory |= !ok;
    const grammar_node *node = grammar_set(g, set.ranges, set.n);
    code_set_deinit(&set);
    if (!is_ascii)
        return node;
    if (!o->not_ascii) {
        static const code_range rest[] = {{0x80, 0xD7FF}, {0xE000, 0x10FFFF}};
        o->not_ascii = schema_as_rule(o->r, "character", grammar_set(g, rest, 2));
    }
    return GRAMMAR_ALT(g, node, o->not_ascii);
}

/* A stretch of the sorted names that begin alike, up to `offset`. */
typedef struct name_range {
    uint32_t point, begin, end;
    size_t offset;
} name_range;

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The edges of one point of the tree; the points that they lead to are added to the ranges. */
static lace_status split_range(object_graph *o, const char **names, name_range *ranges,
                               uint32_t *n_ranges, name_range at, uint32_t free_point,
                               name_edge end)
{
    bool is_name = false;
    for (uint32_t i = at.begin; i < at.end;) {
        const char *rest = names[i] + at.offset;
        uint32_t code, begin = i;
        int n = utf8_decode(rest, strlen(rest), &code);
        if (*rest == 0) {
            is_name = true;
            i++;
            continue;
        }
        while (i < at.end && strncmp(names[i] + at.offset, rest, (size_t)n) == 0)
            i++;
        /* The n-th range is the n-th point of the tree. */
        uint32_t to = ranges[0].point + *n_ranges;
        ranges[(*n_ranges)++] = (name_range){to, begin, i, at.offset + (size_t)n};
        TRY(schema_spend(o->r, 1 + (i - begin) / 8));
        TRY(add_edge(o, at.point, (name_edge){code, to, letter(o, code)}));
    }
    TRY(add_edge(o, at.point, (name_edge){OTHER_CODE, free_point, other_character(o, at.point)}));
    return at.offset > 0 && !is_name ? add_edge(o, at.point, end) : LACE_OK;
}

/* The tree of all names but those of the properties; a name that is over has the edge `end`. */
static lace_status add_other_names(object_graph *o, const json_t *properties, name_edge end,
                                   uint32_t *out)
{
    size_t n_names = 0, n_letters = 1;
    const char **names = mem_calloc(json_object_size(properties) + 1, sizeof *names), *key;
    json_t *value;
    json_object_foreach((json_t *)properties, key, value)
    {
        if (names && is_plain(key))
            names[n_names++] = key;
        n_letters += strlen(key);
    }
    name_range *ranges = mem_calloc(n_letters, sizeof *ranges);
    uint32_t free_point = 0, n_ranges = 1;
    lace_status status = names && ranges ? add_point(o, &free_point) : nomem(o->r);
    if (status == LACE_OK) {
        qsort(names, n_names, sizeof *names, compare_names);
        name_edge any = {OTHER_CODE, free_point, grammar_set(o->r->g, name_characters, 4)};
        status = add_edge(o, free_point, any);
    }
    if (status == LACE_OK)
        status = add_edge(o, free_point, end);
    if (status == LACE_OK) {
        *out = o->n_points;
        ranges[0] = (name_range){*out, 0, (uint32_t)n_names, 0};
    }
    for (uint32_t i = 0; i < n_ranges && status == LACE_OK; i++) {
        uint32_t point;
        status = add_point(o, &point);
        if (status == LACE_OK)
            status = split_range(o, names, ranges, &n_ranges, ranges[i], free_point, end);
    }
    mem_free_all(names, ranges);
    return status;
}

/* ---- What an object has ---------------------------------------------------------------------- */

typedef struct object_parts {
    const json_t *properties; /* or NULL */
    const json_t *required;   /* or NULL */
    const json_t *others;     /* what additional properties are; NULL: there are none */
    const json_t *names;      /* what their names are; NULL: any */
    uint32_t min, max;        /* how many */
} object_parts;

/* "propertyNames": nothing more than a text, a list of names, or what else a text can be. */
static lace_status read_names(schema_reader *r, const json_t *schema, object_parts *o)
{
    const json_t *given = json_object_get(schema, "propertyNames");
    json_t *names, *all, *values;
    if (!given || json_is_true(given))
        return LACE_OK;
    TRY(schema_own(r, json_pack("{s:s}", "type", "string"), &all));
    TRY(schema_merge(r, given, all, &names));
    values = json_object_get(names, "enum");
    if (values) { /* then they are properties */
        TRY(schema_own(r, json_object(), &all));
        for (size_t i = 0; i < json_array_size(values); i++) {
            const char *name = json_string_value(json_array_get(values, i));
            json_t *own = name ? json_object_get(o->properties, name) : NULL;
            json_t *value = own ? own : (json_t *)o->others;
            if (name && value && json_object_set(all, name, value) != 0)
                return nomem(r);
        }
        const char *key;
        json_t *value;
        json_object_foreach(
            (json_t *)o->properties, key,
            value) if (!json_object_get(all,
                                        key)) return schema_fail(r, "propertyNames",
                                                                 "forbids the property \"%.40s\"",
                                                                 key);
        o->properties = all;
        o->others = NULL;
        return LACE_OK;
    }
    const char *key;
    json_t *value;
    json_object_foreach(names, key, value) if (strcmp(key, "type") != 0 &&
                                               !schema_is_annotation(key)) o->names = names;
    if (o->names && (json_object_size(o->properties) > 0 || json_array_size(o->required) > 0))
        return schema_fail(r, "propertyNames",
                           "together with properties is supported only with an enum");
    return LACE_OK;
}

static lace_status check_object(schema_reader *r, const json_t *schema, object_parts *o)
{
    const json_t *others = json_object_get(schema, "additionalProperties");
    o->properties = json_object_get(schema, "properties");
    o->required = json_object_get(schema, "required");
    if (o->properties && !json_is_object(o->properties))
        return schema_fail(r, "properties", "is %s, expected an object", json_kind(o->properties));
    if (o->required && !json_is_array(o->required))
        return schema_fail(r, "required", "is %s, expected a list", json_kind(o->required));
    for (size_t i = 0; i < json_array_size(o->required); i++)
        if (!json_is_string(json_array_get(o->required, i)))
            return schema_fail(r, "required", "entry %zu is not a text", i);
    if (others && !json_is_boolean(others) && !json_is_object(others))
        return schema_fail(r, "additionalProperties", "is %s, expected a schema",
                           json_kind(others));
    /* Without a word on them, an object with properties has no others, one without has any. */
    if (others ? !json_is_false(others) : json_object_size(o->properties) == 0)
        o->others = others ? others : json_true();
    TRY(read_names(r, schema, o));
    TRY(schema_count(r, schema, "minProperties", 0, &o->min));
    TRY(schema_count(r, schema, "maxProperties", GRAMMAR_NO_MAX, &o->max));
    if (o->max < o->min)
        return schema_fail(r, "maxProperties", "is %u, but minProperties is %u", o->max, o->min);
    size_t n_properties = json_object_size(o->properties);
    size_t n_required = json_array_size(o->required);
    if (n_properties + n_required == 0)
        return o->min > 0 && !o->others
                   ? schema_fail(r, "minProperties", "is %u, but no property is allowed", o->min)
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

/* Required names that are no properties are properties of any value. */
static lace_status add_required(schema_reader *r, const json_t *schema, object_parts *o)
{
    json_t *all = NULL;
    bool is_closed = json_is_false(json_object_get(schema, "additionalProperties"));
    for (size_t i = 0; i < json_array_size(o->required); i++) {
        const char *name = json_string_value(json_array_get(o->required, i));
        TRY(schema_spend(r, 1));
        if (json_object_get(all ? all : o->properties, name))
            continue;
        if (is_closed || json_object_get(schema, "propertyNames"))
            return schema_fail(r, "required", "\"%.40s\" is not among the properties, and %s", name,
                               is_closed ? "additionalProperties is false"
                                         : "propertyNames does not allow it");
        if (!all)
            TRY(schema_own(r, o->properties ? json_copy((json_t *)o->properties) : json_object(),
                           &all));
        if (json_object_set(all, name, o->others ? (json_t *)o->others : json_true()) != 0)
            return nomem(r);
    }
    if (all)
        o->properties = all;
    return LACE_OK;
}

/* ---- Objects --------------------------------------------------------------------------------- */

/* What stands behind a name: the colon and the value. */
static lace_status read_value(schema_reader *r, const json_t *schema, int depth,
                              const grammar_node **out)
{
    grammar_ast *g = r->g;
    const grammar_node *value;
    TRY(schema_read(r, schema, depth + 1, &value));
    *out =
        GRAMMAR_SEQ(g, grammar_text(g, ":"), grammar_repeat(g, grammar_text(g, " "), 0, 1), value);
    return LACE_OK;
}

/* A property, and where it leads. */
typedef struct property {
    const char *name;
    const grammar_node *value;
    uint32_t after; /* the point behind it */
    bool is_required;
} property;

static lace_status list_properties(schema_reader *r, const object_parts *o, int depth,
                                   object_graph *graph, property *list)
{
    map required;
    map_init(&required);
    lace_status status = LACE_OK;
    for (size_t i = 0; i < json_array_size(o->required) && status != LACE_E_NOMEM; i++)
        status = map_add(&required, text_of(json_string_value(json_array_get(o->required, i))), 1);
    status = status == LACE_E_NOMEM ? nomem(r) : LACE_OK;
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)o->properties, key, value)
    {
        if (status != LACE_OK)
            break;
        list[n].name = key;
        list[n].is_required = map_find(&required, text_of(key)) > 0;
        status = read_value(r, value, depth, &list[n].value);
        if (status == LACE_OK)
            status = add_point(graph, &list[n].after);
        n++;
    }
    map_deinit(&required);
    return status;
}

/* The name as JSON without its first quote. */
static lace_status add_property(object_graph *graph, uint32_t tree, const property *p,
                                uint32_t *out)
{
    *out = NO_POINT;
    json_t *name = json_string(p->name);
    char *literal = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    json_decref(name);
    if (!literal)
        return nomem(graph->r);
    const grammar_node *last = GRAMMAR_SEQ(graph->r->g, letter(graph, '"'), p->value);
    lace_status status = add_name(graph, tree, literal + 1, strlen(literal) - 1,
                                  (name_edge){'"', p->after, last}, out);
    mem_free(literal);
    return status;
}

/* Everything between the braces of n > 0 properties. Point 0 is the start. */
static lace_status build_graph(schema_reader *r, const object_parts *o, int depth,
                               object_graph *graph, property *list, edge_list *edges)
{
    grammar_ast *g = r->g;
    uint32_t n = (uint32_t)json_object_size(o->properties), tree = NO_POINT, start = 0;
    const grammar_node *quote = grammar_text(g, "\"");
    const grammar_node *comma = GRAMMAR_SEQ(g, grammar_text(g, ","), schema_space(r), quote);
    TRY(add_point(graph, &start));
    TRY(list_properties(r, o, depth, graph, list));
    bool may_end = true;
    if (o->others) {
        const grammar_node *value;
        name_edge end = {'"', 0, quote};
        TRY(add_point(graph, &end.to));
        TRY(read_value(r, o->others, depth, &value));
        edge_list_add(edges, end.to, list[n - 1].after, value);
        TRY(add_other_names(graph, o->properties, end, &tree));
    }
    /* Ends are noted as edges to NO_POINT until it is known which point is the end. */
    for (uint32_t i = n;; i--) {
        uint32_t point = i > 0 ? list[i - 1].after : start;
        bool is_begun = i > 0;
        if (tree != NO_POINT)
            edge_list_add(edges, point, tree, is_begun ? comma : quote);
        if (may_end)
            edge_list_add(edges, point, NO_POINT, is_begun ? schema_space(r) : grammar_empty(g));
        if (i == 0)
            break;
        may_end = may_end && !list[i - 1].is_required;
        TRY(add_property(graph, list[i - 1].is_required ? NO_POINT : tree, &list[i - 1], &tree));
    }
    return LACE_OK;
}

/* An object that has properties. */
static lace_status read_with_properties(schema_reader *r, const object_parts *o, int depth,
                                        const grammar_node **out)
{
    object_graph graph = {.r = r};
    edge_list edges = {0};
    property *list = mem_calloc(json_object_size(o->properties) + 1, sizeof *list);
    lace_status status = list ? build_graph(r, o, depth, &graph, list, &edges) : nomem(r);
    uint32_t end = graph.n_points;
    for (size_t i = 0; i < edges.n; i++)
        if (edges.data[i].to == NO_POINT)
            edges.data[i].to = end;
    for (uint32_t p = 0; p < graph.n_points && status == LACE_OK; p++)
        for (uint32_t k = graph.points[p].first; k < graph.points[p].first + graph.points[p].n; k++)
            edge_list_add(&edges, p, graph.edges[k].to, graph.edges[k].node);
    r->g->is_out_of_memory |= edges.is_out_of_memory;
    if (status == LACE_OK)
        *out = grammar_net(r->g, end + 1, edges.data, edges.n);
    edge_list_deinit(&edges);
    mem_free_all(graph.points, graph.edges, list);
    return status;
}

/* An object of pairs that are all alike. */
static lace_status read_pairs(schema_reader *r, const object_parts *o, int depth,
                              const grammar_node **out)
{
    grammar_ast *g = r->g;
    const grammar_node *name = schema_any_string(r), *value;
    if (o->names)
        TRY(schema_read_string(r, o->names, &name));
    TRY(schema_read(r, o->others, depth + 1, &value));
    const grammar_node *pair =
        schema_as_rule(r, "pair",
                       GRAMMAR_SEQ(g, name, grammar_text(g, ":"),
                                   grammar_repeat(g, grammar_text(g, " "), 0, 1), value));
    const grammar_node *more = GRAMMAR_SEQ(g, grammar_text(g, ","), schema_space(r), pair);
    uint32_t least = o->min > 0 ? o->min - 1 : 0;
    uint32_t most = o->max == GRAMMAR_NO_MAX || o->max == 0 ? o->max : o->max - 1;
    const grammar_node *pairs =
        GRAMMAR_SEQ(g, pair, grammar_repeat(g, more, least, most), schema_space(r));
    *out = o->max == 0 ? grammar_empty(g) : o->min > 0 ? pairs : grammar_repeat(g, pairs, 0, 1);
    return LACE_OK;
}

lace_status schema_read_object(schema_reader *r, const json_t *schema, int depth,
                               const grammar_node **out)
{
    grammar_ast *g = r->g;
    object_parts o = {0};
    const grammar_node *contents = grammar_empty(g);
    TRY(check_object(r, schema, &o));
    TRY(add_required(r, schema, &o));
    if (json_object_size(o.properties) > 0)
        TRY(read_with_properties(r, &o, depth, &contents));
    else if (o.others)
        TRY(read_pairs(r, &o, depth, &contents));
    *out = schema_as_rule(
        r, "object",
        GRAMMAR_SEQ(g, grammar_text(g, "{"), schema_space(r), contents, grammar_text(g, "}")));
    return LACE_OK;
}
