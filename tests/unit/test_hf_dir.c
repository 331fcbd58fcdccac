/* formats/hf_dir.c: Hugging Face directories, whole, in shards, and broken. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/weights.h"
#include "alloc_faults.h"
#include "data.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_hf.h"

/* The scratch folder as a model must be refused with this status and text. */
static void refuse(lace_status expected, const char *part)
{
    weights *w;
    lace_error err;
    lace_status status = weights_open(scratch_path(""), &w, &err);
    if (!CHECK(status == expected && !w && strstr(err.text, part)))
        tap_note("%s (expected %s, \"%s\")", status ? err.text : "opened",
                 lace_status_name(expected), part);
    weights_close(w);
}

static void write_shard(const char *file, const char *tensor_name)
{
    st_file f;
    buf b;
    st_begin(&f);
    buf_init(&b, 4096);
    st_add(&f, tensor_name, "F32", "[2,2]", NULL, 16);
    st_end(&f, &b);
    CHECK(tiny_hf_write(file, &b));
    buf_deinit(&b);
}

static void write_index(const char *weight_map)
{
    char text_of_index[1024];
    snprintf(text_of_index, sizeof text_of_index, "{\"metadata\":{},\"weight_map\":%s}",
             weight_map);
    CHECK(scratch_write("model.safetensors.index.json", text_of_index));
}

static void a_directory_in_one_file_opens(void)
{
    weights *w;
    lace_error err;
    CHECK(scratch_create() && tiny_hf_llama("F16"));
    if (CHECK(weights_open(scratch_path(""), &w, &err) == LACE_OK)) {
        CHECK(weights_gguf(w) == NULL && weights_config(w) != NULL && weights_count(w) == 12);
        const tensor *t = weights_find(w, "model.layers.0.mlp.down_proj.weight");
        CHECK(t && t->type == DTYPE_F16 && t->shape.dims[0] == 12 && t->shape.dims[1] == 8);
        CHECK(weights_index(w, "absent") == SIZE_MAX && weights_find(w, "absent") == NULL);
        CHECK(weights_file_bytes(w) > 1000);
    }
    weights_close(w);
    scratch_remove();
}

/* As Python writes it; only as a value of its own. */
static void infinity_is_read_as_null(void)
{
    weights *w;
    lace_error err;
    CHECK(scratch_create() && tiny_hf_llama("F16"));
    CHECK(scratch_write("config.json", "{\"a\":[0.0, Infinity],\"b\":\"\\\"Infinity\",\"c\":1}"));
    if (CHECK(weights_open(scratch_path(""), &w, &err) == LACE_OK)) {
        const json_t *config = weights_config(w);
        CHECK(json_is_null(json_array_get(json_object_get(config, "a"), 1)));
        CHECK(strcmp(json_string_value(json_object_get(config, "b")), "\"Infinity") == 0);
    }
    weights_close(w);
    CHECK(scratch_write("config.json", "{\"a\":-Infinity}"));
    refuse(LACE_E_JSON, "config.json");
    scratch_remove();
}

static void shards_look_like_one(void)
{
    CHECK(scratch_create() && scratch_write("config.json", "{}"));
    write_shard("a.safetensors", "x");
    write_shard("b.safetensors", "y");
    write_shard("c.safetensors", "z");
    write_index("{\"z\":\"c.safetensors\",\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}");
    weights *w;
    lace_error err;
    if (CHECK(weights_open(scratch_path(""), &w, &err) == LACE_OK)) {
        const tensor *x = weights_find(w, "x"), *z = weights_find(w, "z");
        CHECK(weights_count(w) == 3 && x && z && weights_find(w, "y"));
        CHECK(z && z->shape.dims[0] == 2 && z->n_values == 4 && z->n_bytes == 16);
        CHECK(x && x->data != z->data && x->n_bytes == 16);
    }
    weights_close(w);
    scratch_remove();
}

/* Only where the data beside the checkout is: it is too large for a clone. */
static void shards_of_a_real_model_look_like_one(void *arg)
{
    const char *path = arg;
    weights *w;
    lace_error err;
    if (CHECK(weights_open(path, &w, &err) == LACE_OK)) {
        const tensor *t = weights_find(w, "model.layers.7.mlp.up_proj.weight");
        CHECK(t && t->shape.dims[0] == 512 && t->shape.dims[1] == 1536);
        uint64_t n = 0;
        for (size_t i = 0; i < weights_count(w); i++)
            n += weights_at(w, i)->n_values;
        CHECK(n == 26223104); /* total_parameters of the index */
    }
    weights_close(w);
}

