/* Evaluating the expressions of a template. */
#include <string.h>

#include "jinja/jinja_eval.h"

static lace_status eval_const(jinja_run *r, const node *n, jv *out)
{
    *out = n->value;
    return LACE_OK;
}

static lace_status eval_name(jinja_run *r, const node *n, jv *out)
{
    return jinja_lookup(r, n->name, out);
}

static lace_status eval_list(jinja_run *r, const node *n, jv *out)
{
    TRY(jv_list_new(r, n->type == NODE_TUPLE ? JV_TUPLE : JV_LIST, 0, out));
    for (const node *item = n->items; item; item = item->next) {
        jv value;
        TRY(jinja_eval(r, item, &value));
        TRY(jv_list_add(r, out->as.list, value));
    }
    return LACE_OK;
}

static lace_status eval_dict(jinja_run *r, const node *n, jv *out)
{
    TRY(jv_dict_new(r, JV_DICT, out));
    for (const node *item = n->items; item; item = item->next->next) {
        jv key, value;
        TRY(jinja_eval(r, item, &key));
        TRY(jinja_eval(r, item->next, &value));
        TRY(jv_dict_set(r, out->as.dict, key, value));
    }
    return LACE_OK;
}

static lace_status eval_attr(jinja_run *r, const node *n, jv *out)
{
    jv object;
    TRY(jinja_eval(r, n->a, &object));
    return jinja_get_attr(r, object, n->chars, out);
}

static lace_status eval_item(jinja_run *r, const node *n, jv *out)
{
    jv object, key;
    TRY(jinja_eval(r, n->a, &object));
    TRY(jinja_eval(r, n->b, &key));
    return jinja_get_item(r, object, key, out);
}

