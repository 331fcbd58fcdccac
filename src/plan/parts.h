/*
 * A plan for several devices, cut into parts: steps that stand in a row and run on one device. A
 * value that one part makes and another one reads lies between them, in memory of the host that is
 * called the border: it leaves the one and enters the other. So do the plan's results.
 *
 * A device that computes in the host's memory reads and writes there; another one copies what
 * enters before it runs a part, and what leaves behind it.
 */
#ifndef LACE_PLAN_PARTS_H
#define LACE_PLAN_PARTS_H

#include "plan/plan.h"

typedef struct plan_part {
    plan *p; /* no results: they leave it */
    int32_t device;
    bool reads_embeddings; /* of the batch */
} plan_part;

typedef struct plan_parts {
    plan_part *parts;
    int32_t n_parts;
    uint64_t border_bytes;
    uint64_t logits, hidden; /* where in the border they are */
} plan_parts;

/*
 * devices: [n_steps]. Steps of positions alone (op_info.is_of_positions) stand in every part that
 * reads what they make, whatever their device.
 */
lace_status plan_parts_create(const plan *p, const int32_t *devices, plan_parts *out,
                              lace_error *err);
void plan_parts_free(plan_parts *parts);

#endif
