/*
 * oneOf: whether what is written for one branch can be valid for another, as far as one can tell.
 * Types, lists of values, and objects that a property or a missing one gives away. Lists of values
 * are compared by sets, so that long ones take time in proportion to their length.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/grammar_schema.h"

enum { MAX_LOOK = 4 }; /* properties inside properties that are looked at */

static lace_status nomem(const schema_reader *r)
{
    return error_nomem(r->err, "a JSON schema");
}

/* ---- Sets of values -------------------------------------------------------------------------- */

void schema_values_init(schema_values *s)
{
    map_init(&s->known);
    arena_init(&s->memory, SIZE_MAX / 4);
}

void schema_values_deinit(schema_values *s)
{
    map_deinit(&s->known);
    arena_deinit(&s->memory);
}

/* A text that equal values have in common; to be freed. 1.0 is 1. */
static char *value_key(const json_t *value)
{
    double x = json_real_value(value);
    if (json_is_real(value) && x == floor(x) && fabs(x) < 1e15) {
        json_t *whole = json_integer((json_int_t)x);
        char *key = whole ? json_dumps(whole, JSON_ENCODE_ANY) : NULL;
        json_decref(whole);
        return key;
    }
    return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
}

lace_status schema_values_add(schema_reader *r, schema_values *s, const json_t *value,
                              int32_t number, int32_t *before)
{
    char *key = value_key(value);
    size_t n = key ? strlen(key) : 0;
    char *copy = key ? arena_strndup(&s->memory, key, n) : NULL;
    mem_free(key);
    if (!copy)
        return nomem(r);
    TRY(schema_spend(r, 1 + n / 64));
    lace_status status = map_add(&s->known, (text){copy, n}, number);
    if (before)
        *before = status == LACE_E_DUP ? map_find(&s->known, (text){copy, n}) : -1;
    return status == LACE_E_NOMEM ? nomem(r) : LACE_OK;
}

lace_status schema_values_find(schema_reader *r, const schema_values *s, const json_t *value,
                               bool *is_known)
{
    char *key = value_key(value);
    if (!key)
        return nomem(r);
    *is_known = map_find(&s->known, text_of(key)) >= 0;
    TRY(schema_spend(r, 1));
    mem_free(key);
    return LACE_OK;
}

/* ---- Branches -------------------------------------------------------------------------------- */

/* What is known of a branch. */
typedef struct branch {
    const json_t *flat; /* without $ref and allOf */
    unsigned types;
    const json_t *values; /* the only ones, as a list; NULL: others, too */
    bool is_open;         /* nothing can be said of it */
} branch;

static lace_status look_at(schema_reader *r, const json_t *schema, branch *out)
{
    json_t *flat;
    *out = (branch){0};
    TRY(schema_merge(r, schema, NULL, &flat));
    out->flat = flat;
    TRY(schema_types(r, flat, &out->types));
    if (out->types & TYPE_INTEGER)
        out->types |= TYPE_NUMBER; /* numbers may be integers: they are not apart */
    out->is_open = json_object_get(flat, "anyOf") || json_object_get(flat, "oneOf");
    out->values = json_object_get(flat, "enum");
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(out->values); i++)
        types |= schema_type_of(json_array_get(out->values, i));
    if (out->values)
        out->types &= types;
    return schema_spend(r, json_array_size(out->values));
}

/* A schema that cannot be read here says nothing; the reader of the branch will say why. */
static lace_status look_if_possible(schema_reader *r, const json_t *schema, branch *out)
{
    lace_error *err = r->err, ignored = {0};
    r->err = &ignored;
    lace_status status = look_at(r, schema, out);
    r->err = err;
    if (status == LACE_OK)
        return LACE_OK;
    *out = (branch){.is_open = true};
    TRY(schema_spend(r, 1)); /* unless all must end */
    return status == LACE_E_NOMEM ? nomem(r) : LACE_OK;
}

static lace_status are_apart(schema_reader *r, const branch *a, const branch *b, int depth,
                             bool *out);

static lace_status schemas_are_apart(schema_reader *r, const json_t *a, const json_t *b, int depth,
                                     bool *out)
{
    branch x, y;
    *out = false;
    TRY(look_if_possible(r, a, &x));
    TRY(look_if_possible(r, b, &y));
    return x.is_open || y.is_open ? LACE_OK : are_apart(r, &x, &y, depth, out);
}

static lace_status share_no_value(schema_reader *r, const json_t *a, const json_t *b, bool *out)
{
    schema_values known;
    schema_values_init(&known);
    lace_status status = LACE_OK;
    *out = true;
    for (size_t i = 0; i < json_array_size(a) && status == LACE_OK; i++)
        status = schema_values_add(r, &known, json_array_get(a, i), 0, NULL);
    for (size_t i = 0; i < json_array_size(b) && *out && status == LACE_OK; i++) {
        bool is_known = false;
        status = schema_values_find(r, &known, json_array_get(b, i), &is_known);
        *out = !is_known;
    }
    schema_values_deinit(&known);
    return status;
}

static bool requires(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0)
            return true;
    return false;
}

