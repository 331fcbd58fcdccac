/*
 * Latent attention of prompts with keys and values (model/latent.c says how it is written).
 *
 * A plan has three steps: MATMUL_HEADS turns queries into the space of latents, ATTEND attends to
 * the latents themselves, MATMUL_HEADS makes values of what that gives. Such a form is *absorbed*:
 * the matrices of keys and values are applied to queries and sums. In a prompt the latents of a
 * context can be *expanded* instead: keys and values of each head are made of them once, and
 * attention has the shorter rows of heads. With r rows after p positions, n = p + r, and
 * r p + r (r + 1) / 2 pairs of a query and a key, a head takes these multiply-adds:
 *
 *                     absorbed                    expanded
 *     matrices        r * rank * (nope + value)   n * rank * (nope + value)
 *     each pair       2 * rank + turned           nope + turned + value
 *
 * GLM-4.7-Flash (rank 512, nope 192, turned 64, value 256): 229,376 for each row or position, and
 * 1,088 or 512 for each pair. DeepSeek V3 (nope 128, value 128): 131,072; 1,088 or 320. So nothing
 * is lost at the beginning of a prompt, where n = r; and with a long context, where positions are
 * many times the rows, expanding pays from 229,376 / 576 = 399 rows of a batch on (DeepSeek V3:
 * 171), if all products are equally fast, which is what latent_costs is for. A single token never
 * expands.
 */
#ifndef LACE_PLAN_LATENTS_H
#define LACE_PLAN_LATENTS_H

#include "plan/plan.h"

/* What a multiply-add takes, in any unit. */
typedef struct latent_costs {
    double matrices; /* of queries and of sums */
    double absorbed; /* attention to latents */
    double making;   /* keys and values of latents */
    double expanded; /* attention to these */
} latent_costs;

/* Whether these steps are the three of latent attention, which nobody else reads the results of.
 * Needs plan_count_reads. */
bool plan_find_latents(const plan *p, const step *s, int32_t left, latent_form *out);

/*
 * Before plan_place, for a backend that expands: queries and what the first step makes keep their
 * memory up to the third step, and the result has its own from the second on. So a run of the three
 * may take the memory of the first step's results for keys and values.
 */
void plan_keep_latents(plan *p);

/* Whether n_rows of one sequence behind n_past positions are done sooner expanded; not, if costs are
 * not known (c is NULL). To compare, tests
 * and measurements set LACE_LATENTS to absorbed or expanded, which is then taken wherever it can be. */
bool latents_expand(const latent_form *f, const latent_costs *c, int64_t n_rows, int64_t n_past);

#endif
