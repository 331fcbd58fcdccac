/* Batched products with tiles of F16, BF16. */
#include "backend/cuda/matmul_batch.cuh"

MATMUL_BATCH_ALL(F16)
MATMUL_BATCH_ALL(BF16)

MATMUL_EXPERTS_ALL(F16)
MATMUL_EXPERTS_ALL(BF16)
