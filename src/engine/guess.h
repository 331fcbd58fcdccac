/*
 * Guesses: tokens that may come next in a text, so that a model can check several of them in one
 * evaluation.
 *
 * They come from the text itself (where its last tokens stood before, what followed?), from a layer
 * of the model that predicts further tokens (runner/predictor.h), or from a smaller model, the
 * draft, which reads along in a session of its own, one of its sequences for each text. How many
 * are made is planned (engine/guess_plan.h), where times are measured; without a plan it follows what
 * was right: two more after all were, one more than were right otherwise. Who checks them keeps the
 * count of those that are.
 */
#ifndef LACE_ENGINE_GUESS_H
#define LACE_ENGINE_GUESS_H

#include "engine/engine.h"
#include "engine/guess_plan.h"

_Static_assert((int)GUESS_MOST <= (int)STATES_TAKE_BACK, "wrong guesses are taken back");

/*
 * What the draft's sequence holds: a text from its beginning, or its first token and what stands
 * behind `start`. A draft that has much to read begins near the end.
 */
typedef struct guess_reader {
    lace_token *held; /* [n_context of the draft] */
    int32_t n_held;
    int32_t start; /* held[i] is the text's token start + i, but for the first */
    bool is_used;  /* by a text */
} guess_reader;

typedef struct guess_source {
    lace_session *draft;  /* NULL: none */
    predictor *predictor; /* of the session that checks guesses; NULL: not used */
    const lace_model *model;
    bool use_lookup;
    int32_t n_most;        /* tokens at once, 1 to GUESS_MOST */
    int32_t n_vocab;       /* tokens that the model has; the draft may have more */
    guess_reader *readers; /* [n_readers] one for each sequence of the draft that is used */
    int32_t n_readers;
    lace_item *items; /* [n_readers * n_batch of the draft] */
    guess_plan *plan; /* the caller's; NULL: none */
} guess_source;

/* Of one text. Starts as guess_none(). */
typedef struct guesses {
    lace_token tokens[GUESS_MOST];
    int32_t n;       /* that were made, and are being checked */
    int32_t n_right; /* the first of them, so far */
    int32_t n_next;  /* to be made the next time, without a plan; 0: nothing is known yet */
    int32_t reader;  /* that reads along; -1: none yet */
    guess_kind kind;
    guess_record records[N_GUESS_KINDS];
    int32_t last_at; /* tokens of the text when it last had guesses, or could have; -1: never */
} guesses;

guesses guess_none(void);

/*
 * A source for texts of a model. draft: a session (NULL: none) with n_readers sequences and outputs,
 * which must outlive it. LACE_E_VOCAB if its model has another vocabulary. After a failure there is
 * nothing to deinit. A predictor and a plan are the caller's to set.
 */
lace_status guess_source_init(guess_source *s, const lace_model *lm, lace_session *draft,
                              int32_t n_readers, bool use_lookup, int32_t n_most, lace_error *err);
void guess_source_deinit(guess_source *s);

/* What to guess: at most so many tokens behind a text. */
typedef struct guess_request {
    guesses *to;
    const lace_token *text; /* [n_text] of which the session holds all but the last */
    int32_t n_text, most;
    int32_t sequence; /* of the session that checks them */
} guess_request;

/*
 * Make guesses for several texts together. None is fine, too: a draft that has much to read makes
 * none until it is done.
 */
lace_status guess_make(guess_source *s, const guess_request *requests, size_t n, lace_error *err);

/* The next guess, or -1. */
lace_token guess_next(const guesses *g);

/*
 * The checking is over. is_wrong: another token was chosen than the next guess. Returns how many
 * guesses were judged: those behind a wrong one are wrong, too.
 */
int32_t guess_judge(guess_source *s, guesses *g, bool is_wrong);

/* The text has ended, or waits: another one may have its reader. */
void guess_release(guess_source *s, guesses *g);

#endif
