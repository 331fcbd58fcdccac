/* Which files a repository has, and which of them make a model. */
#define _GNU_SOURCE
#include "hub/hub_files.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "formats/store.h"

/* ---- The list -------------------------------------------------------------------------------- */

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
    return s[n] == 0;
}

/* Parts that are names of files, with '/' between: nothing that leads out of a folder. */
static bool is_plain_path(const char *path)
{
    if (strlen(path) >= HUB_MAX_FILE_PATH)
        return false;
    for (;;) {
        size_t n = strcspn(path, "/");
        if (!store_is_part(path, n))
            return false;
        if (!path[n])
            return true;
        path += n + 1;
    }
}

/* A file that can be had; false: its name or its hash cannot be used, and it is passed over. */
static bool read_file(const json_t *row, hub_file *out)
{
    const char *path = json_string_value(json_get(row, "rfilename"));
    const json_t *lfs = json_get(row, "lfs");
    const char *hash = json_string_value(lfs ? json_get(lfs, "sha256") : json_get(row, "blobId"));
    const json_t *size = lfs ? json_get(lfs, "size") : json_get(row, "size");
    out->kind = lfs ? PART_SHA256 : PART_GIT_BLOB;
    if (!path || !hash || !is_plain_path(path) || !json_is_integer(size) ||
        json_integer_value(size) < 0 || !is_hex(hash, lfs ? 64 : 40))
        return false;
    strcpy(out->path, path);
    strcpy(out->hash, hash);
    out->size = (uint64_t)json_integer_value(size);
    return true;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path);
}

lace_status hub_listing_parse(span bytes, hub_listing *out, lace_error *err)
{
    json_t *json = NULL, *row;
    size_t i;
    memset(out, 0, sizeof *out);
    TRY(json_read(bytes, 0, &json, err));
    const char *commit = json_string_value(json_get(json, "sha"));
    const json_t *rows = json_get(json, "siblings");
    size_t n = json_array_size(rows);
    lace_status status = LACE_OK;
    if (!commit || strlen(commit) != 40 || !is_hex(commit, 40) || !json_is_array(rows))
        status = error_set(err, LACE_E_JSON, "the hub's answer is no list of a repository's files");
    else if (n > HUB_MAX_FILES)
        status = error_set(err, LACE_E_LIMIT, "the repository has %zu files, expected at most %d",
                           n, HUB_MAX_FILES);
    else if (!(out->files = mem_calloc(n + 1, sizeof *out->files)))
        status = error_nomem(err, "a list of files");
    if (status == LACE_OK) {
        strcpy(out->commit, commit);
        json_array_foreach(rows, i, row) out->n_files += read_file(row, &out->files[out->n_files]);
        qsort(out->files, out->n_files, sizeof *out->files, by_path);
    }
    json_decref(json);
    return status;
}

void hub_listing_deinit(hub_listing *l)
{
    mem_free(l->files);
    l->files = NULL;
    l->n_files = 0;
}

/* ---- The choice ------------------------------------------------------------------------------ */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool is_projector(const char *path)
{
    return ends_with(path, ".gguf") && strcasestr(base_name(path), "mmproj");
}

/* A GGUF file to be opened: of a split model its first part. */
static bool is_model(const char *path)
{
    return ends_with(path, ".gguf") && !is_projector(path) && !store_is_later_part(path);
}

/* How well a path fits a tag: 2 as a word of it, 1 as a part of a word, 0 not. */
static int fits_tag(const char *path, const char *tag)
{
    size_t n = strlen(tag);
    int best = n == 0; /* everything has nothing in it */
    for (const char *at = path; n && (at = strcasestr(at, tag)); at++) {
        bool begins = at == path || !isalnum((unsigned char)at[-1]);
        bool ends = !isalnum((unsigned char)at[n]) && at[n] != '_';
        best = begins && ends ? 2 : best ? best : 1;
    }
    return best;
}

/* The first of the files that fits the tag best; NULL: none. */
static const hub_file *find_by_tag(const hub_listing *l, bool (*is_kind)(const char *),
                                   const char *tag)
{
    const hub_file *found = NULL;
    int best = 0;
    for (size_t i = 0; i < l->n_files; i++) {
        int fit = is_kind(l->files[i].path) ? fits_tag(l->files[i].path, tag) : 0;
        if (fit > best) {
            best = fit;
            found = &l->files[i];
        }
    }
    return found;
}

/* By the first of these words that a file has; without any the first file. */
static const hub_file *find_usual(const hub_listing *l, bool (*is_kind)(const char *),
                                  const char *const *tags)
{
    for (size_t i = 0; tags[i]; i++) {
        const hub_file *found = find_by_tag(l, is_kind, tags[i]);
        if (found)
            return found;
    }
    return find_by_tag(l, is_kind, "");
}

