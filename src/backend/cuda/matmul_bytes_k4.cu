/* int8 products with tiles of Q4_K, Q5_K. */
#include "backend/cuda/matmul_bytes.cuh"

MATMUL_BYTES_ALL(Q4_K)
MATMUL_BYTES_ALL(Q5_K)
