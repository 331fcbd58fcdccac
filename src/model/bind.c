/* Binding: tensors looked up by name and checked for shape. */
#include "model/bind.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/codec/pack.h"
#include "tensor/codec/unpack.h"
#include "tensor/sparse.h"

enum { NAME_BYTES = 128 };

static lace_status wrong_shape(lace_error *err, const char *name, const tensor *t,
                               const shape *expected)
{
    char found[96], wanted[96];
    return error_set(err, LACE_E_SHAPE, "tensor %s: shape %s, expected %s", name,
                     shape_format(&t->shape, found), shape_format(expected, wanted));
}

/* The tensor of that name and shape. Trailing dimensions of 1 do not matter. */
static lace_status find(const model *m, const char *name, shape expected, const tensor **out,
                        lace_error *err)
{
    const tensor *t = weights_find(m->files, name);
    *out = NULL;
    if (!t)
        return error_set(err, LACE_E_META, "tensor %s is missing", name);
    /* Sparse matrices of all experts lie one below the other. */
    if (dtype_is_sparse(t->type) && expected.n_dims == 3)
        expected = (shape){2, {expected.dims[0], expected.dims[1] * expected.dims[2]}};
    for (int i = 0; i < TENSOR_MAX_DIMS; i++) {
        int64_t has = i < t->shape.n_dims ? t->shape.dims[i] : 1;
        int64_t wants = i < expected.n_dims ? expected.dims[i] : 1;
        if (has != wants)
            return wrong_shape(err, name, t, &expected);
    }
    if (!unpack_ref[t->type] && !(dtype_is_sparse(t->type) && expected.n_dims == 2))
        return error_set(err, LACE_E_TENSOR_TYPE, "%s: lace cannot compute with type %s", name,
                         dtype_describe(t->type)->name);
    *out = t;
    return LACE_OK;
}

/* Where rows of a matrix begin: sparse ones have a table of panels. */
static const uint8_t *row_at(const tensor *t, int64_t row)
{
    return t->data + (dtype_is_sparse(t->type)
                          ? 8 * (uint64_t)(row / SPARSE_PANEL)
                          : (uint64_t)row * row_bytes(t->type, t->shape.dims[0]));
}

/* The type of these rows in the model's memory. */
static dtype kept_as(const model *m, const tensor *t, int64_t first_row, int64_t n_rows)
{
    return device_kept_as(m->device, t->type, row_at(t, first_row), n_rows, t->shape.dims[0]);
}

/* Some rows of a tensor, for the device. */
static weight_rows rows_of(const tensor *t, dtype kept, int64_t first_row, int64_t n_rows)
{
    int64_t n_cols = t->shape.dims[0];
    uint64_t total_rows = t->n_values / (uint64_t)n_cols;
    return (weight_rows){.type = t->type,
                         .kept = kept,
                         .blocks = row_at(t, first_row),
                         .n_rows = n_rows,
                         .n_cols = n_cols,
                         .n_bytes = t->n_bytes / total_rows * (uint64_t)n_rows};
}

/* Place a matrix on the device, and remember that it must be loaded there. */
static lace_status place(model *m, const model_matrix *entry, lace_error *err)
{
    if (m->n_matrices == m->matrices_capacity) {
        int32_t capacity = m->matrices_capacity ? 2 * m->matrices_capacity : 64;
        model_matrix *grown = mem_realloc(m->matrices, (size_t)capacity * sizeof *grown);
        if (!grown)
            return error_nomem(err, "the list of matrices");
        m->matrices = grown;
        m->matrices_capacity = capacity;
    }
    TRY(device_place(m->device, &entry->rows, entry->target, err));
    m->matrices[m->n_matrices++] = *entry;
    return LACE_OK;
}

