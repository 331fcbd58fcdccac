/* Batched products with tiles of Q2_K. */
#include "backend/cuda/matmul_batch.cuh"

MATMUL_BATCH_ALL(Q2_K)

MATMUL_WIDE_ALL(Q2_K)

MATMUL_EXPERTS_ALL(Q2_K)
