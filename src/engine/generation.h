/*
 * A generation: one text on its way, inside the batcher.
 *
 * A generation chooses: a token from its row of logits, by its sampler and its grammar, and turns
 * it into text. What is computed for it is the batcher's business (batcher.h). Choosing runs on any
 * worker, each generation on one; everything else on the batcher's thread.
 */
#ifndef LACE_ENGINE_GENERATION_H
#define LACE_ENGINE_GENERATION_H

#include "base/buf.h"
#include "engine/ahead.h"
#include "engine/guess.h"
#include "engine/watch.h"

typedef enum generation_state {
    GENERATION_WAITING,
    GENERATION_RUNNING,
    GENERATION_LATE, /* its next token is being chosen, see late_choice.h */
} generation_state;

struct lace_generation {
    lace_generation *next; /* in the list of its state */
    generation_state state;
    const lace_model *model;
    lace_generation_options options; /* its pointers are into `memory` */
    arena memory;
    float *adapter_scales; /* [adapters of the model] */
    uint64_t owner;        /* of what its text begins with: options.owner, and the adapters */

    lace_token *tokens; /* [capacity] prompt and reply */
    int32_t n_tokens, capacity;
    int32_t n_computed; /* tokens that are in the KV cache */
    int32_t n_queued;   /* tokens behind those that a step under way computes */
    bool is_asked;      /* for the token behind all of them */
    int32_t sequence;   /* while running; else -1 */
    ahead ahead;        /* what a device computes of it before it is asked */
    guesses guess;      /* what is checked in this step behind its newest token */
    int32_t n_context;  /* tokens that the text may have, a last one without a place among them */
    uint64_t last_step; /* number of the last one that it was in; 0: none. If deterministic */

    image_span *spans;   /* [n_images] where images are among the tokens */
    lace_image **images; /* [n_images] held */
    int32_t n_images;

    watch watch;     /* over reasoning and repetition */
    bool was_forced; /* the last token was, whatever a device has chosen */

    lace_sampler *sampler;
    lace_grammar_state *form; /* NULL: any text will do */
    decoder *decoder;
    const lace_token *ends; /* [n_ends] tokens that end a text; the batcher's */
    size_t n_ends;
    float *logits; /* [n_vocab] edited ones; NULL: no editing is needed */
    int32_t n_vocab;
    buf text;      /* decoded and not yet given out */
    size_t n_text; /* bytes of it that may be given out now */

    /* What the current step brought. */
    int32_t row; /* of the logits; -1: none in this step */
    lace_token token;
    float logprob;
    lace_logprob top[LACE_MAX_TOP];
    size_t n_top;
    lace_finish finish;
    bool is_full; /* the text goes on in another context, if the caller gives one */
    const char *stop;
    lace_error error;

    /* A choice that takes long. */
    bool is_late;                   /* it was not made in this step, and needs more time */
    bool is_chosen;                 /* by the thread for that */
    float *kept_logits;             /* [n_vocab] that it is made from; NULL: there was none yet */
    uint64_t late_ns, last_late_ns; /* that such choices have taken, and the last one */
    lace_generation *next_late;

    lace_generation_stats stats;
    uint64_t added_ns, started_ns, first_ns; /* when; 0: not yet */
};

/* Checks and copies the options. `ends` is borrowed. */
lace_status generation_create(const lace_model *lm, const lace_generation_options *options,
                              int32_t n_context, const lace_token *ends, size_t n_ends,
                              lace_generation **out, lace_error *err);
void generation_free(lace_generation *g);

/*
 * Choose the next token and append it; sets what the step brought. Failures are in g->finish. word:
 * what a device has chosen already (backend/choice.h), or CHOICE_REFUSED.
 */
void generation_choose(lace_generation *g, int32_t word, const float *logits);

/* The same within a limit. False: it was reached, and nothing was chosen; *limit says why. */
bool generation_try_choose(lace_generation *g, int32_t word, const float *logits,
                           work_limit *limit);

/*
 * How many of the next n tokens from `at` on to compute together, where rows of an image see each
 * other: it is not divided. room: the most that a batch can take; 0 comes out where the rest of an
 * image needs more.
 */
int32_t generation_cut(const lace_generation *g, int32_t at, int32_t n, int32_t room);

/* Keep the logits to choose from them later. False: out of memory. */
bool generation_keep_logits(lace_generation *g, const float *logits);

/*
 * The rule by which a card may choose the token behind n_ahead that are chosen and not known; a
 * temperature below 0 if it may not.
 */
choice_rule generation_rule(const lace_generation *g, int32_t n_ahead);

/* The context is full: ask the caller for other tokens. False: there are none, and the text ends. */
bool generation_refill(lace_generation *g);

/* Tell the caller how much of the prompt is read. */
void generation_show_prompt(lace_generation *g);

/* Give the step's piece to the caller. */
void generation_deliver(lace_generation *g);

/* End with an error: the next piece says so. */
void generation_fail(lace_generation *g, lace_status status, const lace_error *err);

#endif
