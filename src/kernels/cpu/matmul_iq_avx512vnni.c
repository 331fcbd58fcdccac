/* Products with the types that pack_iq.c packs anew, AVX-512 VNNI. */
#include "kernels/cpu/dot_avx512vnni.h"

/* The general walk reads these tiles as fast as memory is. */
#undef QUANT_HAS_FEW
#define QUANT_HAS_FEW 0

#define QUANT_PACKED_BYTES tiles_iq_packed_bytes
#define QUANT_PACK         tiles_iq_pack

#define TILE_TYPE iq3_xxs
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq3_s
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq2
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq1
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE tq2
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q2_0
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE nvfp4
#include "kernels/cpu/matmul_quant_tmpl.h"