static void configs_that_cannot_be_are_refused(void)
{
    CHECK(scratch_create() && tiny_hf_llama("F32"));
    unlink(scratch_path("config.json"));
    refuse(LACE_E_META, "without config.json");
    CHECK(scratch_write("config.json", ""));
    refuse(LACE_E_META, "config.json: ");
    CHECK(scratch_write("config.json", "[]"));
    refuse(LACE_E_META, "config.json: ");
    CHECK(scratch_write("config.json", "{\"a\":1,\"a\":2}"));
    refuse(LACE_E_DUP, "config.json: JSON, at byte");
    CHECK(scratch_write("config.json", "{\"a\":"));
    refuse(LACE_E_JSON, "config.json: JSON, at byte");
    /* 200 MiB, of which the disk holds none. */
    CHECK(truncate(scratch_path("config.json"), 200 << 20) == 0);
    refuse(LACE_E_LIMIT, "config.json: longer than the limit");
    scratch_remove();
}

static void file_names_of_the_index_stay_in_the_directory(void)
{
    CHECK(scratch_create() && scratch_write("config.json", "{}"));
    refuse(LACE_E_META, "without model.safetensors");
    static const char *const names[] = {
        "../../etc/passwd", "/etc/passwd", "a\\\\b", "", ".", "..", "a/b", "./a", "../a",
        "sub/../a",         "C:\\\\a",
    };
    char map_of_one[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(map_of_one, sizeof map_of_one, "{\"t\":\"%s\"}", names[i]);
        write_index(map_of_one);
        refuse(LACE_E_NAME, "weight_map: t: ");
    }
    write_index("{\"t\":5}");
    refuse(LACE_E_NAME, "is an integer, expected a file name");
    write_index("{}");
    refuse(LACE_E_META, "weight_map");
    write_index("[]");
    refuse(LACE_E_META, "weight_map");
    scratch_remove();
}

static void index_and_shards_must_agree(void)
{
    CHECK(scratch_create() && scratch_write("config.json", "{}"));
    write_shard("a.safetensors", "x");
    write_shard("b.safetensors", "y");
    write_index("{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}");
    weights *w;
    lace_error err;
    CHECK(weights_open(scratch_path(""), &w, &err) == LACE_OK && weights_count(w) == 2);
    weights_close(w);
    write_index("{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}");
    refuse(LACE_E_META, "weight_map: tensor x is not in the file b.safetensors");
    write_index("{\"x\":\"a.safetensors\",\"z\":\"b.safetensors\"}");
    refuse(LACE_E_META, "weight_map: tensor z is not in the file b.safetensors");
    write_index("{\"x\":\"a.safetensors\",\"y\":\"c.safetensors\"}");
    refuse(LACE_E_IO, "c.safetensors: cannot open");
    write_shard("b.safetensors", "x");
    write_index("{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}");
    refuse(LACE_E_DUP, "tensor x is also in an earlier part");
    CHECK(truncate(scratch_path("b.safetensors"), 30) == 0);
    refuse(LACE_E_TRUNC, "b.safetensors: at byte");
    scratch_remove();
}

static lace_status open_once(lace_error *err)
{
    weights *w;
    lace_status status = weights_open(scratch_path(""), &w, err);
    weights_close(w);
    return status;
}

static void every_allocation_may_fail(void)
{
    CHECK(scratch_create() && scratch_write("config.json", "{\"model_type\":\"llama\"}"));
    write_shard("a.safetensors", "x");
    write_shard("b.safetensors", "y");
    write_index("{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}");
    fail_each_allocation(open_once, false);
    scratch_remove();
}

int main(void)
{
    CASE(a_directory_in_one_file_opens);
    CASE(infinity_is_read_as_null);
    CASE(shards_look_like_one);
    char *large = data_path_if_there("models/tales-26m");
    if (large)
        tap_case_arg("shards_of_tales_26m_look_like_one", shards_of_a_real_model_look_like_one,
                     large);
    free(large);
    CASE(configs_that_cannot_be_are_refused);
    CASE(file_names_of_the_index_stay_in_the_directory);
    CASE(index_and_shards_must_agree);
    CASE(every_allocation_may_fail);
    return tap_end();
}
