/*
 * Inside the batcher: who runs, and what the files of it ask of each other.
 *
 *     generation.c    chooses a token and turns it into text
 *     batcher.c       which generations run, wait, and give way
 *     advance.c       what a step computes for those that run, and what comes of it
 *     step_size.c     how many rows a step has
 *     flight.c        steps under way, while the host does something else
 *     ahead.c         a device that works ahead of the host
 *     guess.c         where guesses come from
 *     guess_plan.c    how many of them pay
 *     late_choice.c   choices that take long
 */
#ifndef LACE_ENGINE_BATCHER_H
#define LACE_ENGINE_BATCHER_H

#include <stdatomic.h>

#include "engine/generation.h"
#include "engine/late_choice.h"
#include "engine/step_size.h"
#include "state/prefix_tree.h"

enum { GUESSING_MOST = 4 }; /* generations for which tokens are guessed always */

typedef struct generation_list {
    lace_generation *first;
    int32_t n;
} generation_list;

/* What a step under way computes for one generation. */
typedef struct flight_row {
    lace_generation *g; /* NULL: it has gone, or goes on from something else */
    int32_t n;          /* tokens of its text */
    int32_t row;        /* of the logits, the first; -1: none */
} flight_row;

typedef struct flight {
    flight_row *rows; /* [n_sequences] */
    int32_t n_rows, n_outputs;
    size_t n_items;
    uint64_t begun_ns, submitted_ns;
} flight;

struct lace_batcher {
    lace_model *model;
    lace_batcher_options options;
    lace_session *session;
    lace_item *items;              /* [n_batch] */
    choice_rule *rules;            /* [n_outputs] of a batch; NULL: on the CPU */
    lace_generation **by_sequence; /* [n_sequences] see flight_map_sequences */
    bool *is_used;                 /* [n_sequences] */
    lace_token *ends;              /* [n_ends] */
    size_t n_ends;
    prefix_tree *prefixes;            /* NULL: not used */
    page_store *store;                /* of the tree; NULL: none */
    generation_list running, waiting; /* oldest first */
    generation_list late;             /* sit out while their choice is made; they keep their KV */
    late_choice *chooser;
    flight flights[PROGRAM_SLOTS]; /* under way are n_flights, the oldest is at first_flight */
    int32_t first_flight, n_flights;
    uint64_t collected_ns;  /* when the last one was */
    uint64_t planned_ns;    /* the same, by the plan's clock */
    uint64_t queuing_ns[2]; /* what it took to put the last two steps together and queue them */
    step_size size;
    lace_session *draft; /* NULL: none */
    guess_source source;
    guess_plan plan;
    bool rests;                /* the device computes while nobody waits for it */
    int32_t n_hurried;         /* steps to come for which nobody rests, see flight.c */
    bool guesses;              /* tokens are guessed where it pays */
    bool is_guessing;          /* they were in the last step that could have them */
    int32_t n_plain;           /* steps since then that could have none */
    int32_t same_tokens;       /* of a batch, if deterministic or with guesses; see program */
    _Atomic int64_t choose_ns; /* left for masks of this step */
    lace_batcher_stats stats;
};

/* ---- batcher.c ------------------------------------------------------------------------------- */

bool batcher_uses_prefixes(const lace_batcher *b, const lace_generation *g);

/* Give up what is kept for others until the demand can be met. False if it cannot. */
bool batcher_make_room(lace_batcher *b, const page_demand *demand);

/* The youngest gives its memory back and waits, before all others. False if it is the only one. */
bool batcher_give_way(lace_batcher *b);

/* The context of a generation is full: it goes on with other tokens, or ends. */
void batcher_refill(lace_batcher *b, lace_generation *g);

/* Deliver the last piece; the generation is gone. */
void batcher_end(lace_batcher *b, lace_generation *g);

/* ---- advance.c ------------------------------------------------------------------------------- */

/*
 * Take a token that a device has chosen and computed ahead, where one generation has the batcher to
 * itself. False if nobody works ahead, or no longer.
 */
bool advance_ahead(lace_batcher *b);

/*
 * Queue a batch; of the one before, or where nothing is to be queued meanwhile of this one, choose and
 * deliver. False if there was nothing to do.
 */
bool advance_batch(lace_batcher *b);

/* How long the next step may still be put off, so that what comes meanwhile is in it; see lace.h. */
uint64_t advance_rest_ns(const lace_batcher *b);

/* Give out what was chosen for a generation. False: its text ends, or goes on in another context. */
bool advance_deliver(lace_batcher *b, lace_generation *g, uint64_t now);

/* ---- flight.c -------------------------------------------------------------------------------- */

lace_status flights_create(lace_batcher *b, lace_error *err);
void flights_free(lace_batcher *b);

/* Who has which sequence: b->by_sequence. */
void flight_map_sequences(lace_batcher *b);

/* Queue b->items, chosen from by b->rules. If that fails, the generations in it end. */
void flight_submit(lace_batcher *b, size_t n_items);

/*
 * Wait for the oldest step: its generations have computed more, and have their rows. False if it
 * failed; they have ended then.
 */
bool flight_collect(lace_batcher *b, int32_t *n_choosing);

/* When the oldest step has begun, and what it takes. */
typedef struct flight_times {
    uint64_t begin_ns, takes_ns; /* takes_ns: 0: not known */
} flight_times;

flight_times flight_time(const lace_batcher *b);

/* What is under way for a generation is of no use to it. */
void flight_forget(lace_batcher *b, lace_generation *g);

/* The same; its sequence goes back to what is computed, or to where its state can still be had. */
void flight_take_back(lace_batcher *b, lace_generation *g);

#endif
