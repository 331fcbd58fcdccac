/* Products with all types that are packed as S8, AVX-512 VNNI. */
#include "kernels/cpu/dot_avx512vnni.h"

#define TILE_TYPE          s8
#define TILE_HAS_256       0
#define QUANT_PACKED_BYTES tiles_s8_packed_bytes
#define QUANT_PACK         tiles_s8_pack
#include "kernels/cpu/matmul_quant_tmpl.h"
