/*
 * The parser of expressions. From loose to tight:
 *
 *     a if b else c, or, and, not, comparisons and in, + -, ~, * / // %, **, unary, postfix
 *
 * Postfix is .name, [item], (call), then |filter and `is` test.
 */
#include <string.h>

#include "jinja/jinja_ast.h"
#include "jinja/jinja_eval.h"

static lace_status parse_or(parser *p, node **out);
static lace_status parse_unary(parser *p, bool with_filters, node **out);

static lace_status binary_node(parser *p, node_type type, node *a, node **out)
{
    TRY(jp_node(p, type, out));
    (*out)->a = a;
    return LACE_OK;
}

/* ---- Primary --------------------------------------------------------------------------------- */

static lace_status constant(parser *p, jv value, node **out)
{
    TRY(jp_node(p, NODE_CONST, out));
    (*out)->value = value;
    return jp_advance(p);
}

/* Strings that stand side by side are one. */
static lace_status parse_string(parser *p, node **out)
{
    arena *heap = &p->template->heap;
    text whole = p->now.chars;
    TRY(jp_node(p, NODE_CONST, out));
    TRY(jp_advance(p));
    while (p->now.kind == TOK_STRING) {
        char *joined = arena_alloc(heap, whole.size + p->now.chars.size + 1, 1);
        if (!joined)
            return jp_no_space(p);
        memcpy(joined, whole.data, whole.size);
        memcpy(joined + whole.size, p->now.chars.data, p->now.chars.size);
        whole = (text){joined, whole.size + p->now.chars.size};
        TRY(jp_advance(p));
    }
    jv_string *s = arena_alloc(heap, 1, sizeof *s);
    if (!s)
        return jp_no_space(p);
    s->all = marked_own(whole);
    (*out)->value = (jv){.kind = JV_STRING, .as.s = s};
    return LACE_OK;
}

