/* Products of prompts in int8: their rows and their kernels. */
#ifndef LACE_BACKEND_CUDA_LAUNCH_BYTES_H
#define LACE_BACKEND_CUDA_LAUNCH_BYTES_H

#include "backend/cuda/bytes_params.h"
#include "backend/cuda/launch_products.h"

/* Kinds of tiles that have kernels, matmul_bytes_*.cu. */
#define LAUNCH_BYTES_KINDS(X)                                                                      \
    X(Q4_0)                                                                                        \
    X(Q4_1)                                                                                        \
    X(NL4) X(FP4) X(Q8_0) X(Q8_1) X(Q2_K) X(Q4_K) X(Q5_K) X(IQ4_XS) X(Q6_K) X(S3) X(S4) X(S8)

/* The kernel for a product, of which n_blocks of 128 rows make all rows. */
batch_kernel bytes_kernel_for(const gpu *g, const batch_matmul *p, tile_kind kind,
                              int64_t n_blocks);

/* Before the product: on cards with wgmma, atoms of its weights, in scratch of so many bytes at most. */
lace_status bytes_weights(const gpu_job *j, bytes_matmul *b, tile_kind kind, int64_t n_blocks,
                          pile *scratch, lace_error *err);
uint64_t bytes_scratch(const gpu *g, const step *s, int64_t n_rows);

/* The largest magnitude of the quants of a type, where tiles of its kind hold several. */
int32_t bytes_far(dtype type);

/* As atoms_make. */
lace_status bytes_make(const gpu_job *j, const operand *x, const int32_t *map, int64_t n_rows,
                       tile_kind kind, pile *scratch, atoms *out, lace_error *err);

#endif
