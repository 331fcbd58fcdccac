/* Activation sparsity of a model: which matrices lie in columns as well. */
#include <inttypes.h>

#include "backend/cpu/columns.h"
#include "model/thinning.h"

static lace_status use_columns(model *m, model_matrix *matrix, lace_error *err)
{
    weight *w = matrix->target;
    const columns_impl *impl = m->kernels.columns[w->type];
    /* Exact arithmetic has no kernel of its own: thresholds hold, and everything is read. */
    if (m->mode == WEIGHTS_EXACT)
        return LACE_OK;
    text name = matrix->source->name;
    if (!impl || !columns_has(w->type, w->n_cols) || impl->act != w->impl->act)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "tensor %.*s is %s with %" PRId64
                         " columns: activation sparsity has kernels for f16, q8_0, q6_k, q4_k and "
                         "q4_0, and multiples of 32 (see lace quantize)",
                         text_width(name), name.data, dtype_describe(w->type)->name, w->n_cols);
    w->columns_impl = impl;
    matrix->columns_offset = m->packed_bytes;
    matrix->columns_bytes = columns_bytes(w->type, w->n_rows, w->n_cols);
    m->packed_bytes += (matrix->columns_bytes + 4095) & ~(uint64_t)4095;
    return LACE_OK;
}

lace_status model_use_columns(model *m, lace_error *err)
{
    for (int32_t i = 0; i < m->n_matrices; i++)
        if (m->matrices[i].target->thin)
            TRY(use_columns(m, &m->matrices[i], err));
    return LACE_OK;
}
