/* int8 products with tiles of S3, S4, S8 */
#include "backend/cuda/matmul_bytes.cuh"

MATMUL_BYTES_ALL(S3)
MATMUL_BYTES_ALL(S4)
MATMUL_BYTES_ALL(S8)
