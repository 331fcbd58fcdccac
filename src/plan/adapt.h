/*
 * Adapters in a plan. Architectures write the plan of the model itself; here the steps of LoRA
 * (ops/lora.h) are put around the products with matrices that adapters know (weight.lora). A plan
 * of a model without adapters stays as it is.
 *
 *     q k v = W x   becomes   low = DOWN x | q k v = W x | q k v += UP low
 *     h += W x      becomes   low = DOWN x | h += W x    | h += UP low
 *
 * Products of one input stay next to each other, and an addition behind its product, so that both
 * can still be fused.
 */
#ifndef LACE_PLAN_ADAPT_H
#define LACE_PLAN_ADAPT_H

#include "plan/plan.h"

/* On failure plan->status says why. */
void plan_adapt(plan *p);

#endif
