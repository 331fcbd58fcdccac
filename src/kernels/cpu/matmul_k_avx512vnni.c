/* Products with the types of 256 values a block, AVX-512 VNNI. */
#include "kernels/cpu/dot_avx512vnni.h"

#define TILE_HAS_256       1
#define QUANT_PACKED_BYTES tiles_packed_bytes
#define QUANT_PACK         tiles_pack

#define TILE_TYPE q2_k
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q3_k
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q4_k
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q5_k
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE q6_k
#include "kernels/cpu/matmul_quant_tmpl.h"

#define TILE_TYPE iq4_xs
#include "kernels/cpu/matmul_quant_tmpl.h"
