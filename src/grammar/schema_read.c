/*
 * JSON schema to grammar: the keywords that choose between kinds of values, and references.
 *
 * What is written is always valid for the schema, though not everything valid can be written:
 * properties come in the order of the schema, numbers have at most 15 digits, and an object with
 * `properties` has others only if additionalProperties says so. A keyword that cannot be honoured
 * is refused by name.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "grammar/grammar_schema.h"

lace_status schema_fail(schema_reader *r, const char *keyword, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return error_set(r->err, LACE_E_GRAMMAR, "JSON schema: %.64s: %s", keyword, line);
}

lace_status schema_count_part(schema_reader *r)
{
    if (++r->n_parts > SCHEMA_MAX_PARTS)
        return error_set(r->err, LACE_E_GRAMMAR, "JSON schema: has more than %d parts",
                         SCHEMA_MAX_PARTS);
    return schema_spend(r, 1);
}

lace_status schema_spend(schema_reader *r, size_t n_members)
{
    r->n_made += n_members;
    if (r->n_made > SCHEMA_MAX_MADE)
        return error_set(r->err, LACE_E_GRAMMAR,
                         "JSON schema: combined by allOf and $ref it has more than %d members",
                         SCHEMA_MAX_MADE);
    if (!work_goes_on(r->g->limit, n_members < 1000 ? 8 * (uint32_t)n_members : 8000))
        return work_limit_error(r->g->limit, "the JSON schema", r->err);
    return LACE_OK;
}

/* ---- Keywords -------------------------------------------------------------------------------- */

static const char *const annotations[] = {
    "title", "description", "default",          "examples",        "example",   "$schema",
    "$id",   "$comment",    "deprecated",       "readOnly",        "writeOnly", "$anchor",
    "$defs", "definitions", "contentMediaType", "contentEncoding",
};

/* Those that are read somewhere. */
static const char *const keywords[] = {
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "nullable",
    SCHEMA_STRINGS,
};

static bool is_listed(const char *const *list, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0)
            return true;
    return false;
}

bool schema_is_annotation(const char *keyword)
{
    return strncmp(keyword, "x-", 2) == 0 || strcmp(keyword, SCHEMA_JOINED) == 0 ||
           is_listed(annotations, sizeof annotations / sizeof annotations[0], keyword);
}

static lace_status check_keywords(schema_reader *r, const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value)
    {
        if (schema_is_annotation(key))
            continue;
        if (!is_listed(keywords, sizeof keywords / sizeof keywords[0], key) &&
            !(strcmp(key, "uniqueItems") == 0 && json_is_false(value)))
            return schema_fail(r, key, "this keyword is not supported");
    }
    return LACE_OK;
}

static unsigned type_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"null", TYPE_NULL},      {"boolean", TYPE_BOOLEAN}, {"object", TYPE_OBJECT},
                 {"array", TYPE_ARRAY},    {"number", TYPE_NUMBER},   {"string", TYPE_STRING},
                 {"integer", TYPE_INTEGER}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].type;
    return 0;
}

