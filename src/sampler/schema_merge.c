/*
 * JSON schemas that hold at once, as one schema: for allOf, and for keywords beside anyOf, oneOf
 * and $ref. What cannot be written as one schema is refused.
 */
#include <string.h>

#include "base/json_read.h"
#include "sampler/grammar_schema.h"

enum { MAX_REFS = 32 }; /* that lead to each other */

lace_status schema_own(schema_reader *r, json_t *value, json_t **out)
{
    *out = value;
    if (!value || json_array_append_new(r->made, value) != 0)
        return error_nomem(r->err, "a JSON schema");
    return LACE_OK;
}

lace_status schema_without(schema_reader *r, const json_t *schema, const char *keyword,
                           json_t **out)
{
    TRY(schema_own(r, json_copy((json_t *)schema), out));
    json_object_del(*out, keyword);
    return LACE_OK;
}

static lace_status set(schema_reader *r, json_t *object, const char *key, json_t *value)
{
    return json_object_set(object, key, value) == 0 ? LACE_OK
                                                    : error_nomem(r->err, "a JSON schema");
}

static lace_status set_new(schema_reader *r, json_t *object, const char *key, json_t *value)
{
    return value && json_object_set_new(object, key, value) == 0
               ? LACE_OK
               : error_nomem(r->err, "a JSON schema");
}

/* {"allOf": [a, b]} */
static lace_status both(schema_reader *r, json_t *object, const char *key, json_t *a, json_t *b)
{
    if (json_equal(a, b))
        return set(r, object, key, a);
    return set_new(r, object, key, json_pack("{s:[O,O]}", "allOf", a, b));
}

/* ---- Single keywords ------------------------------------------------------------------------- */

static bool list_has(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), value))
            return true;
    return false;
}

/* Types that both lists have; a number that must be an integer is one. */
static lace_status merge_types(schema_reader *r, json_t *out, const json_t *a, const json_t *b)
{
    unsigned left, right;
    TRY(schema_types(r, a, &left));
    TRY(schema_types(r, b, &right));
    unsigned types = left & right;
    if ((left | right) & TYPE_INTEGER && (left | right) & TYPE_NUMBER)
        types |= TYPE_INTEGER;
    static const struct {
        unsigned type;
        const char *name;
    } names[] = {{TYPE_NULL, "null"},      {TYPE_BOOLEAN, "boolean"}, {TYPE_OBJECT, "object"},
                 {TYPE_ARRAY, "array"},    {TYPE_NUMBER, "number"},   {TYPE_STRING, "string"},
                 {TYPE_INTEGER, "integer"}};
    if (types == 0)
        return schema_fail(r, "type", "no type satisfies all of the schemas that must hold");
    json_t *list = json_array();
    for (size_t i = 0; list && i < sizeof names / sizeof names[0]; i++)
        if (types & names[i].type)
            json_array_append_new(list, json_string(names[i].name));
    return set_new(r, out, "type", list);
}

static lace_status merge_enums(schema_reader *r, json_t *out, const json_t *a, const json_t *b)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(a); i++)
        if (list_has(b, json_array_get(a, i)))
            json_array_append(list, json_array_get(a, i));
    if (list && json_array_size(list) == 0) {
        json_decref(list);
        return schema_fail(r, "enum", "no value satisfies all of the schemas that must hold");
    }
    return set_new(r, out, "enum", list);
}

static lace_status merge_required(schema_reader *r, json_t *out, const json_t *a, const json_t *b)
{
    json_t *list = json_is_array(a) ? json_copy((json_t *)a) : NULL;
    if (!list || !json_is_array(b)) {
        json_decref(list);
        return schema_fail(r, "required", "expected a list");
    }
    for (size_t i = 0; i < json_array_size(b); i++)
        if (!list_has(list, json_array_get(b, i)))
            json_array_append(list, json_array_get(b, i));
    return set_new(r, out, "required", list);
}

