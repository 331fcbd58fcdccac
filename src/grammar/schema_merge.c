/*
 * JSON schemas that hold at once, as one schema: for allOf, and for keywords beside anyOf, oneOf
 * and $ref. What cannot be written as one schema is refused.
 *
 * Parts are merged into one schema, which grows; nothing of what came before is copied again, so
 * that the work is in proportion to the parts. Two words that no schema from outside has (see
 * grammar_schema.h) say what JSON schema has no word for: further patterns and formats of a string,
 * and lists of an allOf that this merging has made and may go on with.
 */
#include <string.h>

#include "base/json_read.h"
#include "grammar/grammar_schema.h"

enum { MAX_REFS = 32 }; /* that lead to each other */

/* A schema in the making. Its properties, and what they are joined from, belong to it alone. */
typedef struct merger {
    schema_reader *r;
    json_t *out;
    json_t *required; /* {name: true}; NULL: none */
    json_int_t id;    /* of this merging */
} merger;

static lace_status nomem(const schema_reader *r)
{
    return error_nomem(r->err, "a JSON schema");
}

lace_status schema_own(schema_reader *r, json_t *value, json_t **out)
{
    *out = value;
    TRY(schema_spend(r, 1 + json_object_size(value) + json_array_size(value)));
    return value && json_array_append_new(r->made, value) == 0 ? LACE_OK : nomem(r);
}

static lace_status set(const schema_reader *r, json_t *object, const char *key, json_t *value)
{
    return json_object_set(object, key, value) == 0 ? LACE_OK : nomem(r);
}

static lace_status set_new(const schema_reader *r, json_t *object, const char *key, json_t *value)
{
    return value && json_object_set_new(object, key, value) == 0 ? LACE_OK : nomem(r);
}

/* ---- Single keywords ------------------------------------------------------------------------- */

/* Both the value at a key and another schema: {"allOf": [...]}, one list for all that come. */
static lace_status join(merger *m, json_t *object, const char *key, json_t *value)
{
    json_t *before = json_object_get(object, key);
    json_t *mark = json_object_get(before, SCHEMA_JOINED);
    TRY(schema_spend(m->r, 1));
    if (mark && json_integer_value(mark) == m->id)
        return json_array_append(json_object_get(before, "allOf"), value) == 0 ? LACE_OK
                                                                               : nomem(m->r);
    if (json_equal(before, value))
        return LACE_OK;
    return set_new(m->r, object, key,
                   json_pack("{s:I, s:[O,O]}", SCHEMA_JOINED, m->id, "allOf", before, value));
}

/* Types that both have; a number that must be an integer is one. */
static lace_status merge_types(merger *m, const json_t *part)
{
    static const struct {
        unsigned type;
        const char *name;
    } names[] = {{TYPE_NULL, "null"},      {TYPE_BOOLEAN, "boolean"}, {TYPE_OBJECT, "object"},
                 {TYPE_ARRAY, "array"},    {TYPE_NUMBER, "number"},   {TYPE_STRING, "string"},
                 {TYPE_INTEGER, "integer"}};
    unsigned left, right;
    TRY(schema_types(m->r, m->out, &left));
    TRY(schema_types(m->r, part, &right));
    unsigned types = left & right;
    if ((left | right) & TYPE_INTEGER && (left | right) & TYPE_NUMBER)
        types |= TYPE_INTEGER;
    if (types == 0)
        return schema_fail(m->r, "type", "no type satisfies all schemas of allOf and $ref");
    json_t *list = json_array();
    bool ok = list;
    for (size_t i = 0; ok && i < sizeof names / sizeof names[0]; i++)
        if (types & names[i].type)
            ok = json_array_append_new(list, json_string(names[i].name)) == 0;
    if (!ok) {
        json_decref(list);
        return nomem(m->r);
    }
    json_object_del(m->out, "nullable"); /* the list says it */
    return set_new(m->r, m->out, "type", list);
}

/* The values of a list that another has too, by a set, as both may be long. */
static lace_status common_values(merger *m, const json_t *a, const json_t *b, json_t *out)
{
    schema_values known;
    schema_values_init(&known);
    lace_status status = LACE_OK;
    for (size_t i = 0; i < json_array_size(b) && status == LACE_OK; i++)
        status = schema_values_add(m->r, &known, json_array_get(b, i), 0, NULL);
    for (size_t i = 0; i < json_array_size(a) && status == LACE_OK; i++) {
        bool is_known = false;
        status = schema_values_find(m->r, &known, json_array_get(a, i), &is_known);
        if (status == LACE_OK && is_known && json_array_append(out, json_array_get(a, i)) != 0)
            status = nomem(m->r);
    }
    schema_values_deinit(&known);
    return status;
}

