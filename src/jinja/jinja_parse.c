/* The parser of templates: statements, and the helpers that expressions use, too. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/jinja_ast.h"
#include "jinja/jinja_eval.h"

enum { MAX_TREE_BYTES = 12 << 20 };

/* ---- Helpers --------------------------------------------------------------------------------- */

void jp_list_add(node_list *list, node *n)
{
    *list->end = n;
    list->end = &n->next;
}

lace_status jp_fail(parser *p, const char *format, ...)
{
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(p->err, LACE_E_TEMPLATE, "line %u: %s", p->now.line, what);
}

lace_status jp_unexpected(parser *p, const char *expected)
{
    return jp_fail(p, "unexpected '%.*s', expected %s", text_width(p->now.chars), p->now.chars.data,
                   expected);
}

lace_status jp_no_space(parser *p)
{
    if (p->template->heap.used > MAX_TREE_BYTES - (1 << 20))
        return error_set(p->err, LACE_E_LIMIT, "line %u: the template is too large", p->now.line);
    return error_nomem(p->err, "a template");
}

lace_status jp_advance(parser *p)
{
    p->now = p->ahead;
    return jinja_lex_next(&p->lex, &p->ahead);
}

lace_status jp_enter(parser *p)
{
    if (++p->depth > JINJA_MAX_NESTING)
        return jp_fail(p, "nested deeper than %d levels", JINJA_MAX_NESTING);
    return LACE_OK;
}

lace_status jp_node(parser *p, node_type type, node **out)
{
    node *n = *out = arena_alloc(&p->template->heap, 1, sizeof *n);
    if (!n)
        return jp_no_space(p);
    n->type = type;
    n->line = p->now.line;
    return LACE_OK;
}

bool jp_is_op(const parser *p, int op)
{
    return p->now.kind == TOK_OP && p->now.op == op;
}

bool jp_is_name(const parser *p, const char *name)
{
    return p->now.kind == TOK_NAME && text_is(p->now.chars, name);
}

lace_status jp_expect_op(parser *p, int op, const char *shown)
{
    return jp_is_op(p, op) ? jp_advance(p) : jp_unexpected(p, shown);
}

lace_status jp_intern(parser *p, text name, uint32_t *out)
{
    jinja *t = p->template;
    int32_t found = map_find(&t->names, name);
    if (text_is(name, "caller"))
        p->macro_needs |= MACRO_CALLER;
    else if (text_is(name, "varargs"))
        p->macro_needs |= MACRO_VARARGS;
    else if (text_is(name, "kwargs"))
        p->macro_needs |= MACRO_KWARGS;
    if (found >= 0) {
        *out = (uint32_t)found;
        return LACE_OK;
    }
    if (!mem_grow(&t->name_texts, t->n_names, &p->names_capacity, sizeof *t->name_texts, 64))
        return error_nomem(p->err, "a template");
    if (map_add(&t->names, name, (int32_t)t->n_names) != LACE_OK)
        return error_nomem(p->err, "a template");
    t->name_texts[t->n_names] = name;
    *out = (uint32_t)t->n_names++;
    return LACE_OK;
}

static lace_status expect_block_end(parser *p)
{
    return p->now.kind == TOK_BLOCK_END ? jp_advance(p) : jp_unexpected(p, "'%}'");
}

/* ---- Statements ------------------------------------------------------------------------------ */

static lace_status parse_statement(parser *p, node **out);

/*
 * Text and tags up to a tag whose name is among `ends` (between blanks; NULL: up to the end of the
 * template). The parser is then at that name. `opener` and `line` say what has to be ended.
 */
static lace_status parse_body(parser *p, const char *ends, const char *opener, uint32_t line,
                              node **out)
{
    node_list list = {out};
    *out = NULL;
    TRY(jp_enter(p));
    for (;;) {
        node *n = NULL;
        switch (p->now.kind) {
        case TOK_DATA:
            TRY(jp_node(p, NODE_DATA, &n));
            n->chars = p->now.chars;
            TRY(jp_advance(p));
            break;
        case TOK_VARIABLE_BEGIN:
            TRY(jp_node(p, NODE_OUTPUT, &n));
            TRY(jp_advance(p));
            TRY(jp_tuple(p, true, &n->a));
            if (p->now.kind != TOK_VARIABLE_END)
                return jp_unexpected(p, "'}}'");
            TRY(jp_advance(p));
            break;
        case TOK_BLOCK_BEGIN:
            TRY(jp_advance(p));
            if (p->now.kind != TOK_NAME)
                return jp_unexpected(p, "the name of a tag");
            if (ends) {
                char word[72];
                snprintf(word, sizeof word, " %.*s ", text_width(p->now.chars), p->now.chars.data);
                if (strstr(ends, word)) {
                    p->depth--;
                    return LACE_OK;
                }
            }
            TRY(parse_statement(p, &n));
            break;
        default:
            if (!ends) {
                p->depth--;
                return LACE_OK;
            }
            return jp_fail(p, "the '%s' of line %u has no end: expected one of%s", opener, line,
                           ends);
        }
        if (n)
            jp_list_add(&list, n);
    }
}

