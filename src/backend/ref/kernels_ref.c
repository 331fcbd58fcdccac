/* The plain kernels' place in the table: every operation and every type has one. */
#include <string.h>

#include "backend/cpu/columns.h"
#include "backend/ref/ref.h"
#include "tensor/sparse.h"

/* An operation without a plain kernel does not link. */
const kernel_fn kernels_ref[OP_COUNT] = {
#define X(id, name, ...) [OP_##id] = name##_ref,
#include "ops/ops.def"
#undef X
};

void kernels_init_ref(kernel_table *table)
{
    memcpy(table->ops, kernels_ref, sizeof table->ops);
    table->exact_attend = attend_ref;
    table->glu_row = glu_row_ref;
    COLUMNS_USE(ref)
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const matmul_impl *impl = dtype_is_sparse((dtype)i) ? &matmul_sparse_ref
                                  : unpack_ref[i]           ? &matmul_rows_ref
                                                            : NULL;
        table->packed[i] = table->in_place[i] = table->exact[i] = impl;
    }
}
