/* int8 products with tiles of Q6_K, IQ4_XS, Q2_K. */
#include "backend/cuda/matmul_bytes.cuh"

MATMUL_BYTES_ALL(Q6_K)
MATMUL_BYTES_ALL(IQ4_XS)
MATMUL_BYTES_ALL(Q2_K)
