/*
 * What a grammar says, before it becomes an automaton: rules, each a regular expression over
 * characters and other rules. GBNF, regexes and JSON schemas are all read into this form.
 *
 * Nodes live in the arena of their grammar and may be shared. Building never fails visibly: when
 * memory or the budget of nodes is out, the grammar remembers it, builders give harmless nodes, and
 * grammar_ast_check says so at the end.
 */
#ifndef LACE_GRAMMAR_GRAMMAR_AST_H
#define LACE_GRAMMAR_GRAMMAR_AST_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/work_limit.h"

enum {
    GRAMMAR_MAX_TEXT = 1 << 20,    /* bytes of a grammar's or schema's text */
    GRAMMAR_MAX_DEPTH = 128,       /* of groups, of nested schemas */
    GRAMMAR_MAX_NODES = 500000,    /* of all rules */
    GRAMMAR_MAX_REPEAT = 1000000,  /* the largest number in {m,n} */
    GRAMMAR_MAX_MEMORY = 64 << 20, /* bytes of nodes */
};

typedef struct code_range {
    uint32_t low, high; /* code points, both included */
} code_range;

typedef enum grammar_node_kind {
    NODE_EMPTY,  /* matches the empty text */
    NODE_SET,    /* one character of a set */
    NODE_BYTES,  /* these bytes */
    NODE_SEQ,    /* the children one after the other */
    NODE_ALT,    /* any one of the children; none of them: nothing matches */
    NODE_REPEAT, /* the child min to max times */
    NODE_RULE,   /* another rule */
    NODE_NET,    /* a small graph: any way from point 0 to the last point */
    /* Only in what char_automaton.h combines: */
    NODE_START, /* the beginning of the text */
    NODE_END,   /* its end */
    NODE_LOOK,  /* the rest begins with the child; not, if min is 1 */
} grammar_node_kind;

typedef struct grammar_node grammar_node;

typedef struct grammar_edge {
    uint32_t from, to;
    const grammar_node *node; /* what is matched on the way */
} grammar_edge;

struct grammar_node {
    grammar_node_kind kind;
    uint32_t n;        /* of what the pointer leads to; NODE_RULE: the rule */
    uint32_t min, max; /* NODE_REPEAT; max may be GRAMMAR_NO_MAX. NODE_NET: max is its points */
    union {
        const code_range *ranges; /* NODE_SET: ascending, apart from each other */
        const char *bytes;        /* NODE_BYTES */
        const grammar_node **children;
        const grammar_edge *edges; /* NODE_NET */
    };
};

#define GRAMMAR_NO_MAX UINT32_MAX

typedef struct grammar_rule {
    text name;                /* for messages; "" if the grammar's text gave none */
    const grammar_node *body; /* NULL: not defined yet */
} grammar_rule;

typedef struct grammar_ast {
    arena memory;
    grammar_rule *rules; /* [n_rules] */
    uint32_t n_rules, rules_capacity;
    uint32_t root;
    uint32_t n_nodes;
    bool is_too_large;                 /* the budget of nodes is spent */
    bool is_out_of_memory;             /* or memory is */
    work_limit *limit;                 /* on reading and compiling; NULL: none. Borrowed */
    const struct grammar_vocab *vocab; /* whose marks grammar_marked knows; NULL: none. Borrowed */
} grammar_ast;

void grammar_ast_init(grammar_ast *g);
void grammar_ast_deinit(grammar_ast *g);

/* LACE_E_GRAMMAR or LACE_E_NOMEM if something could not be built. */
lace_status grammar_ast_check(const grammar_ast *g, lace_error *err);

/* A new rule without a body; the name is borrowed. */
uint32_t grammar_add_rule(grammar_ast *g, text name);

const grammar_node *grammar_empty(grammar_ast *g);
/* Ranges in any order; they are copied. */
const grammar_node *grammar_set(grammar_ast *g, const code_range *ranges, size_t n);
const grammar_node *grammar_bytes(grammar_ast *g, const char *bytes, size_t n); /* copied */
const grammar_node *grammar_text(grammar_ast *g, const char *terminated);
/* A text in which every mark of the vocabulary is that one token. */
const grammar_node *grammar_marked(grammar_ast *g, text chars);
/* Any text, as long as the word (valid UTF-8, not empty) is not in it. */
const grammar_node *grammar_without(grammar_ast *g, text word);
const grammar_node *grammar_list(grammar_ast *g, grammar_node_kind kind,
                                 const grammar_node *const *children, size_t n);
