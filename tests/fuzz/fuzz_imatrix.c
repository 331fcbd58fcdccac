/*
 * Fuzzing importance matrices: whatever the bytes are, they are refused with a line, or every mean
 * of every entry is a number of 0 or more.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "compress/imatrix.h"
#include "formats/gguf.h"

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
    /* Entries are found by their names, which the file has: it was parsed before. */
    gguf *g = NULL;
    size_t n = 0;
    if (gguf_parse((span){data, size}, &g, &err) != LACE_OK)
        abort();
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        text name = gguf_tensor_at(g, i)->name;
        const imatrix_entry *e =
            name.size > 8 ? imatrix_find(m, (text){name.data, name.size - 8}) : NULL;
        if (e)
            check_entry(e);
        n += e != NULL;
    }
    if (n < imatrix_count(m))
        abort();
    gguf_free(g);
    imatrix_free(m);
    return 0;
}
