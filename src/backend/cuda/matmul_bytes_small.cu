/* int8 products with tiles of Q4_0, Q4_1, NL4, FP4. */
#include "backend/cuda/matmul_bytes.cuh"

MATMUL_BYTES_ALL(Q4_0)
MATMUL_BYTES_ALL(Q4_1)
MATMUL_BYTES_ALL(NL4)
MATMUL_BYTES_ALL(FP4)
