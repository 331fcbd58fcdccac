/* What aarch64 has above the plain kernels, level by level. */
#if defined(__aarch64__)
#include "backend/cpu/columns.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/tiles.h"

/* ---- In place ------------------------------------------------------------------------------- */

#define X(id, type) CPU_IN_PLACE(id, type, neon, ACT_Q8)
CPU_MATMULS_QUANT(X)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, neon, ACT_ROTATED_Q8)
CPU_MATMULS_LACE(X)
CPU_MATMULS_TRELLIS(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, dotprod, ACT_Q8)
CPU_MATMULS_QUANT(X)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, dotprod, ACT_ROTATED_Q8)
CPU_MATMULS_LACE(X)
CPU_MATMULS_TRELLIS(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, i8mm, ACT_Q8)
CPU_MATMULS_QUANT(X)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, i8mm, ACT_ROTATED_Q8)
CPU_MATMULS_LACE(X)
CPU_MATMULS_TRELLIS(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, neon, ACT_F32)
CPU_MATMULS_FLOAT(X)
#undef X

/* ---- The table ------------------------------------------------------------------------------- */

#define USE_QUANTS(table, level)                                                                   \
    do {                                                                                           \
        CPU_MATMULS_LACE(X)                                                                        \
        CPU_MATMULS_TRELLIS(X)                                                                     \
        CPU_MATMULS_QUANT(X)                                                                       \
        CPU_MATMULS_IQ(X)                                                                          \
    } while (0)

void kernels_init_neon(kernel_table *table)
{
    OPS_USE(table, neon);
#define X(id, type) CPU_USE(table, id, type, neon) table->exact[DTYPE_##id] = &matmul_##type##_neon;
    CPU_MATMULS_FLOAT(X)
#undef X
#define X(id, type) CPU_USE(table, id, type, neon)
    USE_QUANTS(table, neon);
#undef X
    table->packed[DTYPE_M4] = table->packed[DTYPE_M8] = table->packed[DTYPE_N24] =
        &matmul_sparse_neon;
    table->packed[DTYPE_M4R] = &matmul_sparse_rotated_neon;
    COLUMNS_USE(neon)
#define X(id, type) CPU_USE(table, id, type, dotprod)
    if (table->level >= CPU_NEON_DOT) {
        USE_QUANTS(table, dotprod);
        COLUMNS_USE(dotprod)
    }
#undef X
#define X(id, type) CPU_USE(table, id, type, i8mm)
    if (table->level >= CPU_NEON_I8MM)
        USE_QUANTS(table, i8mm);
#undef X
}

#else
typedef int kernels_arm_is_empty; /* C wants something in every file. */
#endif
