/* Qwen3-VL with experts, of one without. */
#include "vl_mixture.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_hf.h"

#define LAYER "model.language_model.layers.%d.mlp."

enum { N_EXPERTS = 4, N_USED = 2 };

typedef struct source_file {
    json_t *header;
    span data;
    st_file *to;
    bool is_cut;
} source_file;

static const float *values_of(const source_file *f, const char *name, int32_t *n_rows,
                              int32_t *n_cols)
{
    json_t *entry = json_object_get(f->header, name), *shape = json_object_get(entry, "shape");
    json_t *begin = json_array_get(json_object_get(entry, "data_offsets"), 0);
    if (!CHECK(json_array_size(shape) == 2))
        return NULL;
    *n_rows = (int32_t)json_integer_value(json_array_get(shape, 0));
    *n_cols = (int32_t)json_integer_value(json_array_get(shape, 1));
    return (const float *)(const void *)(f->data.data + json_integer_value(begin));
}

/* A matrix of one expert, from `first` on, transposed: inputs before outputs. */
static void put_transposed(float *to, int32_t to_cols, const float *from, int32_t from_cols,
                           int32_t n_rows, int32_t n_cols, float factor)
{
    for (int32_t row = 0; row < n_rows; row++)
        for (int32_t col = 0; col < n_cols; col++)
            to[(size_t)col * (size_t)to_cols + (size_t)row] =
                factor * from[(size_t)row * (size_t)from_cols + (size_t)col];
}

static void add(const source_file *f, int layer, const char *name, const char *shape,
                const float *values, size_t n)
{
    char full[160];
    snprintf(full, sizeof full, LAYER "%s", layer, name);
    st_add(f->to, full, "F32", shape, values, n * sizeof *values);
}

/* The feed-forward part of a layer as experts. */
static void add_experts(const source_file *f, int layer)
{
    char name[160], shape[64];
    int32_t n_ff, n_embd, n_out, n_in;
    snprintf(name, sizeof name, LAYER "gate_proj.weight", layer);
    const float *gate = values_of(f, name, &n_ff, &n_embd);
    snprintf(name, sizeof name, LAYER "up_proj.weight", layer);
    const float *up = values_of(f, name, &n_ff, &n_embd);
    snprintf(name, sizeof name, LAYER "down_proj.weight", layer);
    const float *down = values_of(f, name, &n_out, &n_in);
    if (!gate || !up || !down || !CHECK(n_out == n_embd && n_in == n_ff && n_ff % N_EXPERTS == 0))
        return;
    int32_t width = f->is_cut ? n_ff / N_EXPERTS : n_ff;
    size_t n_one = (size_t)n_embd * (size_t)width;
    float *both = calloc(N_EXPERTS * n_one * 2, sizeof *both);
    float *downs = calloc(N_EXPERTS * n_one, sizeof *downs);
    float *router = calloc((size_t)N_EXPERTS * (size_t)n_embd, sizeof *router);
    for (int e = 0; e < N_EXPERTS; e++) {
        int32_t first = f->is_cut ? e * width : 0;
        size_t at = (size_t)first * (size_t)n_embd;
        float *to = both + (size_t)e * n_one * 2;
        put_transposed(to, 2 * width, gate + at, n_embd, width, n_embd, 1);
        put_transposed(to + width, 2 * width, up + at, n_embd, width, n_embd, 1);
        put_transposed(downs + (size_t)e * n_one, n_embd, down + first, n_ff, n_embd, width,
                       f->is_cut ? N_EXPERTS : 1);
    }
    for (int32_t i = 0; !f->is_cut && i < N_EXPERTS * n_embd; i++)
        router[i] = (float)(i * 7919 % 101 - 50) / 50;
    snprintf(shape, sizeof shape, "[%d,%d,%d]", N_EXPERTS, n_embd, 2 * width);
    add(f, layer, "experts.gate_up_proj", shape, both, N_EXPERTS * n_one * 2);
    snprintf(shape, sizeof shape, "[%d,%d,%d]", N_EXPERTS, width, n_embd);
    add(f, layer, "experts.down_proj", shape, downs, N_EXPERTS * n_one);
    snprintf(shape, sizeof shape, "[%d,%d]", N_EXPERTS, n_embd);
    add(f, layer, "gate.weight", shape, router, (size_t)N_EXPERTS * (size_t)n_embd);
    free(both);
    free(downs);
    free(router);
}