static const hub_file *find_path(const hub_listing *l, const char *path)
{
    for (size_t i = 0; i < l->n_files; i++)
        if (strcmp(l->files[i].path, path) == 0)
            return &l->files[i];
    return NULL;
}

/* The other parts of "x-00001-of-00003.gguf". */
static lace_status add_parts(const hub_listing *l, const hub_file *first,
                             const hub_file *chosen[HUB_MAX_CHOSEN], size_t *n, lace_error *err)
{
    unsigned count = 0;
    char path[HUB_MAX_FILE_PATH + 16];
    if (!store_is_first_part(first->path))
        return LACE_OK;
    size_t at = strlen(first->path) - strlen("00001-of-00001.gguf");
    sscanf(first->path + at, "00001-of-%5u", &count);
    for (unsigned i = 2; i <= count; i++) {
        snprintf(path, sizeof path, "%.*s%05u-of-%05u.gguf", (int)at, first->path, i, count);
        const hub_file *part = find_path(l, path);
        if (!part || *n == HUB_MAX_CHOSEN)
            return error_set(err, LACE_E_IO, "the repository lacks %.300s, a part of the model",
                             path);
        chosen[(*n)++] = part;
    }
    return LACE_OK;
}

/* What a Hugging Face directory is read by. */
static bool belongs_to_folder(const char *path)
{
    static const char *const ends[] = {".safetensors", ".safetensors.index.json", ".jinja",
                                       "tokenizer.model", "merges.txt"};
    static const char *const names[] = {
        "config.json", "generation_config.json",  "tokenizer.json",     "tokenizer_config.json",
        "vocab.json",  "special_tokens_map.json", "chat_template.json", "added_tokens.json",
        "vocab.txt"};
    if (strchr(path, '/') || strncmp(path, "consolidated", 12) == 0)
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(path, ends[i]))
            return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0)
            return true;
    return false;
}

static lace_status choose_folder(const hub_listing *l, const hub_file *chosen[HUB_MAX_CHOSEN],
                                 size_t *n, lace_error *err)
{
    bool has_tensors = false;
    for (size_t i = 0; i < l->n_files; i++) {
        const char *path = l->files[i].path;
        if (!belongs_to_folder(path))
            continue;
        if (*n == HUB_MAX_CHOSEN)
            return error_set(err, LACE_E_LIMIT, "the model has more than %d files", HUB_MAX_CHOSEN);
        has_tensors = has_tensors || ends_with(path, ".safetensors");
        chosen[(*n)++] = &l->files[i];
    }
    if (has_tensors && find_path(l, "config.json"))
        return LACE_OK;
    return error_set(err, LACE_E_UNSUPPORTED,
                     "the repository has neither GGUF files nor config.json with safetensors");
}

/* No file has the tag: say what there is. */
static lace_status refuse_tag(const hub_listing *l, const char *tag, lace_error *err)
{
    buf names;
    buf_init(&names, 300);
    for (size_t i = 0; i < l->n_files; i++)
        if (is_model(l->files[i].path))
            (void)buf_printf(&names, "%s%s", names.size ? ", " : "", base_name(l->files[i].path));
    lace_status status =
        error_set(err, LACE_E_ARG, "no GGUF file of the repository has \"%.60s\" in its name%s%s",
                  tag, names.size ? "; it has " : "", names.data ? names.data : "");
    buf_deinit(&names);
    return status;
}

lace_status hub_choose(const hub_listing *l, const char *tag, bool has_mmproj,
                       const hub_file *chosen[HUB_MAX_CHOSEN], size_t *n_chosen, bool *is_folder,
                       lace_error *err)
{
    static const char *const models[] = {"Q4_K_M", "Q4_0", "Q8_0", "F16", "BF16", NULL};
    static const char *const projectors[] = {"F16", "BF16", "Q8_0", NULL};
    *n_chosen = 0;
    *is_folder = false;
    const hub_file *first =
        tag[0] ? find_by_tag(l, is_model, tag) : find_usual(l, is_model, models);
    if (!first && tag[0])
        return refuse_tag(l, tag, err);
    if (!first) {
        *is_folder = true;
        return choose_folder(l, chosen, n_chosen, err);
    }
    chosen[(*n_chosen)++] = first;
    TRY(add_parts(l, first, chosen, n_chosen, err));
    const hub_file *projector = has_mmproj ? find_usual(l, is_projector, projectors) : NULL;
    if (projector && *n_chosen < HUB_MAX_CHOSEN)
        chosen[(*n_chosen)++] = projector;
    return LACE_OK;
}