static lace_status merge_properties(schema_reader *r, json_t *out, json_t *a, json_t *b)
{
    if (!json_is_object(a) || !json_is_object(b))
        return schema_fail(r, "properties", "expected an object");
    json_t *all = json_copy(a);
    if (!all || json_object_set_new(out, "properties", all) != 0)
        return error_nomem(r->err, "a JSON schema");
    const char *key;
    json_t *value;
    json_object_foreach(b, key, value)
    {
        json_t *other = json_object_get(all, key);
        if (other)
            TRY(both(r, all, key, other, value));
        else
            TRY(set(r, all, key, value));
    }
    return LACE_OK;
}

/* The tighter of two bounds. */
static bool merge_bound(json_t *out, const char *key, json_t *a, json_t *b)
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
    if (!is_lower && !is_upper)
        return false;
    bool takes_b = is_lower == (json_number_value(b) > json_number_value(a));
    return json_object_set(out, key, takes_b ? b : a) == 0;
}

/* ---- Whole schemas --------------------------------------------------------------------------- */

/* A schema without $ref and allOf at its top, with "const" as "enum". */
static lace_status flatten(schema_reader *r, const json_t *schema, int n_refs, json_t **out)
{
    if (n_refs > MAX_REFS || ++r->n_parts > SCHEMA_MAX_PARTS)
        return schema_fail(r, "$ref", "leads to itself, or through too many others");
    if (json_is_true(schema))
        return schema_own(r, json_object(), out);
    if (!json_is_object(schema))
        return error_set(r->err, LACE_E_GRAMMAR, "JSON schema: %s, expected an object",
                         json_kind(schema));
    TRY(schema_own(r, json_copy((json_t *)schema), out));
    json_t *constant = json_object_get(*out, "const");
    if (constant && !json_object_get(*out, "enum")) {
        TRY(set_new(r, *out, "enum", json_pack("[O]", constant)));
        json_object_del(*out, "const");
    }
    const char *ref = json_string_value(json_object_get(*out, "$ref"));
    if (ref) {
        const json_t *target;
        json_t *flat;
        TRY(schema_resolve(r, ref, &target));
        TRY(flatten(r, target, n_refs + 1, &flat));
        json_object_del(*out, "$ref");
        return schema_merge(r, *out, flat, out);
    }
    const json_t *all = json_object_get(schema, "allOf");
    if (all) {
        json_object_del(*out, "allOf");
        for (size_t i = 0; i < json_array_size(all); i++) {
            json_t *flat;
            TRY(flatten(r, json_array_get(all, i), n_refs + 1, &flat));
            TRY(schema_merge(r, *out, flat, out));
        }
    }
    return LACE_OK;
}

/*
 * Where one schema allows no other properties than its own, those of the other that it does not
 * have cannot be there.
 */
static lace_status close_properties(schema_reader *r, json_t *out, const json_t *closed,
                                    const json_t *other)
{
    const json_t *own = json_object_get(closed, "properties");
    json_t *left = json_copy(json_object_get(out, "properties"));
    const char *key;
    json_t *value;
    if (!json_is_false(json_object_get(closed, "additionalProperties")) || !left) {
        json_decref(left);
        return LACE_OK;
    }
    TRY(set_new(r, out, "properties", left));
    json_object_foreach(json_object_get((json_t *)other, "properties"), key, value)
    {
        if (json_object_get(own, key))
            continue;
        const json_t *required = json_object_get(out, "required");
        for (size_t i = 0; i < json_array_size(required); i++) {
            const char *name = json_string_value(json_array_get(required, i));
            if (name && strcmp(name, key) == 0)
                return schema_fail(r, "additionalProperties",
                                   "forbids \"%.40s\", which is required", key);
        }
        json_object_del(left, key);
    }
    return LACE_OK;
}

static lace_status merge_keyword(schema_reader *r, json_t *out, const char *key, json_t *a,
                                 json_t *b, const json_t *whole_a, const json_t *whole_b)
{
    if (json_equal(a, b))
        return LACE_OK;
    if (strcmp(key, "type") == 0)
        return merge_types(r, out, whole_a, whole_b);
    if (strcmp(key, "enum") == 0)
        return merge_enums(r, out, a, b);
    if (strcmp(key, "required") == 0)
        return merge_required(r, out, a, b);
    if (strcmp(key, "properties") == 0)
        return merge_properties(r, out, a, b);
    if (strcmp(key, "items") == 0 && !json_is_array(a) && !json_is_array(b))
        return both(r, out, key, a, b);
    if (strcmp(key, "additionalProperties") == 0 && (json_is_boolean(a) || json_is_boolean(b))) {
        json_t *stricter = json_is_true(a) ? b : json_is_true(b) ? a : json_is_false(a) ? a : b;
        return set(r, out, key, stricter);
    }
    if (json_is_number(a) && json_is_number(b) && merge_bound(out, key, a, b))
        return LACE_OK;
    return schema_fail(r, key, "two different values that must both hold are not supported");
}

