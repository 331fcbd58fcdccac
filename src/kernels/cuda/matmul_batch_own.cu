/* Batched products with tiles of S3, S4, S8, N24, M4. */
#include "kernels/cuda/matmul_batch.cuh"

MATMUL_BATCH_ALL(S3)
MATMUL_BATCH_ALL(S4)
MATMUL_BATCH_ALL(S8)
MATMUL_BATCH_ALL(N24)
MATMUL_BATCH_ALL(M4)
