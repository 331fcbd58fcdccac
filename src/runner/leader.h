/*
 * Rank 0's side of a runner that several ranks have (rank/rank.h): what the runner is about to do is
 * told to the others first, as records. They know of sequences what their page tables say; of these,
 * only the entries that have changed are told.
 */
#ifndef LACE_RUNNER_LEADER_H
#define LACE_RUNNER_LEADER_H

#include "runner/runner.h"

typedef struct leader leader;

/*
 * Let the others make the same runner, whose states are laid out. Before this one takes its memory,
 * so that all load at once; ranks_agree waits for them. Under the lock of the group, until then.
 */
lace_status leader_open(runner *r, leader **out, lace_error *err);
void leader_close(leader *l); /* the others give theirs up; NULL is fine */

/* A queue whose copies of pages and slots the others make too; around the runner's own. */
queue *leader_queue(leader *l, queue *inner);

/* The runner's own, for programs: what they do the others' programs do by themselves. */
queue *leader_inner_queue(const leader *l);

/* Compute the runner's batch together; as program_run. */
lace_status leader_run(leader *l, bool is_traced, lace_error *err);

#endif