lace_status schema_merge(schema_reader *r, const json_t *first, const json_t *second, json_t **out)
{
    json_t *a, *b, *merged;
    TRY(flatten(r, first, 0, &a));
    TRY(flatten(r, second, 0, &b));
    TRY(schema_own(r, json_copy(a), &merged));
    const char *key;
    json_t *value;
    json_object_foreach(b, key, value)
    {
        json_t *other = json_object_get(a, key);
        if (schema_is_annotation(key))
            continue;
        if (!other)
            TRY(set(r, merged, key, value));
        else
            TRY(merge_keyword(r, merged, key, other, value, a, b));
    }
    TRY(close_properties(r, merged, a, b));
    TRY(close_properties(r, merged, b, a));
    *out = merged;
    return LACE_OK;
}

/* ---- oneOf ----------------------------------------------------------------------------------- */

/* The only values that a schema allows, or NULL. */
static json_t *only_values(schema_reader *r, const json_t *schema)
{
    json_t *constant = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    json_t *made = NULL;
    if (constant && schema_own(r, json_pack("[O]", constant), &made) == LACE_OK)
        return made;
    return json_is_array(list) ? list : NULL;
}

static bool share_no_value(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < json_array_size(a); i++)
        if (list_has(b, json_array_get(a, i)))
            return false;
    return true;
}

/* An object written for a is not valid for b: it lacks something, or a property gives it away. */
static bool objects_differ(schema_reader *r, const json_t *a, const json_t *b)
{
    const json_t *own = json_object_get(a, "properties"),
                 *theirs = json_object_get(b, "properties");
    const json_t *required = json_object_get(b, "required"), *mine = json_object_get(a, "required");
    const json_t *others = json_object_get(a, "additionalProperties");
    bool is_closed = json_object_size(own) > 0 && (!others || json_is_false(others));
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (is_closed && json_is_string(name) && !json_object_get(own, json_string_value(name)) &&
            !list_has(mine, name))
            return true;
    }
    for (size_t i = 0; i < json_array_size(mine); i++) {
        const char *name = json_string_value(json_array_get(mine, i));
        const json_t *x = name ? json_object_get(own, name) : NULL;
        const json_t *y = name ? json_object_get(theirs, name) : NULL;
        if (x && y && schema_excludes(r, x, y))
            return true;
        if (x && !y && json_is_false(json_object_get(b, "additionalProperties")))
            return true;
    }
    return false;
}

bool schema_excludes(schema_reader *r, const json_t *first, const json_t *second)
{
    lace_error *err = r->err, ignored;
    json_t *a = NULL, *b = NULL;
    unsigned left = 0, right = 0;
    bool is_apart = false;
    r->err = &ignored;
    if (flatten(r, first, 0, &a) == LACE_OK && flatten(r, second, 0, &b) == LACE_OK &&
        !json_object_get(a, "anyOf") && !json_object_get(a, "oneOf") &&
        !json_object_get(b, "anyOf") && !json_object_get(b, "oneOf") &&
        schema_types(r, a, &left) == LACE_OK && schema_types(r, b, &right) == LACE_OK) {
        const json_t *x = only_values(r, a), *y = only_values(r, b);
        unsigned common = left & right;
        if ((left & TYPE_INTEGER && right & TYPE_NUMBER) ||
            (left & TYPE_NUMBER && right & TYPE_INTEGER))
            common |= TYPE_NUMBER;
        is_apart = common == 0 || (x && y && share_no_value(x, y)) ||
                   (common == TYPE_OBJECT && objects_differ(r, a, b));
    }
    r->err = err;
    return is_apart;
}
