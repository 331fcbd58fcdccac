/* Calls as grammars in the form of a model's format. */
#include "chat/call_grammar.h"

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "chat/reply_formats.h"
#include "chat/reply_types.h"

enum { MAX_DEPTH = 16 }; /* of schemas in schemas that are written out */

/* Rules are appended to `out` when they are whole; expressions are made in buffers of their own. */
typedef struct grammar_writer {
    const reply_calls *calls;
    buf *out;
    int n_rules;
    bool uses_text;     /* the rule "text" is wanted: a string as it stands in this format */
    type_schema params; /* of the tool that is being written */
    bool is_loose;      /* its arguments are any object, where they are JSON */
} grammar_writer;

/* ---- Words of GBNF --------------------------------------------------------------------------- */

/* A literal behind a word: %marked "...", or nothing for plain text. */
static lace_status put_literal(buf *to, const char *word, text chars)
{
    if (chars.size == 0)
        return LACE_OK;
    TRY(buf_append_text(to, word));
    TRY(buf_append_text(to, "\""));
    for (size_t i = 0; i < chars.size; i++) {
        unsigned char c = (unsigned char)chars.data[i];
        TRY(c == '"' || c == '\\' || c < 0x20 || c == 0x7F ? buf_printf(to, "\\x%02X", c)
                                                           : buf_append(to, &chars.data[i], 1));
    }
    return buf_append_text(to, "\" ");
}

/* The next rule's number; it is defined by end_rule. */
static int new_rule(grammar_writer *w)
{
    return w->n_rules++;
}

static lace_status end_rule(grammar_writer *w, int rule, const buf *body)
{
    return buf_printf(w->out, "r%d ::= %s\n", rule, body->size ? body->data : "\"\"");
}

/* Into memory of our own, as compact JSON. */
static lace_status put_dump(buf *to, const json_t *value)
{
    size_t n = json_dumpb(value, NULL, 0, JSON_ENCODE_ANY | JSON_COMPACT);
    if (n == 0)
        return LACE_E_NOMEM;
    TRY(buf_reserve(to, n));
    if (json_dumpb(value, to->data + to->size, n, JSON_ENCODE_ANY | JSON_COMPACT) != n)
        return LACE_E_NOMEM;
    to->size += n;
    to->data[to->size] = 0;
    return LACE_OK;
}

/* ---- Schemas --------------------------------------------------------------------------------- */

static bool has_refs(const json_t *schema, int depth)
{
    const char *key;
    json_t *value;
    size_t i;
    if (json_object_get(schema, "$ref") || depth > JSON_READ_MAX_DEPTH)
        return true;
    json_array_foreach(schema, i, value) if (has_refs(value, depth + 1)) return true;
    json_object_foreach((json_t *)schema, key, value) if (has_refs(value, depth + 1)) return true;
    return false;
}

/* Every "#/..." is led to where the root of its schema is now. False: out of memory. */
static bool lead_refs(json_t *schema, const char *root, int depth)
{
    const char *key, *ref = json_string_value(json_object_get(schema, "$ref"));
    json_t *value;
    size_t i;
    if (depth > JSON_READ_MAX_DEPTH)
        return true;
    bool ok = !ref || ref[0] != '#' ||
              json_object_set_new(schema, "$ref", json_sprintf("%s%s", root, ref + 1)) == 0;
    json_array_foreach(schema, i, value) ok = ok && lead_refs(value, root, depth + 1);
    json_object_foreach(schema, key, value) ok = ok && lead_refs(value, root, depth + 1);
    return ok;
}

/* An argument's schema, whose references are to the schema of all arguments. */
static lace_status put_member_schema(const grammar_writer *w, const char *key, buf *to)
{
    if (strpbrk(key, "/~"))
        return LACE_E_UNSUPPORTED;
    json_t *root = json_deep_copy(w->params.root);
    json_t *ref = json_sprintf("#/$defs/root/properties/%s", key);
    json_t *whole = root && ref && lead_refs(root, "#/$defs/root", 0)
                        ? json_pack("{s:{s:O}, s:O}", "$defs", "root", root, "$ref", ref)
                        : NULL;
    lace_status status = whole ? put_dump(to, whole) : LACE_E_NOMEM;
    json_decref(root);
    json_decref(ref);
    json_decref(whole);
    return status;
}

