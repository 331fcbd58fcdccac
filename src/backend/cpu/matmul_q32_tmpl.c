/* Products with the types of 32 values a block. */
#include "backend/cpu/level.h"

#define TILE_HAS_256       0
#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         LEVEL_PACK
#define QUANT_ACT          ACT_Q8
#define QUANT_DIRECT       LEVEL_DIRECT
#define QUANT_HAS_FEW      LEVEL_HAS_FEW

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
