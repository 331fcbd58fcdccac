/* Models in GGUF files: one, or several that each hold a part. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/weights_impl.h"
#include "formats/wrong_file.h"

enum { MAX_PARTS = 9999 };

/* ---- Names of parts -------------------------------------------------------------------------- */

/* The ending of a part's name: "-00001-of-00003.gguf". */
enum { PART_SUFFIX = 20, PART_PATH = 4096 };

static bool read_digits(const char *s, int *out)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        *out = *out * 10 + (s[i] - '0');
    }
    return true;
}

/* True if the path ends like a part's; numbers count from 1. */
static bool split_path(const char *path, size_t *stem_bytes, int *number, int *count)
{
    size_t n = strlen(path);
    if (n < PART_SUFFIX)
        return false;
    const char *s = path + n - PART_SUFFIX;
    *stem_bytes = n - PART_SUFFIX;
    return s[0] == '-' && read_digits(s + 1, number) && memcmp(s + 6, "-of-", 4) == 0 &&
           read_digits(s + 10, count) && strcmp(s + 15, ".gguf") == 0;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static lace_status open_part(weights *w, size_t i, const char *path, lace_error *err)
{
    part *p = &w->parts[i];
    TRY(weights_map_part(w, i, path, err));
    lace_status status = gguf_parse_file(p->map.bytes, &p->g, err);
    if (status == LACE_OK)
        return status;
    wrong_file_explain(path, p->map.bytes, "GGUF", status, err);
    return error_prefix(err, status, path);
}

/* How many parts the file says the model has, and which one it is (from 0). Else 1 and 0. */
static lace_status read_split(const gguf *g, int64_t *number, int64_t *count, lace_error *err)
{
    *number = 0;
    *count = 1;
    /* Some writers put a count of 0 into files that are whole. */
    TRY(gguf_get_int(g, "split.count", 0, MAX_PARTS, count, NULL, err));
    if (*count == 0)
        *count = 1;
    return gguf_get_int(g, "split.no", 0, *count - 1, number, NULL, err);
}

/* The first part may say how many tensors there are in all. */
static lace_status check_total(const weights *w, lace_error *err)
{
    int64_t total = (int64_t)w->n_tensors;
    TRY(gguf_get_int(w->parts[0].g, "split.tensors.count", 0, INT32_MAX, &total, NULL, err));
    if (total != (int64_t)w->n_tensors)
        return error_set(err, LACE_E_COUNT,
                         "has %zu tensors in %zu parts, but split.tensors.count says %" PRId64,
                         w->n_tensors, w->n_parts, total);
    return LACE_OK;
}

/* Parts may repeat what the first one says of the model, but say nothing else. */
static lace_status check_architecture(const weights *w, size_t i, lace_error *err)
{
    static const char key[] = "general.architecture";
    text first = {"", 0}, here;
    TRY(gguf_get_text(w->parts[0].g, key, &first, NULL, err));
    here = first;
    TRY(gguf_get_text(w->parts[i].g, key, &here, NULL, err));
    if (here.size == first.size && memcmp(here.data, first.data, here.size) == 0)
        return LACE_OK;
    return error_set(err, LACE_E_META,
                     "is a part of another model: %s is \"%.*s\", in the first part \"%.*s\"", key,
                     text_width(here), here.data, text_width(first), first.data);
}

static lace_status open_split(const char *path, size_t stem_bytes, int count, weights **out,
                              lace_error *err)
{
    weights *w = NULL;
    TRY(weights_create(path, (size_t)count, &w, err));
    lace_status status = LACE_OK;
    char part_path[PART_PATH];
    for (int i = 0; i < count; i++) {
        int n = snprintf(part_path, sizeof part_path, "%.*s-%05d-of-%05d.gguf", (int)stem_bytes,
                         path, i + 1, count);
        if (n < 0 || (size_t)n >= sizeof part_path) {
            status = error_set(err, LACE_E_ARG, "%.64s...: the path is too long", path);
            goto done;
        }
        int64_t number, said;
        TRY_GOTO(status, done, open_part(w, (size_t)i, part_path, err));
        status = read_split(w->parts[i].g, &number, &said, err);
        if (status == LACE_OK && (said != count || number != i))
            status = error_set(err, LACE_E_META,
                               "says that it is part %" PRId64 " of %" PRId64
                               " (split.no, split.count), its name says %d of %d",
                               number + 1, said, i + 1, count);
        if (status == LACE_OK)
            status = check_architecture(w, (size_t)i, err);
        if (status != LACE_OK) {
            error_prefix(err, status, part_path);
            goto done;
        }
    }
    status = weights_join(w, err);
    if (status == LACE_OK)
        status = check_total(w, err);
    if (status == LACE_OK)
        status = weights_show_sparse(w, err);
    if (status != LACE_OK)
        error_prefix(err, status, path);
done:
    return GIVE_OR_FREE(status, w, out, weights_close);
}

/* What was opened or parsed as parts[0] is the whole model. */
static lace_status finish_single(weights *w, weights **out, lace_error *err)
{
    int64_t number, count;
    lace_status status = read_split(w->parts[0].g, &number, &count, err);
    if (status == LACE_OK && count > 1)
        status = error_set(err, LACE_E_NAME,
                           "is part %" PRId64 " of %" PRId64 ", but is not named NAME-%05" PRId64
                           "-of-%05" PRId64 ".gguf",
                           number + 1, count, number + 1, count);
    if (status == LACE_OK)
        status = weights_join(w, err);
    if (status == LACE_OK)
        status = weights_show_sparse(w, err);
    if (status != LACE_OK) {
        error_prefix(err, status, w->name);
        weights_close(w);
        return status;
    }
    *out = w;
    return LACE_OK;
}

lace_status gguf_files_open(const char *path, weights **out, lace_error *err)
{
    *out = NULL;
    weights *w = NULL;
    size_t stem_bytes;
    int number, count;
    bool is_part = split_path(path, &stem_bytes, &number, &count);
    if (is_part && (number < 1 || count < 1 || number > count || count > MAX_PARTS))
        return error_set(err, LACE_E_NAME, "%s: part %d of %d is missing", path, number, count);
    if (is_part)
        return open_split(path, stem_bytes, count, out, err);
    TRY(weights_create(path, 1, &w, err));
    lace_status status = open_part(w, 0, path, err);
    if (status != LACE_OK) {
        weights_close(w);
        return status;
    }
    return finish_single(w, out, err);
}

lace_status weights_open_memory(span bytes, const char *name, weights **out, lace_error *err)
{
    *out = NULL;
    weights *w = NULL;
    TRY(weights_create(name, 1, &w, err));
    w->n_bytes = bytes.size;
    lace_status status = gguf_parse(bytes, &w->parts[0].g, err);
    if (status != LACE_OK) {
        error_prefix(err, status, name);
        weights_close(w);
        return status;
    }
    return finish_single(w, out, err);
}
