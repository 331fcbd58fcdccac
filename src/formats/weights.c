/* The files of a model, opened and joined into one directory of tensors. */
#include "formats/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

enum { MAX_PARTS = 9999 };

typedef struct part {
    file_map map; /* empty for bytes in memory */
    gguf *g;
} part;

struct weights {
    char *name;
    part *parts;
    size_t n_parts;
    const tensor **tensors; /* of all parts, in order */
    size_t n_tensors;
    map tensor_of_name;
    uint64_t n_bytes;
};

/* ---- Names of parts ---------------------------------------------------------------------------
 */

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

/* ---- Opening ----------------------------------------------------------------------------------
 */

static lace_status create(const char *name, size_t n_parts, weights **out, lace_error *err)
{
    weights *w = mem_calloc(1, sizeof *w);
    if (!w)
        return error_nomem(err, "a model file");
    map_init(&w->tensor_of_name);
    w->name = mem_strdup(name);
    w->parts = mem_calloc(n_parts, sizeof *w->parts);
    w->n_parts = n_parts;
    if (!w->name || !w->parts) {
        weights_close(w);
        return error_nomem(err, "a model file");
    }
    *out = w;
    return LACE_OK;
}

void weights_close(weights *w)
{
    if (!w)
        return;
    for (size_t i = 0; w->parts && i < w->n_parts; i++) {
        gguf_free(w->parts[i].g);
        file_map_close(&w->parts[i].map);
    }
    map_deinit(&w->tensor_of_name);
    mem_free(w->tensors);
    mem_free(w->parts);
    mem_free(w->name);
    mem_free(w);
}

static lace_status open_part(weights *w, size_t i, const char *path, lace_error *err)
{
    part *p = &w->parts[i];
    TRY(file_map_open(path, &p->map, err));
    w->n_bytes += p->map.bytes.size;
    lace_status status = gguf_parse(p->map.bytes, &p->g, err);
    return status == LACE_OK ? status : error_prefix(err, status, path);
}

/* How many parts the file says the model has, and which one it is (from 0); 1 and 0 if it does not.
 */
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

/* Join the directories of all parts. */
static lace_status join(weights *w, lace_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_parts; i++)
        n += gguf_n_tensors(w->parts[i].g);
    if (n > INT32_MAX)
        return error_set(err, LACE_E_LIMIT, "%zu tensors in all parts", n);
    w->tensors = mem_calloc(n, sizeof *w->tensors);
    if (!w->tensors || map_reserve(&w->tensor_of_name, n) != LACE_OK)
        return error_nomem(err, "the directory of a model");
    for (size_t i = 0; i < w->n_parts; i++)
        for (size_t k = 0; k < gguf_n_tensors(w->parts[i].g); k++) {
            const tensor *t = gguf_tensor_at(w->parts[i].g, k);
            lace_status status = map_add(&w->tensor_of_name, t->name, (int32_t)w->n_tensors);
            if (status == LACE_E_DUP)
                return error_set(err, status,
                                 "part %zu of %zu: tensor %.*s is also in a part before", i + 1,
                                 w->n_parts, text_width(t->name), t->name.data);
            if (status != LACE_OK)
                return error_nomem(err, "the directory of a model");
            w->tensors[w->n_tensors++] = t;
        }
    return LACE_OK;
}

/* The first part may say how many tensors there are in all. */
static lace_status check_total(const weights *w, lace_error *err)
{
    int64_t total = (int64_t)w->n_tensors;
    TRY(gguf_get_int(w->parts[0].g, "split.tensors.count", 0, INT32_MAX, &total, NULL, err));
    if (total != (int64_t)w->n_tensors)
        return error_set(err, LACE_E_COUNT,
                         "%zu tensors in %zu parts, split.tensors.count says %" PRId64,
                         w->n_tensors, w->n_parts, total);
    return LACE_OK;
}

static lace_status open_split(const char *path, size_t stem_bytes, int count, weights **out,
                              lace_error *err)
{
    weights *w = NULL;
    TRY(create(path, (size_t)count, &w, err));
    lace_status status = LACE_OK;
    char part_path[PART_PATH];
    for (int i = 0; i < count; i++) {
        int n = snprintf(part_path, sizeof part_path, "%.*s-%05d-of-%05d.gguf", (int)stem_bytes,
                         path, i + 1, count);
        if (n < 0 || (size_t)n >= sizeof part_path) {
            status = error_set(err, LACE_E_ARG, "%.64s...: the path is too long", path);
            goto fail;
        }
        int64_t number, said;
        TRY_GOTO(status, fail, open_part(w, (size_t)i, part_path, err));
        status = read_split(w->parts[i].g, &number, &said, err);
        if (status == LACE_OK && (said != count || number != i))
            status = error_set(err, LACE_E_META,
                               "says that it is part %" PRId64 " of %" PRId64
                               " (split.no, split.count), its name says %d of %d",
                               number + 1, said, i + 1, count);
        if (status != LACE_OK) {
            error_prefix(err, status, part_path);
            goto fail;
        }
    }
    status = join(w, err);
    if (status == LACE_OK)
        status = check_total(w, err);
    if (status != LACE_OK) {
        error_prefix(err, status, path);
        goto fail;
    }
    *out = w;
    return LACE_OK;
fail:
    weights_close(w);
    return status;
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
        status = join(w, err);
    if (status != LACE_OK) {
        error_prefix(err, status, w->name);
        weights_close(w);
        return status;
    }
    *out = w;
    return LACE_OK;
}

lace_status weights_open(const char *path, weights **out, lace_error *err)
{
    *out = NULL;
    weights *w = NULL;
    size_t stem_bytes;
    int number, count;
    bool is_part = split_path(path, &stem_bytes, &number, &count);
    if (is_part && (number < 1 || count < 1 || number > count || count > MAX_PARTS))
        return error_set(err, LACE_E_NAME, "%s: there is no part %d of %d", path, number, count);
    if (is_part)
        return open_split(path, stem_bytes, count, out, err);
    TRY(create(path, 1, &w, err));
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
    TRY(create(name, 1, &w, err));
    w->n_bytes = bytes.size;
    lace_status status = gguf_parse(bytes, &w->parts[0].g, err);
    if (status != LACE_OK) {
        error_prefix(err, status, name);
        weights_close(w);
        return status;
    }
    return finish_single(w, out, err);
}

/* ---- Looking up -------------------------------------------------------------------------------
 */

const gguf *weights_gguf(const weights *w)
{
    return w->parts[0].g;
}

size_t weights_count(const weights *w)
{
    return w->n_tensors;
}

const tensor *weights_at(const weights *w, size_t i)
{
    return i < w->n_tensors ? w->tensors[i] : NULL;
}

const tensor *weights_find(const weights *w, const char *name)
{
    int32_t i = map_find(&w->tensor_of_name, text_of(name));
    return i < 0 ? NULL : w->tensors[i];
}

const char *weights_name(const weights *w)
{
    return w->name;
}

uint64_t weights_file_bytes(const weights *w)
{
    return w->n_bytes;
}

void weights_release(const weights *w, const tensor *t)
{
    /* file_map_release ignores what is not in its mapping. */
    for (size_t i = 0; i < w->n_parts; i++)
        file_map_release(&w->parts[i].map, t->data, (size_t)t->n_bytes);
}