const grammar_node *grammar_repeat(grammar_ast *g, const grammar_node *child, uint32_t min,
                                   uint32_t max);
const grammar_node *grammar_use(grammar_ast *g, uint32_t rule);
const grammar_node *grammar_net(grammar_ast *g, uint32_t n_points, const grammar_edge *edges,
                                size_t n_edges);

const grammar_node *grammar_mark(grammar_ast *g, grammar_node_kind kind); /* NODE_START, NODE_END */
const grammar_node *grammar_look(grammar_ast *g, const grammar_node *child, bool is_negative);

#define GRAMMAR_COUNT(...)                                                                         \
    (sizeof((const grammar_node *[]){__VA_ARGS__}) / sizeof(const grammar_node *))
#define GRAMMAR_SEQ(g, ...)                                                                        \
    grammar_list(g, NODE_SEQ, (const grammar_node *[]){__VA_ARGS__}, GRAMMAR_COUNT(__VA_ARGS__))
#define GRAMMAR_ALT(g, ...)                                                                        \
    grammar_list(g, NODE_ALT, (const grammar_node *[]){__VA_ARGS__}, GRAMMAR_COUNT(__VA_ARGS__))

/* A list of ranges that grows; a set in the making. */
typedef struct code_set {
    code_range *ranges;
    size_t n, capacity;
} code_set;

bool code_set_add(code_set *s, uint32_t low, uint32_t high); /* false: out of memory */
void code_set_sort(code_set *s);                             /* ascending, joined */
bool code_set_invert(code_set *s);                           /* of all code points but surrogates */
void code_set_deinit(code_set *s);

/* Lists of nodes in the making. */
typedef struct node_list {
    const grammar_node **nodes;
    size_t n, capacity;
} node_list;

bool node_list_add(node_list *l, const grammar_node *node); /* false: out of memory */
void node_list_deinit(node_list *l);

/* Edges of a graph in the making. */
typedef struct edge_list {
    grammar_edge *data;
    size_t n, capacity;
    bool is_out_of_memory;
} edge_list;

void edge_list_add(edge_list *l, uint32_t from, uint32_t to, const grammar_node *node);
void edge_list_deinit(edge_list *l);

/* ---- The readers ----------------------------------------------------------------------------- */

/* llama.cpp's GBNF; the root is the rule of that name. LACE_E_GRAMMAR names line and column. */
lace_status grammar_read_gbnf(grammar_ast *g, text source, lace_error *err);

/*
 * A regular expression in the syntax of JavaScript, as far as it describes a regular language;
 * what it cannot do is refused by name. For a `regex` the whole text must match. In JSON, as the
 * "pattern" of a schema, the match may lie anywhere unless ^ and $ say otherwise, and characters
 * are those of a JSON string without its quotes, escaped as JSON demands.
 */
typedef struct regex_options {
    bool is_json;
    bool is_part; /* for grammar_all_of: characters as they are, with marks and look-aheads */
} regex_options;

/* A set as JSON writes its characters in a string. */
const grammar_node *grammar_json_set(grammar_ast *g, const code_set *sorted);

/* *min_length and *max_length (may be NULL): characters that a match has; GRAMMAR_NO_MAX: any. */
lace_status grammar_read_regex(grammar_ast *g, text source, const regex_options *options,
                               const grammar_node **out, uint32_t *min_length, uint32_t *max_length,
                               lace_error *err);

/* A JSON schema, as text. Keywords that cannot be honoured are refused by name. */
lace_status grammar_read_schema(grammar_ast *g, text source, lace_error *err);

/* The same as a node, inside of another grammar. */
lace_status grammar_read_schema_node(grammar_ast *g, text source, const grammar_node **out,
                                     lace_error *err);

/* Any JSON object. */
lace_status grammar_read_json_object(grammar_ast *g, lace_error *err);

#endif
