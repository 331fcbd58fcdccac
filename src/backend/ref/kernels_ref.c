/* The plain kernels' place in the table: every operation and every type has one. */
#include "backend/cpu/columns.h"
#include "backend/ref/ref.h"
#include "tensor/sparse.h"

void kernels_init_ref(kernel_table *table)
{
#define SET(id, fn) table->ops[OP_##id] = fn
    SET(EMBED, embed_ref);
    SET(GATHER, gather_ref);
    SET(ROPE_TABLE, rope_table_ref);
    SET(RMS_NORM, rms_norm_ref);
    SET(QUANTIZE, quantize_ref);
    SET(ROTATE_QUANTIZE, rotate_quantize_ref);
    SET(THIN, thin_ref);
    SET(MATMUL, matmul_step);
    SET(ADD, add_ref);
    SET(GLU, glu_ref);
    SET(ROPE, rope_ref);
    SET(KV_WRITE, kv_write_ref);
    SET(ATTEND, attend_ref);
    SET(SOFTCAP, softcap_ref);
    SET(ROUTE, route_ref);
    SET(MOE_GLU, moe_glu_step);
    SET(MOE_DOWN, moe_down_step);
    SET(RMS_NORM_QUANTIZE, rms_norm_quantize_ref);
    SET(MATMUL_ADD, matmul_add_step);
    SET(MATMUL_GROUP, matmul_step);
    SET(MATMUL_GLU, matmul_glu_step);
    SET(ROPE_KV, rope_kv_ref);
    SET(MATMUL_JOIN, matmul_join_step);
#undef SET
    table->exact_attend = attend_ref;
    table->glu_row = glu_row_ref;
    COLUMNS_USE(ref)
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const matmul_impl *impl = dtype_is_sparse((dtype)i) ? &matmul_sparse_ref
                                  : unpack_ref[i]           ? &matmul_ref
                                                            : NULL;
        table->packed[i] = table->in_place[i] = table->exact[i] = impl;
    }
}
