/*
 * Sparse matrices of a file under their own names: the blob NAME.sparse is shown as a tensor NAME
 * of a sparse type, whose data is the blob's table of panels (tensor/sparse.h).
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/weights_impl.h"
#include "tensor/sparse.h"

static bool is_blob(const tensor *t)
{
    size_t n = strlen(SPARSE_SUFFIX);
    return t->type == DTYPE_I8 && t->name.size > n &&
           memcmp(t->name.data + t->name.size - n, SPARSE_SUFFIX, n) == 0;
}

static void free_view(void *user)
{
    mem_free(user);
}

static lace_status show_blob(const tensor *blob, tensor *out, lace_error *err)
{
    sparse s;
    lace_status status = sparse_parse((span){blob->data, (size_t)blob->n_bytes}, &s, err);
    if (status != LACE_OK) {
        char name[80];
        snprintf(name, sizeof name, "tensor %.*s", text_width(blob->name), blob->name.data);
        return error_prefix(err, status, name);
    }
    *out = (tensor){
        .name = {blob->name.data, blob->name.size - strlen(SPARSE_SUFFIX)},
        .type = sparse_dtype(s.kind),
        .shape = {2, {s.n_cols, s.n_rows}},
        .n_values = (uint64_t)s.n_rows * (uint64_t)s.n_cols,
        .n_bytes = blob->n_bytes - SPARSE_HEADER,
        .data = s.where,
    };
    return LACE_OK;
}

lace_status weights_show_sparse(weights *w, lace_error *err)
{
    size_t n_blobs = 0;
    for (size_t i = 0; i < w->n_tensors; i++)
        n_blobs += is_blob(w->tensors[i]);
    if (n_blobs == 0)
        return LACE_OK;
    tensor *shown = mem_calloc(w->n_tensors, sizeof *shown);
    if (!shown)
        return error_nomem(err, "the directory of a model");
    for (size_t i = 0; i < w->n_tensors; i++) {
        shown[i] = *w->tensors[i];
        lace_status status =
            is_blob(w->tensors[i]) ? show_blob(w->tensors[i], &shown[i], err) : LACE_OK;
        if (status != LACE_OK) {
            mem_free(shown);
            return status;
        }
    }
    weights_view view = {
        .tensors = shown, .n_tensors = w->n_tensors, .free = free_view, .user = shown};
    return weights_set_view(w, &view, err);
}
