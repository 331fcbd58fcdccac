/*
 * What a step of a batch leaves for the next one on the card, so that less has to be launched; and
 * the launchers that take and leave it, as the list says (lower.h).
 *
 * A product that is cut along K leaves its parts, and the norm or the rotation that follows adds
 * them up. A norm leaves its rows as atoms too (batch_common.cuh) or as slabs
 * (small_batch_params.h), which is what the product behind it reads; attention and gates of small
 * batches leave slabs. Gate and up of experts leave the sorted choices for down.
 */
#ifndef LACE_BACKEND_CUDA_HANDOVER_H
#define LACE_BACKEND_CUDA_HANDOVER_H

#include "backend/cuda/batch_params.h"
#include "backend/cuda/between_params.h"
#include "backend/cuda/lower.h"

typedef struct gpu_handover {
    uint8_t *memory;      /* on the card: scales of rows, then their atoms; or slabs */
    batch_finish sums[3]; /* products whose parts are still apart */
    int32_t n_sums;
} gpu_handover;

/* Its memory for these steps and batches of up to max_tokens. */
uint64_t gpu_handover_bytes(const step *steps, int32_t n_steps, int64_t max_tokens);

/* Where n_rows lie as atoms, and their scales. */
void gpu_handover_atoms(const gpu_handover *h, int64_t n_rows, uint8_t **x, float **scales);

/* The same as atoms of int8 products, of rows of n_cols. */
void gpu_handover_bytes_at(const gpu_handover *h, int64_t n_cols, int64_t n_rows, uint8_t **x,
                           float **units, float **ones);

/* How many rows a step has. */
static inline int64_t gpu_rows_of(const gpu_job *j, const step *s)
{
    int64_t n = s->is_output ? j->batch->n_outputs : j->batch->n_tokens;
    return s->row_factor > 1 ? n * s->row_factor : n;
}

/* ---- Norms and rotations: launch_between.c --------------------------------------------------- */

/* Whether it is a norm of whole rows, or a rotation, that has a launcher here. */
bool gpu_norm_is_batched(const step *s, int64_t n_rows);
bool gpu_rope_is_batched(const step *s, int64_t n_rows);

lace_status gpu_launch_norm(const gpu_job *j, const device_step *d, lace_error *err);
lace_status gpu_launch_rope(const gpu_job *j, const device_step *d, lace_error *err);

/* ---- Products: launch_products.c, launch_small_batch.c, launch_experts.c, launch_heads.c ------ */

bool gpu_product_is_batched(const step *s, int64_t n_rows);
bool gpu_product_is_small(const gpu *g, const step *s, int64_t n_rows);
/* Whether weight i of a product that is batched meets n_rows in int8. */
bool gpu_product_is_bytes(const gpu *g, const step *s, int i, int64_t n_rows);
bool gpu_experts_are_batched(const step *s, int64_t n_tokens);
bool gpu_heads_are_batched(const step *s, int64_t n_rows);

lace_status gpu_launch_products(const gpu_job *j, const device_step *d, lace_error *err);
lace_status gpu_launch_small_batch(const gpu_job *j, const device_step *d, lace_error *err);
lace_status gpu_launch_experts(const gpu_job *j, const device_step *d, lace_error *err);
lace_status gpu_launch_heads(const gpu_job *j, const device_step *d, lace_error *err);

/* Whether the matrices of all heads lie equally far apart: *out, in bytes. */
bool gpu_heads_bytes(const step *s, uint64_t *out);

/* What MATMUL_HEADS copies behind each product: launch_steps.c. */
lace_status gpu_copy_rest(const gpu_job *j, const step *s, lace_error *err);

uint64_t gpu_slab_bytes(int64_t n_cols);

/* ---- Attention: launch_attend.c -------------------------------------------------------------- */

bool gpu_attend_is_batched(const gpu *g, bool is_exact, const step *s);

/* Whether single tokens see their contexts in one part, and results can be left as slabs. */
bool gpu_attend_leaves_slabs(const gpu *g, const step *s, const batch_shape *of);

/* Shape of a batch whose positions and sequences are these. */
batch_shape gpu_shape_of(const gpu_batch *b);

/* Tokens from `t` on that follow each other in one sequence. */
int32_t gpu_run_length(const gpu_batch *b, int32_t t);

lace_status gpu_launch_attention(const gpu_job *j, const device_step *d, lace_error *err);

/* The same of some tokens, which are whole runs. */
lace_status gpu_attend_tokens(const gpu_job *j, const device_step *d, int32_t begin, int32_t end,
                              lace_error *err);

/* ---- Latent attention with keys and values: launch_latent.c ---------------------------------- */

/* Whether the three steps can be launched together for n_rows; the launcher decides by the batch how. */
bool gpu_latents_are_batched(const gpu *g, bool is_exact, const step *s, const latent_form *f,
                             int64_t n_rows);

lace_status gpu_launch_latents(const gpu_job *j, const device_step *d, lace_error *err);

/* A run with keys and values of f16 that are not of a cache, each head of q with its own; values may
 * be shorter than keys. */
bool gpu_attends_expanded(const gpu *g, int32_t head_dim);
lace_status gpu_attend_expanded(const gpu_job *j, batch_attend *p, lace_error *err);

/* Scratch that the matrices of MATMUL_HEADS take as f16, where they are those of latents. */
uint64_t gpu_latent_scratch_bytes(const step *s, int64_t n_rows);

/* ---- Scratch --------------------------------------------------------------------------------- */

uint64_t gpu_products_scratch_bytes(const gpu *g, const step *s, int64_t n_rows);
uint64_t gpu_small_batch_scratch_bytes(const step *s);
uint64_t gpu_experts_scratch_bytes(const gpu *g, const step *s, int64_t n_rows);
uint64_t gpu_heads_scratch_bytes(const step *s, int64_t n_rows);
uint64_t gpu_attend_scratch_bytes(const gpu *g, const step *s, int64_t n_rows, int64_t n_context);

#endif
