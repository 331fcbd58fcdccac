/* JSON schema to grammar: arrays. */
#include "base/json_read.h"
#include "grammar/grammar_schema.h"

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
    const grammar_node *comma = GRAMMAR_SEQ(g, grammar_text(g, ","), schema_space(r));
    *n_points = end + 1;
    edge_list_add(edges, 0, 1, grammar_empty(g));
    for (uint32_t i = 0; i < n_first; i++) {
        const grammar_node *node;
        TRY(schema_read(r, json_array_get(first, i), depth + 1, &node));
        edge_list_add(edges, i + 1, i + 2, i > 0 ? GRAMMAR_SEQ(g, comma, node) : node);
        if (i >= min)
            edge_list_add(edges, i + 1, end, i > 0 ? schema_space(r) : grammar_empty(g));
    }
    if (n_first >= min)
        edge_list_add(edges, n_first + 1, end, n_first > 0 ? schema_space(r) : grammar_empty(g));
    if (!items || max <= n_first)
        return LACE_OK;
    const grammar_node *item;
    TRY(schema_read(r, items, depth + 1, &item));
    item = schema_as_rule(r, "item", item);
    const grammar_node *more = GRAMMAR_SEQ(g, comma, item);
    uint32_t least = min > n_first ? min - n_first : 1;
    uint32_t most = max == GRAMMAR_NO_MAX ? max : max - n_first;
    const grammar_node *rest =
        n_first > 0 ? grammar_repeat(g, more, least, most)
                    : GRAMMAR_SEQ(g, item,
                                  grammar_repeat(g, more, least - 1,
                                                 most == GRAMMAR_NO_MAX ? most : most - 1));
    edge_list_add(edges, n_first + 1, end, GRAMMAR_SEQ(g, rest, schema_space(r)));
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
        return schema_fail(r, "maxItems", "is %u, but minItems is %u", max, min);
    if (json_is_array(items)) { /* as older drafts write prefixItems */
        if (first)
            return schema_fail(r, "items", "a list together with prefixItems is not supported");
        first = items;
        items = json_object_get(schema, "additionalItems");
    } else if (json_object_get(schema, "additionalItems")) {
        return schema_fail(r, "additionalItems", "is supported only where items is a list");
    }
    if (first && !json_is_array(first))
        return schema_fail(r, "prefixItems", "is %s, expected a list", json_kind(first));
    if (json_is_false(items))
        items = NULL;
    else if (!items && (!first || min > json_array_size(first)))
        items = json_true();
    if (!items && min > json_array_size(first))
        return schema_fail(r, "minItems", "is %u, but only %zu items are allowed", min,
                           json_array_size(first));
    edge_list edges = {0};
    uint32_t n_points = 0;
    lace_status status = read_array(r, first, items, min, max, depth, &edges, &n_points);
    g->is_out_of_memory |= edges.is_out_of_memory;
    if (status == LACE_OK) {
        const grammar_node *contents = grammar_net(g, n_points, edges.data, edges.n);
        *out = schema_as_rule(
            r, "array",
            GRAMMAR_SEQ(g, grammar_text(g, "["), schema_space(r), contents, grammar_text(g, "]")));
    }
    edge_list_deinit(&edges);
    return status;
}
