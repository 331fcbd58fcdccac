/* Calls in templates: builtins with their parameters, macros, and the global functions. */
#include <string.h>

#include "jinja/jinja_eval.h"

/* ---- Parameters ------------------------------------------------------------------------------ */

/* The number of a name in a list between blanks, or -1; NULL counts them. */
static int param_number(const char *params, const text *name)
{
    int n = 0;
    for (const char *p = params; *p; n++) {
        size_t length = strcspn(p, " ");
        if (name && text_equals((text){p, length}, *name))
            return n;
        p += length;
        p += *p == ' ';
    }
    return name ? -1 : n;
}

lace_status jinja_call_builtin(jinja_run *r, const jinja_builtin *b, jv self,
                               const jinja_args *args, jv *out)
{
    jv p[JINJA_MAX_PARAMS] = {0};
    jinja_call call = {self, p, args, b->mode};
    if (strcmp(b->params, "*") != 0) {
        if (args->n > (size_t)param_number(b->params, NULL))
            return jinja_fail(r, "%s() takes at most %d arguments, %zu were given", b->name,
                              param_number(b->params, NULL), args->n);
        for (size_t i = 0; i < args->n; i++)
            p[i] = args->items[i];
        for (size_t i = 0; i < args->n_named; i++) {
            text name = args->named[i].name.chars;
            int number = param_number(b->params, &name);
            if (number < 0 || p[number].kind != JV_UNSET)
                return jinja_fail(r, "%s() got an unexpected argument '%.*s'", b->name,
                                  text_width(name), name.data);
            p[number] = args->named[i].value;
        }
    }
    TRY(jinja_enter(r));
    TRY(b->fn(r, &call, out));
    r->depth--;
    return LACE_OK;
}

bool jinja_param_is_set(jv v)
{
    return v.kind != JV_UNSET && v.kind != JV_NONE;
}

lace_status jinja_param_int(jinja_run *r, jv v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (!jinja_param_is_set(v))
        return LACE_OK;
    if (!jv_is_int(v))
        return jinja_fail(r, "'%s' object cannot be interpreted as an integer", jv_type_name(v));
    *out = jv_as_int(v);
    return LACE_OK;
}

lace_status jinja_param_text(jinja_run *r, jv v, const char *otherwise, text *out)
{
    if (v.kind == JV_STRING) {
        *out = jv_chars(v);
        return LACE_OK;
    }
    if (jinja_param_is_set(v) || !otherwise)
        return jinja_fail(r, "a string is needed, not '%s'", jv_type_name(v));
    *out = text_of(otherwise);
    return LACE_OK;
}

lace_status jinja_param_marked(jinja_run *r, jv v, const char *otherwise, marked *out)
{
    text chars;
    TRY(jinja_param_text(r, v, otherwise, &chars));
    *out = v.kind == JV_STRING ? jv_marked(v) : marked_own(chars);
    return LACE_OK;
}

const jinja_builtin *jinja_find_row(const jinja_builtin *rows, text name)
{
    for (; name.size > 0 && rows->name; rows++)
        if (rows->name[0] == name.data[0] && text_is(name, rows->name))
            return rows;
    return NULL;
}

/* ---- Macros ---------------------------------------------------------------------------------- */

static const jinja_named_arg *find_named(const jinja_args *args, text name)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (text_equals(args->named[i].name.chars, name))
            return &args->named[i];
    return NULL;
}

/* Set a variable by its text; a name that the template never uses needs no place. */
static lace_status set_by_text(jinja_run *r, const char *name, jv value)
{
    int32_t number = map_find(&r->template->names, text_of(name));
    return number < 0 ? LACE_OK : jinja_set(r, (uint32_t)number, value);
}

/* Positional arguments behind the parameters. */
static lace_status bind_varargs(jinja_run *r, const node *n, const jinja_args *args,
                                size_t n_params)
{
    jv rest;
    if (args->n > n_params && !(n->op & MACRO_VARARGS))
        return jinja_fail(r, "macro '%.*s' takes not more than %zu arguments", text_width(n->chars),
                          n->chars.data, n_params);
    if (!(n->op & MACRO_VARARGS))
        return LACE_OK;
    TRY(jv_list_new(r, JV_TUPLE, 0, &rest));
    for (size_t i = n_params; i < args->n; i++)
        TRY(jv_list_add(r, rest.as.list, args->items[i]));
    return set_by_text(r, "varargs", rest);
}

