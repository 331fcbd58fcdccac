/*
 * A predictor: the layer of a model that guesses the token behind the next one (model/predicting.c),
 * as a program of its own on the states of a runner.
 *
 * Its keys and values lie in the runner's pages. What they hold of a position is made of the token
 * there and of the hidden row of the token before it, so sequences share and drop them with all
 * others. The hidden rows of a batch are kept until the layer has seen its tokens: when guesses are
 * made, or before the next batch; by then it is known which of them stay.
 *
 * Where the hidden row before a position is not known (nothing comes before it; a text goes on
 * behind a prefix that others have computed, or goes back further than its last batch), it counts as
 * zeros: guesses there are made of less.
 */
#ifndef LACE_RUNNER_PREDICTOR_H
#define LACE_RUNNER_PREDICTOR_H

#include "runner/runner.h"

typedef struct predictor {
    runner *r;
    program *program;

    /* The runner's last batch, as far as the layer has not seen it. */
    int32_t n_waiting;
    int32_t *waiting_tokens, *waiting_positions, *waiting_sequences; /* [n_batch] */
    float *waiting_rows; /* [n_batch, n_embd] hidden rows of these tokens */

    /* Of each sequence, the hidden row of the last token that the layer has seen. */
    float *last_rows; /* [n_sequences, n_embd] */
    int32_t *n_seen;  /* [n_sequences] tokens up to it; 0: it is not known */

    batch b; /* its arrays are these, of n_batch: */
    int32_t *tokens, *positions, *sequences, *outputs;
    const int32_t **pages[STATES_MAX_GROUPS];
    float *rows; /* [n_batch, n_embd] the hidden rows before the tokens */
} predictor;

/* Of a runner that was outlined with gives_hidden, of a model that binds what predicts. */
lace_status predictor_outline(runner *r, predictor **out, lace_error *err);

/* After runner_prepare. */
lace_status predictor_prepare(predictor *p, lace_error *err);
void predictor_free(predictor *p); /* NULL is fine */

/* Memory that it will take, beside the weights and the states. */
uint64_t predictor_bytes(const predictor *p);

/* Keep what the runner has just computed. predictor_settle comes first. */
void predictor_see(predictor *p);

/* Let the layer see what is kept, as far as sequences still hold it. */
lace_status predictor_settle(predictor *p, lace_error *err);

/* A sequence begins with something else than what it held; or as another one goes on. */
void predictor_forget(predictor *p, int32_t sequence);
void predictor_copy(predictor *p, int32_t from, int32_t to);

/* What comes behind a token? */
typedef struct predictor_row {
    int32_t sequence, position;
    lace_token token;
    const float *before; /* [n_embd] hidden row of the token before it; NULL: the sequence's last */
} predictor_row;

/*
 * Compute rows, each of another sequence, up to n_outputs of the runner, and what is kept. The
 * sequences have pages for them (states_reserve_pages).
 */
lace_status predictor_ask(predictor *p, const predictor_row *rows, int32_t n, lace_error *err);

/* Of row i: [n_vocab] what comes behind its token, and [n_embd] its hidden row. */
const float *predictor_logits(const predictor *p, int32_t i);
const float *predictor_hidden(const predictor *p, int32_t i);

#endif
