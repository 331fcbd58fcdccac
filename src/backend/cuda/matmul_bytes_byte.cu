/* int8 products with tiles of Q8_0, Q8_1. */
#include "backend/cuda/matmul_bytes.cuh"

MATMUL_BYTES_ALL(Q8_0)
MATMUL_BYTES_ALL(Q8_1)
