/* Products with the types of 32 values a block, AVX-512 VNNI. */
#include "kernels/cpu/cpu.h"

#define TILE_TYPE  q4_0
#define TILE_DTYPE Q4_0
#include "kernels/cpu/matmul_quant_avx512vnni.h"

#define TILE_TYPE  q8_0
#define TILE_DTYPE Q8_0
#include "kernels/cpu/matmul_quant_avx512vnni.h"
