/*
 * A template as a tree of nodes, and the tokens that it is parsed from. Inside src/chat only.
 */
#ifndef LACE_JINJA_JINJA_AST_H
#define LACE_JINJA_JINJA_AST_H

#include "base/arena.h"
#include "base/hash.h"
#include "jinja/jinja.h"
#include "jinja/jinja_value.h"

/* ---- Tokens ---------------------------------------------------------------------------------- */

typedef enum token_kind {
    TOK_END,
    TOK_DATA,           /* text between tags; `chars` */
    TOK_VARIABLE_BEGIN, /* {{ */
    TOK_VARIABLE_END,
    TOK_BLOCK_BEGIN, /* {% */
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING, /* `chars`, escapes resolved */
    TOK_INT,
    TOK_FLOAT,
    TOK_OP, /* `op`: its first two characters as a number, see OP() */
} token_kind;

#define OP(a, b) ((a) | (b) << 8)

typedef struct token {
    token_kind kind;
    int op;
    uint32_t line;
    text chars; /* what to show in messages, too */
    int64_t integer;
    double number;
} token;

typedef struct lexer {
    text source;
    size_t at;
    uint32_t line;
    token_kind tag;      /* TOK_VARIABLE_BEGIN or TOK_BLOCK_BEGIN while inside; TOK_DATA outside */
    bool is_line_start;  /* the last tag took the end of its line along */
    token_kind next_tag; /* the tag to give after the data before it; TOK_END: none */
    char brackets[JINJA_MAX_NESTING]; /* closing ones that are awaited */
    int n_brackets;
    arena *heap; /* for strings with escapes */
    lace_error *err;
} lexer;

void jinja_lex_init(lexer *lex, text source, arena *heap, lace_error *err);
lace_status jinja_lex_next(lexer *lex, token *out);

/* ---- Nodes ----------------------------------------------------------------------------------- */

typedef enum binary_op {
    BINARY_ADD,
    BINARY_SUB,
    BINARY_MUL,
    BINARY_DIV,
    BINARY_FLOORDIV,
    BINARY_MOD,
    BINARY_POW,
} binary_op;

typedef enum compare_op {
    COMPARE_EQ,
    COMPARE_NE,
    COMPARE_LT,
    COMPARE_LE,
    COMPARE_GT,
    COMPARE_GE,
    COMPARE_IN,
    COMPARE_NOT_IN,
} compare_op;

/* Each line: the node, then what its fields hold. Lists are linked by `next`. */
typedef enum node_type {
    /* Expressions */
    NODE_CONST,        /* value */
    NODE_NAME,         /* name */
    NODE_LIST,         /* items */
    NODE_TUPLE,        /* items */
    NODE_DICT,         /* items: key, value, key, value... */
    NODE_ATTR,         /* a.chars */
    NODE_ITEM,         /* a[b] */
    NODE_SLICE,        /* items[0]: a, then begin, end, step (NODE_NOTHING if left out) */
    NODE_NOTHING,      /* a part that was left out */
    NODE_CALL,         /* a(items); items may be of type NODE_NAMED, _SPREAD and _SPREAD_NAMED */
    NODE_NAMED,        /* chars = a */
    NODE_SPREAD,       /* *a */
    NODE_SPREAD_NAMED, /* **a */
    NODE_FILTER,       /* a | chars(items); a is NULL in a filter block */
    NODE_TEST,         /* a is chars(items) */
    NODE_NOT,          /* not a */
    NODE_NEGATE,       /* -a */
    NODE_PLUS,         /* +a */
    NODE_BINARY,       /* a op b */
    NODE_AND,          /* a, b */
    NODE_OR,           /* a, b */
    NODE_COMPARE,      /* a, then items, each with its op */
    NODE_CONCAT,       /* items, by ~ */
    NODE_COND,         /* a if b else c; c may be NULL */
    /* Statements */
    NODE_DATA,          /* chars */
    NODE_OUTPUT,        /* a */
    NODE_IF,            /* if a: body; else: more, which may be one further NODE_IF (elif) */
    NODE_FOR,           /* for a in b if c: body; else: more; flag: recursive */
    NODE_SET,           /* a = b */
    NODE_SET_BLOCK,     /* a = body, through the filters in b if not NULL */
    NODE_NAMESPACE_REF, /* name.chars, as a target */
    NODE_MACRO,         /* name, parameters as items (NODE_PARAM), body */
    NODE_PARAM,         /* name, default a or NULL */
    NODE_CALL_BLOCK,    /* call a, with body as the macro caller; parameters as items */
    NODE_FILTER_BLOCK,  /* body through the filters a */
    NODE_WITH,          /* items of NODE_SET, body */
    NODE_SCOPE,         /* body with variables of its own (generation) */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_N_TYPES
} node_type;

/* What a macro's body names, and is therefore given. */
enum { MACRO_CALLER = 1, MACRO_VARARGS = 2, MACRO_KWARGS = 4 };

typedef struct node node;
struct node {
    node_type type;
    int op; /* binary_op, compare_op, or MACRO_... */
    uint32_t line;
    uint32_t name; /* number of a name */
    bool flag;
    node *next;
    node *a, *b, *c;
    node *items, *body, *more;
    text chars;
    const jinja_builtin *builtin; /* of a filter or test; NULL: there is none of that name */
    jv value;
};

struct jinja {
    arena heap;
    text source;
    node *body;
    map names;        /* text to number */
    text *name_texts; /* [n_names] */
    size_t n_names;
};

/* ---- Parser ---------------------------------------------------------------------------------- */

typedef struct parser {
    lexer lex;
    token now, ahead; /* two tokens of it */
    jinja *template;
    size_t names_capacity;
    int depth;
    int n_loops;     /* that a break could leave */
    int macro_needs; /* MACRO_... of the macro being parsed */
    lace_error *err;
} parser;

/* A list under construction: {&first}. */
typedef struct node_list {
    node **end;
} node_list;

void jp_list_add(node_list *list, node *n);
lace_status jp_advance(parser *p);
lace_status jp_node(parser *p, node_type type, node **out);
__attribute__((format(printf, 2, 3))) lace_status jp_fail(parser *p, const char *format, ...);
lace_status jp_no_space(parser *p); /* the tree is full, or memory is out */
lace_status jp_unexpected(parser *p, const char *expected);
lace_status jp_enter(parser *p); /* one level deeper; p->depth-- leaves it */
bool jp_is_op(const parser *p, int op);
bool jp_is_name(const parser *p, const char *name);
lace_status jp_expect_op(parser *p, int op, const char *shown);
lace_status jp_intern(parser *p, text name, uint32_t *out);

/* Expressions; a tuple may be written without brackets where `jp_tuple` is used. */
lace_status jp_expression(parser *p, bool with_condition, node **out);
lace_status jp_tuple(parser *p, bool with_condition, node **out);
lace_status jp_target(parser *p, bool with_tuple, bool with_namespace, node **out);
lace_status jp_filters(parser *p, node *first, bool starts_inline, node **out);

#endif