/* The same for some rows of a tensor. */
static lace_status add_matrix(model *m, weight *out, const tensor *t, dtype kept, int64_t first_row,
                              int64_t n_rows, lace_error *err)
{
    if (dtype_is_sparse(t->type) && first_row % SPARSE_PANEL != 0)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "tensor %.*s: sparse matrices are cut at multiples of %d rows, not at "
                         "%" PRId64,
                         text_width(t->name), t->name.data, SPARSE_PANEL, first_row);
    model_matrix entry = {.target = out,
                          .source = t,
                          .first_row = first_row,
                          .rows = rows_of(t, kept, first_row, n_rows)};
    return place(m, &entry, err);
}

/* Expands to `full`, the formatted name. */
#define FORMAT_NAME(name)                                                                          \
    char full[NAME_BYTES];                                                                         \
    va_list args;                                                                                  \
    va_start(args, name);                                                                          \
    vsnprintf(full, sizeof full, name, args);                                                      \
    va_end(args)

lace_status bind_matrix(model *m, weight *out, int64_t n_rows, int64_t n_cols, lace_error *err,
                        const char *name, ...)
{
    FORMAT_NAME(name);
    const tensor *t;
    TRY(find(m, full, (shape){2, {n_cols, n_rows}}, &t, err));
    return add_matrix(m, out, t, kept_as(m, t, 0, n_rows), 0, n_rows, err);
}

lace_status bind_rows(model *m, weight *out, int64_t n_total, int64_t begin, int64_t n_rows,
                      int64_t n_cols, lace_error *err, const char *name, ...)
{
    FORMAT_NAME(name);
    const tensor *t;
    TRY(find(m, full, (shape){2, {n_cols, n_total}}, &t, err));
    return add_matrix(m, out, t, kept_as(m, t, begin, n_rows), begin, n_rows, err);
}

/* Rows [begin, begin + n_rows) of each of n matrices with n_total rows, which t holds. */
static lace_status add_stacked(model *m, weight **out, const tensor *t, int32_t n, int64_t n_total,
                               int64_t begin, int64_t n_rows, lace_error *err)
{
    weight *experts = arena_alloc(&m->memory, (size_t)n, sizeof *experts);
    if (!experts)
        return error_nomem(err, "the list of matrices");
    /* One type for all: kernels go from one expert to the next by their distance. */
    dtype kept = kept_as(m, t, 0, n * n_total);
    for (int32_t e = 0; e < n; e++)
        TRY(add_matrix(m, &experts[e], t, kept, e * n_total + begin, n_rows, err));
    *out = experts;
    return LACE_OK;
}

static lace_status find_expert_rows(model *m, weight **out, int64_t n_total, int64_t begin,
                                    int64_t n_rows, int64_t n_cols, lace_error *err,
                                    const char *name)
{
    const tensor *t;
    int32_t n = m->config.n_experts;
    TRY(find(m, name, (shape){3, {n_cols, n_total, n}}, &t, err));
    return add_stacked(m, out, t, n, n_total, begin, n_rows, err);
}

lace_status bind_heads(model *m, weight **out, int32_t n_heads, int64_t n_rows, int64_t n_cols,
                       lace_error *err, const char *name, ...)
{
    FORMAT_NAME(name);
    const tensor *t;
    TRY(find(m, full, (shape){3, {n_cols, n_rows, n_heads}}, &t, err));
    return add_stacked(m, out, t, n_heads, n_rows, 0, n_rows, err);
}