static lace_status merge_enum(merger *m, json_t *values)
{
    json_t *before = json_object_get(m->out, "enum");
    if (!json_is_array(values) || json_array_size(values) == 0)
        return schema_fail(m->r, "enum", "expected a list that is not empty");
    if (!before)
        return set(m->r, m->out, "enum", values);
    json_t *list = json_array();
    lace_status status = list ? common_values(m, before, values, list) : nomem(m->r);
    if (status == LACE_OK && json_array_size(list) == 0)
        status = schema_fail(m->r, "enum", "no value satisfies all schemas of allOf and $ref");
    if (status != LACE_OK) {
        json_decref(list);
        return status;
    }
    return set_new(m->r, m->out, "enum", list);
}

static lace_status merge_const(merger *m, json_t *value)
{
    json_t *list;
    TRY(schema_own(m->r, json_pack("[O]", value), &list));
    return merge_enum(m, list);
}

static lace_status merge_required(merger *m, const json_t *names)
{
    if (!json_is_array(names))
        return schema_fail(m->r, "required", "is %s, expected a list", json_kind(names));
    if (!m->required)
        TRY(schema_own(m->r, json_object(), &m->required));
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        TRY(schema_spend(m->r, 1));
        if (!name)
            return schema_fail(m->r, "required", "entry %zu is not a text", i);
        TRY(set_new(m->r, m->required, name, json_true()));
    }
    return LACE_OK;
}

/* A further pattern or format, which must hold too. */
static lace_status merge_string(merger *m, const char *key, json_t *value)
{
    json_t *before = json_object_get(m->out, key), *more = json_object_get(m->out, SCHEMA_STRINGS);
    if (!json_is_string(value))
        return schema_fail(m->r, key, "is %s, expected a text", json_kind(value));
    if (!before)
        return set(m->r, m->out, key, value);
    if (json_equal(before, value))
        return LACE_OK;
    TRY(schema_spend(m->r, 1));
    json_t *list = more ? json_copy(more) : json_array();
    if (!list || json_array_append_new(list, json_pack("{s:O}", key, value)) != 0) {
        json_decref(list);
        return nomem(m->r);
    }
    TRY(schema_spend(m->r, json_array_size(list)));
    return set_new(m->r, m->out, SCHEMA_STRINGS, list);
}

/* Further patterns and formats of a schema that was merged before. */
static lace_status merge_strings(merger *m, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *key;
        json_t *value;
        json_object_foreach(json_array_get(list, i), key, value) TRY(merge_string(m, key, value));
    }
    return LACE_OK;
}

/* The tighter of two bounds; false if the keyword is none. */
static bool merge_bound(merger *m, const char *key, json_t *before, json_t *value,
                        lace_status *status)
{
    static const char *const lower[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const upper[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        "maxProperties"};
    bool is_lower = false, is_upper = false;
    for (size_t i = 0; i < 5; i++) {
        is_lower |= strcmp(key, lower[i]) == 0;
        is_upper |= strcmp(key, upper[i]) == 0;
    }
    if ((!is_lower && !is_upper) || !json_is_number(before) || !json_is_number(value))
        return false;
    bool takes_value = is_lower == (json_number_value(value) > json_number_value(before));
    *status = takes_value ? set(m->r, m->out, key, value) : LACE_OK;
    return true;
}

static lace_status merge_keyword(merger *m, const char *key, json_t *value, const json_t *part)
{
    json_t *before = json_object_get(m->out, key);
    lace_status status;
    if (strcmp(key, "pattern") == 0 || strcmp(key, "format") == 0)
        return merge_string(m, key, value);
    if (strcmp(key, SCHEMA_STRINGS) == 0)
        return merge_strings(m, value);
    if (strcmp(key, "enum") == 0)
        return merge_enum(m, value);
    if (strcmp(key, "const") == 0)
        return merge_const(m, value);
    if (strcmp(key, "required") == 0)
        return merge_required(m, value);
    if (!before)
        return set(m->r, m->out, key, value);
    if (strcmp(key, "type") == 0)
        return merge_types(m, part);
    if (strcmp(key, "nullable") == 0 && json_object_get(m->out, "type"))
        return LACE_OK; /* merge_types has seen to it, or will */
    if (strcmp(key, "propertyNames") == 0 ||
        (strcmp(key, "items") == 0 && !json_is_array(before) && !json_is_array(value)))
        return join(m, m->out, key, value);
    if (merge_bound(m, key, before, value, &status))
        return status;
    return json_equal(before, value) ? LACE_OK
                                     : schema_fail(m->r, key,
                                                   "has two different values in schemas that must "
                                                   "both hold, which is not supported");
}

/* ---- Objects --------------------------------------------------------------------------------- */

/* Properties of the part: those that are known hold twice, new ones are what others may be. */
static lace_status add_properties(merger *m, json_t *known, json_t *fresh)
{
    json_t *others = json_object_get(m->out, "additionalProperties");
    const char *key;
    json_t *value;
    json_object_foreach(fresh, key, value)
    {
        TRY(schema_spend(m->r, 1));
        bool is_known = json_object_get(known, key);
        if (!is_known && json_is_false(others))
            continue; /* it cannot be there */
        if (!is_known)
            TRY(set(m->r, known, key, json_is_object(others) ? others : value));
        if (is_known || json_is_object(others))
            TRY(join(m, known, key, value));
    }
    return LACE_OK;
}

/* What is known and no property of the part is what the part allows besides its properties. */
static lace_status limit_properties(merger *m, json_t *known, const json_t *fresh, json_t *others)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(known, next, key, value)
    {
        TRY(schema_spend(m->r, 1));
        if (json_object_get(fresh, key))
            continue;
        if (json_is_false(others))
            json_object_del(known, key);
        else
            TRY(join(m, known, key, others));
    }
    return LACE_OK;
}

