/* Products with lace's own types. */
#include "backend/cpu/level.h"

/* The general walk reads these tiles as fast as memory is. */
#define QUANT_HAS_FEW      0
#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         LEVEL_PACK
#define QUANT_ACT          ACT_ROTATED_Q8
#define QUANT_DIRECT       LEVEL_DIRECT

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
