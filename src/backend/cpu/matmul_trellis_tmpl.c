/* Products with trellis types. */
#include "backend/cpu/level.h"
#include LEVEL_TRELLIS
#include "backend/cpu/unpack_trellis_tmpl.h"

/* The general walk reads these tiles as fast as memory is. */
#define QUANT_HAS_FEW      0
#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         LEVEL_PACK
#define QUANT_ACT          ACT_ROTATED_Q8
#define QUANT_DIRECT       LEVEL_DIRECT_TRELLIS

#define TILE_TYPE lace_t2
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t3
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t4
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t5
#include "backend/cpu/matmul_quant_tmpl.h"
