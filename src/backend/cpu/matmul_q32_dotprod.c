/* Products with the types of 32 values a block, Advanced SIMD with sdot. */
#include "backend/cpu/dot_dotprod.h"

#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         tiles_pack

#define TILE_TYPE q4_0
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q4_1
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q5_0
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q5_1
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q8_0
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq4_nl
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE mxfp4
#include "backend/cpu/matmul_quant_tmpl.h"
