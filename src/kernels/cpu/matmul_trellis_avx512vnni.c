/* Products with trellis types, AVX-512 VNNI. */
#include "kernels/cpu/dot_avx512vnni.h"
#include "kernels/cpu/trellis_avx512.h"
#include "kernels/cpu/unpack_trellis_tmpl.h"

/* Decoding sets the pace, not memory. */
#undef QUANT_HAS_FEW
#define QUANT_HAS_FEW 0

#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         tiles_pack_avx512
#define QUANT_ACT          ACT_ROTATED_Q8

#define TILE_TYPE lace_t2
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t3
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t4
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE lace_t5
#include "kernels/cpu/matmul_quant_tmpl.h"
