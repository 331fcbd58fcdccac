/* One token's attention where the cache is of q8_0. */
#include "backend/cuda/decode_attend_rows.cuh"

ATTEND_ROWS(64, _bytes, true)
ATTEND_ROWS(96, _bytes, true)
ATTEND_ROWS(128, _bytes, true)
ATTEND_ROWS(256, _bytes, true)
