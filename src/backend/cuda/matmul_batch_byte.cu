/* Batched products with tiles of Q8_0, Q8_1. */
#include "backend/cuda/matmul_batch.cuh"

MATMUL_BATCH_ALL(Q8_0)
MATMUL_BATCH_ALL(Q8_1)

MATMUL_WIDE_ALL(Q8_0)
MATMUL_WIDE_ALL(Q8_1)

MATMUL_EXPERTS_ALL(Q8_0)
MATMUL_EXPERTS_ALL(Q8_1)