/* Rows [0, n_cols) of each head of t, [n_heads, n_total, n_rows], with rows and columns swapped. */
static lace_status swap_heads(model *m, const tensor *t, int32_t n_heads, int64_t n_total,
                              int64_t n_rows, int64_t n_cols, tensor **out, lace_error *err)
{
    bool is_exact =
        t->type == DTYPE_F32 || t->type == DTYPE_BF16; /* others need no more than f16 */
    tensor *swapped = arena_alloc(&m->memory, 1, sizeof *swapped);
    if (!swapped)
        return error_nomem(err, "swapped matrices");
    *swapped = (tensor){.name = t->name,
                        .type = is_exact ? DTYPE_F32 : DTYPE_F16,
                        .shape = {3, {n_cols, n_rows, n_heads}}};
    TRY(tensor_bytes(swapped->type, &swapped->shape, &swapped->n_values, &swapped->n_bytes, err));
    uint8_t *data = arena_alloc(&m->memory, (size_t)swapped->n_bytes, 1);
    float *block = mem_alloc((size_t)(2 * n_rows * n_cols) * sizeof *block);
    lace_status status =
        data && block ? weights_prepare(m->files, t, err) : error_nomem(err, "swapped matrices");
    if (status != LACE_OK) {
        mem_free(block);
        return status;
    }
    swapped->data = data;
    for (int32_t h = 0; h < n_heads; h++) {
        float *from = block, *to = block + n_rows * n_cols;
        for (int64_t c = 0; c < n_cols; c++)
            unpack_row(t->type, row_at(t, h * n_total + c), n_rows, from + c * n_rows);
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t c = 0; c < n_cols; c++)
                to[r * n_cols + c] = from[c * n_rows + r];
        pack_row(swapped->type, to, n_rows * n_cols,
                 data + row_bytes(swapped->type, h * n_rows * n_cols));
    }
    mem_free(block);
    *out = swapped;
    return LACE_OK;
}

lace_status bind_split_heads(model *m, weight **k, weight **v, int32_t n_heads, int64_t k_dim,
                             int64_t v_dim, int64_t rank, lace_error *err, const char *name, ...)
{
    FORMAT_NAME(name);
    const tensor *t;
    tensor *swapped = NULL;
    int64_t n_total = k_dim + v_dim;
    TRY(find(m, full, (shape){2, {rank, n_heads * n_total}}, &t, err));
    if (dtype_is_sparse(t->type))
        return error_set(err, LACE_E_UNSUPPORTED, "tensor %s: is of a sparse type", full);
    TRY(swap_heads(m, t, n_heads, n_total, rank, k_dim, &swapped, err));
    TRY(add_stacked(m, k, swapped, n_heads, rank, 0, rank, err));
    return add_stacked(m, v, t, n_heads, n_total, k_dim, v_dim, err);
}

lace_status bind_stack(model *m, weight *out, int64_t n_total, int64_t begin, int64_t n,
                       int64_t n_rows, int64_t n_cols, lace_error *err, const char *name, ...)
{
    FORMAT_NAME(name);
    const tensor *t;
    TRY(find(m, full, (shape){3, {n_cols, n_rows, n_total}}, &t, err));
    dtype kept = kept_as(m, t, begin * n_rows, n * n_rows);
    return add_matrix(m, out, t, kept, begin * n_rows, n * n_rows, err);
}

/* Rows that are looked up one by one must be found without a table of panels. */
static lace_status check_table(const tensor *t, lace_error *err)
{
    if (!dtype_is_sparse(t->type))
        return LACE_OK;
    return error_set(err, LACE_E_UNSUPPORTED,
                     "%.*s is of a sparse type, but single rows must be read from it; store it as "
                     "another type",
                     text_width(t->name), t->name.data);
}

lace_status bind_table(model *m, weight *out, int64_t n_rows, int64_t n_cols, lace_error *err,
                       const char *name, ...)
{
    FORMAT_NAME(name);
    const tensor *t;
    TRY(find(m, full, (shape){2, {n_cols, n_rows}}, &t, err));
    TRY(check_table(t, err));
    model_matrix entry = {.target = out, .source = t, .rows = rows_of(t, t->type, 0, n_rows)};
    entry.rows.is_table = true;
    return place(m, &entry, err);
}

lace_status bind_experts(model *m, weight **out, int64_t n_rows, int64_t n_cols, lace_error *err,
                         const char *name, ...)
{
    FORMAT_NAME(name);
    return find_expert_rows(m, out, n_rows, 0, n_rows, n_cols, err, full);
}

