/* Products with the types that pack_iq.c packs anew. */
#include "backend/cpu/level.h"

/* The general walk reads these tiles as fast as memory is. */
#define QUANT_HAS_FEW      0
#define QUANT_PACKED_BYTES tiles_iq_packed_bytes
#define QUANT_PACK         tiles_iq_pack
#define QUANT_ACT          ACT_Q8
#define QUANT_DIRECT       LEVEL_DIRECT

#define TILE_TYPE iq3_xxs
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq3_s
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq2
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq1
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE tq2
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q2_0
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE nvfp4
#include "backend/cpu/matmul_quant_tmpl.h"
