/*
 * Fuzzing sparse matrices: whatever the bytes are, checking says no or gives a matrix whose every
 * row can be read, and whose packed copy has the same rows.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/sparse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ROWS = 64, MAX_VALUES = 1 << 16 }; /* that are read: a row may be long and empty */

static void check_error(lace_status status, const lace_error *err)
{
    if (err->status != status || err->text[0] == 0 || strchr(err->text, '\n'))
        abort();
}

static void compare_rows(const sparse *s, const uint8_t *packed)
{
    float *a = malloc((size_t)s->n_cols * sizeof *a), *b = malloc((size_t)s->n_cols * sizeof *b);
    int64_t n_left = s->n_rows < MAX_ROWS ? s->n_rows : MAX_ROWS;
    if (!a || !b)
        abort();
    for (int64_t row = s->n_rows - n_left; row < s->n_rows; row++) {
        int64_t panel = row / SPARSE_PANEL;
        int r = (int)(row % SPARSE_PANEL);
        sparse_unpack_row(s->kind, sparse_panel(s->where, panel), s->n_cols, r, a);
        sparse_unpack_row(s->kind, sparse_panel(packed, panel), s->n_cols, r, b);
        if (memcmp(a, b, (size_t)s->n_cols * sizeof *a) != 0)
            abort();
    }
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sparse s;
    lace_error err = {0};
    lace_status status = sparse_parse((span){data, size}, &s, &err);
    if (status != LACE_OK) {
        check_error(status, &err);
        return 0;
    }
    if (s.n_rows < 1 || s.n_cols < 1 || s.n_panels < 1)
        abort();
    if (s.n_cols > MAX_VALUES)
        return 0;
    uint64_t n_bytes = sparse_packed_bytes(s.where, s.n_panels);
    if (n_bytes > size + SPARSE_SLACK)
        abort();
    uint8_t *packed = malloc((size_t)n_bytes);
    if (!packed)
        abort();
    /* In two parts, as two workers would. */
    sparse_pack(s.where, s.n_panels, 0, s.n_panels / 2, packed);
    sparse_pack(s.where, s.n_panels, s.n_panels / 2, s.n_panels, packed);
    compare_rows(&s, packed);
    free(packed);
    return 0;
}