static lace_status parse_name(parser *p, node **out)
{
    static const struct {
        const char *name;
        jv value;
    } words[] = {
        {"true", {.kind = JV_BOOL, .as.b = true}},
        {"True", {.kind = JV_BOOL, .as.b = true}},
        {"false", {.kind = JV_BOOL, .as.b = false}},
        {"False", {.kind = JV_BOOL, .as.b = false}},
        {"none", {.kind = JV_NONE}},
        {"None", {.kind = JV_NONE}},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (jp_is_name(p, words[i].name))
            return constant(p, words[i].value, out);
    TRY(jp_node(p, NODE_NAME, out));
    TRY(jp_intern(p, p->now.chars, &(*out)->name));
    return jp_advance(p);
}

/* Items between commas up to a closing bracket, which is read. */
static lace_status parse_items(parser *p, int close, const char *shown, node **out)
{
    node_list list = {out};
    while (!jp_is_op(p, close)) {
        node *item;
        if (*out)
            TRY(jp_expect_op(p, OP(',', 0), shown));
        if (jp_is_op(p, close))
            break;
        TRY(jp_expression(p, true, &item));
        jp_list_add(&list, item);
    }
    return jp_advance(p);
}

static lace_status parse_dict(parser *p, node **out)
{
    TRY(jp_node(p, NODE_DICT, out));
    TRY(jp_advance(p));
    node_list list = {&(*out)->items};
    while (!jp_is_op(p, OP('}', 0))) {
        node *key, *value;
        if ((*out)->items)
            TRY(jp_expect_op(p, OP(',', 0), "',' or '}'"));
        if (jp_is_op(p, OP('}', 0)))
            break;
        TRY(jp_expression(p, true, &key));
        TRY(jp_expect_op(p, OP(':', 0), "':'"));
        TRY(jp_expression(p, true, &value));
        jp_list_add(&list, key);
        jp_list_add(&list, value);
    }
    return jp_advance(p);
}

/* (a), (a, b) or (). */
static lace_status parse_parentheses(parser *p, node **out)
{
    TRY(jp_advance(p));
    if (jp_is_op(p, OP(')', 0))) {
        TRY(jp_node(p, NODE_TUPLE, out));
        return jp_advance(p);
    }
    TRY(jp_tuple(p, true, out));
    return jp_expect_op(p, OP(')', 0), "')'");
}

static lace_status parse_primary(parser *p, node **out)
{
    switch (p->now.kind) {
    case TOK_NAME:
        return parse_name(p, out);
    case TOK_STRING:
        return parse_string(p, out);
    case TOK_INT:
        return constant(p, jv_int(p->now.integer), out);
    case TOK_FLOAT:
        return constant(p, jv_float(p->now.number), out);
    default:
        if (jp_is_op(p, OP('(', 0)))
            return parse_parentheses(p, out);
        if (jp_is_op(p, OP('{', 0)))
            return parse_dict(p, out);
        if (jp_is_op(p, OP('[', 0))) {
            TRY(jp_node(p, NODE_LIST, out));
            TRY(jp_advance(p));
            return parse_items(p, OP(']', 0), "',' or ']'", &(*out)->items);
        }
        return jp_unexpected(p, "an expression");
    }
}

/* ---- Postfix --------------------------------------------------------------------------------- */

/* Arguments in parentheses, to behind the ')'. */
static lace_status parse_args(parser *p, node **out)
{
    node_list list = {out};
    TRY(jp_expect_op(p, OP('(', 0), "'('"));
    while (!jp_is_op(p, OP(')', 0))) {
        node *arg, *wrapper = NULL;
        if (*out)
            TRY(jp_expect_op(p, OP(',', 0), "',' or ')'"));
        if (jp_is_op(p, OP(')', 0)))
            break;
        if (jp_is_op(p, OP('*', 0)) || jp_is_op(p, OP('*', '*'))) {
            bool is_named = jp_is_op(p, OP('*', '*'));
            TRY(jp_node(p, is_named ? NODE_SPREAD_NAMED : NODE_SPREAD, &wrapper));
            TRY(jp_advance(p));
        } else if (p->now.kind == TOK_NAME && p->ahead.kind == TOK_OP &&
                   p->ahead.op == OP('=', 0)) {
            TRY(jp_node(p, NODE_NAMED, &wrapper));
            wrapper->chars = p->now.chars;
            TRY(jp_advance(p));
            TRY(jp_advance(p));
        }
        TRY(jp_expression(p, true, &arg));
        if (wrapper) {
            wrapper->a = arg;
            arg = wrapper;
        }
        jp_list_add(&list, arg);
    }
    return jp_advance(p);
}

static lace_status parse_slice_part(parser *p, node_list *list)
{
    node *part;
    if (jp_is_op(p, OP(':', 0)) || jp_is_op(p, OP(']', 0)))
        TRY(jp_node(p, NODE_NOTHING, &part));
    else
        TRY(jp_expression(p, true, &part));
    jp_list_add(list, part);
    return LACE_OK;
}

/* At '[': an item or a slice of `object`. */
static lace_status parse_subscript(parser *p, node *object, node **out)
{
    TRY(binary_node(p, NODE_ITEM, object, out));
    TRY(jp_advance(p));
    node *n = *out;
    node_list list = {&n->items};
    TRY(parse_slice_part(p, &list));
    if (!jp_is_op(p, OP(':', 0))) {
        n->b = n->items;
        n->items = NULL;
        if (n->b->type == NODE_NOTHING)
            return jp_unexpected(p, "an index");
        if (jp_is_op(p, OP(',', 0))) {
            node *tuple, *more;
            node_list rest = {&n->b->next};
            TRY(jp_node(p, NODE_TUPLE, &tuple));
            while (jp_is_op(p, OP(',', 0))) {
                TRY(jp_advance(p));
                TRY(jp_expression(p, true, &more));
                jp_list_add(&rest, more);
            }
            tuple->items = n->b;
            n->b = tuple;
        }
        return jp_expect_op(p, OP(']', 0), "']'");
    }
    n->type = NODE_SLICE;
    TRY(jp_advance(p));
    TRY(parse_slice_part(p, &list));
    if (jp_is_op(p, OP(':', 0)))
        TRY(jp_advance(p));
    TRY(parse_slice_part(p, &list));
    return jp_expect_op(p, OP(']', 0), "']'");
}

static lace_status parse_attribute(parser *p, node *object, node **out)
{
    TRY(jp_advance(p));
    if (p->now.kind == TOK_INT) {
        TRY(binary_node(p, NODE_ITEM, object, out));
        return constant(p, jv_int(p->now.integer), &(*out)->b);
    }
    if (p->now.kind != TOK_NAME)
        return jp_unexpected(p, "a name");
    TRY(binary_node(p, NODE_ATTR, object, out));
    (*out)->chars = p->now.chars;
    return jp_advance(p);
}

/* *n becomes what is called. */
static lace_status parse_call(parser *p, node **n)
{
    TRY(binary_node(p, NODE_CALL, *n, n));
    return parse_args(p, &(*n)->items);
}

static lace_status parse_postfix(parser *p, node *n, node **out)
{
    for (;;) {
        if (jp_is_op(p, OP('.', 0))) {
            TRY(parse_attribute(p, n, &n));
        } else if (jp_is_op(p, OP('[', 0))) {
            TRY(parse_subscript(p, n, &n));
        } else if (jp_is_op(p, OP('(', 0))) {
            TRY(parse_call(p, &n));
        } else {
            *out = n;
            return LACE_OK;
        }
    }
}

/* A name of a filter or test, which may have dots. */
static lace_status parse_dotted(parser *p, text *out)
{
    if (p->now.kind != TOK_NAME)
        return jp_unexpected(p, "a name");
    *out = p->now.chars;
    TRY(jp_advance(p));
    while (jp_is_op(p, OP('.', 0))) {
        TRY(jp_advance(p));
        if (p->now.kind != TOK_NAME)
            return jp_unexpected(p, "a name");
        out->size = (size_t)(p->now.chars.data - out->data) + p->now.chars.size;
        TRY(jp_advance(p));
    }
    return LACE_OK;
}

/* |filter|filter...; starts_inline: the first '|' is left out, as in {% filter upper %}. */
lace_status jp_filters(parser *p, node *n, bool starts_inline, node **out)
{
    while (starts_inline || jp_is_op(p, OP('|', 0))) {
        if (!starts_inline)
            TRY(jp_advance(p));
        starts_inline = false;
        TRY(binary_node(p, NODE_FILTER, n, &n));
        TRY(parse_dotted(p, &n->chars));
        n->builtin = jinja_find_filter(n->chars);
        if (jp_is_op(p, OP('(', 0)))
            TRY(parse_args(p, &n->items));
    }
    *out = n;
    return LACE_OK;
}

/* Behind `is`. */
static lace_status parse_test(parser *p, node *subject, node **out)
{
    bool is_negated = jp_is_name(p, "not");
    node *n;
    if (is_negated)
        TRY(jp_advance(p));
    TRY(binary_node(p, NODE_TEST, subject, &n));
    TRY(parse_dotted(p, &n->chars));
    n->builtin = jinja_find_test(n->chars);
    if (jp_is_op(p, OP('(', 0))) {
        TRY(parse_args(p, &n->items));
    } else if ((p->now.kind == TOK_NAME || p->now.kind == TOK_STRING || p->now.kind == TOK_INT ||
                p->now.kind == TOK_FLOAT || jp_is_op(p, OP('[', 0)) || jp_is_op(p, OP('{', 0))) &&
               !jp_is_name(p, "else") && !jp_is_name(p, "or") && !jp_is_name(p, "and") &&
               !jp_is_name(p, "if") && !jp_is_name(p, "recursive")) {
        /* One argument may stand without parentheses: `x is divisibleby 3`. */
        if (jp_is_name(p, "is"))
            return jp_fail(p, "tests with 'is' cannot be chained");
        TRY(parse_primary(p, &n->items));
        TRY(parse_postfix(p, n->items, &n->items));
    }
    if (is_negated) {
        node *negation;
        TRY(binary_node(p, NODE_NOT, n, &negation));
        n = negation;
    }
    *out = n;
    return LACE_OK;
}

static lace_status parse_filters_and_tests(parser *p, node *n, node **out)
{
    for (;;) {
        if (jp_is_op(p, OP('|', 0))) {
            TRY(jp_filters(p, n, false, &n));
        } else if (jp_is_name(p, "is")) {
            TRY(jp_advance(p));
            TRY(parse_test(p, n, &n));
        } else if (jp_is_op(p, OP('(', 0))) {
            TRY(parse_call(p, &n));
        } else {
            *out = n;
            return LACE_OK;
        }
    }
}

/* ---- Operators ------------------------------------------------------------------------------- */

static lace_status parse_unary(parser *p, bool with_filters, node **out)
{
    bool is_minus = jp_is_op(p, OP('-', 0));
    node *n;
    TRY(jp_enter(p));
    if (is_minus || jp_is_op(p, OP('+', 0))) {
        TRY(jp_node(p, is_minus ? NODE_NEGATE : NODE_PLUS, &n));
        TRY(jp_advance(p));
        TRY(parse_unary(p, false, &n->a));
    } else {
        TRY(parse_primary(p, &n));
    }
    TRY(parse_postfix(p, n, &n));
    if (with_filters)
        TRY(parse_filters_and_tests(p, n, &n));
    p->depth--;
    *out = n;
    return LACE_OK;
}

/* Binary operators of one precedence, all grouping to the left. */
typedef struct operator_row {
    int op;
    binary_op binary;
} operator_row;

typedef lace_status (*parse_fn)(parser *p, node **out);

static lace_status parse_level(parser *p, const operator_row *rows, size_t n_rows, parse_fn tighter,
                               node **out)
{
    node *left;
    TRY(tighter(p, &left));
    for (;;) {
        size_t i = 0;
        while (i < n_rows && !jp_is_op(p, rows[i].op))
            i++;
        if (i == n_rows) {
            *out = left;
            return LACE_OK;
        }
        TRY(binary_node(p, NODE_BINARY, left, &left));
        left->op = rows[i].binary;
        TRY(jp_advance(p));
        TRY(tighter(p, &left->b));
    }
}

static lace_status parse_filtered_unary(parser *p, node **out)
{
    return parse_unary(p, true, out);
}

static lace_status parse_pow(parser *p, node **out)
{
    static const operator_row rows[] = {{OP('*', '*'), BINARY_POW}};
    return parse_level(p, rows, 1, parse_filtered_unary, out);
}

static lace_status parse_product(parser *p, node **out)
{
    static const operator_row rows[] = {{OP('*', 0), BINARY_MUL},
                                        {OP('/', 0), BINARY_DIV},
                                        {OP('/', '/'), BINARY_FLOORDIV},
                                        {OP('%', 0), BINARY_MOD}};
    return parse_level(p, rows, 4, parse_pow, out);
}

/* *out becomes the first item of a node that it is replaced by. */
static lace_status begin_list(parser *p, node_type type, node **out, node_list *list)
{
    node *first = *out;
    TRY(jp_node(p, type, out));
    *list = (node_list){&(*out)->items};
    jp_list_add(list, first);
    return LACE_OK;
}

static lace_status parse_concat(parser *p, node **out)
{
    TRY(parse_product(p, out));
    if (!jp_is_op(p, OP('~', 0)))
        return LACE_OK;
    node *item;
    node_list list;
    TRY(begin_list(p, NODE_CONCAT, out, &list));
    while (jp_is_op(p, OP('~', 0))) {
        TRY(jp_advance(p));
        TRY(parse_product(p, &item));
        jp_list_add(&list, item);
    }
    return LACE_OK;
}

static lace_status parse_sum(parser *p, node **out)
{
    static const operator_row rows[] = {{OP('+', 0), BINARY_ADD}, {OP('-', 0), BINARY_SUB}};
    return parse_level(p, rows, 2, parse_concat, out);
}

/* Whether a comparison is next; reads it. */
static lace_status read_comparison(parser *p, bool *is_there, compare_op *op)
{
    static const struct {
        int op;
        compare_op compare;
    } rows[] = {{OP('=', '='), COMPARE_EQ}, {OP('!', '='), COMPARE_NE}, {OP('<', 0), COMPARE_LT},
                {OP('<', '='), COMPARE_LE}, {OP('>', 0), COMPARE_GT},   {OP('>', '='), COMPARE_GE}};
    *is_there = true;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (jp_is_op(p, rows[i].op)) {
            *op = rows[i].compare;
            return jp_advance(p);
        }
    }
    if (jp_is_name(p, "in")) {
        *op = COMPARE_IN;
        return jp_advance(p);
    }
    if (jp_is_name(p, "not") && p->ahead.kind == TOK_NAME && text_is(p->ahead.chars, "in")) {
        *op = COMPARE_NOT_IN;
        TRY(jp_advance(p));
        return jp_advance(p);
    }
    *is_there = false;
    return LACE_OK;
}

