/*
 * A plan: a model compiled into a flat list of steps with a place for every intermediate. It is
 * built once and walked for every token; walking allocates nothing.
 *
 * The life of a plan:
 *   1. an architecture file writes steps in the words of build.h;
 *   2. plan_finish fuses steps, decides where workers must wait for each other, and places values
 *      in memory: two values whose lives do not overlap may share it. Nothing is allocated yet, so the
 *      cost of a plan can be asked for before anything is loaded;
 *   3. plan_allocate takes the memory;
 *   4. plan_run walks the steps on all workers of a pool.
 */
#ifndef LACE_PLAN_PLAN_H
#define LACE_PLAN_PLAN_H

#include "base/arena.h"
#include "base/threads.h"
#include "backend/cpu/kernels.h"

typedef struct plan_limits {
    int32_t max_tokens; /* of a batch */
    int32_t max_outputs;
    int32_t n_context; /* longest sequence */
    int32_t n_workers;
    bool stops_at_hidden; /* the result is what the output matrix would be applied to */
} plan_limits;

/* An intermediate: [max_tokens or max_outputs rows, width]. */
typedef struct plan_value {
    act_format format;
    int64_t width;
    bool is_output;     /* rows are outputs */
    int32_t row_factor; /* rows for each token: 1, or experts per token */
    int32_t quantized;  /* the same values as ACT_Q8, or -1 */
    int32_t rotated;    /* the same values as ACT_ROTATED_Q8, or -1 */
    int32_t thinned;    /* the same values thinned by `thin`, as its weights want them, or -1 */
    const thinning *thin;
    int32_t n_reads;          /* steps that read it */
    int32_t first, last;      /* phases in which it is alive */
    uint64_t offset, n_bytes; /* in the plan's memory */
} plan_value;

typedef struct plan {
    const kernel_table *table;
    plan_limits limits;
    lace_status status; /* the first failure while building; all words do nothing after it */
    const char *fault;  /* what the architecture asked for and cannot be done; NULL: memory */
    int32_t fault_layer;
    step *steps;
    int32_t n_steps, steps_capacity;
    plan_value *values;
    int32_t n_values, values_capacity;
    int32_t layer;          /* of the steps being added; -1 outside */
    int32_t logits;         /* the value with the result */
    uint64_t value_bytes;   /* memory of all values */
    uint64_t scratch_bytes; /* of each worker */
    uint64_t shared_bytes;  /* of all workers together */
    uint64_t sums_bytes;    /* of products with columns, until they are joined */
    uint8_t *memory;        /* values, scratch of each worker, shared, sums, handouts */
    uint8_t *shared;        /* [shared_bytes] */
    handout *handouts;      /* [n_steps] one for each phase of a run */
} plan;

/* Time spent, by step. Filled by plan_run if given; the caller adds runs up. */
typedef struct plan_trace {
    uint64_t *ns; /* [n_steps] */
} plan_trace;

lace_status plan_create(const kernel_table *table, const plan_limits *limits, plan **out,
                        lace_error *err);
void plan_free(plan *p);

lace_status plan_finish(plan *p, lace_error *err);
uint64_t plan_memory_bytes(const plan *p);

/* Take memory, and say where the cache's pages are: kv_data[group]. */
lace_status plan_allocate(plan *p, uint8_t *const *kv_data, lace_error *err);

/*
 * Each phase (steps up to a barrier) is handed out in pieces to whichever worker is free. A piece
 * is a share of a step's work: kernels see it as one worker of many.
 */
void plan_run(const plan *p, pool *workers, const batch *b, plan_trace *trace);

/*
 * Only the steps [begin, end), for those who look at values in between: what a run has left in
 * memory up to `begin` is taken as it is.
 */
void plan_run_steps(const plan *p, pool *workers, const batch *b, int32_t begin, int32_t end);

/* Rows of logits after a run: [n_outputs, n_vocab], plan_logits_stride floats apart. */
const float *plan_logits(const plan *p, int32_t row);

/* The passes of plan_finish, in order; fuse.c, joins.c and memory.c. */
void plan_fuse(plan *p);
void plan_add_joins(plan *p);
void plan_place(plan *p);

/* True for matrix steps that multiply single tokens by columns (backend/cpu/columns.h). */
bool plan_has_columns(const step *s);

/* True if value v is read or written by the step. */
bool step_reads(const step *s, int32_t value);
bool step_writes(const step *s, int32_t value);

#endif
