/*
 * Sparse matrices of a file under their own names: the blob NAME.sparse is shown as a tensor NAME
 * of a sparse type, whose data is the blob's table of panels (tensor/sparse.h).
 *
 * Kernels follow what a blob says: where its panels are, how many values a mask has, which columns
 * are not zero. So a blob is copied out of its file and the copy is checked: what is checked is
 * what is used, whatever happens to the file.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/weights_impl.h"
#include "tensor/sparse.h"

typedef struct sparse_view {
    tensor *shown;
    const tensor **own; /* [n]: the blobs, and tensors that are shown as they are */
} sparse_view;

static bool is_blob(const tensor *t)
{
    size_t n = strlen(SPARSE_SUFFIX);
    return t->type == DTYPE_I8 && t->name.size > n &&
           memcmp(t->name.data + t->name.size - n, SPARSE_SUFFIX, n) == 0;
}

static void free_view(void *user)
{
    sparse_view *v = user;
    if (v) {
        mem_free_all(v->shown, v->own);
    }
    mem_free(v);
}

static lace_status fail(const tensor *blob, lace_status status, lace_error *err)
{
    char name[80];
    snprintf(name, sizeof name, "tensor %.*s", text_width(blob->name), blob->name.data);
    return error_prefix(err, status, name);
}

/* What the header says that the matrix is. */
static lace_status show_blob(const tensor *blob, tensor *out, lace_error *err)
{
    uint8_t header[SPARSE_HEADER] = {0};
    sparse s;
    if (blob->n_bytes >= SPARSE_HEADER)
        memcpy(header, blob->data, SPARSE_HEADER);
    lace_status status =
        sparse_parse_header((span){header, SPARSE_HEADER}, (size_t)blob->n_bytes, &s, err);
    if (status != LACE_OK)
        return fail(blob, status, err);
    *out = (tensor){
        .name = {blob->name.data, blob->name.size - strlen(SPARSE_SUFFIX)},
        .type = sparse_dtype(s.kind),
        .shape = {2, {s.n_cols, s.n_rows}},
        .n_values = (uint64_t)s.n_rows * (uint64_t)s.n_cols,
        .n_bytes = blob->n_bytes - SPARSE_HEADER,
    };
    return LACE_OK;
}

/* Copy, then check the copy; the header must still say what was shown. */
static lace_status make(void *user, size_t i, uint8_t *out, lace_error *err)
{
    const sparse_view *v = user;
    const tensor *blob = v->own[i], *t = &v->shown[i];
    uint8_t *copy = out - SPARSE_HEADER;
    sparse s;
    memcpy(copy, blob->data, (size_t)blob->n_bytes);
    lace_status status = sparse_parse((span){copy, (size_t)blob->n_bytes}, &s, err);
    if (status == LACE_OK && (sparse_dtype(s.kind) != t->type || s.n_cols != t->shape.dims[0] ||
                              s.n_rows != t->shape.dims[1]))
        status = error_set(err, LACE_E_IO, "the file was changed while it was read");
    return status == LACE_OK ? status : fail(blob, status, err);
}

lace_status weights_show_sparse(weights *w, lace_error *err)
{
    size_t n_blobs = 0, n = w->n_tensors;
    for (size_t i = 0; i < n; i++)
        n_blobs += is_blob(w->tensors[i]);
    if (n_blobs == 0)
        return LACE_OK;
    sparse_view *v = mem_calloc(1, sizeof *v);
    if (v) {
        v->shown = mem_calloc(n, sizeof *v->shown);
        v->own = mem_calloc(n, sizeof *v->own);
    }
    lace_status status = LACE_OK;
    if (!v || !v->shown || !v->own)
        status = error_nomem(err, "the directory of a model");
    for (size_t i = 0; status == LACE_OK && i < n; i++) {
        v->own[i] = w->tensors[i];
        v->shown[i] = *w->tensors[i];
        if (is_blob(v->own[i]))
            status = show_blob(v->own[i], &v->shown[i], err);
    }
    if (status != LACE_OK) {
        free_view(v);
        return status;
    }
    weights_view view = {.tensors = v->shown,
                         .n_tensors = n,
                         .lead_bytes = SPARSE_HEADER,
                         .make = make,
                         .free = free_view,
                         .user = v};
    TRY(weights_set_view(w, &view, err));
    for (size_t i = 0; i < n; i++)
        TRY(weights_prepare(w, weights_at(w, i), err));
    return LACE_OK;
}
