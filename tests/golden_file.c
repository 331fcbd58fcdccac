/* Recorded results of the reference implementation, from golden.safetensors. */
#include "golden_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data.h"
#include "tap.h"

char *golden_path(const char *model, const char *file)
{
    static const char *const sets[] = {"golden", "golden2"};
    char relative[128];
    for (int i = 0; i < 2; i++) {
        snprintf(relative, sizeof relative, "%s/%s%s%s", sets[i], model, file[0] ? "/" : "", file);
        char *path = data_path_if_there(relative);
        if (path)
            return path;
    }
    return NULL;
}

/* As many as tests/data has. */
enum { MODELS_IN_A_CLONE = 11 };

static void check_enough(void *arg)
{
    const int *n = arg;
    tap_note("%d models", *n);
    CHECK(*n >= MODELS_IN_A_CLONE);
}

void golden_enough(int n)
{
    tap_case_arg("enough_golden_models_are_there", check_enough, &n);
}

void golden_each(const char *title, void (*fn)(void *))
{
    const char **models;
    const char *after = strstr(title, "%s") + 2;
    size_t n = data_names("golden", &models);
    for (size_t i = 0; i < n; i++) {
        char name[128];
        snprintf(name, sizeof name, "%.*s%s%s", (int)(after - 2 - title), title, models[i], after);
        tap_case_arg(name, fn, (void *)models[i]);
    }
    free(models);
    golden_enough((int)n);
}

/* A copy of one tensor of 4-byte values; n_rows and n_cols from its shape (one row if 1-D). */
static void *read_tensor(const json_t *header, const char *name, span data, int32_t *n_rows,
                         int32_t *n_cols)
{
    json_t *entry = json_object_get(header, name);
    json_t *shape = json_object_get(entry, "shape");
    json_t *offsets = json_object_get(entry, "data_offsets");
    size_t n_dims = json_array_size(shape);
    if (!entry || n_dims < 1 || n_dims > 2)
        return NULL;
    *n_cols = (int32_t)json_integer_value(json_array_get(shape, n_dims - 1));
    *n_rows = n_dims == 2 ? (int32_t)json_integer_value(json_array_get(shape, 0)) : 1;
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t bytes = (size_t)*n_rows * (size_t)*n_cols * 4;
    if (begin > data.size || bytes > data.size - begin)
        return NULL;
    void *copy = malloc(bytes);
    if (copy)
        memcpy(copy, data.data + begin, bytes);
    return copy;
}

/* The header of a safetensors file, and what follows it; NULL, with a note, if there is none. */
static json_t *open_golden(const char *path, file_map *map, span *data)
{
    lace_error err;
    if (file_map_open(path, map, &err) != LACE_OK) {
        tap_note("%s", err.text);
        return NULL;
    }
    uint64_t n = map->bytes.size >= 8 ? load_u64(map->bytes.data) : 0;
    json_t *header = n > 0 && n <= map->bytes.size - 8
                         ? json_loadb((const char *)map->bytes.data + 8, n, 0, NULL)
                         : NULL;
    if (header) {
        *data = (span){map->bytes.data + 8 + n, map->bytes.size - 8 - n};
        return header;
    }
    tap_note("%s: not a golden file", path);
    file_map_close(map);
    return NULL;
}

bool golden_read(const char *path, golden *out)
{
    file_map map;
    span data;
    int32_t one;
    *out = (golden){0};
    json_t *header = open_golden(path, &map, &data);
    if (!header)
        return false;
    out->tokens = read_tensor(header, "tokens", data, &one, &out->n_tokens);
    out->greedy = read_tensor(header, "greedy", data, &one, &out->n_greedy);
    out->logits = read_tensor(header, "logits", data, &one, &out->n_vocab);
    json_decref(header);
    file_map_close(&map);
    if (!out->tokens || !out->logits)
        tap_note("%s: has no logits", path);
    return out->tokens && out->logits;
}

bool golden_encoder_read(const char *path, golden_encoder *out)
{
    file_map map;
    span data;
    int32_t one;
    *out = (golden_encoder){0};
    json_t *header = open_golden(path, &map, &data);
    if (!header)
        return false;
    bool is_encoder = json_object_get(header, "hidden") != NULL;
    if (is_encoder) {
        out->tokens = read_tensor(header, "tokens", data, &one, &out->n_tokens);
        out->hidden = read_tensor(header, "hidden", data, &one, &out->n_embd);
        out->pooled = read_tensor(header, "pooled", data, &one, &out->n_embd);
        out->score = read_tensor(header, "score", data, &one, &one);
    }
    json_decref(header);
    file_map_close(&map);
    return out->tokens && out->hidden && out->pooled;
}

void golden_encoder_free(golden_encoder *g)
{
    free(g->tokens);
    free(g->hidden);
    free(g->pooled);
    free(g->score);
}

golden_tensor golden_tensor_read(const char *path, const char *name)
{
    file_map map;
    span data;
    golden_tensor t = {.n_values = 1};
    json_t *header = open_golden(path, &map, &data);
    json_t *entry = json_object_get(header, name), *shape = json_object_get(entry, "shape");
    json_t *offsets = json_object_get(entry, "data_offsets");
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    t.n_dims = (int)json_array_size(shape);
    for (int i = 0; i < t.n_dims && i < 4; i++) {
        t.dims[i] = (int32_t)json_integer_value(json_array_get(shape, (size_t)i));
        t.n_values *= (size_t)t.dims[i];
    }
    if (entry && t.n_dims <= 4 && begin <= end && end <= data.size &&
        (t.data = malloc(end - begin + 1)))
        memcpy(t.data, data.data + begin, end - begin);
    if (header) {
        json_decref(header);
        file_map_close(&map);
    }
    return t;
}

bool golden_has_logits(const char *path)
{
    file_map map;
    if (file_map_open(path, &map, NULL) != LACE_OK)
        return false;
    uint64_t n = map.bytes.size >= 8 ? load_u64(map.bytes.data) : 0;
    json_t *header = NULL;
    if (n > 0 && n <= map.bytes.size - 8)
        header = json_loadb((const char *)map.bytes.data + 8, n, 0, NULL);
    bool has = json_object_get(header, "logits") != NULL;
    json_decref(header);
    file_map_close(&map);
    return has;
}

void golden_free(golden *g)
{
    free(g->tokens);
    free(g->logits);
    free(g->greedy);
}

double nmse(const float *found, const float *expected, size_t n)
{
    double wrong = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)found[i] - expected[i];
        wrong += d * d;
        all += (double)expected[i] * expected[i];
    }
    return wrong / all;
}