/* %json {...} for a value; key: of the argument that it is, NULL if it lies deeper. */
static lace_status put_json(const grammar_writer *w, type_schema of, const char *key, buf *to)
{
    TRY(buf_append_text(to, "%json "));
    if (!of.schema)
        TRY(buf_append_text(to, "{}"));
    else if (!has_refs(of.schema, 0))
        TRY(put_dump(to, of.schema));
    else
        TRY(key ? put_member_schema(w, key, to) : LACE_E_UNSUPPORTED);
    return buf_append_text(to, " ");
}

/* The arguments as one JSON object. */
static lace_status put_arguments(const grammar_writer *w, buf *to)
{
    const json_t *schema = w->params.schema;
    TRY(buf_append_text(to, "%json "));
    if (!w->is_loose && json_is_object(schema) && json_object_size(schema) > 0)
        TRY(put_dump(to, schema));
    else
        TRY(buf_append_text(to, "{\"type\":\"object\"}"));
    return buf_append_text(to, " ");
}

/* Whether a schema asks more of strings than to be one of some; such text cannot be held to it. */
static bool limits_strings(type_schema of, int depth)
{
    static const char *const words[] = {"pattern", "format", "minLength", "maxLength", "not"};
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    const json_t *schema = reply_schema_resolve(of), *one;
    size_t i;
    bool is_limited = depth > MAX_DEPTH;
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        is_limited = is_limited || json_object_get(schema, words[k]);
    for (size_t k = 0; !is_limited && k < sizeof lists / sizeof lists[0]; k++)
        json_array_foreach(json_object_get(schema, lists[k]), i, one)
        {
            type_schema branch = {of.root, one};
            const json_t *inner = reply_schema_resolve(branch);
            is_limited = is_limited || limits_strings(branch, depth + 1) ||
                         json_object_get(inner, "enum") || json_object_get(inner, "const");
        }
    return is_limited;
}

