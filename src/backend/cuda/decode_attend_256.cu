/* One token's attention to heads of 256 values, in a cache of f16. */
#include "backend/cuda/decode_attend_rows.cuh"

ATTEND_ROWS(256, , false)
