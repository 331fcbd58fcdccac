/* Products with trellis types, AVX-512 VNNI. */
#include "backend/cpu/dot_avx512vnni.h"
#include "backend/cpu/trellis_avx512.h"
#include "backend/cpu/unpack_trellis_tmpl.h"

/*
 * Decoding sets the pace, not memory: from the 9th token on a panel would be decoded once for every
 * 8 of them, so it is decoded first. tales-26m in T3, two cores of a Xeon, tokens a second of 16 and
 * 32 texts at once: 2,449 and 2,680 straight from the tiles, 3,419 and 4,194 to 5,480 this way.
 */
#undef QUANT_HAS_FEW
#define QUANT_HAS_FEW 0
#undef QUANT_DIRECT
#define QUANT_DIRECT 8

#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         tiles_pack_avx512
#define QUANT_ACT          ACT_ROTATED_Q8

#define TILE_TYPE lace_t2
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t3
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t4
#include "backend/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t5
#include "backend/cpu/matmul_quant_tmpl.h"