/* A keyword that speaks of one type means it, if no type is named. */
static unsigned implied_types(const json_t *schema)
{
    static const struct {
        const char *keyword;
        unsigned type;
    } rows[] = {{"properties", TYPE_OBJECT},
                {"required", TYPE_OBJECT},
                {"additionalProperties", TYPE_OBJECT},
                {"minProperties", TYPE_OBJECT},
                {"maxProperties", TYPE_OBJECT},
                {"propertyNames", TYPE_OBJECT},
                {"items", TYPE_ARRAY},
                {"prefixItems", TYPE_ARRAY},
                {"minItems", TYPE_ARRAY},
                {"maxItems", TYPE_ARRAY},
                {"minLength", TYPE_STRING},
                {"maxLength", TYPE_STRING},
                {"pattern", TYPE_STRING},
                {"minimum", TYPE_NUMBER},
                {"maximum", TYPE_NUMBER},
                {"exclusiveMinimum", TYPE_NUMBER},
                {"exclusiveMaximum", TYPE_NUMBER},
                {"format", TYPE_STRING}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (json_object_get(schema, rows[i].keyword))
            types |= rows[i].type;
    return types ? types : TYPE_ANY;
}

lace_status schema_types(schema_reader *r, const json_t *schema, unsigned *out)
{
    const json_t *type = json_object_get(schema, "type");
    *out = 0;
    if (!type) {
        *out = implied_types(schema);
    } else if (json_is_string(type)) {
        *out = type_of_name(json_string_value(type));
        if (*out == 0)
            return schema_fail(r, "type", "\"%.40s\" is not a type", json_string_value(type));
    } else if (json_is_array(type) && json_array_size(type) > 0) {
        for (size_t i = 0; i < json_array_size(type); i++) {
            const char *name = json_string_value(json_array_get(type, i));
            unsigned one = name ? type_of_name(name) : 0;
            if (one == 0)
                return schema_fail(r, "type", "entry %zu is not a type", i);
            *out |= one;
        }
    } else {
        return schema_fail(r, "type", "is %s, expected a type or a list of types", json_kind(type));
    }
    if (*out & TYPE_NUMBER)
        *out &= ~(unsigned)TYPE_INTEGER;
    if (json_is_true(json_object_get(schema, "nullable")))
        *out |= TYPE_NULL;
    return LACE_OK;
}

/* ---- Shared parts ---------------------------------------------------------------------------- */

const grammar_node *schema_space(schema_reader *r)
{
    grammar_ast *g = r->g;
    if (r->space == 0) {
        uint32_t rule = grammar_add_rule(g, text_of("space"));
        if (!g->rules)
            return grammar_empty(g);
        const grammar_node *indent = grammar_repeat(g, grammar_text(g, " "), 0, 8);
        g->rules[rule].body = GRAMMAR_ALT(g, grammar_empty(g), grammar_text(g, " "),
                                          GRAMMAR_SEQ(g, grammar_text(g, "\n"), indent));
        r->space = rule + 1;
    }
    return grammar_use(g, r->space - 1);
}

const grammar_node *schema_as_rule(schema_reader *r, const char *name, const grammar_node *body)
{
    uint32_t rule = grammar_add_rule(r->g, text_of(name));
    if (r->g->is_out_of_memory || r->g->is_too_large)
        return grammar_empty(r->g);
    r->g->rules[rule].body = body;
    return grammar_use(r->g, rule);
}

const grammar_node *schema_literal(schema_reader *r, const json_t *value)
{
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!dump) {
        r->g->is_out_of_memory = true;
        return grammar_empty(r->g);
    }
    const grammar_node *node = grammar_text(r->g, dump);
    mem_free(dump);
    return node;
}

/* Any JSON value. */
static const grammar_node *use_any(schema_reader *r)
{
    grammar_ast *g = r->g;
    if (r->any == 0) {
        r->any = grammar_add_rule(g, text_of("value")) + 1;
        r->object = grammar_add_rule(g, text_of("object")) + 1;
        uint32_t list = grammar_add_rule(g, text_of("array"));
        if (!g->rules || g->is_out_of_memory)
            return grammar_empty(g);
        const grammar_node *value = grammar_use(g, r->any - 1), *space = schema_space(r);
        const grammar_node *comma = GRAMMAR_SEQ(g, grammar_text(g, ","), space);
        const grammar_node *pair =
            GRAMMAR_SEQ(g, schema_any_string(r), grammar_text(g, ":"),
                        grammar_repeat(g, grammar_text(g, " "), 0, 1), value);
        const grammar_node *pairs = GRAMMAR_SEQ(
            g, pair, grammar_repeat(g, GRAMMAR_SEQ(g, comma, pair), 0, GRAMMAR_NO_MAX), space);
        const grammar_node *values = GRAMMAR_SEQ(
            g, value, grammar_repeat(g, GRAMMAR_SEQ(g, comma, value), 0, GRAMMAR_NO_MAX), space);
        g->rules[r->object - 1].body = GRAMMAR_SEQ(
            g, grammar_text(g, "{"), space, grammar_repeat(g, pairs, 0, 1), grammar_text(g, "}"));
        g->rules[list].body = GRAMMAR_SEQ(g, grammar_text(g, "["), space,
                                          grammar_repeat(g, values, 0, 1), grammar_text(g, "]"));
        g->rules[r->any - 1].body =
            GRAMMAR_ALT(g, grammar_use(g, r->object - 1), grammar_use(g, list),
                        schema_any_string(r), schema_any_number(r, false), grammar_text(g, "true"),
                        grammar_text(g, "false"), grammar_text(g, "null"));
    }
    return grammar_use(g, r->any - 1);
}

