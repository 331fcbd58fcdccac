/*
 * Regular languages over characters, as deterministic automata: what a grammar's nodes cannot say by
 * themselves. A text that must match several expressions, none of another, or have a length besides
 * is one automaton, and becomes a node again, a graph.
 *
 * Characters that no expression tells apart are of one class. All automata of one alphabet can be
 * combined.
 */
#ifndef LACE_GRAMMAR_CHAR_AUTOMATON_H
#define LACE_GRAMMAR_CHAR_AUTOMATON_H

#include "grammar/grammar_ast.h"

enum {
    CHAR_MAX_STATES = 30000,
    CHAR_MAX_TABLE = 4 << 20, /* states times classes */
};

typedef struct char_alphabet {
    uint32_t *cuts; /* [n_cuts + 1] ascending; characters from one to the next are of one class */
    uint32_t n_cuts;
    uint32_t *class_of; /* [n_cuts] */
    uint32_t n_classes;
} char_alphabet;

/* State 0 is where nothing matches any more. */
typedef struct char_automaton {
    uint32_t n_states, capacity, n_classes;
    uint32_t start;
    uint32_t *next; /* [n_states, n_classes] */
    bool *accepts;  /* [n_states] */
} char_automaton;

/* What making automata shares. */
typedef struct char_maker {
    grammar_ast *g; /* its limit holds */
    char_alphabet alphabet;
    struct char_look *looks; /* automata of look-aheads */
    uint32_t n_looks, looks_capacity;
    lace_error *err;
} char_maker;

/*
 * The texts that match all nodes and have from min to max characters, as a node; is_json: written
 * as in a JSON string. Nodes are made of sets, sequences, alternatives, repetitions, look-aheads and
 * the ends of a text. LACE_E_GRAMMAR if that is too large.
 */
lace_status grammar_all_of(grammar_ast *g, const grammar_node *const *nodes, size_t n, uint32_t min,
                           uint32_t max, bool is_json, const grammar_node **out, lace_error *err);

/* ---- Inside ---------------------------------------------------------------------------------- */

/* char_subset.c: the texts that match a node; is_open: and what begins with one. */
lace_status char_compile(char_maker *m, const grammar_node *node, bool is_open,
                         char_automaton *out);
void char_looks_deinit(char_maker *m);

lace_status char_too_large(const char_maker *m);
/* A state more, which leads nowhere. */
lace_status char_add_state(char_maker *m, char_automaton *a, uint32_t *out);
void char_automaton_deinit(char_automaton *a);
/* The same language with as few states as possible. */
lace_status char_minimize(char_maker *m, char_automaton *a);

#endif
