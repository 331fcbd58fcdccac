/* Batched products with tiles of Q4_0, Q4_1, NL4, FP4. */
#include "kernels/cuda/matmul_batch.cuh"

MATMUL_BATCH_ALL(Q4_0)
MATMUL_BATCH_ALL(Q4_1)
MATMUL_BATCH_ALL(NL4)
MATMUL_BATCH_ALL(FP4)
