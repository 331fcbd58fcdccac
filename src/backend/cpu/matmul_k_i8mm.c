/* Products with the types of 256 values a block, Advanced SIMD with usmmla. */
#include "backend/cpu/dot_i8mm.h"

#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         tiles_pack

#define TILE_TYPE q2_k
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q3_k
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q4_k
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q5_k
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q6_k
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq4_xs
#include "backend/cpu/matmul_quant_tmpl.h"