static lace_status parse_compare(parser *p, node **out)
{
    node *chain = NULL;
    node_list list = {NULL};
    TRY(parse_sum(p, out));
    for (;;) {
        bool is_there;
        compare_op op = COMPARE_EQ;
        node *right;
        TRY(read_comparison(p, &is_there, &op));
        if (!is_there)
            return LACE_OK;
        if (!chain) {
            TRY(binary_node(p, NODE_COMPARE, *out, &chain));
            list.end = &chain->items;
            *out = chain;
        }
        /* The operator stands in a node of its own, for the operand may be shared by no one. */
        TRY(jp_node(p, NODE_NOTHING, &right));
        right->op = (int)op;
        TRY(parse_sum(p, &right->a));
        jp_list_add(&list, right);
    }
}

static lace_status parse_not(parser *p, node **out)
{
    if (!jp_is_name(p, "not"))
        return parse_compare(p, out);
    TRY(jp_enter(p));
    TRY(jp_node(p, NODE_NOT, out));
    TRY(jp_advance(p));
    TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return LACE_OK;
}

/* Operands by `parse`, with a word between them. */
static lace_status parse_words(parser *p, const char *word, node_type type,
                               lace_status (*parse)(parser *p, node **out), node **out)
{
    TRY(parse(p, out));
    while (jp_is_name(p, word)) {
        TRY(binary_node(p, type, *out, out));
        TRY(jp_advance(p));
        TRY(parse(p, &(*out)->b));
    }
    return LACE_OK;
}