/* ---- References ------------------------------------------------------------------------------ */

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One step of a JSON pointer in a URI: %XX, then ~1 and ~0. Returns its length; 0: too long. */
static size_t decode_step(const char *step, size_t n, char *out, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = step[i];
        if (c == '%' && i + 2 < n && hex_value(step[i + 1]) >= 0 && hex_value(step[i + 2]) >= 0) {
            c = (char)(hex_value(step[i + 1]) * 16 + hex_value(step[i + 2]));
            i += 2;
        } else if (c == '~' && i + 1 < n && (step[i + 1] == '0' || step[i + 1] == '1')) {
            c = step[++i] == '0' ? '~' : '/';
        }
        if (used + 1 >= capacity)
            return 0;
        out[used++] = c;
    }
    out[used] = 0;
    return used;
}

lace_status schema_resolve(schema_reader *r, const char *ref, const json_t **out)
{
    const json_t *at = r->root;
    if (ref[0] != '#')
        return schema_fail(r, "$ref",
                           "\"%.80s\": only references inside the schema (#/...) are "
                           "followed",
                           ref);
    const char *p = ref + 1;
    if (*p != 0 && *p != '/')
        return schema_fail(r, "$ref", "\"%.80s\": anchors are not supported", ref);
    while (at && *p == '/') {
        char step[512];
        size_t n = strcspn(p + 1, "/"), index = 0;
        if (decode_step(p + 1, n, step, sizeof step) == 0) {
            at = NULL;
        } else if (json_is_array(at)) {
            for (const char *d = step; *d; d++)
                index = *d >= '0' && *d <= '9' && index < 100000 ? index * 10 + (size_t)(*d - '0')
                                                                 : SIZE_MAX / 16;
            at = json_array_get(at, index);
        } else {
            at = json_object_get(at, step);
        }
        p += 1 + n;
    }
    if (!at)
        return schema_fail(r, "$ref", "\"%.80s\" points to nothing", ref);
    *out = at;
    return LACE_OK;
}

/* A reference is the use of a rule, whose body is read later: so schemas may be recursive. */
static lace_status read_ref(schema_reader *r, const char *ref, const grammar_node **out)
{
    const json_t *target;
    TRY(schema_resolve(r, ref, &target));
    int32_t rule = map_find(&r->refs, text_of(ref));
    if (rule < 0) {
        json_t *name = json_string(ref);
        if (!name || json_array_append_new(r->queue, name) != 0)
            return error_nomem(r->err, "a JSON schema");
        text key = text_of(json_string_value(name));
        rule = (int32_t)grammar_add_rule(r->g, key);
        TRY(grammar_ast_check(r->g, r->err));
        if (map_add(&r->refs, key, rule) != LACE_OK)
            return error_nomem(r->err, "a JSON schema");
    }
    *out = grammar_use(r->g, (uint32_t)rule);
    return LACE_OK;
}

static lace_status read_queue(schema_reader *r)
{
    for (; r->n_built < json_array_size(r->queue); r->n_built++) {
        const char *ref = json_string_value(json_array_get(r->queue, r->n_built));
        const json_t *target;
        const grammar_node *node;
        TRY(schema_resolve(r, ref, &target));
        TRY(schema_read(r, target, 0, &node));
        r->g->rules[map_find(&r->refs, text_of(ref))].body = node;
    }
    return LACE_OK;
}

/* ---- Choices --------------------------------------------------------------------------------- */

unsigned schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER | TYPE_NUMBER;
    case JSON_REAL:
        return TYPE_NUMBER;
    case JSON_NULL:
        return TYPE_NULL;
    default:
        return TYPE_BOOLEAN;
    }
}

/* The values of "enum" or "const" that are of the schema's type. */
static lace_status read_values(schema_reader *r, const json_t *schema, const grammar_node **out)
{
    const json_t *values = json_object_get(schema, "enum");
    const json_t *constant = json_object_get(schema, "const");
    const char *keyword = constant ? "const" : "enum";
    if (!constant && (!json_is_array(values) || json_array_size(values) == 0))
        return schema_fail(r, "enum", "expected a list that is not empty");
    unsigned types;
    TRY(schema_types(r, schema, &types));
    if (!json_object_get(schema, "type"))
        types = TYPE_ANY | TYPE_INTEGER;
    static const char *const others[] = {
        "minimum",   "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength",
        "maxLength", "pattern", "format",           "properties",       "items"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (json_object_get(schema, others[i]))
            return schema_fail(r, keyword, "together with %s is not supported", others[i]);
    node_list parts = {0};
    size_t n = constant ? 1 : json_array_size(values);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = constant ? constant : json_array_get(values, i);
        if (schema_type_of(value) & types)
            r->g->is_out_of_memory |= !node_list_add(&parts, schema_literal(r, value));
    }
    bool is_empty = parts.n == 0;
    *out = grammar_list(r->g, NODE_ALT, parts.nodes, parts.n);
    node_list_deinit(&parts);
    TRY(grammar_ast_check(r->g, r->err));
    return is_empty ? schema_fail(r, keyword, "none of the values has the schema's type") : LACE_OK;
}

