/* Batched products with tiles of Q6_K, IQ4_XS. */
#include "backend/cuda/matmul_batch.cuh"

MATMUL_BATCH_ALL(Q6_K)
MATMUL_BATCH_ALL(IQ4_XS)

MATMUL_WIDE_ALL(Q6_K)
MATMUL_WIDE_ALL(IQ4_XS)

MATMUL_EXPERTS_ALL(Q6_K)
MATMUL_EXPERTS_ALL(IQ4_XS)