/* A body up to a single end tag, which is read to its "%}". */
static lace_status parse_body_to(parser *p, const char *end, const char *opener, uint32_t line,
                                 node **out)
{
    TRY(parse_body(p, end, opener, line, out));
    TRY(jp_advance(p));
    return expect_block_end(p);
}

/* At `else` or at the end of a statement: what is done otherwise, if anything. */
static lace_status parse_else(parser *p, const char *end, node *n)
{
    bool has_else = jp_is_name(p, "else");
    TRY(jp_advance(p));
    TRY(expect_block_end(p));
    return has_else ? parse_body_to(p, end, "else", n->line, &n->more) : LACE_OK;
}

static lace_status parse_if(parser *p, node *n)
{
    /* An elif is an if in the else of the one before, but costs no depth: the loop goes down. */
    for (;;) {
        TRY(jp_expression(p, true, &n->a));
        TRY(expect_block_end(p));
        TRY(parse_body(p, " elif else endif ", "if", n->line, &n->body));
        if (!jp_is_name(p, "elif"))
            break;
        n->flag = true; /* the else is an elif */
        TRY(jp_node(p, NODE_IF, &n->more));
        n = n->more;
        TRY(jp_advance(p));
    }
    return parse_else(p, " endif ", n);
}

static lace_status parse_for(parser *p, node *n)
{
    TRY(jp_target(p, true, false, &n->a));
    if (!jp_is_name(p, "in"))
        return jp_unexpected(p, "'in'");
    TRY(jp_advance(p));
    TRY(jp_tuple(p, false, &n->b));
    if (jp_is_name(p, "if")) {
        TRY(jp_advance(p));
        TRY(jp_expression(p, true, &n->c));
    }
    if (jp_is_name(p, "recursive")) {
        n->flag = true;
        TRY(jp_advance(p));
    }
    TRY(expect_block_end(p));
    p->n_loops++;
    TRY(parse_body(p, " else endfor ", "for", n->line, &n->body));
    p->n_loops--;
    return parse_else(p, " endfor ", n);
}

static lace_status parse_set(parser *p, node *n)
{
    TRY(jp_target(p, true, true, &n->a));
    if (jp_is_op(p, OP('=', 0))) {
        TRY(jp_advance(p));
        TRY(jp_tuple(p, true, &n->b));
        return expect_block_end(p);
    }
    n->type = NODE_SET_BLOCK;
    if (n->a->type == NODE_TUPLE)
        return jp_unexpected(p, "'='");
    if (jp_is_op(p, OP('|', 0)))
        TRY(jp_filters(p, NULL, false, &n->b));
    TRY(expect_block_end(p));
    return parse_body_to(p, " endset ", "set", n->line, &n->body);
}

/* Parameters in parentheses, to behind the ')'. */
static lace_status parse_params(parser *p, node **out)
{
    node_list list = {out};
    TRY(jp_expect_op(p, OP('(', 0), "'('"));
    while (!jp_is_op(p, OP(')', 0))) {
        node *param;
        if (*out)
            TRY(jp_expect_op(p, OP(',', 0), "',' or ')'"));
        if (jp_is_op(p, OP(')', 0)))
            break;
        if (p->now.kind != TOK_NAME)
            return jp_unexpected(p, "a parameter");
        TRY(jp_node(p, NODE_PARAM, &param));
        param->chars = p->now.chars;
        TRY(jp_intern(p, p->now.chars, &param->name));
        TRY(jp_advance(p));
        if (jp_is_op(p, OP('=', 0))) {
            TRY(jp_advance(p));
            TRY(jp_expression(p, true, &param->a));
        }
        jp_list_add(&list, param);
    }
    return jp_advance(p);
}

static lace_status parse_macro_body(parser *p, node *n, const char *end, const char *opener)
{
    int outer_needs = p->macro_needs, outer_loops = p->n_loops;
    p->macro_needs = 0;
    p->n_loops = 0;
    TRY(expect_block_end(p));
    TRY(parse_body_to(p, end, opener, n->line, &n->body));
    n->op = p->macro_needs;
    p->macro_needs = outer_needs;
    p->n_loops = outer_loops;
    return LACE_OK;
}

static lace_status parse_macro(parser *p, node *n)
{
    if (p->now.kind != TOK_NAME)
        return jp_unexpected(p, "the macro's name");
    n->chars = p->now.chars;
    TRY(jp_intern(p, p->now.chars, &n->name));
    TRY(jp_advance(p));
    TRY(parse_params(p, &n->items));
    return parse_macro_body(p, n, " endmacro ", "macro");
}

static lace_status parse_call_block(parser *p, node *n)
{
    n->chars = text_of("caller");
    if (jp_is_op(p, OP('(', 0)))
        TRY(parse_params(p, &n->items));
    TRY(jp_expression(p, true, &n->a));
    if (n->a->type != NODE_CALL)
        return jp_unexpected(p, "a call");
    return parse_macro_body(p, n, " endcall ", "call");
}

