/* Products with lace's own types, Advanced SIMD with usmmla. */
#include "backend/cpu/dot_i8mm.h"

#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         tiles_pack
#define QUANT_ACT          ACT_ROTATED_Q8

#define TILE_TYPE lace_s2
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_s3
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_s4
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_s5
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_s6
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_s8
#include "backend/cpu/matmul_quant_tmpl.h"
