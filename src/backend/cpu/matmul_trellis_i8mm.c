/* Products with trellis types, Advanced SIMD with usmmla. */
#include "backend/cpu/dot_i8mm.h"
#include "backend/cpu/trellis_neon.h"
#include "backend/cpu/unpack_trellis_tmpl.h"

#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         tiles_pack
#define QUANT_ACT          ACT_ROTATED_Q8

#define TILE_TYPE lace_t2
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t3
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t4
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t5
#include "backend/cpu/matmul_quant_tmpl.h"