/* Whether a schema says nothing but what this keyword says. */
static bool is_alone(const json_t *schema, const char *keyword)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) if (!schema_is_annotation(key) &&
                                                          strcmp(key, keyword) != 0) return false;
    return true;
}

static lace_status read_branches(schema_reader *r, const json_t *schema, const char *keyword,
                                 int depth, const grammar_node **out)
{
    const json_t *branches = json_object_get(schema, keyword);
    /* A branch alone may be a reference to a recursive schema, which cannot be merged. */
    bool needs_merging = !is_alone(schema, keyword);
    json_t *base, *all;
    if (!json_is_array(branches) || json_array_size(branches) == 0)
        return schema_fail(r, keyword, "expected a list that is not empty");
    TRY(schema_without(r, schema, keyword, &base));
    TRY(schema_own(r, json_array(), &all));
    node_list parts = {0};
    lace_status status = LACE_OK;
    for (size_t i = 0; i < json_array_size(branches) && status == LACE_OK; i++) {
        json_t *branch = json_array_get(branches, i);
        const grammar_node *node = NULL;
        if (needs_merging)
            status = schema_merge(r, base, branch, &branch);
        if (status == LACE_OK && json_array_append(all, branch) != 0)
            status = error_nomem(r->err, "a JSON schema");
        if (status == LACE_OK)
            status = schema_read(r, branch, depth + 1, &node);
        if (status == LACE_OK && !node_list_add(&parts, node))
            status = error_nomem(r->err, "a JSON schema");
    }
    if (status == LACE_OK && strcmp(keyword, "oneOf") == 0)
        status = schema_check_one_of(r, all);
    *out = grammar_list(r->g, NODE_ALT, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return status;
}

static lace_status read_type(schema_reader *r, const json_t *schema, unsigned type, int depth,
                             const grammar_node **out)
{
    switch (type) {
    case TYPE_NULL:
        *out = grammar_text(r->g, "null");
        return LACE_OK;
    case TYPE_BOOLEAN:
        *out = GRAMMAR_ALT(r->g, grammar_text(r->g, "true"), grammar_text(r->g, "false"));
        return LACE_OK;
    case TYPE_OBJECT:
        return schema_read_object(r, schema, depth, out);
    case TYPE_ARRAY:
        return schema_read_array(r, schema, depth, out);
    case TYPE_STRING:
        return schema_read_string(r, schema, out);
    default:
        return schema_read_number(r, schema, type == TYPE_INTEGER, out);
    }
}

static lace_status read_types(schema_reader *r, const json_t *schema, int depth,
                              const grammar_node **out)
{
    unsigned types;
    TRY(schema_types(r, schema, &types));
    if (types == TYPE_ANY && !json_object_get(schema, "type")) {
        *out = use_any(r);
        return LACE_OK;
    }
    node_list parts = {0};
    lace_status status = LACE_OK;
    for (unsigned type = 1; type <= TYPE_INTEGER && status == LACE_OK; type *= 2) {
        const grammar_node *node = NULL;
        if (!(types & type))
            continue;
        status = read_type(r, schema, type, depth, &node);
        if (status == LACE_OK && !node_list_add(&parts, node))
            status = error_nomem(r->err, "a JSON schema");
    }
    *out = grammar_list(r->g, NODE_ALT, parts.nodes, parts.n);
    node_list_deinit(&parts);
    return status;
}

/* What nothing is valid for: false, and {"not": {}}. */
static bool is_never(const json_t *schema)
{
    const json_t *not = json_object_get(schema, "not");
    return json_is_false(schema) ||
           ((json_is_true(not ) || (json_is_object(not ) && json_object_size(not ) == 0)) &&
            is_alone(schema, "not"));
}

lace_status schema_read(schema_reader *r, const json_t *schema, int depth, const grammar_node **out)
{
    *out = NULL;
    if (depth > SCHEMA_MAX_DEPTH)
        return error_set(r->err, LACE_E_GRAMMAR, "JSON schema: nested more than %d levels deep",
                         SCHEMA_MAX_DEPTH);
    TRY(schema_count_part(r));
    if (json_is_true(schema)) {
        *out = use_any(r);
        return LACE_OK;
    }
    if (is_never(schema)) {
        *out = grammar_list(r->g, NODE_ALT, NULL, 0);
        return LACE_OK;
    }
    if (!json_is_object(schema))
        return error_set(r->err, LACE_E_GRAMMAR, "JSON schema: is %s, expected an object",
                         json_kind(schema));
    TRY(check_keywords(r, schema));
    const json_t *ref = json_object_get(schema, "$ref");
    if (json_is_string(ref) && is_alone(schema, "$ref"))
        return read_ref(r, json_string_value(ref), out);
    if (ref || json_object_get(schema, "allOf")) {
        json_t *merged;
        TRY(schema_merge(r, schema, NULL, &merged));
        return schema_read(r, merged, depth + 1, out);
    }
    if (json_object_get(schema, "anyOf"))
        return read_branches(r, schema, "anyOf", depth, out);
    if (json_object_get(schema, "oneOf"))
        return read_branches(r, schema, "oneOf", depth, out);
    if (json_object_get(schema, "const") || json_object_get(schema, "enum"))
        return read_values(r, schema, out);
    return read_types(r, schema, depth, out);
}

/* ---- Whole schemas --------------------------------------------------------------------------- */

static lace_status read_whole(schema_reader *r, uint32_t *out)
{
    uint32_t root = *out = grammar_add_rule(r->g, text_of("root"));
    const grammar_node *node;
    TRY(grammar_ast_check(r->g, r->err));
    if (!json_is_object(r->root))
        return error_set(r->err, LACE_E_GRAMMAR, "JSON schema: is %s, expected an object",
                         json_kind(r->root));
    TRY(schema_read(r, r->root, 0, &node));
    TRY(grammar_ast_check(r->g, r->err));
    r->g->rules[root].body = node;
    TRY(read_queue(r));
    return grammar_ast_check(r->g, r->err);
}

/* The names of rules are texts of the queue, so both live as long as the grammar's reading. */
static lace_status read_with(grammar_ast *g, json_t *schema, uint32_t *out, lace_error *err)
{
    schema_reader r = {.g = g, .root = schema, .err = err};
    uint32_t first = g->n_rules;
    map_init(&r.refs);
    map_init(&r.strings);
    r.made = json_array();
    r.queue = json_array();
    lace_status status =
        r.made && r.queue ? read_whole(&r, out) : error_nomem(err, "a JSON schema");
    /* Messages of the compiler name rules: give it names that stay. */
    for (uint32_t i = first; i < g->n_rules; i++) {
        text name = g->rules[i].name;
        char *copy = arena_strndup(&g->memory, name.data, name.size);
        g->rules[i].name = copy ? (text){copy, name.size} : (text){"", 0};
    }
    map_deinit(&r.refs);
    map_deinit(&r.strings);
    json_decref(r.made);
    json_decref(r.queue);
    return status;
}

/* Whether a name anywhere begins as our own words do; bounded in depth by the reader of JSON. */
static bool has_own_word(const json_t *value)
{
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member) if (has_own_word(member)) return true;
    json_object_foreach((json_t *)value, key,
                        member) if (key[0] == SCHEMA_OWN || has_own_word(member)) return true;
    return false;
}

