/* Everything but matrix products: its place in the table, by CPU level. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/ops.h"

#define FILL(table, level)                                                                         \
    do {                                                                                           \
        (table)->ops[OP_RMS_NORM] = rms_norm_##level;                                              \
        (table)->ops[OP_QUANTIZE] = quantize_##level;                                              \
        (table)->ops[OP_ROTATE_QUANTIZE] = rotate_quantize_##level;                                \
        (table)->ops[OP_RMS_NORM_QUANTIZE] = rms_norm_quantize_##level;                            \
        (table)->ops[OP_ADD] = add_##level;                                                        \
        (table)->ops[OP_GLU] = glu_##level;                                                        \
        (table)->glu_row = glu_row_##level;                                                        \
        (table)->ops[OP_ROPE] = rope_##level;                                                      \
        (table)->ops[OP_KV_WRITE] = kv_write_##level;                                              \
        (table)->ops[OP_ROPE_KV] = rope_kv_##level;                                                \
        (table)->ops[OP_ATTEND] = (table)->exact_attend = attend_##level;                          \
    } while (0)

#if defined(__x86_64__)

void ops_init_avx2(kernel_table *table)
{
    FILL(table, avx2);
}

void ops_init_avx512(kernel_table *table)
{
    FILL(table, avx512);
}

#elif defined(__aarch64__)

void ops_init_neon(kernel_table *table)
{
    FILL(table, neon);
}

#endif
