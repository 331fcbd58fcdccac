/*
 * A plan: what a model computes, as a flat list of steps over numbered values. It knows no device.
 *
 * The life of a plan:
 *   1. an architecture file writes steps in the words of build.h; all values are floats;
 *   2. plan_check says whether that succeeded;
 *   3. a backend copies the plan and lowers the copy (backend/backend.h): it adds what its kernels
 *      want of their inputs, fuses steps (fuse.c), and places values in memory (place.c), where two
 *      values whose lives do not overlap may share it.
 */
#ifndef LACE_PLAN_PLAN_H
#define LACE_PLAN_PLAN_H

#include "ops/op_info.h"

typedef struct plan_limits {
    int32_t max_tokens; /* of a batch */
    int32_t max_outputs;
    int32_t n_context; /* longest sequence */
    int32_t n_workers;
    bool stops_at_hidden; /* the result is what the output matrix would be applied to */
    bool wants_scores;    /* with stops_at_hidden: what the model's head makes of it */
    bool gives_hidden;    /* of all tokens, beside the result: what it is made of */
    int32_t n_deep;       /* first layers behind which rows of images are added (ADD_GIVEN) */
    int32_t n_adapters;   /* whose scales batches have */
    int64_t given_width;  /* values of the rows that batches may bring along for TOKEN_GIVEN */
} plan_limits;

/* An intermediate: [max_tokens or max_outputs rows, width]. */
typedef struct plan_value {
    act_format format;
    int64_t width;
    bool is_output;           /* rows are outputs */
    int32_t row_factor;       /* rows for each token: 1, or experts per token */
    int32_t of;               /* a slice: the value whose columns these are; -1: none */
    int64_t column;           /* of that value, where it begins */
    int32_t n_reads;          /* steps that read it */
    int32_t first, last;      /* phases in which it is alive */
    uint64_t offset, n_bytes; /* in the memory of values */
    bool enters, leaves;      /* of a part of a plan (parts.h): it comes from, goes to another */
    uint64_t border;          /* then: where in the memory between parts */
} plan_value;

typedef struct plan {
    plan_limits limits;
    lace_status status; /* the first failure while building; all words do nothing after it */
    char fault[128];    /* what the architecture asked for and cannot be done; "": memory */
    int32_t fault_layer;
    step *steps;
    int32_t n_steps, steps_capacity;
    plan_value *values;
    int32_t n_values, values_capacity;
    int32_t layer;           /* of the steps being added; -1 outside */
    int32_t logits;          /* the value with the result */
    int32_t hidden;          /* one that is given out beside it; -1: none */
    glu_kind last_fused;     /* plan_fuse joins products with activations up to this one */
    int32_t kept_phases;     /* so long what norms, gates and picks read stays, for a backend that
                             computes them where their results are used */
    bool has_copies;         /* what enters or leaves lies in the memory of values too: of a
                                device that is not the host */
    uint64_t value_bytes;    /* memory of all values, once they are placed */
    uint64_t exchange_bytes; /* of several ranks: the largest part that one gives (cut.h) */
} plan;

/* Whether it reads the batch's own rows, if there are any. */
static inline bool step_may_read_given(const step *s)
{
    return s->op == OP_EMBED || s->op == OP_ADD_GIVEN || s->op == OP_GIVEN;
}

lace_status plan_create(const plan_limits *limits, plan **out, lace_error *err);
lace_status plan_copy(const plan *p, plan **out, lace_error *err);
void plan_free(plan *p); /* NULL is fine */

/* What went wrong while it was written, if anything did. */
lace_status plan_check(const plan *p, lace_error *err);

/* ---- Lowering, for backends ------------------------------------------------------------------ */

/* A new value; -1 without memory (plan->status says so). */
int32_t plan_add_value(plan *p, act_format format, int64_t width, bool is_output);

/* An operand that names the value, as it is now. */
operand plan_operand(const plan *p, int32_t value);

/* A step without operands, of the layer plan->layer, behind all others; NULL without memory. */
step *plan_append(plan *p, op o);

/*
 * A rewrite: looks at the `left` steps from s on, and may replace the first 1 + n of them by one,
 * written into s[0]. Returns n.
 */
typedef int (*plan_rule)(plan *p, step *s, int32_t left);

/* Apply a rule wherever it fits, first to last. Needs plan_count_reads. */
void plan_rewrite(plan *p, plan_rule rule);
void plan_count_reads(plan *p);

/* The step makes its first output for one reader only: that operand of that other step. */
bool plan_feeds_only(const plan *p, const step *from, const step *to, int input);

/* The rewrites that all backends have kernels for (fuse.c). */
void plan_fuse(plan *p);

/*
 * Decide where workers must wait for each other (skips_barrier) and where values lie. also: two
 * steps that must not run at the same time for a reason of the backend's own; may be NULL.
 */
void plan_place(plan *p, bool (*also)(const step *later, const step *earlier));

/* Give values places where none that is alive in the same phases is; dead ones get none. */
void plan_place_values(plan *p);

/* Where everything is that steps read and write. */
typedef struct plan_memory {
    uint8_t *values;
    uint8_t *const *pages; /* [group] */
    uint8_t *const *slots; /* [device] of recurrent state */
    uint8_t *border;       /* between parts, of plans without has_copies */
} plan_memory;

/* Let operands point into the memory of values, and steps with pages to their group's. */
void plan_locate(plan *p, const plan_memory *m);

/* Bytes of all vectors that steps have, each from a multiple of `align` on; those that steps share
 * count once for each. */
uint64_t plan_vector_bytes(const plan *p, uint64_t align);

/* Whether a value comes from another part, or goes to one. */
static inline bool plan_crosses(const plan_value *v)
{
    return v->enters || v->leaves;
}

/* Rows of a value, and bytes of them, in a batch. */
static inline uint64_t plan_batch_bytes(const plan_value *v, const batch *b)
{
    return (uint64_t)(v->is_output ? b->n_outputs : b->n_tokens) * (uint64_t)v->row_factor *
           act_row_bytes(v->format, v->width);
}

/* Values of the rows that batches bring along, of all tokens or of TOKEN_GIVEN; 0: nothing reads any. */
int64_t plan_given_width(const plan *p);

/* Whether each token brings such a row along (EMBED_BESIDE). */
static inline bool plan_is_beside(const plan *p)
{
    return p->n_steps > 0 && p->steps[0].op == OP_EMBED && p->steps[0].a.embed.by == EMBED_BESIDE;
}

/* Rows that the plan gives out of a batch beside its result; 0 where it gives none. */
static inline int32_t plan_hidden_rows(const plan *p, const batch *b)
{
    if (p->hidden < 0)
        return 0;
    return p->values[p->hidden].is_output ? b->n_outputs : b->n_tokens;
}

/* Room for them, of any batch, in floats. */
static inline uint64_t plan_hidden_floats(const plan *p)
{
    if (p->hidden < 0)
        return 0;
    const plan_value *v = &p->values[p->hidden];
    return (uint64_t)(v->is_output ? p->limits.max_outputs : p->limits.max_tokens) *
           (uint64_t)v->width;
}

/* Whether the step reads or writes the memory of a value that is no slice. */
bool step_reads(const step *s, int32_t root);
bool step_writes(const step *s, int32_t root);

#endif
