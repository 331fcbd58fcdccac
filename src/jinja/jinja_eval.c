/* Running a template: its budgets, variables and statements. */
#include "jinja/jinja_eval.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* ---- Budgets --------------------------------------------------------------------------------- */

lace_status jinja_fail(jinja_run *r, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(r->err, LACE_E_TEMPLATE, "line %u: %s", r->line, what);
}

lace_status jinja_limit(jinja_run *r, const char *what)
{
    return error_set(r->err, LACE_E_LIMIT, "line %u: the template needs too many %s", r->line,
                     what);
}

lace_status jinja_spend(jinja_run *r, uint64_t n_steps)
{
    if (n_steps > r->steps_left) {
        r->steps_left = 0;
        return jinja_limit(r, "steps");
    }
    r->steps_left -= n_steps;
    return LACE_OK;
}

lace_status jinja_spend_bytes(jinja_run *r, size_t n_bytes)
{
    return jinja_spend(r, n_bytes / 64);
}

/* memmem prepares what it looks for, which takes longer than looking. */
lace_status jinja_spend_find(jinja_run *r, text chars, text part)
{
    return part.size > chars.size ? LACE_OK : jinja_spend(r, chars.size / 64 + part.size / 8);
}

lace_status jinja_spend_chars(jinja_run *r, size_t n_bytes)
{
    return jinja_spend(r, n_bytes / 8);
}

lace_status jinja_enter(jinja_run *r)
{
    if (r->depth >= r->options->max_depth)
        return jinja_limit(r, "levels of calls and nested values");
    r->depth++;
    return LACE_OK;
}

lace_status jinja_alloc(jinja_run *r, size_t n, size_t size, void *out)
{
    void *p = arena_alloc(&r->heap, n, size);
    memcpy(out, &p, sizeof p);
    if (p)
        return LACE_OK;
    size_t n_bytes = n > SIZE_MAX / size ? SIZE_MAX : n * size;
    if (n_bytes > SIZE_MAX - 64 || n_bytes + 64 > r->heap.max - r->heap.used)
        return jinja_limit(r, "bytes of memory");
    return error_nomem(r->err, "a chat template's values");
}

lace_status jinja_grow(jinja_run *r, size_t n, size_t size, void *items, size_t *capacity)
{
    void *old, *grown;
    size_t wanted = *capacity < 4 ? 4 : 2 * *capacity;
    if (n < *capacity)
        return LACE_OK;
    TRY(jinja_alloc(r, wanted, size, &grown));
    memcpy(&old, items, sizeof old);
    if (n)
        memcpy(grown, old, n * size);
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return LACE_OK;
}

/* ---- Output ---------------------------------------------------------------------------------- */

lace_status jinja_write_marked(jinja_run *r, marked m)
{
    size_t n = m.chars.size;
    if (n > r->options->max_output - (r->out->size - r->out_start))
        return jinja_limit(r, "bytes of output");
    TRY(jinja_spend(r, 1 + n / 32)); /* the byte and its mark */
    lace_status status = buf_reserve(&r->marks, n);
    if (status == LACE_OK)
        status = buf_append(r->out, m.chars.data, n);
    if (status == LACE_E_LIMIT)
        return jinja_limit(r, "bytes of output");
    if (status != LACE_OK)
        return error_nomem(r->err, "a chat template's output");
    if (n > 0 && m.marks)
        memcpy(r->marks.data + r->marks.size, m.marks, n);
    else if (n > 0)
        memset(r->marks.data + r->marks.size, m.is_content, n);
    r->marks.size += n;
    return LACE_OK;
}

lace_status jinja_write(jinja_run *r, text chars)
{
    return jinja_write_marked(r, marked_own(chars));
}

lace_status jinja_write_byte(jinja_run *r, char c)
{
    return jinja_write(r, (text){&c, 1});
}

lace_status jinja_write_char(jinja_run *r, uint32_t code, bool is_content)
{
    char bytes[4];
    text chars = {bytes, (size_t)utf8_encode(code, bytes)};
    return jinja_write_marked(r, (marked){chars, NULL, is_content});
}

lace_status jinja_write_fill(jinja_run *r, marked unit, size_t n)
{
    char block[256];
    size_t size = unit.chars.size, n_block = size > 0 && !unit.marks ? sizeof block / size : 0;
    if (n_block > n)
        n_block = n;
    if (size > 0 && n > r->options->max_output / size)
        return jinja_limit(r, "bytes of output");
    TRY(jinja_spend(r, 1 + n_block / 8));
    for (size_t i = 0; i < n_block; i++)
        memcpy(block + i * size, unit.chars.data, size);
    while (n > 0 && size > 0) {
        /* Short units go out by the block. */
        size_t times = n_block == 0 ? 1 : n < n_block ? n : n_block;
        marked several = {{block, times * size}, NULL, unit.is_content};
        TRY(jinja_write_marked(r, n_block ? several : unit));
        n -= times;
    }
    return LACE_OK;
}

