/*
 * A plan for one of several ranks (rank/rank.h). Architectures write the plan of a whole model; here
 * a copy of it becomes what one rank computes: its rows of matrices, its heads of attention, its
 * columns of whatever lies between them. A step that needs columns of other ranks gets COLLECT in
 * front of it. What cannot be divided is computed by every rank.
 *
 *     wq wk wv | rope attend | COLLECT | wo += x | COLLECT x | norm | gate up glu | COLLECT | down += x
 *     rows       heads                   rows                  all    rows                    rows
 */
#ifndef LACE_PLAN_CUT_H
#define LACE_PLAN_CUT_H

#include "plan/plan.h"
#include "rank/rank.h"

/*
 * Into how many units the rows of each step's matrices are best divided, [n_steps]; 0: every rank
 * has all of them. Heads stay whole, and so do the blocks of 32 columns that are rounded together.
 */
lace_status plan_units(const plan *p, const rank_shares *shares, int64_t *units, lace_error *err);

/*
 * Cut the plan for the rank at this end of the group. Weights have their units then, and KV layers
 * their heads. On failure plan->status says why.
 */
void plan_cut(plan *p, ranks *r);

#endif
