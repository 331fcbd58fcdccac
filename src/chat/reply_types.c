/* Values that were written as text become JSON by the types in a tool's schema. */
#include "chat/reply_types.h"

#include <string.h>

#include "jinja/json_any.h"

enum { MAX_DEPTH = 16 }; /* of references and alternatives */

/* ---- Types ----------------------------------------------------------------------------------- */

static unsigned type_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"string", VALUE_STRING},   {"number", VALUE_NUMBER}, {"integer", VALUE_NUMBER},
                 {"boolean", VALUE_BOOLEAN}, {"null", VALUE_NULL},     {"object", VALUE_OBJECT},
                 {"array", VALUE_LIST}};
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].type;
    return 0;
}

static unsigned type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return VALUE_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return VALUE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return VALUE_BOOLEAN;
    case JSON_NULL:
        return VALUE_NULL;
    case JSON_OBJECT:
        return VALUE_OBJECT;
    default:
        return VALUE_LIST;
    }
}

/* What "#/$defs/place" leads to; NULL if it leads nowhere. */
static const json_t *follow(const json_t *root, const char *ref)
{
    if (ref[0] != '#')
        return NULL;
    const json_t *at = root;
    for (ref++; at && *ref == '/';) {
        size_t n = strcspn(++ref, "/");
        at = json_object_getn(at, ref, n);
        ref += n;
    }
    return *ref ? NULL : at;
}

const json_t *reply_schema_resolve(type_schema of)
{
    const json_t *schema = of.schema;
    for (int i = 0; i < MAX_DEPTH; i++) {
        const json_t *ref = json_object_get(schema, "$ref");
        if (!json_is_string(ref))
            return schema;
        schema = follow(of.root, json_string_value(ref));
    }
    return NULL;
}

/* The types that a schema allows; 0: it says nothing about them. */
static unsigned allowed_types(type_schema of, int depth)
{
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    const json_t *schema = reply_schema_resolve(of), *type = json_object_get(schema, "type"), *one;
    const json_t *values = json_object_get(schema, "enum");
    const json_t *value = json_object_get(schema, "const");
    unsigned types = json_is_true(json_object_get(schema, "nullable")) ? VALUE_NULL : 0;
    size_t i;
    if (depth > MAX_DEPTH)
        return 0;
    if (json_is_string(type))
        return types | type_of_name(json_string_value(type));
    json_array_foreach(type, i, one) types |= type_of_name(json_string_value(one));
    json_array_foreach(values, i, one) types |= type_of_value(one);
    if (value)
        types |= type_of_value(value);
    for (size_t k = 0; types == 0 && k < sizeof lists / sizeof lists[0]; k++)
        json_array_foreach(json_object_get(schema, lists[k]), i, one) types |=
            allowed_types((type_schema){of.root, one}, depth + 1);
    return types;
}

unsigned reply_schema_types(type_schema of)
{
    unsigned types = of.schema ? allowed_types(of, 0) : 0;
    return types ? types : VALUE_ANY;
}

bool reply_wants_string(type_schema of)
{
    return (reply_schema_types(of) & ~(unsigned)VALUE_NULL) == VALUE_STRING;
}

bool reply_takes_list(type_schema of)
{
    return reply_schema_types(of) & VALUE_LIST;
}

bool reply_takes_object(type_schema of)
{
    return reply_schema_types(of) & VALUE_OBJECT;
}

/* ---- Schemas --------------------------------------------------------------------------------- */

type_schema reply_schema_of_tool(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    function = function ? function : tool;
    const json_t *schema = json_object_get(function, "parameters");
    schema = schema ? schema : json_object_get(function, "input_schema");
    return (type_schema){schema, schema};
}

type_schema reply_schema_of_call(const reply_parser *p)
{
    text name = {p->call.name.data, p->call.name.size};
    size_t i;
    const json_t *tool;
    json_array_foreach(p->options.tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const json_t *known = json_object_get(function ? function : tool, "name");
        if (json_is_string(known) && text_is(name, json_string_value(known)))
            return reply_schema_of_tool(tool);
    }
    return (type_schema){0};
}

/* What an object's or a list's schema says under `keyword`, its alternatives included. */
static const json_t *find_in(type_schema of, const char *keyword, int depth)
{
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    const json_t *schema = reply_schema_resolve(of), *found = json_object_get(schema, keyword),
                 *one;
    size_t i;
    for (size_t k = 0; !found && depth < MAX_DEPTH && k < sizeof lists / sizeof lists[0]; k++)
        json_array_foreach(json_object_get(schema, lists[k]), i, one) found =
            found ? found : find_in((type_schema){of.root, one}, keyword, depth + 1);
    return found;
}

type_schema reply_schema_member(type_schema of, text key)
{
    const json_t *member = json_object_getn(find_in(of, "properties", 0), key.data, key.size);
    if (!member)
        member = find_in(of, "additionalProperties", 0);
    return (type_schema){of.root, json_is_object(member) ? member : NULL};
}

type_schema reply_schema_items(type_schema of)
{
    const json_t *items = find_in(of, "items", 0);
    return (type_schema){of.root, json_is_object(items) ? items : NULL};
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Writes JSON into the arguments; for json_dump_callback. */
static int put_chunk(const char *data, size_t n, void *arg)
{
    return reply_put_args(arg, data, n) == LACE_OK ? 0 : -1;
}

/* Where JSON of such a type is wanted, some models write it as Python does. */
static lace_status put_other(reply_parser *p, unsigned types, text value)
{
    bool is_word = (types & VALUE_BOOLEAN && (text_is(value, "True") || text_is(value, "False"))) ||
                   (types & VALUE_NULL && text_is(value, "None"));
    bool is_structure = value.size > 0 && !(types & VALUE_STRING) &&
                        ((types & VALUE_LIST && strchr("[(", value.data[0])) ||
                         (types & VALUE_OBJECT && value.data[0] == '{'));
    bool is_python = false;
    if (is_word || is_structure)
        TRY(reply_put_python(p, value, &is_python));
    return is_python ? LACE_OK : reply_put_string(p, value);
}

lace_status reply_put_value(reply_parser *p, type_schema of, text value)
{
    unsigned types = reply_schema_types(of);
    json_t *json = NULL;
    if (reply_wants_string(of)) {
        bool is_null = types & VALUE_NULL && text_is(value, "null");
        return is_null ? reply_put_args(p, "null", 4) : reply_put_string(p, value);
    }
    lace_status status = json_read_any(value, &json, NULL);
    if (status == LACE_E_NOMEM)
        return status;
    if (status != LACE_OK)
        return put_other(p, types, value);
    /* JSON of a type that is not wanted, where a string is, is text. */
    if (types & VALUE_STRING && !(types & type_of_value(json))) {
        json_decref(json);
        return reply_put_string(p, value);
    }
    int failed = json_dump_callback(json, put_chunk, p, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(json);
    return failed ? LACE_E_NOMEM : LACE_OK;
}
