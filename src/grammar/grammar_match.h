/*
 * Walking a grammar's automaton along a text, and the tokens that may come next.
 *
 * A position in a grammar is a set of threads, each a state, a count and a stack of states to go on
 * in. Stacks share their lower parts: a frame is a state and the frame below it, and equal stacks
 * are the same frame. Threads that could only end or call are followed at once, so that a position
 * holds those that wait for a byte.
 *
 * Masks: which tokens match is for the most part a matter of a thread's state alone, whatever lies
 * on its stack: a token either fails or stays within the rule. That part is computed once for a
 * state (a "local" set), by walking the tree of tokens. Only tokens that leave the rule in their
 * middle need the stack; their places in the tree are kept as exits, and the walk goes on from
 * there when a mask is made. Whole masks are kept too, by the position.
 *
 * A core is what a grammar is for a vocabulary: its automaton, and the local sets of as many states
 * as could be prepared. It never changes, and is shared by threads. A matcher has what is found out
 * on the way; it and its positions are used by one thread at a time.
 */
#ifndef LACE_GRAMMAR_GRAMMAR_MATCH_H
#define LACE_GRAMMAR_GRAMMAR_MATCH_H

#include "grammar/grammar_automaton.h"
#include "grammar/grammar_vocab.h"

typedef struct grammar_core grammar_core;
typedef struct grammar_matcher grammar_matcher;
typedef struct grammar_position grammar_position;

/*
 * Takes the automaton, also on failure; the vocabulary must outlive the core. Prepares local sets
 * as far as that takes some milliseconds; the others come as they are needed. Refuses a
 * grammar whose beginning is too ambiguous.
 */
lace_status grammar_core_create(grammar_automaton *a, const grammar_vocab *v, grammar_core **out,
                                lace_error *err);
grammar_core *grammar_core_ref(grammar_core *core);
void grammar_core_unref(grammar_core *core); /* NULL is fine */
size_t grammar_core_bytes(const grammar_core *core);

lace_status grammar_matcher_create(grammar_core *core, grammar_matcher **out, lace_error *err);
void grammar_matcher_free(grammar_matcher *m); /* after its positions; NULL is fine */

/* A limit (NULL: none) on what masks take from now on, which is borrowed. */
void grammar_matcher_limit(grammar_matcher *m, work_limit *limit);

lace_status grammar_position_create(grammar_matcher *m, grammar_position **out, lace_error *err);
lace_status grammar_position_clone(const grammar_position *p, grammar_position **out,
                                   lace_error *err);
void grammar_position_free(grammar_position *p);

/* Go on by some bytes, or by a token. LACE_E_GRAMMAR if they do not match; then nothing changes. */
lace_status grammar_position_advance(grammar_position *p, text bytes, lace_error *err);
lace_status grammar_position_accept(grammar_position *p, lace_token token, lace_error *err);

/*
 * The tokens that may come next: bit t % 64 of word t / 64 is set for token t. Ends are among them
 * if the text may end here. Valid until the next call with any position of the matcher.
 * LACE_E_GRAMMAR if there are none, LACE_E_LIMIT if the grammar is too ambiguous to tell. What a
 * limit has stopped may be asked for again; nothing has changed.
 */
lace_status grammar_position_allowed(grammar_position *p, const uint64_t **out, lace_error *err);

bool grammar_position_is_complete(const grammar_position *p); /* the text may end here */
bool grammar_position_is_finished(const grammar_position *p); /* and nothing else may follow */

/* For tests and figures. */
typedef struct grammar_counts {
    uint64_t n_masks_made, n_masks_found; /* computed, and taken from the store */
    uint64_t n_locals;                    /* local sets computed */
    uint64_t n_frames;                    /* now */
} grammar_counts;

void grammar_matcher_count(const grammar_matcher *m, grammar_counts *out);

#endif