/* The values that a schema lists, for json_decref(); NULL if it lists none. */
static json_t *listed_values(type_schema of)
{
    const json_t *schema = reply_schema_resolve(of);
    json_t *values = json_object_get(schema, "enum"), *value = json_object_get(schema, "const");
    return json_is_array(values) ? json_incref(values) : value ? json_pack("[O]", value) : NULL;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* One of some values: strings between these marks, all else as JSON. */
static lace_status put_choice(const json_t *values, const char *quote, buf *to)
{
    size_t i;
    const json_t *value;
    TRY(buf_append_text(to, "("));
    json_array_foreach(values, i, value)
    {
        TRY(buf_append_text(to, i ? "| " : ""));
        if (json_is_string(value)) {
            TRY(put_literal(to, "%marked ", text_of(quote)));
            TRY(put_literal(to, "", (text){json_string_value(value), json_string_length(value)}));
            TRY(put_literal(to, "%marked ", text_of(quote)));
            if (json_string_length(value) == 0)
                TRY(buf_append_text(to, "\"\" "));
            continue;
        }
        buf dump;
        buf_init(&dump, SIZE_MAX / 2);
        lace_status status = put_dump(&dump, value);
        if (status == LACE_OK)
            status = put_literal(to, "", (text){dump.data, dump.size});
        buf_deinit(&dump);
        TRY(status);
    }
    return buf_append_text(to, ") ");
}

/* A string of any kind: one rule for all of them, since they are most of what arguments are. */
static lace_status put_text(grammar_writer *w, buf *to)
{
    w->uses_text = true;
    return buf_append_text(to, "text ");
}

static lace_status define_text(const grammar_writer *w)
{
    const reply_calls *f = w->calls;
    bool is_quoted = f->style == CALL_PYTHON;
    text end = text_of(is_quoted ? f->value_begin : f->value_end);
    text quote = is_quoted ? end : text_of("");
    TRY(buf_append_text(w->out, "text ::= "));
    TRY(put_literal(w->out, "%marked ", quote));
    TRY(put_literal(w->out, "%until ", end));
    TRY(put_literal(w->out, "%marked ", quote));
    return buf_append_text(w->out, "\n");
}

/* A value that stands as text in front of the format's value_end. */
static lace_status put_text_value(grammar_writer *w, type_schema of, const char *key, buf *to)
{
    json_t *values = listed_values(of);
    if (values) {
        lace_status status = put_choice(values, "", to);
        json_decref(values);
        return status;
    }
    if (!(reply_schema_types(of) & VALUE_STRING))
        return put_json(w, of, key, to);
    return limits_strings(of, 0) ? LACE_E_UNSUPPORTED : put_text(w, to);
}

static lace_status put_python_value(const grammar_writer *w, type_schema of, const char *key,
                                    buf *to)
{
    unsigned types = reply_schema_types(of);
    if (types == VALUE_BOOLEAN && !json_object_get(reply_schema_resolve(of), "const"))
        return buf_append_text(to, "(\"True\" | \"False\") ");
    return types == VALUE_NULL ? buf_append_text(to, "\"None\" ") : put_json(w, of, key, to);
}

static lace_status put_members(grammar_writer *w, type_schema of, bool is_python, int depth,
                               buf *to);

static lace_status put_gemma_list(grammar_writer *w, type_schema of, int depth, buf *to);

/* call:f{key:<|"|>text<|"|>,list:[1,2],object:{key:true}} */
static lace_status put_gemma_value(grammar_writer *w, type_schema of, const char *key, int depth,
                                   buf *to)
{
    const unsigned plain = VALUE_NUMBER | VALUE_BOOLEAN | VALUE_NULL;
    unsigned types = reply_schema_types(of);
    json_t *values = listed_values(of);
    if (values) {
        lace_status status = types & (VALUE_OBJECT | VALUE_LIST)
                                 ? LACE_E_UNSUPPORTED
                                 : put_choice(values, w->calls->value_begin, to);
        json_decref(values);
        return status;
    }
    if ((types & ~plain) == 0)
        return put_json(w, of, key, to);
    if (depth > MAX_DEPTH)
        return LACE_E_UNSUPPORTED;
    if (types == VALUE_OBJECT) {
        TRY(buf_append_text(to, "\"{\" "));
        TRY(put_members(w, of, false, depth + 1, to));
        return buf_append_text(to, "\"}\" ");
    }
    if (types == VALUE_LIST)
        return put_gemma_list(w, of, depth, to);
    if (types != VALUE_STRING || limits_strings(of, 0) || !w->calls->value_begin)
        return LACE_E_UNSUPPORTED;
    return put_text(w, to);
}

static lace_status put_gemma_list(grammar_writer *w, type_schema of, int depth, buf *to)
{
    const json_t *schema = reply_schema_resolve(of);
    type_schema items = reply_schema_items(of);
    buf item;
    if (!items.schema || json_object_get(schema, "minItems") ||
        json_object_get(schema, "maxItems") || json_object_get(schema, "prefixItems"))
        return LACE_E_UNSUPPORTED;
    int rule = new_rule(w);
    buf_init(&item, SIZE_MAX / 2);
    lace_status status = put_gemma_value(w, items, NULL, depth + 1, &item);
    if (status == LACE_OK)
        status = end_rule(w, rule, &item);
    buf_deinit(&item);
    TRY(status);
    return buf_printf(to, "\"[\" (r%d (\",\" r%d)*)? \"]\" ", rule, rule);
}

/* ---- Arguments ------------------------------------------------------------------------------- */

static bool is_required(const json_t *schema, const char *key)
{
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(schema, "required"), i, one)
    {
        const char *name = json_string_value(one);
        if (name && strcmp(name, key) == 0)
            return true;
    }
    return false;
}

/* Every required name is a property; what is more cannot be written out. */
static bool knows_required(const json_t *schema)
{
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(schema, "required"), i, one)
    {
        const char *name = json_string_value(one);
        if (name && !json_object_get(json_object_get(schema, "properties"), name))
            return false;
    }
    return true;
}

/* An object that is its properties and nothing else. */
static bool is_plain_object(const json_t *schema)
{
    static const char *const more[] = {"anyOf",         "oneOf",         "allOf", "minProperties",
                                       "maxProperties", "propertyNames", "not"};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (json_object_get(schema, more[i]))
            return false;
    return knows_required(schema);
}

static lace_status put_member(grammar_writer *w, type_schema value, const char *key, bool is_python,
                              int depth, buf *to)
{
    TRY(put_literal(to, "", text_of(key)));
    TRY(buf_append_text(to, is_python ? "\"=\" " : "\":\" "));
    return is_python ? put_python_value(w, value, depth ? NULL : key, to)
                     : put_gemma_value(w, value, depth ? NULL : key, depth, to);
}

/*
 * key=value, key=value: members in the order of the schema, of which some may be missing. Two rules
 * for each, from the last to the first: what may come where nothing stands in front of it yet, and
 * where something does and a comma must come first.
 */
