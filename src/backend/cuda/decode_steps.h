/*
 * Steps of a plan that are of no known layer (decode_form.h), for one token: which products take the
 * norms and gates in front of them along, which add to the residual by themselves, which share a
 * launch. What is left is launched as it is.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_STEPS_H
#define LACE_BACKEND_CUDA_DECODE_STEPS_H

#include "backend/cuda/gpu.h"
#include "plan/plan.h"

/* From a norm, a gate or a pick to the product that takes it along there are no more phases of a
 * plan, attention's between them. */
enum { GPU_KEPT_PHASES = 12 };

typedef enum step_use {
    USE_PLAIN,   /* launched as it is */
    USE_NOTHING, /* not launched: another step does it along with its own */
    USE_PRODUCT, /* one launch of fused products */
    USE_EXPERTS, /* MOE_GLU, and MOE_DOWN behind it */
    USE_JOIN,    /* RMS_NORM, and the ADD behind it */
    USE_STATE,   /* SCAN or DELTA */
    USE_HEADS    /* ROPE, ROPE_KV or KV_WRITE, with what is in front of it */
} step_use;

enum { STEP_MAX_JOINED = 3 };

/* How a step is launched. */
typedef struct step_form {
    step_use use;
    bool is_layers; /* of a layer of a known form, which launches it */
    /* Products and MOE_GLU: what they make of their input by themselves; NULL: nothing. With both
     * the norm is of what is gated, or norms_first the other way round. pick: of the gate. */
    const step *norm, *glu, *pick;
    bool norms_first;
    const step *add;                     /* a product's: it adds its result by itself */
    const step *joined[STEP_MAX_JOINED]; /* products of the same input, in the same launch */
    int32_t n_joined;
    /* A product that adds: the one whose input it leaves as planes, normed; and the other way round. */
    const step *next, *before;
    const step *conv;  /* a product's: the CONV that it does with the result that it is of */
    const step *share; /* with add: the GLU that says how much of it; or NULL: all */
    /* HEADS: what is done to q, k and v in front of it; NULL: nothing. rope: in front of the
     * KV_WRITE of a latent, which is k there, and v the key that is turned. */
    struct {
        const step *norm, *pick, *rope;
    } heads[3];
    const step *reader; /* MATMUL_GLU: the one product that reads it, as planes */
    const step *maker;  /* and that product's: who makes its input */
    const step *route;  /* MOE_GLU: whose choices it takes */
    bool routes;        /* its blocks choose by themselves */
    /* MOE_GLU: the shared expert that its blocks and those of MOE_DOWN multiply too; NULL: none. by:
     * the product that says how much of it, joined to the router; NULL: all. */
    const step *shared_glu, *shared_down, *shared_by;
    const step *with; /* of these three: in whose launch they are */
} step_form;

/* forms: [p->n_steps], is_layers set. The values of the plan are placed. */
void decode_steps_match(const plan *p, const gpu *g, step_form *forms);

/* The matrices of a step that are of floats, or those in tiles: which of them, up to a number that
 * is returned. */
int32_t decode_step_parts(const step *s, bool is_floats, int32_t parts[STEP_MAX_OUT]);

#endif
