/* What aarch64 has above the plain kernels, level by level. */
#if defined(__aarch64__)
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tiles.h"

static void use_s8(kernel_table *table, const matmul_impl *impl)
{
    for (int type = 0; type < DTYPE_COUNT; type++)
        if (tiles_is_s8((dtype)type))
            table->packed[type] = impl;
}

#define USE_QUANTS(table, level)                                                                   \
    do {                                                                                           \
        CPU_MATMULS_LACE(X)                                                                        \
        CPU_MATMULS_TRELLIS(X)                                                                     \
        CPU_MATMULS_QUANT(X)                                                                       \
        use_s8(table, &matmul_s8_##level);                                                         \
    } while (0)

void kernels_init_neon(kernel_table *table)
{
    ops_init_neon(table);
#define X(id, type) table->packed[DTYPE_##id] = table->exact[DTYPE_##id] = &matmul_##type##_neon;
    CPU_MATMULS_FLOAT(X)
#undef X
#define X(id, type) table->packed[DTYPE_##id] = &matmul_##type##_neon;
    USE_QUANTS(table, neon);
#undef X
    table->packed[DTYPE_M4] = table->packed[DTYPE_M8] = table->packed[DTYPE_N24] =
        &matmul_sparse_neon;
    table->packed[DTYPE_M4R] = &matmul_sparse_rotated_neon;
#define X(id, type) table->packed[DTYPE_##id] = &matmul_##type##_dotprod;
    if (table->level >= CPU_NEON_DOT)
        USE_QUANTS(table, dotprod);
#undef X
#define X(id, type) table->packed[DTYPE_##id] = &matmul_##type##_i8mm;
    if (table->level >= CPU_NEON_I8MM)
        USE_QUANTS(table, i8mm);
#undef X
}

#else
typedef int kernels_arm_is_empty; /* C wants something in every file. */
#endif
