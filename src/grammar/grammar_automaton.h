/*
 * The one form that all grammars are compiled to: a deterministic automaton over bytes for each
 * rule, which may call other rules, and so together a pushdown automaton.
 *
 * A state has transitions on bytes, and calls: "run this rule, then go on in that state". A rule is
 * over in a state that accepts. Where several things are possible at once (a byte or a call, a call
 * or the end), whoever walks the automaton follows all of them; see grammar_match.h.
 *
 * "Between m and n characters" would need a state for each number. Rules for such repetitions count
 * instead: they begin in a state that is entered again after each round, and the walker knows how
 * often. Rounds of such a rule cannot be told apart in two ways, and call no other rule.
 */
#ifndef LACE_GRAMMAR_GRAMMAR_AUTOMATON_H
#define LACE_GRAMMAR_GRAMMAR_AUTOMATON_H

#include "grammar/grammar_ast.h"

enum {
    STATE_ACCEPTS = 1,   /* the rule may end here */
    STATE_HAS_BYTES = 2, /* some byte leads on */
    STATE_HAS_CALLS = 4, /* some rule may be called */
};

enum { STATE_DEAD = 0 }; /* where bytes lead that do not match */

typedef struct grammar_call {
    uint32_t start; /* the first state of the rule that is called */
    uint32_t then;  /* where to go on */
} grammar_call;

typedef struct grammar_counter {
    uint32_t start;    /* the state at the beginning of a round */
    uint32_t min, max; /* rounds; max may be GRAMMAR_NO_MAX */
} grammar_counter;

typedef struct grammar_automaton {
    uint8_t classes[256]; /* bytes that no state tells apart have the same class */
    uint32_t n_classes;
    uint32_t n_states;
    uint32_t start;
    uint32_t *next;       /* [n_states, n_classes] */
    uint8_t *flags;       /* [n_states] of STATE_ACCEPTS ... */
    uint32_t *first_call; /* [n_states + 1] into calls */
    grammar_call *calls;
    uint32_t
        *counter_of; /* [n_states] 1 + index into counters; 0: the state's rule does not count */
    grammar_counter *counters;
    uint32_t n_counters;
} grammar_automaton;

/*
 * Compile. LACE_E_GRAMMAR for rules without a body, left recursion, a root that matches no text,
 * and what needs too many states.
 */
lace_status grammar_compile(const grammar_ast *g, grammar_automaton *out, lace_error *err);
void grammar_automaton_deinit(grammar_automaton *a);

static inline uint32_t grammar_next(const grammar_automaton *a, uint32_t state, uint8_t byte)
{
    return a->next[(size_t)state * a->n_classes + a->classes[byte]];
}

/* Nothing can follow in this state but the rule's end. */
static inline bool grammar_ends(const grammar_automaton *a, uint32_t state)
{
    return a->flags[state] == STATE_ACCEPTS && a->counter_of[state] == 0;
}

/* ---- Inside the compiler --------------------------------------------------------------------- */

/* A nondeterministic automaton in the making: what one rule becomes first. */
typedef enum nfa_edge_kind { EDGE_EMPTY, EDGE_BYTES, EDGE_CALL } nfa_edge_kind;

typedef struct nfa_edge {
    uint8_t kind;
    uint8_t low, high; /* EDGE_BYTES */
    uint32_t rule;     /* EDGE_CALL: a unit, see below */
    uint32_t to;
    uint32_t next; /* of the same state; 0: none */
} nfa_edge;

/* What gets an automaton of its own: a rule that is used, or a repetition that counts. */
typedef struct nfa_unit {
    const grammar_node *node;
    uint32_t start, end; /* NFA states */
    bool counts;
    uint32_t min, max;
    text name;
} nfa_unit;

typedef struct nfa {
    uint32_t *first_edge; /* [n_states] into edges; 0: none */
    uint32_t n_states;
    size_t states_capacity;
    nfa_edge *edges; /* edges[0] is not used */
    uint32_t n_edges;
    size_t edges_capacity;
    nfa_unit *units;
    uint32_t n_units;
    size_t units_capacity;
    uint32_t *unit_of_rule; /* [n_rules] 1 + unit; 0: not used yet */
    bool is_boundary[257];  /* a byte range begins here */
    bool is_too_large;      /* the budget is spent */
    bool is_out_of_memory;  /* or memory is */
    const grammar_rule *rules;
    work_limit *limit;
} nfa;

/* The NFAs of all rules that are reached from the root, which is unit 0. */
lace_status nfa_build(nfa *n, const grammar_ast *g, lace_error *err);
void nfa_deinit(nfa *n);

/*
 * Cut off what never reaches the end of its rule, and refuse left recursion and a root without a
 * text. `starts` are the first states of the units, ascending.
 */
lace_status grammar_check(grammar_automaton *a, const uint32_t *starts, const nfa_unit *units,
                          uint32_t n_units, lace_error *err);

#endif
