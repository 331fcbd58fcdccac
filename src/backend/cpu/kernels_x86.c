/* What x86-64 has above the plain kernels, level by level. */
#if defined(__x86_64__)
#include "backend/cpu/columns.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/tiles.h"

/* ---- In place ------------------------------------------------------------------------------- */

#define X(id, type) CPU_IN_PLACE(id, type, avx2, ACT_Q8)
CPU_MATMULS_QUANT(X)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx2, ACT_ROTATED_Q8)
CPU_MATMULS_LACE(X)
CPU_MATMULS_TRELLIS(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx2vnni, ACT_Q8)
CPU_MATMULS_QUANT(X)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx2vnni, ACT_ROTATED_Q8)
CPU_MATMULS_LACE(X)
CPU_MATMULS_TRELLIS(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx512vnni, ACT_Q8)
CPU_MATMULS_QUANT(X)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx512vnni, ACT_ROTATED_Q8)
CPU_MATMULS_LACE(X)
CPU_MATMULS_TRELLIS(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx2, ACT_F32)
CPU_MATMULS_FLOAT(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx512, ACT_F32)
CPU_MATMULS_FLOAT(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx512vbmi, ACT_Q8)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, type) CPU_IN_PLACE(id, type, avx512vbmi, ACT_ROTATED_Q8)
CPU_MATMULS_LACE(X)
#undef X
CPU_IN_PLACE(F16, f16, avx512vnni, ACT_F32)
CPU_IN_PLACE(BF16, bf16, avx512vnni, ACT_F32)

/* ---- The table ------------------------------------------------------------------------------- */

static void use_sparse(kernel_table *table, const matmul_impl *impl, const matmul_impl *rotated)
{
    table->packed[DTYPE_M4] = table->packed[DTYPE_M8] = table->packed[DTYPE_N24] = impl;
    table->packed[DTYPE_M4R] = rotated;
}

void kernels_init_avx2(kernel_table *table)
{
    OPS_USE(table, avx2);
#define X(id, type) CPU_USE(table, id, type, avx2) table->exact[DTYPE_##id] = &matmul_##type##_avx2;
    CPU_MATMULS_FLOAT(X)
#undef X
#define X(id, type) CPU_USE(table, id, type, avx2)
    CPU_MATMULS_QUANT(X)
    CPU_MATMULS_LACE(X)
    CPU_MATMULS_TRELLIS(X)
    CPU_MATMULS_IQ(X)
#undef X
    use_sparse(table, &matmul_sparse_avx2, &matmul_sparse_rotated_avx2);
    table->packed[DTYPE_CSR] = table->exact[DTYPE_CSR] = &matmul_csr_avx2;
    COLUMNS_USE(avx2)
    if (table->level != CPU_AVX2_VNNI) /* not a part of AVX-512 */
        return;
#define X(id, type) CPU_USE(table, id, type, avx2vnni)
    CPU_MATMULS_QUANT(X)
    CPU_MATMULS_LACE(X)
    CPU_MATMULS_TRELLIS(X)
    CPU_MATMULS_IQ(X)
#undef X
}

void kernels_init_avx512(kernel_table *table)
{
    OPS_USE(table, avx512);
#define X(id, type)                                                                                \
    CPU_USE(table, id, type, avx512) table->exact[DTYPE_##id] = &matmul_##type##_avx512;
    CPU_MATMULS_FLOAT(X)
#undef X
    table->packed[DTYPE_CSR] = table->exact[DTYPE_CSR] = &matmul_csr_avx512;
    if (table->level < CPU_AVX512_VNNI)
        return;
    table->ops[OP_ATTEND] = attend_avx512vnni;
#define X(id, type) CPU_USE(table, id, type, avx512vnni)
    CPU_MATMULS_QUANT(X)
    CPU_MATMULS_LACE(X)
    CPU_MATMULS_TRELLIS(X)
    CPU_MATMULS_IQ(X)
#undef X
    COLUMNS_USE(avx512vnni)
    CPU_USE(table, F16, f16, avx512vnni)
    CPU_USE(table, BF16, bf16, avx512vnni)
    if (table->level < CPU_AVX512_VBMI)
        return;
    if (cpu_has_vbmi2())
        use_sparse(table, &matmul_sparse_avx512vbmi2, &matmul_sparse_rotated_avx512vbmi2);
#define X(id, type) CPU_USE(table, id, type, avx512vbmi)
    CPU_MATMULS_LACE(X)
    CPU_MATMULS_IQ(X)
#undef X
}

#else
typedef int kernels_x86_is_empty; /* C wants something in every file. */
#endif
