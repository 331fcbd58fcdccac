/*
 * Models in Hugging Face directories: config.json, and the tensors in model.safetensors or in the
 * files that model.safetensors.index.json names.
 *
 * A name from the index is never a path: it must be a plain file name of this directory.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "formats/weights_impl.h"
#include "formats/wrong_file.h"

enum {
    MAX_PATH = 4096,
    MAX_CONFIG_BYTES = 4 << 20,
    MAX_INDEX_BYTES = 32 << 20,
    MAX_SHARDS = 4096,
};

#define SINGLE_FILE  "model.safetensors"
#define INDEX_FILE   "model.safetensors.index.json"
#define CONFIG_FILE  "config.json"
#define ADAPTER_FILE "adapter_model.safetensors"

static lace_status join_path(const char *directory, const char *file, char out[MAX_PATH],
                             lace_error *err)
{
    size_t n = strlen(directory);
    const char *slash = n > 0 && directory[n - 1] == '/' ? "" : "/";
    int written = snprintf(out, MAX_PATH, "%s%s%s", directory, slash, file);
    if (written < 0 || written >= MAX_PATH)
        return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", directory);
    return LACE_OK;
}

/* Python writes Infinity, which is no JSON: it becomes null, outside of strings. */
static void erase_infinities(char *bytes, size_t n)
{
    static const char word[] = "Infinity", none[] = "null    ";
    bool is_inside = false;
    for (size_t i = 0; i < n; i++) {
        if (is_inside && bytes[i] == '\\')
            i++;
        else if (bytes[i] == '"')
            is_inside = !is_inside;
        else if (!is_inside && n - i >= sizeof word - 1 &&
                 memcmp(bytes + i, word, sizeof word - 1) == 0)
            memcpy(bytes + i, none, sizeof none - 1);
    }
}

/* A JSON file of the directory, which must hold an object. */
static lace_status read_object(const char *directory, const char *file, size_t max_bytes,
                               json_t **out, lace_error *err)
{
    char path[MAX_PATH];
    buf bytes;
    *out = NULL;
    TRY(join_path(directory, file, path, err));
    buf_init(&bytes, max_bytes);
    lace_status status = file_read_regular(path, &bytes, err);
    if (status == LACE_OK) {
        erase_infinities(bytes.data, bytes.size);
        span json = {(const uint8_t *)bytes.data, bytes.size};
        if (bytes.size == 0)
            status = error_set(err, LACE_E_META, "is empty, expected a JSON object");
        else if ((status = json_read(json, 0, out, err)) != LACE_OK)
            wrong_file_explain(path, json, "JSON", status, err);
        if (status == LACE_OK && !json_is_object(*out))
            status = error_set(err, LACE_E_META, "at byte 0: is %s, expected an object",
                               json_kind(*out));
        if (status != LACE_OK)
            error_prefix(err, status, path);
    }
    if (status != LACE_OK) {
        json_decref(*out);
        *out = NULL;
    }
    buf_deinit(&bytes);
    return status;
}

static bool has_file(const char *directory, const char *file)
{
    char path[MAX_PATH];
    return join_path(directory, file, path, NULL) == LACE_OK && access(path, F_OK) == 0;
}

static lace_status open_part(weights *w, size_t i, const char *file, lace_error *err)
{
    char path[MAX_PATH];
    TRY(join_path(w->name, file, path, err));
    TRY(weights_map_part(w, i, path, err));
    lace_status status = safetensors_parse(w->parts[i].map.bytes, &w->parts[i].st, err);
    if (status == LACE_OK)
        return status;
    wrong_file_explain(path, w->parts[i].map.bytes, "safetensors", status, err);
    return error_prefix(err, status, path);
}

/* ---- The index ------------------------------------------------------------------------------- */

static bool is_plain_name(const char *file)
{
    return file[0] && strcmp(file, ".") != 0 && strcmp(file, "..") != 0 && !strchr(file, '/') &&
           !strchr(file, '\\') && strlen(file) < 256;
}

/* The files of the index, each once and in its order; `names` points into the JSON. */
typedef struct shard_list {
    const char *names[MAX_SHARDS];
    size_t count;
    map index_of_name;
} shard_list;

static lace_status add_shard(shard_list *s, const char *tensor_name, const json_t *value,
                             lace_error *err)
{
    const char *file = json_string_value(value);
    if (!file)
        return error_set(err, LACE_E_NAME, "weight_map: %.64s: is %s, expected a file name",
                         tensor_name, json_kind(value));
    if (!is_plain_name(file))
        return error_set(err, LACE_E_NAME,
                         "weight_map: %.64s: \"%.64s\" is not the name of a file in this directory",
                         tensor_name, file);
    if (map_find(&s->index_of_name, text_of(file)) >= 0)
        return LACE_OK;
    if (s->count == MAX_SHARDS)
        return error_set(err, LACE_E_LIMIT, "weight_map: more than %d files", MAX_SHARDS);
    if (map_add(&s->index_of_name, text_of(file), (int32_t)s->count) != LACE_OK)
        return error_nomem(err, "the list of files");
    s->names[s->count++] = file;
    return LACE_OK;
}