lace_status jinja_take_output(jinja_run *r, size_t start, jv *out)
{
    marked m = {.chars = {r->out->data ? r->out->data + start : "", r->out->size - start}};
    const char *marks = r->marks.data + (start - r->out_start);
    if (m.chars.size > 0) {
        m.is_content = marks[0];
        if (memchr(marks, !marks[0], m.chars.size))
            m.marks = (const uint8_t *)marks;
    }
    TRY(jv_copy(r, m, out));
    r->out->size = start;
    r->marks.size = start - r->out_start;
    return LACE_OK;
}

/* ---- Variables ------------------------------------------------------------------------------- */

lace_status jinja_scope_push(jinja_run *r, jinja_scope *parent, jinja_scope **out)
{
    TRY(jinja_alloc(r, 1, sizeof **out, out));
    (*out)->parent = parent;
    return LACE_OK;
}

static jinja_binding *find_binding(const jinja_scope *s, uint32_t name)
{
    for (size_t i = s->n; i-- > 0;)
        if (s->vars[i].name == name)
            return &s->vars[i];
    return NULL;
}

lace_status jinja_lookup(jinja_run *r, uint32_t name, jv *out)
{
    for (const jinja_scope *s = r->scope; s->parent; s = s->parent) {
        TRY(jinja_spend(r, 1 + s->n / 16));
        const jinja_binding *found = find_binding(s, name);
        if (found) {
            *out = found->value;
            return LACE_OK;
        }
    }
    *out = r->globals[name];
    if (out->kind == JV_UNSET)
        return jv_undefined(r, r->template->name_texts[name], out);
    return LACE_OK;
}

lace_status jinja_set(jinja_run *r, uint32_t name, jv value)
{
    jinja_scope *s = r->scope;
    if (!s->parent) {
        r->globals[name] = value;
        return LACE_OK;
    }
    TRY(jinja_spend(r, 1 + s->n / 16));
    jinja_binding *found = find_binding(s, name);
    if (found) {
        found->value = value;
        return LACE_OK;
    }
    TRY(jinja_grow(r, s->n, sizeof *s->vars, &s->vars, &s->capacity));
    s->vars[s->n++] = (jinja_binding){name, value};
    return LACE_OK;
}

static lace_status assign(jinja_run *r, const node *target, jv value)
{
    if (target->type == NODE_NAME)
        return jinja_set(r, target->name, value);
    if (target->type == NODE_NAMESPACE_REF) {
        jv space, key;
        TRY(jinja_lookup(r, target->name, &space));
        if (space.kind != JV_NAMESPACE)
            return jinja_fail(r, "cannot assign attribute on non-namespace object");
        TRY(jv_view(r, target->chars, &key));
        return jv_dict_set(r, space.as.dict, key, value);
    }
    jv *items;
    size_t n, n_targets = 0;
    TRY(jv_items(r, value, &items, &n));
    for (const node *t = target->items; t; t = t->next)
        n_targets++;
    if (n != n_targets)
        return jinja_fail(r, "cannot unpack %zu values into %zu names", n, n_targets);
    for (const node *t = target->items; t; t = t->next)
        TRY(assign(r, t, *items++));
    return LACE_OK;
}

/* ---- Statements ------------------------------------------------------------------------------ */

/* A body with variables of its own. */
static lace_status exec_inner(jinja_run *r, const node *body)
{
    jinja_scope *outer = r->scope;
    TRY(jinja_scope_push(r, outer, &r->scope));
    TRY(jinja_exec_list(r, body));
    r->scope = outer;
    return LACE_OK;
}

static lace_status exec_data(jinja_run *r, const node *n)
{
    return jinja_write(r, n->chars);
}

static lace_status exec_output(jinja_run *r, const node *n)
{
    jv value;
    TRY(jinja_eval(r, n->a, &value));
    return jv_print(r, value);
}

static lace_status exec_if(jinja_run *r, const node *n)
{
    jv condition;
    for (;;) {
        TRY(jinja_spend(r, 1));
        TRY(jinja_eval(r, n->a, &condition));
        if (jv_is_true(condition))
            return jinja_exec_list(r, n->body);
        if (!n->flag)
            return jinja_exec_list(r, n->more);
        n = n->more;
    }
}

