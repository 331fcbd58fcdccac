/* Batched products with tiles of Q4_K, Q5_K. */
#include "backend/cuda/matmul_batch.cuh"

MATMUL_BATCH_ALL(Q4_K)
MATMUL_BATCH_ALL(Q5_K)

MATMUL_WIDE_ALL(Q4_K)
MATMUL_WIDE_ALL(Q5_K)

MATMUL_EXPERTS_ALL(Q4_K)
MATMUL_EXPERTS_ALL(Q5_K)