/* Named arguments that are no parameters. */
static lace_status bind_kwargs(jinja_run *r, const node *n, const jinja_args *args)
{
    jv rest, key;
    bool has_caller = false;
    TRY(jv_dict_new(r, JV_DICT, &rest));
    for (size_t i = 0; i < args->n_named; i++) {
        const jinja_named_arg *arg = &args->named[i];
        text name = arg->name.chars;
        const node *param = n->items;
        for (; param && !text_equals(param->chars, name); param = param->next)
            TRY(jinja_spend(r, 1));
        if (param)
            continue;
        if (text_is(name, "caller") && (n->op & MACRO_CALLER)) {
            has_caller = true;
            TRY(set_by_text(r, "caller", arg->value));
        } else if (n->op & MACRO_KWARGS) {
            TRY(jv_part(r, arg->name, &key));
            TRY(jv_dict_set(r, rest.as.dict, key, arg->value));
        } else {
            return jinja_fail(r, "macro '%.*s' takes no keyword argument '%.*s'",
                              text_width(n->chars), n->chars.data, text_width(name), name.data);
        }
    }
    if (n->op & MACRO_KWARGS)
        TRY(set_by_text(r, "kwargs", rest));
    if ((n->op & MACRO_CALLER) && !has_caller) {
        TRY(jv_undefined(r, text_of("caller"), &key));
        TRY(set_by_text(r, "caller", key));
    }
    return LACE_OK;
}

static lace_status bind_params(jinja_run *r, const node *n, const jinja_args *args)
{
    size_t i = 0;
    for (const node *param = n->items; param; param = param->next, i++) {
        const jinja_named_arg *named = find_named(args, param->chars);
        jv value;
        TRY(jinja_spend(r, 1 + args->n_named / 4));
        if (i < args->n && named)
            return jinja_fail(r, "got multiple values for argument '%.*s'",
                              text_width(param->chars), param->chars.data);
        if (i < args->n)
            value = args->items[i];
        else if (named)
            value = named->value;
        else if (param->a)
            TRY(jinja_eval(r, param->a, &value));
        else
            TRY(jv_undefined(r, param->chars, &value));
        TRY(jinja_set(r, param->name, value));
    }
    return bind_varargs(r, n, args, i);
}

static lace_status call_macro(jinja_run *r, const jinja_macro *macro, const jinja_args *args,
                              jv *out)
{
    jinja_scope *outer = r->scope;
    size_t start = r->out->size;
    const node *n = macro->definition;
    TRY(jinja_enter(r));
    TRY(jinja_scope_push(r, macro->scope, &r->scope));
    TRY(bind_params(r, n, args));
    /* A caller has its own parameters only: what it names beyond them is outside of it. */
    if (n->type == NODE_MACRO)
        TRY(bind_kwargs(r, n, args));
    TRY(jinja_exec_list(r, n->body));
    TRY(jinja_take_output(r, start, out));
    r->scope = outer;
    r->depth--;
    return LACE_OK;
}

/* loop(items) in a recursive loop: its body for other items, as text. */
static lace_status call_loop(jinja_run *r, const jinja_loop *loop, const jinja_args *args, jv *out)
{
    jinja_scope *outer = r->scope;
    size_t start = r->out->size;
    if (!loop->body)
        return jinja_fail(r, "a loop that calls itself must be marked as recursive");
    if (args->n != 1)
        return jinja_fail(r, "loop() takes one argument");
    TRY(jinja_enter(r));
    r->scope = loop->scope;
    TRY(jinja_run_loop(r, loop->body, args->items[0], loop->depth + 1));
    TRY(jinja_take_output(r, start, out));
    r->scope = outer;
    r->depth--;
    return LACE_OK;
}

/* The first call of a joiner gives nothing, later ones its separator. */
static lace_status call_joiner(jinja_run *r, jv_list *joiner, jv *out)
{
    *out = joiner->items[0];
    return joiner->at++ > 0 ? LACE_OK : jv_view(r, text_of(""), out);
}

lace_status jinja_call_value(jinja_run *r, jv callee, const jinja_args *args, jv *out)
{
    switch (callee.kind) {
    case JV_MACRO:
        return call_macro(r, callee.as.macro, args, out);
    case JV_FUNCTION:
        return jinja_call_builtin(r, callee.as.builtin, jv_none(), args, out);
    case JV_METHOD:
        return jinja_call_builtin(r, callee.as.bound->builtin, callee.as.bound->self, args, out);
    case JV_LOOP:
        return call_loop(r, callee.as.loop, args, out);
    case JV_JOINER:
        return call_joiner(r, callee.as.list, out);
    case JV_UNDEFINED:
        return jinja_fail(r, "'%.*s' is undefined", text_width(jv_chars(callee)),
                          jv_chars(callee).data);
    default:
        return jinja_fail(r, "'%s' object is not callable", jv_type_name(callee));
    }
}

/* ---- Global functions ------------------------------------------------------------------------ */

enum { MAX_RANGE = 100000 }; /* as in Jinja2's sandbox */

