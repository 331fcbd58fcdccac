/*
 * One token of one sequence on a GPU: its list of device steps (lower.h) recorded as graphs and
 * played, one submission for a token; and tokens that the card chooses ahead of the host.
 */
#ifndef LACE_BACKEND_CUDA_TOKEN_PLAYER_H
#define LACE_BACKEND_CUDA_TOKEN_PLAYER_H

#include "backend/backend.h"
#include "backend/cuda/lower.h"

typedef struct token_player token_player;

typedef struct token_player_options {
    const plan *p; /* its steps hold addresses of the card */
    gpu *g;
    cuda_queue *queue;
    uint8_t *scratch;
    uint64_t scratch_bytes;
    bool is_exact;             /* gpu_job */
    gpu_batch tables;          /* where the page tables are */
    const card_border *border; /* of a part of a plan; else NULL */
} token_player_options;

/* Memory on the card that it takes. */
uint64_t token_player_bytes(const plan *p, const gpu *g);

lace_status token_player_create(const token_player_options *o, token_player **out, lace_error *err);
void token_player_free(token_player *t); /* NULL is fine */

/*
 * Queue one token; its logits will be at token_player_logits, on the card. turn: rotation is by position
 * + turn. last_tokens: where TOKEN_CHOSEN is found, [sequences] on the card.
 */
lace_status token_player_token(token_player *t, int32_t token, int32_t position, int32_t turn,
                               int32_t sequence, const int32_t *last_tokens, lace_error *err);
const float *token_player_logits(const token_player *t);

/* The same of a part of a plan, for the token that its border says (card_border_begin_token). */
lace_status token_player_part(token_player *t, int32_t position, lace_error *err);

/* The same, waiting for each step: ns of [token_player_list's steps]. */
lace_status token_player_trace(token_player *t, int32_t token, int32_t position, int32_t turn,
                               int32_t sequence, uint64_t *ns, lace_error *err);
const device_list *token_player_list(const token_player *t);

/* Where the card finds the one token. */
const gpu_batch *token_player_batch(const token_player *t);

/* Record the graphs of all positions, once a token has been run. samples: tokens may be drawn. */
lace_status token_player_warm_up(token_player *t, bool samples, lace_error *err);

/*
 * Choosing tokens on the card, ahead of the host. Begin with a token that is to be computed; each
 * `ahead` queues the computation of the newest token and the choice of the one behind it, the best
 * (rule NULL) or by the rule; `next` waits for the next choice that was queued, a word as
 * backend/choice.h has them. For cards that can sample.
 */
lace_status token_player_begin(token_player *t, const ahead_start *start, const choice_rule *rule,
                               lace_error *err);
lace_status token_player_ahead(token_player *t, int32_t position, lace_error *err);
lace_status token_player_next(token_player *t, int32_t *word, lace_error *err);

#endif