static lace_status eval_slice(jinja_run *r, const node *n, jv *out)
{
    jv object, bounds[3] = {0};
    TRY(jinja_eval(r, n->a, &object));
    const node *part = n->items;
    for (int i = 0; i < 3; i++, part = part->next)
        if (part->type != NODE_NOTHING)
            TRY(jinja_eval(r, part, &bounds[i]));
    return jinja_get_slice(r, object, bounds, out);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Arguments under construction. */
typedef struct arg_list {
    jv positional; /* a list */
    jinja_named_arg *named;
    size_t n_named, capacity;
} arg_list;

static lace_status add_named(jinja_run *r, arg_list *list, marked name, jv value)
{
    for (size_t i = 0; i < list->n_named; i++)
        if (text_equals(list->named[i].name.chars, name.chars))
            return jinja_fail(r, "got multiple values for argument '%.*s'", text_width(name.chars),
                              name.chars.data);
    TRY(jinja_spend(r, 1 + list->n_named / 4));
    TRY(jinja_grow(r, list->n_named, sizeof *list->named, &list->named, &list->capacity));
    list->named[list->n_named++] = (jinja_named_arg){name, value};
    return LACE_OK;
}

static lace_status add_spread_named(jinja_run *r, arg_list *list, jv value)
{
    if (value.kind != JV_DICT)
        return jinja_fail(r, "argument after ** must be a mapping, not %s", jv_type_name(value));
    for (size_t i = 0; i < value.as.dict->n; i++) {
        const jv_entry *e = &value.as.dict->entries[i];
        if (e->key.kind != JV_STRING)
            return jinja_fail(r, "keywords must be strings");
        TRY(add_named(r, list, jv_marked(e->key), e->value));
    }
    return LACE_OK;
}

static lace_status eval_args(jinja_run *r, const node *items, jinja_args *out)
{
    arg_list list = {0};
    *out = (jinja_args){0};
    if (!items)
        return LACE_OK;
    TRY(jv_list_new(r, JV_LIST, 0, &list.positional));
    for (const node *n = items; n; n = n->next) {
        bool is_wrapped =
            n->type == NODE_NAMED || n->type == NODE_SPREAD || n->type == NODE_SPREAD_NAMED;
        jv value, *spread;
        size_t n_spread;
        TRY(jinja_eval(r, is_wrapped ? n->a : n, &value));
        if (n->type == NODE_NAMED) {
            TRY(add_named(r, &list, marked_own(n->chars), value));
        } else if (n->type == NODE_SPREAD_NAMED) {
            TRY(add_spread_named(r, &list, value));
        } else if (n->type == NODE_SPREAD) {
            TRY(jv_items(r, value, &spread, &n_spread));
            for (size_t i = 0; i < n_spread; i++)
                TRY(jv_list_add(r, list.positional.as.list, spread[i]));
        } else {
            TRY(jv_list_add(r, list.positional.as.list, value));
        }
    }
    *out = (jinja_args){list.positional.as.list->items, list.positional.as.list->n, list.named,
                        list.n_named};
    return LACE_OK;
}

static lace_status eval_call(jinja_run *r, const node *n, jv *out)
{
    jv callee;
    jinja_args args;
    TRY(jinja_eval(r, n->a, &callee));
    TRY(eval_args(r, n->items, &args));
    return jinja_call_value(r, callee, &args, out);
}

/* Filters and tests: the same but for the table. */
static lace_status eval_builtin(jinja_run *r, const node *n, jv *out)
{
    jv value;
    jinja_args args;
    TRY(jinja_eval(r, n->a, &value));
    if (!n->builtin)
        return jinja_fail(r, "no %s named '%.*s'", n->type == NODE_FILTER ? "filter" : "test",
                          text_width(n->chars), n->chars.data);
    TRY(eval_args(r, n->items, &args));
    return jinja_call_builtin(r, n->builtin, value, &args, out);
}

/* ---- Operators ------------------------------------------------------------------------------- */

static lace_status eval_not(jinja_run *r, const node *n, jv *out)
{
    jv value;
    TRY(jinja_eval(r, n->a, &value));
    *out = jv_bool(!jv_is_true(value));
    return LACE_OK;
}

static lace_status eval_sign(jinja_run *r, const node *n, jv *out)
{
    jv value;
    TRY(jinja_eval(r, n->a, &value));
    if (!jv_is_number(value))
        return value.kind == JV_UNDEFINED
                   ? jinja_binary(r, BINARY_SUB, value, value, out)
                   : jinja_fail(r, "bad operand type for a sign: '%s'", jv_type_name(value));
    if (n->type == NODE_PLUS) {
        *out = value.kind == JV_BOOL ? jv_int(value.as.b) : value;
        return LACE_OK;
    }
    if (value.kind == JV_FLOAT) {
        *out = jv_float(-value.as.f);
        return LACE_OK;
    }
    return jinja_binary(r, BINARY_SUB, jv_int(0), value, out);
}

static lace_status eval_binary(jinja_run *r, const node *n, jv *out)
{
    jv a, b;
    TRY(jinja_eval(r, n->a, &a));
    TRY(jinja_eval(r, n->b, &b));
    return jinja_binary(r, (binary_op)n->op, a, b, out);
}

static lace_status eval_and_or(jinja_run *r, const node *n, jv *out)
{
    TRY(jinja_eval(r, n->a, out));
    if (jv_is_true(*out) == (n->type == NODE_AND))
        return jinja_eval(r, n->b, out);
    return LACE_OK;
}

static lace_status eval_compare(jinja_run *r, const node *n, jv *out)
{
    jv left, right;
    bool is_true = true;
    TRY(jinja_eval(r, n->a, &left));
    for (const node *step = n->items; step && is_true; step = step->next) {
        TRY(jinja_eval(r, step->a, &right));
        TRY(jinja_compare(r, (compare_op)step->op, left, right, &is_true));
        left = right;
    }
    *out = jv_bool(is_true);
    return LACE_OK;
}

static lace_status eval_concat(jinja_run *r, const node *n, jv *out)
{
    jv first, next;
    TRY(jinja_eval(r, n->items, &first));
    TRY(jv_to_string(r, first, out));
    out->is_safe = false;
    for (const node *item = n->items->next; item; item = item->next) {
        TRY(jinja_eval(r, item, &next));
        TRY(jv_to_string(r, next, &next));
        TRY(jv_concat(r, *out, jv_marked(next), out));
    }
    return LACE_OK;
}

static lace_status eval_cond(jinja_run *r, const node *n, jv *out)
{
    jv condition;
    TRY(jinja_eval(r, n->b, &condition));
    if (jv_is_true(condition))
        return jinja_eval(r, n->a, out);
    if (n->c)
        return jinja_eval(r, n->c, out);
    return jv_undefined(r, text_of("the inline if-expression without else"), out);
}

lace_status jinja_eval(jinja_run *r, const node *n, jv *out)
{
    static lace_status (*const table[NODE_N_TYPES])(jinja_run * r, const node *n, jv *out) = {
        [NODE_CONST] = eval_const,    [NODE_NAME] = eval_name,    [NODE_LIST] = eval_list,
        [NODE_TUPLE] = eval_list,     [NODE_DICT] = eval_dict,    [NODE_ATTR] = eval_attr,
        [NODE_ITEM] = eval_item,      [NODE_SLICE] = eval_slice,  [NODE_CALL] = eval_call,
        [NODE_FILTER] = eval_builtin, [NODE_TEST] = eval_builtin, [NODE_NOT] = eval_not,
        [NODE_NEGATE] = eval_sign,    [NODE_PLUS] = eval_sign,    [NODE_BINARY] = eval_binary,
        [NODE_AND] = eval_and_or,     [NODE_OR] = eval_and_or,    [NODE_COMPARE] = eval_compare,
        [NODE_CONCAT] = eval_concat,  [NODE_COND] = eval_cond,
    };
    uint32_t line = r->line;
    TRY(jinja_spend(r, 1));
    TRY(jinja_enter(r));
    r->line = n->line;
    TRY(table[n->type](r, n, out));
    r->line = line; /* on failure the line stays where it happened */
    r->depth--;
    return LACE_OK;
}
