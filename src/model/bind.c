/* Binding: tensors looked up by name and checked for shape. */
#include "model/bind.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/ref/unpack.h"

enum { NAME_BYTES = 128 };

static lace_status wrong_shape(lace_error *err, const char *name, const tensor *t,
                               const shape *expected)
{
    char found[96], wanted[96];
    return error_set(err, LACE_E_SHAPE, "E_SHAPE: tensor %s: shape %s, expected %s", name,
                     shape_format(&t->shape, found), shape_format(expected, wanted));
}

/* The tensor of that name and shape. Trailing dimensions of 1 do not matter. */
static lace_status find(const model *m, const char *name, shape expected, const tensor **out,
                        lace_error *err)
{
    const tensor *t = weights_find(m->files, name);
    *out = NULL;
    if (!t)
        return error_set(err, LACE_E_META, "E_META: tensor %s is missing", name);
    for (int i = 0; i < TENSOR_MAX_DIMS; i++) {
        int64_t has = i < t->shape.n_dims ? t->shape.dims[i] : 1;
        int64_t wants = i < expected.n_dims ? expected.dims[i] : 1;
        if (has != wants)
            return wrong_shape(err, name, t, &expected);
    }
    if (!unpack_ref[t->type])
        return error_set(err, LACE_E_TENSOR_TYPE, "E_TENSOR_TYPE: %s: no arithmetic for type %s", name,
                         dtype_describe(t->type)->name);
    *out = t;
    return LACE_OK;
}

static const matmul_impl *choose_impl(const model *m, dtype type)
{
    switch (m->mode) {
    case WEIGHTS_IN_PLACE:
        return m->kernels.in_place[type];
    case WEIGHTS_EXACT:
        return m->kernels.exact[type];
    default:
        return m->kernels.packed[type];
    }
}

/* Choose the kernel, and remember that the matrix must be packed for it. */
static lace_status add_matrix(model *m, weight *out, const tensor *t, lace_error *err)
{
    if (m->n_matrices == m->matrices_capacity) {
        int32_t capacity = m->matrices_capacity ? 2 * m->matrices_capacity : 64;
        model_matrix *grown = mem_realloc(m->matrices, (size_t)capacity * sizeof *grown);
        if (!grown)
            return error_nomem(err, "the list of matrices");
        m->matrices = grown;
        m->matrices_capacity = capacity;
    }
    int64_t n_cols = t->shape.dims[0], n_rows = t->shape.n_dims > 1 ? t->shape.dims[1] : 1;
    const matmul_impl *impl = choose_impl(m, t->type);
    /* Kernels with int8 activations work on blocks of 32. */
    if (impl->act == ACT_Q8 && n_cols % 32 != 0)
        impl = m->kernels.exact[t->type];
    *out = (weight){.type = t->type, .n_rows = n_rows, .n_cols = n_cols, .impl = impl};
    model_matrix entry = {.target = out, .source = t};
    if (impl->packed_bytes) {
        entry.offset = m->packed_bytes;
        entry.n_bytes = impl->packed_bytes(t->type, n_rows, n_cols);
        uint64_t rounded = (entry.n_bytes + 4095) & ~(uint64_t)4095;
        m->packed_bytes += rounded;
    } else {
        out->data = t->data;
        m->in_place_bytes += t->n_bytes;
    }
    m->matrices[m->n_matrices++] = entry;
    return LACE_OK;
}

lace_status bind_matrix(model *m, weight *out, int64_t n_rows, int64_t n_cols, lace_error *err,
                        const char *name, ...)
{
    char full[NAME_BYTES];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof full, name, args);
    va_end(args);
    const tensor *t;
    TRY(find(m, full, (shape){2, {n_cols, n_rows}}, &t, err));
    return add_matrix(m, out, t, err);
}

static lace_status bind_floats(model *m, const float **out, int64_t n, lace_error *err,
                               const char *name)
{
    const tensor *t;
    *out = NULL;
    TRY(find(m, name, (shape){1, {n}}, &t, err));
    float *values = arena_alloc(&m->memory, (size_t)n, sizeof *values);
    if (!values)
        return error_nomem(err, name);
    unpack_row(t->type, t->data, n, values);
    *out = values;
    return LACE_OK;
}

lace_status bind_vector(model *m, const float **out, int64_t n, lace_error *err, const char *name, ...)
{
    char full[NAME_BYTES];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof full, name, args);
    va_end(args);
    return bind_floats(m, out, n, err, full);
}

lace_status bind_optional(model *m, const float **out, int64_t n, lace_error *err, const char *name,
                          ...)
{
    char full[NAME_BYTES];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof full, name, args);
    va_end(args);
    *out = NULL;
    return bind_has(m, full) ? bind_floats(m, out, n, err, full) : LACE_OK;
}

bool bind_has(const model *m, const char *name)
{
    return weights_find(m->files, name) != NULL;
}

lace_status bind_embedding(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    shape table = {2, {c->n_embd, c->n_vocab}};
    const tensor *output;
    TRY(find(m, "token_embd.weight", table, &m->embedding, err));
    bool is_tied = !bind_has(m, "output.weight");
    TRY(find(m, is_tied ? "token_embd.weight" : "output.weight", table, &output, err));
    TRY(add_matrix(m, &m->output, output, err));
    /* Rows of the table are read where they lie; a tied one was counted as the output already. */
    if (!is_tied)
        m->in_place_bytes += m->embedding->n_bytes;
    return LACE_OK;
}
