/* What products of batches with one matrix and with those of experts have in common. */
#ifndef LACE_BACKEND_CUDA_LAUNCH_PRODUCTS_H
#define LACE_BACKEND_CUDA_LAUNCH_PRODUCTS_H

#include "backend/cuda/batch_params.h"
#include "backend/cuda/gpu.h"

/* A pile of scratch that is handed out from the bottom. */
typedef struct pile {
    uint8_t *at;
    uint64_t used;
} pile;

void *pile_take(pile *p, uint64_t n_bytes);

/* Rows on their way to a product, batch_common.cuh. */
typedef struct atoms {
    uint8_t *x;
    float *scales;
    float *units; /* of int8 products (bytes_params.h), whose scales are ones */
} atoms;

/* What n_rows take at most: K in whole 256s. */
uint64_t atoms_bytes(int64_t n_cols, int64_t n_rows);

/* map: as batch_atoms has it. */
lace_status atoms_make(const gpu_job *j, const operand *x, const int32_t *map, int64_t n_rows,
                       tile_kind kind, pile *scratch, atoms *out, lace_error *err);

/* Whether the weights are f16 or bf16, whose atoms have another order. */
bool tile_is_half_kind(tile_kind kind);

/* The kernel whose blocks have groups of 64 rows and room for so many tokens. */
typedef struct batch_kernel {
    const char *name;
    int32_t n_tokens;  /* of a block */
    int32_t n_groups;  /* of 64 rows, of a block */
    int32_t n_helping; /* groups of threads beside these, without rows of their own */
    int32_t n_sharing; /* blocks that are on a processor at once */
    uint32_t cluster;  /* blocks with the same tokens that are one; 0: as 1 */
    uint32_t shared_bytes;
} batch_kernel;

enum { GROUP_ROWS = 64, GROUP_THREADS = 128 };

/* Of a block, at most: 4, or 2 where each thread needs more registers (no wgmma). */
int batch_most_groups(const gpu *g);

batch_kernel batch_kernel_for(const gpu *g, tile_kind kind, int64_t n_tokens, int n_groups);

/* The same for experts with so many tokens each, or fewer. */
batch_kernel batch_kernel_for_experts(const gpu *g, tile_kind kind, int64_t n_tokens);

/* Blocks of n_groups that cover the rows of a product. */
int batch_count_blocks(const batch_matmul *p, int n_groups);

/* Weights are int kinds times 256, see batch_unpack.cuh. */
float batch_kind_scale(tile_kind kind, float scale);

#endif