static lace_status read_schema(grammar_ast *g, text source, uint32_t *out, lace_error *err)
{
    json_t *schema;
    if (source.size > GRAMMAR_MAX_TEXT)
        return error_set(err, LACE_E_GRAMMAR, "the JSON schema has %zu bytes, expected at most %d",
                         source.size, GRAMMAR_MAX_TEXT);
    lace_status status =
        json_read((span){(const uint8_t *)source.data, source.size}, 0, &schema, err);
    if (status != LACE_OK)
        return status == LACE_E_NOMEM ? status : error_prefix(err, status, "the JSON schema");
    status = has_own_word(schema)
                 ? error_set(err, LACE_E_GRAMMAR, "JSON schema: a name begins with U+0001")
                 : read_with(g, schema, out, err);
    json_decref(schema);
    return status;
}

lace_status grammar_read_schema(grammar_ast *g, text source, lace_error *err)
{
    return read_schema(g, source, &g->root, err);
}

lace_status grammar_read_schema_node(grammar_ast *g, text source, const grammar_node **out,
                                     lace_error *err)
{
    uint32_t rule;
    *out = NULL;
    TRY(read_schema(g, source, &rule, err));
    *out = grammar_use(g, rule);
    return LACE_OK;
}

lace_status grammar_read_json_object(grammar_ast *g, lace_error *err)
{
    return grammar_read_schema(g, text_of("{\"type\": \"object\"}"), err);
}
