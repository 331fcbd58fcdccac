/*
 * Working ahead: a device that chooses tokens computes those of a sequence before the host has seen
 * them.
 *
 *     TRY(ahead_begin(&a, token, rule, n, err));
 *     while (!ahead_is_spent(&a)) {
 *         TRY(ahead_next(&a, &word, err)); // queues more, waits for one
 *         ... CHOICE_REFUSED: leave the loop, the host chooses this one; else take the token ...
 *     }
 *     TRY(ahead_end(&a, err));             // what was not taken is forgotten
 *
 * Between ahead_begin and ahead_end nothing else may be computed in the session.
 */
#ifndef LACE_ENGINE_AHEAD_H
#define LACE_ENGINE_AHEAD_H

#include "engine/engine.h"

enum { AHEAD_MOST = 256 }; /* tokens between two looks at the cache's windows */

/* One sequence. Starts as {.session = s, .sequence = i}; the rest is ahead.c's. */
typedef struct ahead {
    lace_session *session;
    int32_t sequence;
    bool is_under_way;
    int32_t length;          /* of the sequence when it began */
    int32_t n_most;          /* tokens that may be queued in all */
    int32_t n_queued;        /* of them queued so far */
    int32_t n_taken;         /* of them taken by the host */
    int32_t turn, n_by_host; /* how long the host chose last, and of that what is left */
} ahead;

/* Whether the session's device can do this at all. */
bool ahead_is_possible(const lace_session *s);

/* It is the host's turn to choose a token, because the device has refused. Counts it as chosen. */
bool ahead_is_hosts_turn(ahead *a);

/*
 * Start behind `token`, which is not computed yet: at most n tokens, fewer where the cache's windows
 * must be looked at before. rule: how to choose; NULL: always the best.
 */
lace_status ahead_begin(ahead *a, lace_token token, const choice_rule *rule, int32_t n,
                        lace_error *err);

/* No more tokens are queued; those that are can still be taken. */
void ahead_hold(ahead *a);

/* Every token that may be queued has been taken. */
bool ahead_is_spent(const ahead *a);

/* The next word, as backend/choice.h has it. CHOICE_REFUSED: only ahead_end may follow. */
lace_status ahead_next(ahead *a, int32_t *word, lace_error *err);

/* Waits for the device. The sequence then holds what was taken but for the newest token. */
lace_status ahead_end(ahead *a, lace_error *err);

#endif