/* The items for which the loop's condition holds. */
static lace_status filter_items(jinja_run *r, const node *n, jv **items, size_t *count)
{
    jinja_scope *outer = r->scope;
    size_t n_kept = 0;
    jv *kept, condition;
    TRY(jinja_scope_push(r, outer, &r->scope));
    TRY(jinja_alloc(r, *count, sizeof *kept, &kept));
    for (size_t i = 0; i < *count; i++) {
        TRY(assign(r, n->a, (*items)[i]));
        TRY(jinja_eval(r, n->c, &condition));
        if (jv_is_true(condition))
            kept[n_kept++] = (*items)[i];
    }
    r->scope = outer;
    *items = kept;
    *count = n_kept;
    return LACE_OK;
}

lace_status jinja_run_loop(jinja_run *r, const node *n, jv iterable, int depth)
{
    jinja_scope *outer = r->scope;
    jinja_loop *loop;
    int32_t loop_name = map_find(&r->template->names, text_of("loop"));
    TRY(jinja_alloc(r, 1, sizeof *loop, &loop));
    *loop = (jinja_loop){.depth = depth, .body = n->flag ? n : NULL, .scope = outer};
    TRY(jv_items(r, iterable, &loop->items, &loop->n));
    if (n->c)
        TRY(filter_items(r, n, &loop->items, &loop->n));
    if (loop->n == 0)
        return n->more ? exec_inner(r, n->more) : LACE_OK;
    jinja_scope *inner;
    TRY(jinja_scope_push(r, outer, &inner));
    for (; loop->at < loop->n; loop->at++) {
        TRY(jinja_spend(r, 1));
        /* Each round starts without variables; only one that a macro may still see is kept. */
        if (inner->is_captured)
            TRY(jinja_scope_push(r, outer, &inner));
        inner->n = 0;
        r->scope = inner;
        if (loop_name >= 0)
            TRY(jinja_set(r, (uint32_t)loop_name, (jv){.kind = JV_LOOP, .as.loop = loop}));
        TRY(assign(r, n->a, loop->items[loop->at]));
        TRY(jinja_exec_list(r, n->body));
        jinja_flow flow = r->flow;
        r->flow = FLOW_ON;
        if (flow == FLOW_BREAK)
            break;
    }
    r->scope = outer;
    return LACE_OK;
}

static lace_status exec_for(jinja_run *r, const node *n)
{
    jv iterable;
    TRY(jinja_eval(r, n->b, &iterable));
    return jinja_run_loop(r, n, iterable, 0);
}

static lace_status exec_set(jinja_run *r, const node *n)
{
    jv value;
    TRY(jinja_eval(r, n->b, &value));
    return assign(r, n->a, value);
}

/* A chain of filters whose innermost operand is `value`. */
static lace_status apply_filters(jinja_run *r, const node *filters, jv value, jv *out)
{
    if (!filters) {
        *out = value;
        return LACE_OK;
    }
    TRY(jinja_enter(r));
    TRY(apply_filters(r, filters->a, value, &value));
    node constant = {.type = NODE_CONST, .line = filters->line, .value = value};
    node filter = *filters;
    filter.a = &constant;
    TRY(jinja_eval(r, &filter, out));
    r->depth--;
    return LACE_OK;
}

/* What a body prints, through filters. */
static lace_status filter_body(jinja_run *r, const node *body, const node *filters, jv *out)
{
    size_t start = r->out->size;
    jv value;
    TRY(exec_inner(r, body));
    TRY(jinja_take_output(r, start, &value));
    return apply_filters(r, filters, value, out);
}

static lace_status exec_set_block(jinja_run *r, const node *n)
{
    jv value;
    TRY(filter_body(r, n->body, n->b, &value));
    return assign(r, n->a, value);
}

static lace_status exec_filter_block(jinja_run *r, const node *n)
{
    jv value;
    TRY(filter_body(r, n->body, n->a, &value));
    return jv_print(r, value);
}

static lace_status make_macro(jinja_run *r, const node *n, jv *out)
{
    jinja_macro *macro;
    TRY(jinja_alloc(r, 1, sizeof *macro, &macro));
    *macro = (jinja_macro){n, r->scope};
    for (jinja_scope *s = r->scope; s; s = s->parent) {
        TRY(jinja_spend(r, 1));
        s->is_captured = true;
    }
    *out = (jv){.kind = JV_MACRO, .as.macro = macro};
    return LACE_OK;
}

static lace_status exec_macro(jinja_run *r, const node *n)
{
    jv macro;
    TRY(make_macro(r, n, &macro));
    return jinja_set(r, n->name, macro);
}

