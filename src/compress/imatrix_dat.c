/*
 * The form of importance matrices that llama.cpp wrote until 2025, imatrix.dat:
 *
 *     i32 n_entries
 *     of each:  i32 n_name, name, i32 n_calls, i32 n_values, f32 values[n_values]
 *     i32 n_chunks, i32 n_dataset, dataset       not in the oldest
 *
 * A value is the mean square of an input times n_calls; the experts of a mixture are one after the
 * other. All numbers are little-endian.
 */
#include "compress/imatrix.h"
#include "formats/gguf.h"

enum { MAX_ENTRIES = GGUF_MAX_TENSORS / 2 };

/* A count that must be from `least` to `most`. */
static lace_status read_count(cursor *c, const char *what, int32_t least, int32_t most,
                              int32_t *out, lace_error *err)
{
    uint32_t n;
    size_t at = c->at;
    TRY(cursor_u32(c, &n, what, err));
    *out = (int32_t)n;
    if (*out < least || *out > most)
        return error_set(err, LACE_E_COUNT,
                         "is not an importance matrix: it is not GGUF, and read as llama.cpp's "
                         "older format its %s at byte %zu is %d",
                         what, at, *out);
    return LACE_OK;
}

static lace_status read_entry(cursor *c, imatrix *m, lace_error *err)
{
    int32_t n_name, n_calls, n_values;
    span name, values;
    imatrix_entry *e;
    TRY(read_count(c, "size of a name", 1, GGUF_MAX_NAME_BYTES, &n_name, err));
    TRY(cursor_take(c, (uint64_t)n_name, &name, "name", err));
    TRY(read_count(c, "number of calls", 0, INT32_MAX, &n_calls, err));
    TRY(read_count(c, "number of values", 1, INT32_MAX, &n_values, err));
    TRY(cursor_take(c, (uint64_t)n_values * sizeof(float), &values, "values", err));
    TRY(imatrix_add_flat(m, (text){(const char *)name.data, name.size}, n_values, &e, err));
    for (int32_t i = 0; i < n_values; i++) {
        e->sums[i] = load_f32(values.data + 4 * (size_t)i);
        e->counts[i] = n_calls ? (float)n_calls : 1; /* without calls they are means already */
    }
    return imatrix_check_entry(e, err);
}

lace_status imatrix_parse_dat(span bytes, imatrix *m, lace_error *err)
{
    cursor c = {bytes, 0};
    int32_t n;
    TRY(read_count(&c, "number of entries", 1, MAX_ENTRIES, &n, err));
    for (int32_t i = 0; i < n; i++)
        TRY(read_entry(&c, m, err));
    return LACE_OK;
}
