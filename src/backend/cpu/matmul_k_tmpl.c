/* Products with the types of 256 values a block. */
#include "backend/cpu/level.h"

/*
 * Types of up to 4 bits are rounded to bytes for many tokens (gemm_bytes.h): TILE_BITS of a weight,
 * and TILE_FIELDS, how many groups in turn have theirs above each other in a byte.
 */
#define TILE_HAS_256       1
#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         LEVEL_PACK
#define QUANT_ACT          ACT_Q8
#define QUANT_DIRECT       LEVEL_DIRECT
#define QUANT_HAS_FEW      LEVEL_HAS_FEW

#define TILE_TYPE   q2_k
#define TILE_BITS   2
#define TILE_FIELDS 4
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE   q3_k
#define TILE_BITS   3
#define TILE_FIELDS 1
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE   q4_k
#define TILE_BITS   4
#define TILE_FIELDS 2
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q5_k
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q6_k
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq4_xs
#include "backend/cpu/matmul_quant_tmpl.h"
