/* What the two halves of the matcher share: grammar_match.c walks, grammar_mask.c makes masks. */
#ifndef LACE_GRAMMAR_GRAMMAR_MATCH_IMPL_H
#define LACE_GRAMMAR_GRAMMAR_MATCH_IMPL_H

#include <stdatomic.h>

#include "base/hash.h"
#include "grammar/grammar_match.h"

enum {
    FRAME_BOTTOM = 0,  /* below the root rule: popping it means that the text is complete */
    FRAME_UNKNOWN = 1, /* below a state whose local set is computed: whatever is there */
    MAX_DEPTH = 2048,  /* frames of a stack; a thread that wants more is given up */
    MAX_SEEN = 1024,   /* threads that one byte may lead to */
    SEEN_SLOTS = 4096, /* of the table that finds them; a power of two */
};

typedef struct grammar_thread {
    uint32_t state;
    uint32_t count; /* rounds done, in a rule that counts; at most its min if it has no max */
    uint32_t frame;
} grammar_thread;

typedef struct grammar_frame {
    uint32_t then; /* the state to go on in */
    uint32_t below;
    uint32_t depth;
} grammar_frame;

typedef struct thread_list {
    grammar_thread *data;
    uint32_t n;
    size_t capacity;
} thread_list;

/* A place in the tree of tokens where a rule may be left, after so many rounds. */
typedef struct local_exit {
    uint32_t node;
    uint32_t n_rounds;
} local_exit;

/* The tokens that a state takes without looking at the stack, and where it may be left. */
typedef struct local_set {
    uint32_t n_tokens;
    lace_token *tokens; /* [n_tokens]; by rounds for rules that count; NULL where bits suffice */
    uint32_t *n_within; /* rules that count: [256] how many tokens need at most so many rounds */
    uint64_t *bits;     /* all tokens; NULL if they are few */
    local_exit *exits;  /* those with something below them in the tree */
    uint32_t n_exits;
} local_set;

struct grammar_core {
    grammar_automaton a;
    const grammar_vocab *v;
    local_set **prepared; /* [n_states]; NULL: not prepared */
    size_t n_bytes;       /* of all of it */
    atomic_int n_users;
};

/* A thread that was seen in this closure, by a table. */
typedef struct seen_slot {
    uint32_t stamp; /* of the closure */
    uint32_t at;    /* in the list */
} seen_slot;

struct grammar_matcher {
    grammar_core *core;
    const grammar_automaton *a; /* the core's, as v */
    const grammar_vocab *v;
    work_limit *limit; /* on masks; NULL: none */
    size_t n_words;    /* of a mask */
    grammar_position *positions;

    /* Frames, found again by a table of 1 + index, 0: empty. */
    grammar_frame *frames;
    uint32_t n_frames, frames_capacity;
    uint32_t *frame_table; /* [n_frame_slots], a power of two */
    uint32_t n_frame_slots;
    uint32_t frames_limit; /* when to throw away those that no position uses */

    /* Scratch of following one byte: see close_thread. */
    thread_list work, seen;
    seen_slot *slots; /* [SEEN_SLOTS] */
    uint32_t stamp;
    bool is_complete;     /* the bottom was popped */
    bool is_left;         /* FRAME_UNKNOWN was popped */
    uint32_t left_rounds; /* after so many rounds */
    bool is_relative; /* rounds of threads on FRAME_UNKNOWN are counted from 0, without limits */
    bool is_out_of_memory;
    bool is_too_ambiguous;
    bool is_stopped;  /* by the limit */
    uint64_t n_steps; /* since mask or accept began */

    /* Scratch of walking the tree: the threads at each depth, one stretch behind the other. */
    thread_list walk;
    uint32_t *begin; /* [max_depth + 2] */
    lace_token *found;
    uint8_t *needs; /* [n_vocab] rounds that each found token needs */
    uint32_t n_found;
    local_exit *exits;
    uint32_t n_exits;
    size_t exits_capacity;

    local_set **locals; /* [n_states] those that the core does not have; NULL: not made */
    size_t local_bytes;

    /* Masks by position. */
    map mask_of;
    arena mask_memory;
    uint64_t **masks;
    uint32_t n_masks;
    uint64_t *scratch_mask; /* [n_words] */
    grammar_counts counts;
};

struct grammar_position {
    grammar_matcher *m;
    grammar_position *previous, *following; /* of m->positions */
    thread_list threads;                    /* sorted */
    bool is_complete;
    bool is_ended; /* an end token was accepted */
};

bool thread_list_add(thread_list *l, grammar_thread t);

/*
 * Follow a thread through everything that needs no byte, and add what then waits for one to `out`.
 * matcher_begin_closure starts the list of what was seen, so that nothing is followed twice.
 */
void matcher_begin_closure(grammar_matcher *m);
void matcher_close(grammar_matcher *m, grammar_thread t, thread_list *out);

/*
 * Where a byte leads all threads of from[0..n): added to `out`, which may be the list that they are
 * in. False if nowhere.
 */
bool matcher_step(grammar_matcher *m, const thread_list *from, uint32_t begin, uint32_t end,
                  uint8_t byte, thread_list *out);

/* What went wrong in the calls above, if anything. */
lace_status matcher_check(grammar_matcher *m, lace_error *err);

/* grammar_mask.c */
lace_status masks_init(grammar_matcher *m, lace_error *err);
void masks_prepare(grammar_matcher *m); /* moves the local sets that can be made to the core */
void local_set_free(local_set *l);      /* NULL is fine */
void masks_deinit(grammar_matcher *m);
void masks_forget(grammar_matcher *m); /* frames are about to change their numbers */

#endif