/* An object written for a is not valid for b: it lacks something, or a property gives it away. */
static lace_status objects_differ(schema_reader *r, const json_t *a, const json_t *b, int depth,
                                  bool *out)
{
    const json_t *own = json_object_get(a, "properties"),
                 *theirs = json_object_get(b, "properties");
    const json_t *required = json_object_get(b, "required"), *mine = json_object_get(a, "required");
    const json_t *others = json_object_get(a, "additionalProperties");
    bool is_closed = json_object_size(own) > 0 && (!others || json_is_false(others));
    *out = false;
    TRY(schema_spend(r, json_array_size(required) + json_array_size(mine)));
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!is_closed || json_object_get(own, name))
            continue;
        TRY(schema_spend(r, json_array_size(mine)));
        *out = !requires(mine, name);
        if (*out)
            return LACE_OK;
    }
    for (size_t i = 0; i < json_array_size(mine); i++) {
        const char *name = json_string_value(json_array_get(mine, i));
        const json_t *x = json_object_get(own, name), *y = json_object_get(theirs, name);
        if (x && y && depth < MAX_LOOK)
            TRY(schemas_are_apart(r, x, y, depth + 1, out));
        else
            *out = x && !y && json_is_false(json_object_get(b, "additionalProperties"));
        if (*out)
            return LACE_OK;
    }
    return LACE_OK;
}

static lace_status are_apart(schema_reader *r, const branch *a, const branch *b, int depth,
                             bool *out)
{
    unsigned common = a->types & b->types;
    *out = common == 0;
    if (!*out && a->values && b->values)
        TRY(share_no_value(r, a->values, b->values, out));
    if (!*out && common == TYPE_OBJECT)
        TRY(objects_differ(r, a->flat, b->flat, depth, out));
    return LACE_OK;
}

/* ---- Many branches --------------------------------------------------------------------------- */

/* The values that a property of a branch may have, if it must be there; else NULL. */
static lace_status values_of_property(schema_reader *r, const branch *b, const char *name,
                                      const json_t **out)
{
    const json_t *schema = json_object_get(json_object_get(b->flat, "properties"), name);
    branch property = {0};
    *out = NULL;
    if (!schema || !requires(json_object_get(b->flat, "required"), name))
        return LACE_OK;
    TRY(look_if_possible(r, schema, &property));
    *out = property.is_open ? NULL : property.values;
    return LACE_OK;
}

/* Whether no two branches share a value: of themselves, or of the property that is named. */
static lace_status values_differ(schema_reader *r, const branch *branches, size_t n,
                                 const char *property, bool *out)
{
    schema_values known;
    schema_values_init(&known);
    lace_status status = LACE_OK;
    *out = true;
    for (size_t i = 0; i < n && *out && status == LACE_OK; i++) {
        const json_t *values = branches[i].values;
        if (property)
            status = values_of_property(r, &branches[i], property, &values);
        *out = status == LACE_OK && values;
        for (size_t k = 0; *out && k < json_array_size(values); k++) {
            int32_t before;
            status = schema_values_add(r, &known, json_array_get(values, k), (int32_t)i, &before);
            *out = status == LACE_OK && (before < 0 || before == (int32_t)i);
        }
    }
    schema_values_deinit(&known);
    return status;
}

/* A property that every branch must have, with values of its own: found in one pass over all. */
static lace_status have_own_names(schema_reader *r, const branch *branches, size_t n, bool *out)
{
    const json_t *required = json_object_get(branches[0].flat, "required");
    *out = false;
    for (size_t i = 0; i < json_array_size(required) && !*out; i++) {
        const char *name = json_string_value(json_array_get(required, i));
        const json_t *values;
        TRY(values_of_property(r, &branches[0], name, &values));
        if (values)
            TRY(values_differ(r, branches, n, name, out));
    }
    return LACE_OK;
}

static lace_status check_pairs(schema_reader *r, const branch *branches, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            bool is_apart = true;
            if (i != k && (branches[i].is_open || branches[k].is_open))
                is_apart = false;
            else if (i != k)
                TRY(are_apart(r, &branches[i], &branches[k], 0, &is_apart));
            TRY(schema_spend(r, 1));
            if (!is_apart)
                return schema_fail(
                    r, "oneOf",
                    "a value of branch %zu may also match branch %zu; use anyOf, which allows that",
                    i, k);
        }
    return LACE_OK;
}

lace_status schema_check_one_of(schema_reader *r, const json_t *list)
{
    size_t n = json_array_size(list);
    branch *branches = mem_calloc(n ? n : 1, sizeof *branches);
    lace_status status = branches ? LACE_OK : nomem(r);
    bool is_plain = true, all_objects = true, is_apart = false;
    for (size_t i = 0; i < n && status == LACE_OK; i++) {
        status = look_if_possible(r, json_array_get(list, i), &branches[i]);
        is_plain = is_plain && !branches[i].is_open;
        all_objects = all_objects && branches[i].types == TYPE_OBJECT;
    }
    /* Long lists are mostly of one of two kinds, and need not be compared two by two. */
    if (status == LACE_OK && is_plain && n > 1)
        status = all_objects ? have_own_names(r, branches, n, &is_apart)
                             : values_differ(r, branches, n, NULL, &is_apart);
    if (status == LACE_OK && !is_apart)
        status = check_pairs(r, branches, n);
    mem_free(branches);
    return status;
}