lace_status bind_expert_rows(model *m, weight **out, int64_t n_total, int64_t begin, int64_t n_rows,
                             int64_t n_cols, lace_error *err, const char *name, ...)
{
    FORMAT_NAME(name);
    return find_expert_rows(m, out, n_total, begin, n_rows, n_cols, err, full);
}

/* A vector, or rows of vectors that lie one after the other: n values in all. */
static lace_status find_floats(const model *m, const char *name, int64_t n, const tensor **out,
                               lace_error *err)
{
    const tensor *t = weights_find(m->files, name);
    shape expected = {1, {n}};
    /* A sparse matrix stays none of one dimension, which find() refuses: nothing unpacks it. */
    if (t && t->shape.n_dims == 2 && (int64_t)t->n_values == n && !dtype_is_sparse(t->type))
        expected = t->shape;
    return find(m, name, expected, out, err);
}

static lace_status bind_floats(model *m, const float **out, int64_t n, lace_error *err,
                               const char *name)
{
    const tensor *t;
    *out = NULL;
    TRY(find_floats(m, name, n, &t, err));
    float *values = arena_alloc(&m->memory, (size_t)n, sizeof *values);
    if (!values)
        return error_nomem(err, name);
    TRY(weights_prepare(m->files, t, err));
    unpack_row(t->type, t->data, n, values);
    *out = values;
    return LACE_OK;
}

lace_status bind_vector(model *m, const float **out, int64_t n, lace_error *err, const char *name,
                        ...)
{
    FORMAT_NAME(name);
    return bind_floats(m, out, n, err, full);
}

lace_status bind_optional(model *m, const float **out, int64_t n, lace_error *err, const char *name,
                          ...)
{
    FORMAT_NAME(name);
    *out = NULL;
    return bind_has(m, "%s", full) ? bind_floats(m, out, n, err, full) : LACE_OK;
}

lace_status bind_ones(model *m, const float **out, int64_t n, lace_error *err)
{
    float *values = arena_alloc(&m->memory, (size_t)n, sizeof *values);
    *out = values;
    if (!values)
        return error_nomem(err, "a norm");
    for (int64_t i = 0; i < n; i++)
        values[i] = 1;
    return LACE_OK;
}

bool bind_has(const model *m, const char *name, ...)
{
    FORMAT_NAME(name);
    return weights_find(m->files, full) != NULL;
}

/* The table of embeddings; is_shared: the output matrix is made of the same tensor. */
static lace_status place_table(model *m, bool is_shared, lace_error *err)
{
    m->table_rows = rows_of(m->embedding, m->embedding->type, 0, m->config.n_vocab);
    m->table_rows.is_table = true;
    m->table_rows.is_shared = is_shared;
    return device_place(m->device, &m->table_rows, &m->table, err);
}

static lace_status find_embedding(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    TRY(find(m, "token_embd.weight", (shape){2, {c->n_embd, c->n_vocab}}, &m->embedding, err));
    return check_table(m->embedding, err);
}

lace_status bind_input(model *m, lace_error *err)
{
    TRY(find_embedding(m, err));
    return place_table(m, false, err);
}

int64_t bind_n_rows(const model *m, const char *name, ...)
{
    FORMAT_NAME(name);
    const tensor *t = weights_find(m->files, full);
    return !t ? 0 : t->shape.n_dims > 1 ? t->shape.dims[1] : 1;
}

lace_status bind_embedding(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    shape table = {2, {c->n_embd, c->n_vocab}};
    const tensor *output;
    TRY(find_embedding(m, err));
    bool is_tied = !bind_has(m, "output.weight");
    TRY(find(m, is_tied ? "token_embd.weight" : "output.weight", table, &output, err));
    TRY(add_matrix(m, &m->output, output, kept_as(m, output, 0, c->n_vocab), 0, c->n_vocab, err));
    return place_table(m, is_tied, err);
}