static lace_status merge_object(merger *m, const json_t *part)
{
    json_t *fresh = json_object_get(part, "properties");
    json_t *others = json_object_get(part, "additionalProperties");
    json_t *known = json_object_get(m->out, "properties");
    json_t *before = json_object_get(m->out, "additionalProperties");
    if (fresh && !json_is_object(fresh))
        return schema_fail(m->r, "properties", "is %s, expected an object", json_kind(fresh));
    if (others && !json_is_boolean(others) && !json_is_object(others))
        return schema_fail(m->r, "additionalProperties", "is %s, expected a schema",
                           json_kind(others));
    if (known && (json_is_false(others) || json_is_object(others)))
        TRY(limit_properties(m, known, fresh, others));
    if (fresh && !known) {
        known = json_object();
        TRY(set_new(m->r, m->out, "properties", known));
    }
    if (fresh)
        TRY(add_properties(m, known, fresh));
    if (!others || json_is_false(before) || (before && json_is_true(others)))
        return LACE_OK;
    if (json_is_object(before) && json_is_object(others))
        return join(m, m->out, "additionalProperties", others);
    return set(m->r, m->out, "additionalProperties", others);
}

/* ---- Whole schemas --------------------------------------------------------------------------- */

static lace_status merge_part(merger *m, const json_t *part, int n_refs, int depth);

static lace_status merge_all_of(merger *m, const json_t *list, int n_refs, int depth)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_fail(m->r, "allOf", "expected a list that is not empty");
    if (depth >= SCHEMA_MAX_DEPTH)
        return schema_fail(m->r, "allOf", "nested more than %d levels deep", SCHEMA_MAX_DEPTH);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(merge_part(m, json_array_get(list, i), n_refs, depth + 1));
    return LACE_OK;
}

/* A part, with what its $ref and its allOf lead to. */
static lace_status merge_part(merger *m, const json_t *part, int n_refs, int depth)
{
    TRY(schema_count_part(m->r));
    if (json_is_true(part))
        return LACE_OK;
    if (!json_is_object(part))
        return error_set(m->r->err, LACE_E_GRAMMAR, "JSON schema: is %s, expected an object",
                         json_kind(part));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)part, key, value)
    {
        static const char *const apart[] = {"$ref", "allOf", "properties", "additionalProperties"};
        bool is_apart = schema_is_annotation(key);
        for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
            is_apart |= strcmp(key, apart[i]) == 0;
        TRY(schema_spend(m->r, 1));
        if (!is_apart)
            TRY(merge_keyword(m, key, value, part));
    }
    TRY(merge_object(m, part));
    json_t *ref = json_object_get(part, "$ref"), *all = json_object_get(part, "allOf");
    if (ref) {
        const json_t *target;
        if (!json_is_string(ref))
            return schema_fail(m->r, "$ref", "is %s, expected a text", json_kind(ref));
        if (n_refs >= MAX_REFS)
            return schema_fail(m->r, "$ref",
                               "\"%.80s\" leads to itself, or through too many others",
                               json_string_value(ref));
        TRY(schema_resolve(m->r, json_string_value(ref), &target));
        TRY(merge_part(m, target, n_refs + 1, depth));
    }
    return all ? merge_all_of(m, all, n_refs, depth) : LACE_OK;
}

static lace_status begin(merger *m, schema_reader *r)
{
    *m = (merger){.r = r, .id = ++r->n_merged};
    return schema_own(r, json_object(), &m->out);
}

static lace_status finish(merger *m, json_t **out)
{
    if (m->required) {
        json_t *names = json_array();
        TRY(set_new(m->r, m->out, "required", names));
        const char *key;
        json_t *value;
        json_object_foreach(m->required, key,
                            value) if (json_array_append_new(names, json_string(key)) !=
                                       0) return nomem(m->r);
    }
    *out = m->out;
    return LACE_OK;
}

lace_status schema_merge(schema_reader *r, const json_t *first, const json_t *second, json_t **out)
{
    merger m;
    TRY(begin(&m, r));
    TRY(merge_part(&m, first, 0, 0));
    if (second)
        TRY(merge_part(&m, second, 0, 0));
    return finish(&m, out);
}

lace_status schema_without(schema_reader *r, const json_t *schema, const char *keyword,
                           json_t **out)
{
    TRY(schema_own(r, json_copy((json_t *)schema), out));
    json_object_del(*out, keyword);
    return LACE_OK;
}
