/* What x86-64 has above the plain kernels, level by level. */
#if defined(__x86_64__)
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tiles.h"

static void use_sparse(kernel_table *table, const matmul_impl *impl, const matmul_impl *rotated)
{
    table->packed[DTYPE_M4] = table->packed[DTYPE_M8] = table->packed[DTYPE_N24] = impl;
    table->packed[DTYPE_M4R] = rotated;
}

void kernels_init_avx2(kernel_table *table)
{
    ops_init_avx2(table);
#define X(id, type) table->packed[DTYPE_##id] = table->exact[DTYPE_##id] = &matmul_##type##_avx2;
    CPU_MATMULS_FLOAT(X)
#undef X
#define X(id, type) table->packed[DTYPE_##id] = &matmul_##type##_avx2;
    CPU_MATMULS_QUANT(X)
    CPU_MATMULS_LACE(X)
    CPU_MATMULS_TRELLIS(X)
    CPU_MATMULS_IQ(X)
#undef X
    use_sparse(table, &matmul_sparse_avx2, &matmul_sparse_rotated_avx2);
    table->packed[DTYPE_CSR] = table->exact[DTYPE_CSR] = &matmul_csr_avx2;
    if (table->level != CPU_AVX2_VNNI) /* not a part of AVX-512 */
        return;
#define X(id, type) table->packed[DTYPE_##id] = &matmul_##type##_avx2vnni;
    CPU_MATMULS_QUANT(X)
    CPU_MATMULS_LACE(X)
    CPU_MATMULS_TRELLIS(X)
    CPU_MATMULS_IQ(X)
#undef X
}

void kernels_init_avx512(kernel_table *table)
{
    ops_init_avx512(table);
#define X(id, type) table->packed[DTYPE_##id] = table->exact[DTYPE_##id] = &matmul_##type##_avx512;
    CPU_MATMULS_FLOAT(X)
#undef X
    table->packed[DTYPE_CSR] = table->exact[DTYPE_CSR] = &matmul_csr_avx512;
    if (table->level < CPU_AVX512_VNNI)
        return;
    if (cpu_has_vbmi2())
        use_sparse(table, &matmul_sparse_avx512vbmi2, &matmul_sparse_rotated_avx512vbmi2);
#define X(id, type) table->packed[DTYPE_##id] = &matmul_##type##_avx512vnni;
    CPU_MATMULS_QUANT(X)
    CPU_MATMULS_LACE(X)
    CPU_MATMULS_TRELLIS(X)
    CPU_MATMULS_IQ(X)
#undef X
    table->packed[DTYPE_F16] = &matmul_f16_avx512vnni;
    table->packed[DTYPE_BF16] = &matmul_bf16_avx512vnni;
}

#else
typedef int kernels_x86_is_empty; /* C wants something in every file. */
#endif
