/*
 * Fuzzing importance matrices: whatever the bytes are, they are refused with a line, or every mean
 * of every entry is a number of 0 or more.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "compress/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entry(const imatrix_entry *e)
{
    float *means = malloc((size_t)e->n_cols * sizeof *means);
    if (!means)
        abort();
    for (int64_t expert = 0; expert < e->n_experts; expert++) {
        imatrix_means(e, expert, means);
        for (int64_t i = 0; i < e->n_cols; i++)
            if (!isfinite(means[i]) || means[i] < 0)
                abort();
    }
    free(means);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    imatrix *m = NULL;
    lace_error err = {0};
    lace_status status = imatrix_parse((span){data, size}, &m, &err);
    if (status != LACE_OK) {
        if (m || err.status != status || err.text[0] == 0 || strchr(err.text, '\n'))
            abort();
        return 0;
    }
    for (size_t i = 0; i < imatrix_count(m); i++) {
        imatrix_entry *e = imatrix_at(m, i);
        check_entry(e);
        /* Whatever number of experts the columns of an older file are of. */
        if (e->is_flat && e->n_cols % 2 == 0 && imatrix_fits(e, 2, e->n_cols / 2))
            check_entry(e);
        if (imatrix_find(m, e->name) != e)
            abort();
    }
    imatrix_free(m);
    return 0;
}