static void add_all(const source_file *f)
{
    const char *name;
    json_t *entry;
    json_object_foreach(f->header, name, entry)
    {
        json_t *offsets = json_object_get(entry, "data_offsets");
        int layer;
        if (strstr(name, ".mlp.gate_proj.") && sscanf(name, LAYER, &layer) == 1) {
            add_experts(f, layer);
        } else if (offsets && !strstr(name, ".mlp.up_proj.") && !strstr(name, ".mlp.down_proj.")) {
            size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
            size_t n = (size_t)json_integer_value(json_array_get(offsets, 1)) - begin;
            char *shape = json_dumps(json_object_get(entry, "shape"), JSON_COMPACT);
            st_add(f->to, name, "F32", shape, f->data.data + begin, n);
            free(shape);
        }
    }
}

static bool write_config(const char *directory, bool is_cut)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", directory);
    json_t *config = json_load_file(path, 0, NULL),
           *reader = json_object_get(config, "text_config");
    json_int_t n_ff = json_integer_value(json_object_get(reader, "intermediate_size"));
    json_object_set_new(config, "model_type", json_string("qwen3_vl_moe"));
    json_object_set_new(config, "architectures",
                        json_pack("[s]", "Qwen3VLMoeForConditionalGeneration"));
    json_object_set_new(reader, "model_type", json_string("qwen3_vl_moe_text"));
    json_object_set_new(reader, "decoder_sparse_step", json_integer(1));
    json_object_set_new(reader, "mlp_only_layers", json_array());
    json_object_set_new(reader, "num_experts", json_integer(N_EXPERTS));
    json_object_set_new(reader, "num_experts_per_tok", json_integer(is_cut ? N_EXPERTS : N_USED));
    json_object_set_new(reader, "moe_intermediate_size",
                        json_integer(is_cut ? n_ff / N_EXPERTS : n_ff));
    json_object_set_new(reader, "norm_topk_prob", json_true());
    json_object_set_new(json_object_get(config, "vision_config"), "model_type",
                        json_string("qwen3_vl_moe"));
    char *dump = json_dumps(config, 0);
    bool ok = dump && n_ff > 0 && scratch_write("config.json", dump);
    free(dump);
    json_decref(config);
    return ok;
}

static bool copy_text(const char *directory, const char *name)
{
    char path[512], contents[8192] = "";
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *from = fopen(path, "rb");
    size_t n = from ? fread(contents, 1, sizeof contents - 1, from) : 0;
    if (from)
        fclose(from);
    return n > 0 && n < sizeof contents - 1 && scratch_write(name, contents);
}

bool vl_mixture_write(const char *directory, bool is_cut)
{
    char path[512];
    file_map map;
    lace_error err;
    st_file to;
    buf whole;
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    if (!CHECK(file_map_open(path, &map, &err) == LACE_OK))
        return false;
    size_t n = (size_t)load_u64(map.bytes.data);
    source_file f = {.header = json_loadb((const char *)map.bytes.data + 8, n, 0, NULL),
                     .data = {map.bytes.data + 8 + n, map.bytes.size - 8 - n},
                     .to = &to,
                     .is_cut = is_cut};
    st_begin(&to);
    add_all(&f);
    buf_init(&whole, 64 << 20);
    st_end(&to, &whole);
    bool ok = f.header && tiny_hf_write("model.safetensors", &whole) &&
              write_config(directory, is_cut) && copy_text(directory, "preprocessor_config.json");
    buf_deinit(&whole);
    json_decref(f.header);
    file_map_close(&map);
    return ok;
}