static lace_status exec_call_block(jinja_run *r, const node *n)
{
    jv caller, value;
    TRY(make_macro(r, n, &caller));
    node constant = {.type = NODE_CONST, .line = n->line, .value = caller};
    node named = {.type = NODE_NAMED, .line = n->line, .chars = n->chars, .a = &constant};
    node call = *n->a;
    named.next = call.items;
    call.items = &named;
    TRY(jinja_eval(r, &call, &value));
    return jv_print(r, value);
}

static lace_status exec_with(jinja_run *r, const node *n)
{
    jinja_scope *outer = r->scope, *inner;
    TRY(jinja_scope_push(r, outer, &inner));
    for (const node *set = n->items; set; set = set->next) {
        jv value;
        r->scope = outer;
        TRY(jinja_eval(r, set->b, &value));
        r->scope = inner;
        TRY(assign(r, set->a, value));
    }
    r->scope = inner;
    TRY(jinja_exec_list(r, n->body));
    r->scope = outer;
    return LACE_OK;
}

static lace_status exec_scope(jinja_run *r, const node *n)
{
    return exec_inner(r, n->body);
}

static lace_status exec_jump(jinja_run *r, const node *n)
{
    r->flow = n->type == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    return LACE_OK;
}

lace_status jinja_exec_list(jinja_run *r, const node *first)
{
    static lace_status (*const table[NODE_N_TYPES])(jinja_run * r, const node *n) = {
        [NODE_DATA] = exec_data,
        [NODE_OUTPUT] = exec_output,
        [NODE_IF] = exec_if,
        [NODE_FOR] = exec_for,
        [NODE_SET] = exec_set,
        [NODE_SET_BLOCK] = exec_set_block,
        [NODE_MACRO] = exec_macro,
        [NODE_CALL_BLOCK] = exec_call_block,
        [NODE_FILTER_BLOCK] = exec_filter_block,
        [NODE_WITH] = exec_with,
        [NODE_SCOPE] = exec_scope,
        [NODE_BREAK] = exec_jump,
        [NODE_CONTINUE] = exec_jump,
    };
    TRY(jinja_enter(r));
    for (const node *n = first; n && r->flow == FLOW_ON; n = n->next) {
        TRY(jinja_spend(r, 1));
        r->line = n->line;
        TRY(table[n->type](r, n));
    }
    r->depth--;
    return LACE_OK;
}

/* ---- Rendering ------------------------------------------------------------------------------- */

jinja_options jinja_options_default(void)
{
    return (jinja_options){
        .max_steps = 2000000,
        .max_output = 8 << 20,
        .max_heap = 20 << 20,
        .max_depth = 1000,
    };
}

/* The tokens that a template may write are its own words; all else is what users sent. */
static bool is_own_name(text name)
{
    return text_is(name, "bos_token") || text_is(name, "eos_token");
}

/* A place for each name: from the context, else from the builtins, else not set. */
static lace_status init_globals(jinja_run *r, const json_t *context)
{
    const jinja *t = r->template;
    TRY(jinja_alloc(r, t->n_names, sizeof *r->globals, &r->globals));
    for (size_t i = 0; i < t->n_names; i++) {
        text name = t->name_texts[i];
        const json_t *given = json_object_getn(context, name.data, name.size);
        const jinja_builtin *function = jinja_find_function(name);
        if (given)
            TRY(jv_from_json(r, given, !is_own_name(name), &r->globals[i]));
        else if (function)
            r->globals[i] = (jv){.kind = JV_FUNCTION, .as.builtin = function};
    }
    return LACE_OK;
}

lace_status jinja_render_marked(const jinja *t, const json_t *context, const jinja_options *options,
                                buf *out, buf *marks, lace_error *err)
{
    jinja_scope top = {0};
    jinja_run r = {
        .template = t,
        .options = options,
        .steps_left = options->max_steps,
        .line = 1,
        .out = out,
        .out_start = out->size,
        .scope = &top,
        .err = err,
    };
    arena_init(&r.heap, options->max_heap);
    buf_init(&r.marks, options->max_output);
    lace_status status = init_globals(&r, context);
    if (status == LACE_OK)
        status = jinja_exec_list(&r, t->body);
    if (status == LACE_OK && marks && buf_append(marks, r.marks.data, r.marks.size) != LACE_OK)
        status = error_nomem(err, "a chat template's output");
    if (status != LACE_OK)
        out->size = r.out_start;
    if (out->data)
        out->data[out->size] = 0;
    buf_deinit(&r.marks);
    arena_deinit(&r.heap);
    return status;
}

lace_status jinja_render(const jinja *t, const json_t *context, const jinja_options *options,
                         buf *out, lace_error *err)
{
    return jinja_render_marked(t, context, options, out, NULL, err);
}
