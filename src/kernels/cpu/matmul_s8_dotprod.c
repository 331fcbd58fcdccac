/* Products with all types that are packed as S8, Advanced SIMD with sdot. */
#include "kernels/cpu/dot_dotprod.h"

#define TILE_TYPE          s8
#define QUANT_PACKED_BYTES tiles_s8_packed_bytes
#define QUANT_PACK         tiles_s8_pack
#include "kernels/cpu/matmul_quant_tmpl.h"