static lace_status parse_filter_block(parser *p, node *n)
{
    TRY(jp_filters(p, NULL, true, &n->a));
    TRY(expect_block_end(p));
    return parse_body_to(p, " endfilter ", "filter", n->line, &n->body);
}

static lace_status parse_with(parser *p, node *n)
{
    node_list list = {&n->items};
    while (p->now.kind != TOK_BLOCK_END) {
        node *set;
        if (n->items)
            TRY(jp_expect_op(p, OP(',', 0), "',' or '%}'"));
        TRY(jp_node(p, NODE_SET, &set));
        TRY(jp_target(p, false, false, &set->a));
        TRY(jp_expect_op(p, OP('=', 0), "'='"));
        TRY(jp_expression(p, true, &set->b));
        jp_list_add(&list, set);
    }
    TRY(jp_advance(p));
    return parse_body_to(p, " endwith ", "with", n->line, &n->body);
}

static lace_status parse_generation(parser *p, node *n)
{
    /* The body is a macro of its own to Jinja2, so a break cannot leave it. */
    int outer_loops = p->n_loops;
    p->n_loops = 0;
    TRY(expect_block_end(p));
    TRY(parse_body_to(p, " endgeneration ", "generation", n->line, &n->body));
    p->n_loops = outer_loops;
    return LACE_OK;
}

static lace_status parse_jump(parser *p, node *n)
{
    if (p->n_loops == 0)
        return jp_fail(p, "break and continue need a loop around them");
    return expect_block_end(p);
}

static lace_status parse_statement(parser *p, node **out)
{
    static const struct {
        const char *name;
        node_type type;
        lace_status (*parse)(parser *p, node *n); /* from behind the name to behind the last '%}' */
    } tags[] = {
        {"if", NODE_IF, parse_if},
        {"for", NODE_FOR, parse_for},
        {"set", NODE_SET, parse_set},
        {"macro", NODE_MACRO, parse_macro},
        {"call", NODE_CALL_BLOCK, parse_call_block},
        {"filter", NODE_FILTER_BLOCK, parse_filter_block},
        {"with", NODE_WITH, parse_with},
        {"generation", NODE_SCOPE, parse_generation},
        {"break", NODE_BREAK, parse_jump},
        {"continue", NODE_CONTINUE, parse_jump},
    };
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (jp_is_name(p, tags[i].name)) {
            TRY(jp_node(p, tags[i].type, out));
            TRY(jp_advance(p));
            return tags[i].parse(p, *out);
        }
    }
    return jp_fail(p, "unknown tag '%.*s'", text_width(p->now.chars), p->now.chars.data);
}

/* ---- Templates ------------------------------------------------------------------------------- */

/* The source with lines that end in "\n", and without the last of these. */
static lace_status copy_source(jinja *t, text source, lace_error *err)
{
    char *copy = arena_alloc(&t->heap, source.size + 1, 1);
    size_t n = 0;
    uint32_t line = 1;
    if (!copy)
        return error_nomem(err, "a template");
    for (size_t i = 0; i < source.size; i++) {
        char c = source.data[i];
        if (c == '\r') {
            if (i + 1 < source.size && source.data[i + 1] == '\n')
                continue;
            c = '\n';
        }
        copy[n++] = c;
    }
    for (size_t i = 0; i < n;) {
        uint32_t code;
        int size = utf8_decode(copy + i, n - i, &code);
        if (code == UTF8_REPLACEMENT && !(size == 3 && memcmp(copy + i, "\xEF\xBF\xBD", 3) == 0))
            return error_set(err, LACE_E_TEMPLATE, "line %u: malformed UTF-8", line);
        line += copy[i] == '\n';
        i += (size_t)size;
    }
    if (n > 0 && copy[n - 1] == '\n')
        n--;
    t->source = (text){copy, n};
    return LACE_OK;
}

lace_status jinja_parse(text source, jinja **out, lace_error *err)
{
    *out = NULL;
    if (source.size > JINJA_MAX_SOURCE)
        return error_set(err, LACE_E_LIMIT, "the template has %zu bytes, at most %d are allowed",
                         source.size, JINJA_MAX_SOURCE);
    jinja *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "a template");
    arena_init(&t->heap, MAX_TREE_BYTES);
    map_init(&t->names);
    parser p = {.template = t, .err = err};
    lace_status status;
    TRY_GOTO(status, done, copy_source(t, source, err));
    jinja_lex_init(&p.lex, t->source, &t->heap, err);
    TRY_GOTO(status, done, jp_advance(&p));
    TRY_GOTO(status, done, jp_advance(&p));
    status = parse_body(&p, NULL, "template", 1, &t->body);
done:
    if (status == LACE_OK)
        *out = t;
    else
        jinja_free(t);
    return status;
}

bool jinja_names(const jinja *t, text variable)
{
    return map_find(&t->names, variable) >= 0;
}

void jinja_free(jinja *t)
{
    if (!t)
        return;
    map_deinit(&t->names);
    mem_free(t->name_texts);
    arena_deinit(&t->heap);
    mem_free(t);
}