static lace_status fn_range(jinja_run *r, const jinja_call *c, jv *out)
{
    int64_t from, to, step;
    TRY(jinja_param_int(r, c->p[0], 0, &from));
    TRY(jinja_param_int(r, c->p[1], 0, &to));
    TRY(jinja_param_int(r, c->p[2], 1, &step));
    if (c->p[0].kind == JV_UNSET || step == 0)
        return jinja_fail(r, "range() needs an end, and a step other than zero");
    if (c->p[1].kind == JV_UNSET) {
        to = from;
        from = 0;
    }
    uint64_t distance = step > 0 ? (to > from ? (uint64_t)to - (uint64_t)from : 0)
                                 : (from > to ? (uint64_t)from - (uint64_t)to : 0);
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t n = distance / stride + (distance % stride > 0);
    if (n > MAX_RANGE)
        return jinja_limit(r, "items of a range");
    TRY(jv_list_new(r, JV_LIST, (size_t)n, out));
    for (uint64_t i = 0; i < n; i++)
        TRY(jv_list_add(r, out->as.list, jv_int((int64_t)((uint64_t)from + i * (uint64_t)step))));
    return LACE_OK;
}

/* dict(mapping or pairs, **named), and namespace with the same arguments. */
/* The mode is the kind: a dict or a namespace. */
static lace_status fn_dict(jinja_run *r, const jinja_call *c, jv *out)
{
    const jinja_args *args = c->args;
    TRY(jv_dict_new(r, (jv_kind)c->mode, out));
    if (args->n > 1)
        return jinja_fail(r, "dict expected at most 1 argument, got %zu", args->n);
    if (args->n == 1 && args->items[0].kind == JV_DICT) {
        const jv_dict *from = args->items[0].as.dict;
        for (size_t i = 0; i < from->n; i++)
            TRY(jv_dict_set(r, out->as.dict, from->entries[i].key, from->entries[i].value));
    } else if (args->n == 1) {
        jv *pairs, *pair;
        size_t n, n_pair;
        TRY(jv_items(r, args->items[0], &pairs, &n));
        for (size_t i = 0; i < n; i++) {
            TRY(jv_items(r, pairs[i], &pair, &n_pair));
            if (n_pair != 2)
                return jinja_fail(r, "a dict is made of pairs, not of %zu items", n_pair);
            TRY(jv_dict_set(r, out->as.dict, pair[0], pair[1]));
        }
    }
    for (size_t i = 0; i < args->n_named; i++) {
        jv key;
        TRY(jv_part(r, args->named[i].name, &key));
        TRY(jv_dict_set(r, out->as.dict, key, args->named[i].value));
    }
    return LACE_OK;
}

static lace_status fn_raise_exception(jinja_run *r, const jinja_call *c, jv *out)
{
    jv message;
    TRY(jv_to_string(r, c->p[0].kind == JV_UNSET ? jv_none() : c->p[0], &message));
    text shown = jv_chars(message);
    if (shown.size > 300)
        shown.size = 300;
    return jinja_fail(r, "%.*s", (int)shown.size, shown.data);
}

static lace_status fn_strftime_now(jinja_run *r, const jinja_call *c, jv *out)
{
    marked format;
    TRY(jinja_param_marked(r, c->p[0], NULL, &format));
    return jinja_strftime(r, format, r->options->now, out);
}

static lace_status fn_cycler(jinja_run *r, const jinja_call *c, jv *out)
{
    if (c->args->n == 0)
        return jinja_fail(r, "cycler() needs at least one item");
    TRY(jv_list_new(r, JV_CYCLER, c->args->n, out));
    for (size_t i = 0; i < c->args->n; i++)
        TRY(jv_list_add(r, out->as.list, c->args->items[i]));
    return LACE_OK;
}

static lace_status fn_joiner(jinja_run *r, const jinja_call *c, jv *out)
{
    jv separator = c->p[0];
    if (separator.kind == JV_UNSET)
        TRY(jv_view(r, text_of(", "), &separator));
    TRY(jv_list_new(r, JV_JOINER, 1, out));
    return jv_list_add(r, out->as.list, separator);
}

const jinja_builtin jinja_functions[] = {
    {"range", "start stop step", fn_range, 0},
    {"namespace", "*", fn_dict, JV_NAMESPACE},
    {"dict", "*", fn_dict, JV_DICT},
    {"raise_exception", "message", fn_raise_exception, 0},
    {"strftime_now", "format", fn_strftime_now, 0},
    {"cycler", "*", fn_cycler, 0},
    {"joiner", "sep", fn_joiner, 0},
    {0},
};

const jinja_builtin *jinja_find_function(text name)
{
    return jinja_find_row(jinja_functions, name);
}

const jinja_builtin *jinja_find_filter(text name)
{
    const jinja_builtin *const tables[] = {jinja_text_filters, jinja_list_filters,
                                           jinja_number_filters};
    const jinja_builtin *found = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && !found; i++)
        found = jinja_find_row(tables[i], name);
    return found;
}
