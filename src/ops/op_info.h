/*
 * What an operation is: described once for each, in ops.def, so that whoever walks over steps
 * (placing memory, uploading, tracing, calibrating) need not know which operations there are.
 *
 * What a step reads and writes of values stands in the step itself: operands whose value is not -1.
 * How much scratch memory a kernel needs is the kernel's matter and stands with the backend.
 */
#ifndef LACE_OPS_OP_INFO_H
#define LACE_OPS_OP_INFO_H

#include "ops/step.h"

/* What of a sequence's past an operation uses. */
typedef enum op_state { OP_NO_STATE, OP_PAGES, OP_RECURRENT } op_state;

/* Along what its work can be cut into pieces that do not depend on each other. */
typedef enum op_pieces {
    OP_BY_ROWS,
    OP_BY_COLUMNS, /* of what comes out: rows of its matrices, or channels */
    OP_BY_HEADS,
    OP_BY_WORKERS, /* anyhow */
    OP_ALONE       /* not at all */
} op_pieces;

enum { OP_MAX_WEIGHTS = 3, OP_MAX_VECTORS = 3 };

/* A matrix of a step, or the first of several alike: a mixture's experts, or those of heads. */
typedef struct op_weight {
    const weight *w;
    int32_t n_experts; /* how many; 1: no mixture */
} op_weight;

/* A vector of the model that a step points to: where the pointer stands, and its length. */
typedef struct op_vector {
    const float **at;
    int64_t n;
} op_vector;

typedef struct op_info {
    const char *name, *what;
    op_state state;
    op_pieces pieces;
    bool is_matmul;        /* products with whole matrices, not with a mixture's */
    bool reads_choices;    /* of a mixture: in[0] has a row for each choice of a token */
    bool is_of_positions;  /* what comes out depends on positions alone */
    bool uses_all_weights; /* of several matrices that lie together, not those of choices */
    int (*weights)(const step *s, op_weight out[OP_MAX_WEIGHTS]); /* NULL: none */
    int (*vectors)(step *s, op_vector out[OP_MAX_VECTORS]);       /* NULL: none */
    uint64_t (*more_bytes)(const step *s, const batch *b); /* moved besides operands and weights */
} op_info;

extern const op_info op_infos[OP_COUNT];

static inline const op_info *op_describe(op o)
{
    return &op_infos[o];
}

static inline const char *op_name(op o)
{
    return op_describe(o)->name;
}

/* The matrices of a step and the vectors that it points to; they return how many there are. */
int step_weights(const step *s, op_weight out[OP_MAX_WEIGHTS]);
int step_vectors(step *s, op_vector out[OP_MAX_VECTORS]);

/* Whether it multiplies with matrices; and one that is not a mixture's. */
static inline bool step_has_weights(const step *s)
{
    return op_infos[s->op].weights != NULL;
}

static inline bool step_is_matmul(const step *s)
{
    return op_infos[s->op].is_matmul;
}

static inline bool step_has_experts(const step *s)
{
    return step_has_weights(s) && !step_is_matmul(s) && !op_infos[s->op].uses_all_weights;
}

/* Columns that come out, of all outputs together. */
static inline int64_t step_columns(const step *s)
{
    int64_t n = 0;
    for (int i = 0; i < STEP_MAX_OUT; i++)
        n += s->out[i].value >= 0 ? s->out[i].width : 0;
    return n;
}

/*
 * What a step must move through memory for one run: weights, state and activations; and its
 * multiply-adds with weights. sees_values: what the step reads lies in the host's memory now, so
 * that the experts that were chosen can be counted; otherwise all choices are taken to differ.
 */
uint64_t step_bytes(const step *s, const batch *b, bool sees_values);
uint64_t step_products(const step *s, const batch *b);

#endif