static lace_status parse_and(parser *p, node **out)
{
    return parse_words(p, "and", NODE_AND, parse_not, out);
}

static lace_status parse_or(parser *p, node **out)
{
    return parse_words(p, "or", NODE_OR, parse_and, out);
}

lace_status jp_expression(parser *p, bool with_condition, node **out)
{
    TRY(jp_enter(p));
    TRY(parse_or(p, out));
    while (with_condition && jp_is_name(p, "if")) {
        TRY(binary_node(p, NODE_COND, *out, out));
        TRY(jp_advance(p));
        TRY(parse_or(p, &(*out)->b));
        if (jp_is_name(p, "else")) {
            TRY(jp_advance(p));
            TRY(jp_expression(p, true, &(*out)->c));
        }
    }
    p->depth--;
    return LACE_OK;
}

/* ---- Tuples and targets ---------------------------------------------------------------------- */

static bool is_tuple_end(const parser *p)
{
    return p->now.kind == TOK_BLOCK_END || p->now.kind == TOK_VARIABLE_END ||
           jp_is_op(p, OP(')', 0)) || jp_is_name(p, "recursive");
}

lace_status jp_tuple(parser *p, bool with_condition, node **out)
{
    TRY(jp_expression(p, with_condition, out));
    if (!jp_is_op(p, OP(',', 0)))
        return LACE_OK;
    node *item;
    node_list list;
    TRY(begin_list(p, NODE_TUPLE, out, &list));
    while (jp_is_op(p, OP(',', 0))) {
        TRY(jp_advance(p));
        if (is_tuple_end(p))
            break;
        TRY(jp_expression(p, with_condition, &item));
        jp_list_add(&list, item);
    }
    return LACE_OK;
}

