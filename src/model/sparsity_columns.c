/* Activation sparsity of a model: which matrices lie in columns as well. */
#include <inttypes.h>

#include "model/sparsity.h"

static lace_status use_columns(model *m, model_matrix *matrix, lace_error *err)
{
    weight *w = matrix->target;
    text name = matrix->source->name;
    if (device_place_columns(m->device, w))
        return LACE_OK;
    return error_set(err, LACE_E_UNSUPPORTED,
                     "tensor %.*s is %s with %" PRId64
                     " columns: activation sparsity has kernels for f16, q8_0, q6_k, q4_k and "
                     "q4_0, and multiples of 32 (see lace quantize)",
                     text_width(name), name.data, dtype_describe(w->type)->name, w->n_cols);
}

lace_status model_use_columns(model *m, lace_error *err)
{
    for (int32_t i = 0; i < m->n_matrices; i++)
        if (m->matrices[i].target->sparsity)
            TRY(use_columns(m, &m->matrices[i], err));
    return LACE_OK;
}