static lace_status list_shards(const json_t *index, shard_list *s, lace_error *err)
{
    const json_t *weight_map = json_object_get(index, "weight_map");
    const char *name;
    json_t *file;
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0)
        return error_set(err, LACE_E_META,
                         "weight_map: is %s, expected an object with tensor names",
                         json_kind(weight_map));
    json_object_foreach((json_t *)weight_map, name, file)
    {
        TRY(add_shard(s, name, file, err));
    }
    return LACE_OK;
}

/* Every tensor of the index is in the file that the index says. */
static lace_status check_index(const weights *w, const shard_list *s, const json_t *index,
                               lace_error *err)
{
    const char *name;
    json_t *file;
    json_object_foreach(json_object_get(index, "weight_map"), name, file)
    {
        const tensor *t = weights_find(w, name);
        int32_t i = map_find(&s->index_of_name, text_of(json_string_value(file)));
        const span *bytes = &w->parts[i].map.bytes;
        if (!t || t->data < bytes->data || t->data >= bytes->data + bytes->size)
            return error_set(err, LACE_E_META, "weight_map: tensor %.64s is not in the file %.64s",
                             name, json_string_value(file));
    }
    return LACE_OK;
}

static lace_status open_shards(const char *path, const json_t *index, shard_list *s, weights **out,
                               lace_error *err)
{
    weights *w = NULL;
    lace_status status = list_shards(index, s, err);
    if (status != LACE_OK)
        goto in_index;
    TRY(weights_create(path, s->count, &w, err));
    for (size_t i = 0; i < s->count; i++)
        TRY_GOTO(status, fail, open_part(w, i, s->names[i], err));
    status = weights_join(w, err);
    if (status == LACE_OK)
        status = check_index(w, s, index, err);
    if (status != LACE_OK)
        goto in_index;
    *out = w;
    return LACE_OK;

in_index:
    error_prefix(err, status, INDEX_FILE);
    error_prefix(err, status, path);
fail:
    weights_close(w);
    return status;
}

static lace_status open_index(const char *path, weights **out, lace_error *err)
{
    json_t *index;
    TRY(read_object(path, INDEX_FILE, MAX_INDEX_BYTES, &index, err));
    shard_list *shards = mem_calloc(1, sizeof *shards);
    lace_status status = shards ? LACE_OK : error_nomem(err, "the list of files");
    if (shards) {
        map_init(&shards->index_of_name);
        status = open_shards(path, index, shards, out, err);
        map_deinit(&shards->index_of_name);
        mem_free(shards);
    }
    json_decref(index);
    return status;
}

/* ---------------------------------------------------------------------------------------------- */

static lace_status open_single(const char *path, const char *file, weights **out, lace_error *err)
{
    weights *w = NULL;
    TRY(weights_create(path, 1, &w, err));
    lace_status status = open_part(w, 0, file, err);
    if (status == LACE_OK)
        status = weights_join(w, err);
    return GIVE_OR_FREE(status, w, out, weights_close);
}

/*
 * Some things are said in files of their own: how vectors of an embedding model are pooled, where
 * sentence-transformers wrote the directory, and how images are brought to size. Readers find them
 * in the config, by these names.
 */
static const struct {
    const char *name, *file;
} more_files[] = {{"1_Pooling", "1_Pooling/config.json"},
                  {"preprocessor_config", "preprocessor_config.json"}};

static lace_status add_more(const char *path, json_t *config, lace_error *err)
{
    for (size_t i = 0; i < sizeof more_files / sizeof *more_files; i++) {
        json_t *more;
        if (!has_file(path, more_files[i].file))
            continue;
        TRY(read_object(path, more_files[i].file, MAX_CONFIG_BYTES, &more, err));
        if (json_object_set_new(config, more_files[i].name, more) != 0)
            return error_nomem(err, more_files[i].file);
    }
    return LACE_OK;
}

lace_status hf_dir_open(const char *path, weights **out, lace_error *err)
{
    *out = NULL;
    if (!has_file(path, CONFIG_FILE))
        return wrong_directory_explain(path, CONFIG_FILE, err);
    json_t *config;
    TRY(read_object(path, CONFIG_FILE, MAX_CONFIG_BYTES, &config, err));
    lace_status status = add_more(path, config, err);
    if (status != LACE_OK) {
        json_decref(config);
        return status;
    }
    if (has_file(path, SINGLE_FILE))
        status = open_single(path, SINGLE_FILE, out, err);
    else if (has_file(path, INDEX_FILE))
        status = open_index(path, out, err);
    else
        status = wrong_directory_explain(path, SINGLE_FILE, err);
    if (status != LACE_OK) {
        json_decref(config);
        return status;
    }
    (*out)->config = config;
    return LACE_OK;
}

bool hf_adapter_is(const char *path)
{
    return has_file(path, ADAPTER_CONFIG);
}

lace_status hf_adapter_open(const char *path, weights **out, lace_error *err)
{
    json_t *config;
    *out = NULL;
    if (!has_file(path, ADAPTER_FILE))
        return error_set(err, LACE_E_IO, "%s: has no " ADAPTER_FILE, path);
    TRY(read_object(path, ADAPTER_CONFIG, MAX_CONFIG_BYTES, &config, err));
    lace_status status = open_single(path, ADAPTER_FILE, out, err);
    if (status == LACE_OK)
        (*out)->config = config;
    else
        json_decref(config);
    return status;
}