static lace_status parse_one_target(parser *p, bool with_namespace, node **out)
{
    static const char *const reserved[] = {"true", "True", "false", "False", "none", "None"};
    if (jp_is_op(p, OP('(', 0)) || jp_is_op(p, OP('[', 0))) {
        bool is_list = jp_is_op(p, OP('[', 0));
        TRY(jp_enter(p));
        TRY(jp_advance(p));
        TRY(jp_target(p, true, false, out));
        p->depth--;
        return jp_expect_op(p, is_list ? OP(']', 0) : OP(')', 0), "a closing bracket");
    }
    if (p->now.kind != TOK_NAME)
        return jp_unexpected(p, "a name to assign to");
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (jp_is_name(p, reserved[i]))
            return jp_fail(p, "cannot assign to '%s'", reserved[i]);
    TRY(jp_node(p, NODE_NAME, out));
    TRY(jp_intern(p, p->now.chars, &(*out)->name));
    TRY(jp_advance(p));
    if (with_namespace && jp_is_op(p, OP('.', 0))) {
        TRY(jp_advance(p));
        if (p->now.kind != TOK_NAME)
            return jp_unexpected(p, "a name");
        (*out)->type = NODE_NAMESPACE_REF;
        (*out)->chars = p->now.chars;
        TRY(jp_advance(p));
    }
    return LACE_OK;
}

lace_status jp_target(parser *p, bool with_tuple, bool with_namespace, node **out)
{
    TRY(parse_one_target(p, with_namespace, out));
    if (!with_tuple || !jp_is_op(p, OP(',', 0)))
        return LACE_OK;
    node *item;
    node_list list;
    TRY(begin_list(p, NODE_TUPLE, out, &list));
    while (jp_is_op(p, OP(',', 0))) {
        TRY(jp_advance(p));
        if (p->now.kind != TOK_NAME && !jp_is_op(p, OP('(', 0)))
            break;
        TRY(parse_one_target(p, with_namespace, &item));
        jp_list_add(&list, item);
    }
    return LACE_OK;
}
