/*
 * Lowering: a plan goes in, the list of device steps that a GPU runs for it comes out.
 *
 * A device step is one launch (or the few launches of one operation of the plan) with everything
 * that it needs to know: which steps of the plan it stands for, where its input comes from and what
 * it leaves. All decisions are made here; who records the list, plays it or times it
 * (token_player.h, run_gpu.c) launches step after step and looks at nothing else.
 *
 * One token: layers of known forms (decode_form.h) become the fused kernels of decode_*.cu; of what
 * lies between them products take their norms, gates and sums along (decode_steps.h), and what is
 * left is launched as it is, by the plan's own steps. The residual lies in the plan's value for
 * both. Where a fused layer follows other steps, a step in front of it makes the form of the
 * residual that its first product reads.
 *
 * Batches: each step of the plan is launched by itself, but what it leaves is in the form that the
 * next one reads fastest (handover.h).
 */
#ifndef LACE_BACKEND_CUDA_LOWER_H
#define LACE_BACKEND_CUDA_LOWER_H

#include "backend/cuda/card_border.h"
#include "backend/cuda/decode_layout.h"
#include "backend/cuda/decode_params.h"
#include "backend/cuda/gpu.h"
#include "plan/latents.h"

/* In which form rows of a batch come to a step, or are left by it. */
typedef enum row_form {
    ROWS_PLAIN,      /* f32, in the plan's value */
    ROWS_ATOMS_INT,  /* as atoms too (batch_common.cuh), in the order of int kinds */
    ROWS_ATOMS_HALF, /* in the order of half kinds */
    ROWS_BYTES,      /* as atoms of int8 products too (bytes_common.cuh) */
    ROWS_SLABS,      /* as slabs too (small_batch_params.h) */
    ROWS_PARTS,      /* as parts that are still to be added up, where the product is cut */
    ROWS_SLOTS       /* with the choices of experts sorted, at the bottom of the scratch */
} row_form;

typedef struct device_step device_step;
typedef lace_status (*device_launch_fn)(const gpu_job *j, const device_step *d, lace_error *err);

struct device_step {
    const char *name; /* for traces */
    int32_t layer;    /* -1 outside of layers */
    const step *first;
    int32_t n_steps; /* from `first` on: the plan's steps that it stands for; 0: none */
    device_launch_fn launch;
    /* The plan's own steps: */
    row_form takes, leaves;
    int32_t n_k64; /* of a norm that leaves atoms: 64s of values of a row */
    /* Fused kernels: */
    const char *kernel;
    cuda_kernel *found;    /* by device_list_prepare */
    uint32_t grid, block;  /* grid of attention: heads of k, times the blocks for each */
    uint32_t grid_y;       /* 0: one */
    uint32_t shared_bytes; /* of a block */
    uint32_t most_bytes;   /* that blocks of this kernel may ask for */
    bool divides;          /* attention: blocks share the context of a head */
    int32_t most_cluster;  /* log2 of the blocks that may do so */
    uint32_t most_blocks;  /* how many they are then */
    union {
        decode_begin begin;
        replay_begin begin_plain;
        decode_product product;
        decode_product_any any;
        decode_attention_parts attention;
        decode_router router;
        decode_experts experts;
        decode_join join;
        decode_pack pack;
        decode_rows rows;
        decode_heads heads;
        gpu_scan scan;
        gpu_delta delta;
        border_step border;
        latent_form latents; /* of a batch */
    } a;
};

typedef struct device_list {
    device_step *steps;
    int32_t n_steps, capacity;
} device_list;

void device_list_free(device_list *l);

/* Room for one more step, which is returned as zeros; NULL without memory. */
device_step *device_list_add(device_list *l);

/* Finds the kernels of fused steps. */
lace_status device_list_prepare(gpu *g, device_step *steps, int32_t n, lace_error *err);

/* ---- Batches --------------------------------------------------------------------------------- */

/* What the list of a batch depends on. */
typedef struct batch_shape {
    int32_t n_tokens, n_outputs;
    /* Of small batches: whether some tokens follow each other and are attended to at once; whether
     * no context is longer than a part of it. */
    bool has_runs, is_short;
} batch_shape;

/* All steps of a plan, in *out, whose memory is used again. */
lace_status lower_batch(const plan *p, const gpu *g, bool is_exact, const batch_shape *of,
                        device_list *out, lace_error *err);

/* A step that takes nothing from another one and leaves nothing. */
device_step lower_alone(const gpu *g, bool is_exact, const step *s, int32_t n_tokens,
                        int32_t n_outputs);

/* ---- One token ------------------------------------------------------------------------------- */

enum { LOWER_MOST_CLUSTER = 4 }; /* log2 */

typedef struct token_list {
    device_list list; /* the first step begins the token that the state names */
    /* Behind the list: begin the token that the head's product found best, or that was drawn. */
    device_step begin_best, begin_drawn;
    bool has_best;        /* the head is fused: begin_best is there */
    bool has_plain;       /* some steps are the plan's own */
    bool attends_plain;   /* attention too: how it divides the context depends on its length */
    int32_t most_cluster; /* of all fused attention; 0: there is none */
    const float *logits;  /* on the card */
    int32_t n_vocab;
} token_list;

/* f: NULL if no layer has a known form. border: of a part of a plan; else NULL. ring: on the card. */
lace_status lower_token(const plan *p, const gpu *g, bool is_exact, const gpu_batch *tables,
                        const decode_form *f, const decode_layout *m, const card_border *border,
                        int32_t *ring, token_list *out, lace_error *err);
void token_list_free(token_list *l);

/*
 * The class of a position: log2 of the blocks that share a head's context in the layers where so
 * many are allowed. About one piece of 16 positions for each warp while that is to be had with 8
 * blocks, which are quicker to come together than 16.
 */
int32_t token_list_cluster(const token_list *l, int32_t position);

#endif
