/*
 * A plan on a GPU: its values, vectors and batches live on the card, and walking it means launching
 * its steps.
 *
 * The plan is a copy that was fused and placed (cuda_device.c); gpu_plan_create
 * takes memory on the card and replaces every address in its steps by one on the card, and lowers it
 * to lists of device steps (lower.h). One token of one sequence is its list as a recorded graph
 * (token_player.h); batches are launched step by step.
 */
#ifndef LACE_BACKEND_CUDA_RUN_GPU_H
#define LACE_BACKEND_CUDA_RUN_GPU_H

#include "backend/backend.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/sample_params.h"
#include "plan/plan.h"

typedef struct gpu_plan gpu_plan;

/* What the plan's steps need besides the weights. */
typedef struct gpu_plan_options {
    gpu *g;
    cuda_queue *queue;
    int32_t n_sequences, pages_per_sequence, n_groups;
    uint8_t *const *kv_data; /* [n_groups] on the card */
    uint8_t *const *slots;   /* [device] of recurrent state on the card; NULL: there is none */
    uint8_t *border, *room;  /* of a part of a plan: see program_memory */
    bool is_shared;
    gpu_uploader *streamer; /* where steps have weights that are brought (weight_stream.h) */
} gpu_plan_options;

/* Memory on the card that a plan will take: values, vectors, scratch, batches. */
uint64_t gpu_plan_bytes(const plan *p, const gpu_plan_options *o);

/* Of it: what is of no use behind the end of a run, so that plans can share it. */
uint64_t gpu_plan_room_bytes(const plan *p, const gpu_plan_options *o);

/* Takes nothing: the plan, the queue and the card must outlive it. */
lace_status gpu_plan_create(plan *p, const gpu_plan_options *o, gpu_plan **out, lace_error *err);
void gpu_plan_free(gpu_plan *gp); /* waits for the queue; NULL is fine */

/*
 * Run a batch and wait for its results: logits, or with rules ([n_outputs]; a temperature below 0
 * means none) choices. Traced, every device step is waited for.
 */
lace_status gpu_plan_run(gpu_plan *gp, const batch *b, const choice_rule *rules, bool is_traced,
                         lace_error *err);

/* The same in two parts, for PROGRAM_SLOTS batches at a time; see program_submit. */
lace_status gpu_plan_submit(gpu_plan *gp, const batch *b, const choice_rule *rules,
                            lace_error *err);
lace_status gpu_plan_collect(gpu_plan *gp, lace_error *err);

/* Record what single tokens are played by, at all positions. A token must have been run. */
lace_status gpu_plan_warm_up(gpu_plan *gp, lace_error *err);

/*
 * What the last run launched, in its order: the same list with a trace and without. `first` and
 * n_steps: the plan's steps that a device step stands for; what it moves and multiplies is what
 * they do. ns: what it took in the last run, if that had a trace.
 */
typedef struct gpu_plan_step {
    const char *name;
    int32_t layer; /* -1 outside of layers */
    int32_t first, n_steps;
    uint64_t n_bytes, n_products, ns;
} gpu_plan_step;

int32_t gpu_plan_n_steps(const gpu_plan *gp);
gpu_plan_step gpu_plan_step_at(const gpu_plan *gp, int32_t i, const batch *b);

/* What was chosen for a row of what was collected last; CHOICE_REFUSED: nothing, its logits are there. */
int32_t gpu_plan_word(const gpu_plan *gp, int32_t row);

/*
 * Choosing tokens on the card ahead of the host (token_player.h), where gpu_plan_chooses. pages:
 * [group] the sequence's page numbers, up to this position at least.
 */
bool gpu_plan_chooses(const gpu_plan *gp);
lace_status gpu_plan_begin(gpu_plan *gp, const ahead_start *start, const choice_rule *rule,
                           lace_error *err);
lace_status gpu_plan_ahead(gpu_plan *gp, const int32_t *const *pages, int32_t sequence,
                           int32_t position, lace_error *err);
lace_status gpu_plan_next(gpu_plan *gp, int32_t *word, lace_error *err);

/* Row of its logits, on the host. */
const float *gpu_plan_logits(const gpu_plan *gp, int32_t row);

/* The same of what the plan gives out beside them (plan_hidden). */
const float *gpu_plan_hidden(const gpu_plan *gp, int32_t row);

#endif