static lace_status put_members(grammar_writer *w, type_schema of, bool is_python, int depth,
                               buf *to)
{
    const json_t *schema = reply_schema_resolve(of);
    json_t *properties = json_object_get(schema, "properties"), *value;
    const char *key;
    if (!is_plain_object(schema))
        return LACE_E_UNSUPPORTED;
    int first = new_rule(w), later = new_rule(w), begin = first;
    lace_status status = LACE_OK;
    buf member, body;
    buf_init(&member, SIZE_MAX / 2);
    buf_init(&body, SIZE_MAX / 2);
    json_object_foreach(properties, key, value)
    {
        bool may_miss = !is_required(schema, key);
        int next_first = new_rule(w), next_later = new_rule(w), rule = new_rule(w);
        if (status != LACE_OK)
            break;
        buf_clear(&member);
        status = put_member(w, (type_schema){of.root, value}, key, is_python, depth, &member);
        if (status == LACE_OK)
            status = end_rule(w, rule, &member);
        for (int i = 0; i < 2 && status == LACE_OK; i++) {
            buf_clear(&body);
            status = buf_printf(&body, "%sr%d r%d",
                                !i          ? ""
                                : is_python ? "\", \" "
                                            : "\",\" ",
                                rule, next_later);
            if (status == LACE_OK && may_miss)
                status = buf_printf(&body, " | r%d", i ? next_later : next_first);
            if (status == LACE_OK)
                status = end_rule(w, i ? later : first, &body);
        }
        first = next_first;
        later = next_later;
    }
    buf_clear(&body);
    if (status == LACE_OK)
        status = end_rule(w, first, &body);
    if (status == LACE_OK)
        status = end_rule(w, later, &body);
    buf_deinit(&member);
    buf_deinit(&body);
    return status == LACE_OK ? buf_printf(to, "r%d ", begin) : status;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

/* What fills a place of a shape. */
typedef struct shape_fill {
    const char *name; /* of the tool, or of the argument */
    type_schema of;   /* the argument's */
} shape_fill;

static lace_status put_place(grammar_writer *w, char place, const shape_fill *fill, buf *to);

/* Words of a shape. A space behind a colon or a comma of JSON may be left out, as some models do. */
static lace_status put_words(const grammar_writer *w, text words, buf *to)
{
    size_t at = 0;
    for (size_t i = 0; w->calls->style == CALL_JSON && i + 2 < words.size; i++) {
        const char *c = words.data + i;
        if (c[0] != '"' || (c[1] != ':' && c[1] != ',') || c[2] != ' ')
            continue;
        TRY(put_literal(to, "%marked ", (text){words.data + at, i + 2 - at}));
        TRY(buf_append_text(to, "\" \"? "));
        at = i + 3;
    }
    return put_literal(to, "%marked ", (text){words.data + at, words.size - at});
}

/* A shape: its own words, and its places. */
static lace_status put_shape(grammar_writer *w, const char *shape, const shape_fill *fill, buf *to)
{
    while (*shape) {
        size_t n = strcspn(shape, "$\v");
        TRY(put_words(w, (text){shape, n}, to));
        shape += n;
        if (*shape == '\v') {
            TRY(buf_append_text(to, "\"\\n\"? "));
            shape++;
        } else if (*shape == '$') {
            TRY(put_place(w, shape[1], fill, to));
            shape += 2;
        }
    }
    return LACE_OK;
}

/* Each argument in its own tags, those that may miss as they like. */
static lace_status put_params(grammar_writer *w, buf *to)
{
    const json_t *schema = reply_schema_resolve(w->params);
    json_t *value;
    const char *key;
    if (!is_plain_object(schema))
        return LACE_E_UNSUPPORTED;
    json_object_foreach(json_object_get(schema, "properties"), key, value)
    {
        shape_fill fill = {key, {w->params.root, value}};
        TRY(buf_append_text(to, "("));
        TRY(put_shape(w, w->calls->param, &fill, to));
        TRY(buf_append_text(to, is_required(schema, key) ? ") " : ")? "));
    }
    return LACE_OK;
}

/* The word for a value's type; a union is what text can be. */
static const char *type_word(unsigned types)
{
    static const struct {
        unsigned type;
        const char *word;
    } words[] = {{VALUE_NUMBER, "number"},
                 {VALUE_BOOLEAN, "boolean"},
                 {VALUE_NULL, "null"},
                 {VALUE_OBJECT, "object"},
                 {VALUE_LIST, "array"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (types == words[i].type)
            return words[i].word;
    return "string";
}

static lace_status put_place(grammar_writer *w, char place, const shape_fill *fill, buf *to)
{
    unsigned types = reply_schema_types(fill->of);
    switch (place) {
    case 'n':
    case 'k':
        return put_literal(to, "", text_of(fill->name));
    case 'a':
        return put_arguments(w, to);
    case 'p':
        return put_params(w, to);
    case 'y':
    case 'g':
        return put_members(w, w->params, place == 'y', 0, to);
    case 'v':
        return put_text_value(w, fill->of, fill->name, to);
    case 't':
        return put_literal(to, "", text_of(type_word(types)));
    default:
        return put_literal(to, "", text_of(types & VALUE_STRING ? "true" : "false"));
    }
}

/* ---- Whole grammars -------------------------------------------------------------------------- */

/* A name that is text in every format; a JSON string of it is itself. */
static bool is_simple_name(const char *name)
{
    return *name && name[strcspn(name, "\"\\<>{}()[]$ \n\t")] == 0;
}

/* What of a shape stands around a call, and around each of several. */
typedef struct shape_parts {
    const char *before, *call, *after; /* [n_before] [n_call] and the rest */
    size_t n_before, n_call;
    const char *between; /* of two calls; NULL: there can be one only */
} shape_parts;

/* The whole shape is one call; others begin anew. */
static shape_parts whole_shape(const char *shape)
{
    size_t n = strlen(shape);
    return (shape_parts){.before = shape, .call = shape, .n_call = n, .after = shape + n};
}

/* Several calls share a section, or a list: its words are taken off. */
static shape_parts split_shape(const reply_calls *c)
{
    shape_parts p = whole_shape(c->shape);
    const char *call = NULL, *end = NULL, *place = strchr(c->shape, '$');
    if (c->section_begin && c->call_begin && c->call_end) {
        call = strstr(c->shape, c->call_begin);
        end = call ? strstr(call, c->call_end) : NULL;
        end = end ? end + strlen(c->call_end) : NULL;
        p.between = call && call > c->shape && call[-1] == '\n' ? "\n" : "";
    } else if (c->style == CALL_JSON || c->style == CALL_PYTHON) {
        const char *list = strchr(c->shape, '['), *last = strrchr(c->shape, ']');
        while (list && list < place && strchr("\n {", list[1]) == NULL && list[1] != '$')
            list = strchr(list + 1, '['); /* a word of the format that has a bracket in it */
        if (list && list < place && last > place) {
            call = list + 1 + strspn(list + 1, " \n");
            end = last;
            while (end[-1] == ' ' || end[-1] == '\n')
                end--;
            p.between = ", ";
        }
    }
    if (!call || !end) {
        p.between = NULL;
        return p;
    }
    p.n_before = (size_t)(call - c->shape);
    p.call = call;
    p.n_call = (size_t)(end - call);
    p.after = end;
    return p;
}

static bool is_strict(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_is_true(json_object_get(tool, "strict")) ||
           json_is_true(json_object_get(function, "strict"));
}

bool reply_has_strict_tools(const json_t *tools)
{
    size_t i;
    const json_t *tool;
    json_array_foreach(tools, i, tool) if (is_strict(tool)) return true;
    return false;
}

static lace_status put_tool(grammar_writer *w, const json_t *tool, const char *name,
                            const char *shape, int rule)
{
    shape_fill fill = {.name = name};
    buf body;
    w->params = reply_schema_of_tool(tool);
    buf_init(&body, SIZE_MAX / 2);
    lace_status status =
        is_simple_name(name) ? put_shape(w, shape, &fill, &body) : LACE_E_UNSUPPORTED;
    if (status == LACE_OK)
        status = end_rule(w, rule, &body);
    buf_deinit(&body);
    return status;
}

/* One rule for each tool, with the shape of a call; the choice of them goes to `root`. */
static lace_status put_tools(grammar_writer *w, const call_demand *demand, const char *shape,
                             buf *root)
{
    size_t i;
    const json_t *tool;
    int n = 0;
    json_array_foreach(demand->tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(function ? function : tool, "name"));
        if (!name || (demand->name && strcmp(name, demand->name) != 0))
            continue;
        int rule = new_rule(w);
        w->is_loose = demand->is_optional && !is_strict(tool);
        TRY(put_tool(w, tool, name, shape, rule));
        TRY(buf_printf(root, "%sr%d ", n++ ? "| " : "", rule));
    }
    return n > 0 ? LACE_OK : LACE_E_ARG;
}

/* Reasoning to its end. */
static lace_status put_thinking(const reply_thinking *t, buf *to)
{
    TRY(put_literal(to, "%until ", text_of(t->end)));
    TRY(put_literal(to, "%marked ", text_of(t->end)));
    return buf_append_text(to, "[ \\n]{0,3} ");
}

static lace_status put_demanded(grammar_writer *w, const reply_format *f, const call_demand *demand,
                                buf *root)
{
    if (demand->is_thinking && f->thinking)
        TRY(put_thinking(f->thinking, root));
    TRY(buf_append_text(root, "("));
    TRY(put_tools(w, demand, w->calls->shape, root));
    return buf_append_text(root, ")");
}

/* A call, or where the format has several in a section or a list, some. */
static lace_status put_section(grammar_writer *w, const call_demand *demand, buf *to)
{
    shape_parts p = split_shape(w->calls);
    char shape[512];
    buf call;
    if (p.n_call >= sizeof shape)
        return LACE_E_UNSUPPORTED;
    snprintf(shape, sizeof shape, "%.*s", (int)p.n_call, p.call);
    buf_init(&call, SIZE_MAX / 2);
    int rule = new_rule(w);
    lace_status status = put_tools(w, demand, shape, &call);
    if (status == LACE_OK)
        status = end_rule(w, rule, &call);
    buf_deinit(&call);
    TRY(status);
    TRY(put_literal(to, "%marked ", (text){p.before, p.n_before}));
    TRY(buf_printf(to, "r%d ", rule));
    if (p.between && !demand->is_single) {
        TRY(buf_append_text(to, "("));
        TRY(put_literal(to, "", text_of(p.between)));
        TRY(buf_printf(to, "r%d)* ", rule));
    }
    return put_literal(to, "%marked ", text_of(p.after));
}

/* The words that begin a call wherever they stand: nothing of them may be in other text. */
static text first_words(const reply_calls *c)
{
    const char *begin = c->section_begin ? c->section_begin : c->call_begin;
    size_t n = begin ? strlen(begin) : 0;
    return (text){begin, n > 0 && strncmp(c->shape, begin, n) == 0 ? n : 0};
}

/*
 * Any text, until the words that begin a call. Where a call is a JSON object or a list alone, it begins
 * the reply.
 */
static lace_status put_optional(grammar_writer *w, const reply_format *f, const call_demand *demand,
                                buf *root)
{
    text begin = first_words(f->calls);
    buf section;
    if (f->answer || f->calls->style == CALL_HARMONY || (begin.size == 0 && !f->calls->is_bare))
        return LACE_E_UNSUPPORTED;
    int rule = new_rule(w);
    buf_init(&section, SIZE_MAX / 2);
    lace_status status = put_section(w, demand, &section);
    if (status == LACE_OK)
        status = end_rule(w, rule, &section);
    buf_deinit(&section);
    TRY(status);
    if (f->thinking) {
        TRY(buf_append_text(root, "("));
        if (!demand->is_thinking)
            TRY(put_literal(root, "%marked ", text_of(f->thinking->begin)));
        TRY(put_thinking(f->thinking, root));
        TRY(buf_append_text(root, demand->is_thinking ? ") " : ")? "));
    }
    if (begin.size == 0) { /* what does not begin with a bracket is text */
        TRY(buf_printf(root, "[ \\n]{0,3} (r%d | [^{\\[ \\n\\t\\r] ", rule));
        TRY(put_literal(root, "%until ", text_of(f->calls->call_begin)));
        return buf_append_text(root, ")?");
    }
    buf other;
    buf_init(&other, SIZE_MAX / 2);
    status = put_literal(&other, "%until ", begin);
    if (status == LACE_OK)
        status = buf_printf(root, "%s(r%d %s)%s", other.data, rule, other.data,
                            demand->is_single ? "?" : "*");
    buf_deinit(&other);
    return status;
}

lace_status reply_call_grammar(const reply_format *f, const call_demand *demand, buf *out)
{
    grammar_writer w = {.calls = f->calls, .out = out};
    buf root;
    if (!f->calls->shape)
        return LACE_E_UNSUPPORTED;
    buf_init(&root, SIZE_MAX / 2);
    lace_status status = buf_append_text(&root, "root ::= ");
    if (status == LACE_OK)
        status = demand->is_optional ? put_optional(&w, f, demand, &root)
                                     : put_demanded(&w, f, demand, &root);
    if (status == LACE_OK)
        status = buf_printf(out, "%s\n", root.data);
    if (status == LACE_OK && w.uses_text)
        status = define_text(&w);
    buf_deinit(&root);
    return status;
}
