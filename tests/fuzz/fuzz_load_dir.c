/*
 * Fuzzing the whole way of a Hugging Face directory: whatever config.json and model.safetensors
 * are, opening says no, or a token can be evaluated, and so with its vision tower and an image. The
 * corpus has the smallest model of every family. What a directory says in preprocessor_config.json
 * stands in config.json here, under that name.
 *
 * An input is the size of config.json (4 bytes, little-endian), config.json, and the rest is
 * model.safetensors. Both are written into a folder below $TMPDIR or /tmp.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[256];

static const char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void remove_folder(void)
{
    unlink(path_of("config.json"));
    unlink(path_of("model.safetensors"));
    rmdir(folder);
}

static void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lace-fuzz-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder))
        abort();
    atexit(remove_folder);
}

static void write_file(const char *name, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path_of(name), "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

/* The directory's tower, if it has one, with a small image. */
static lace_status look(const lace_model *model, lace_error *err)
{
    enum { WIDTH = 12, HEIGHT = 9 };
    static const uint8_t rgb[3 * WIDTH * HEIGHT] = {1, 2, 3};
    lace_tower_options o = lace_tower_options_default();
    lace_tower *tower = NULL;
    lace_image *image = NULL;
    o.n_threads = 1;
    o.max_tokens = 4;
    lace_status status = lace_tower_open(model, NULL, &o, &tower, err);
    if (status == LACE_OK)
        status = lace_image_create_rgb(tower, rgb, WIDTH, HEIGHT, &image, err);
    lace_image_free(image);
    lace_tower_close(tower);
    return status;
}

static lace_status run(lace_error *err)
{
    lace_session_options o = lace_session_options_default();
    lace_model *model = NULL;
    lace_session *session = NULL;
    lace_item item = {0, 0, true};
    o.n_context = 8;
    o.n_batch = 4;
    o.n_threads = 1;
    o.memory_bytes = 1 << 26; /* what asks for much is refused, not tried */
    lace_status status = lace_model_open(folder, NULL, &model, err);
    if (status == LACE_OK)
        status = lace_session_create(model, &o, &session, err);
    if (status == LACE_OK)
        status = lace_session_eval(session, &item, 1, err);
    lace_session_free(session);
    if (status == LACE_OK)
        status = look(model, err);
    lace_model_close(model);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lace_error err = {0};
    if (size < 4)
        return 0;
    uint32_t n = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                 (uint32_t)data[3] << 24;
    n = n < size - 4 ? n : (uint32_t)(size - 4);
    if (!folder[0])
        make_folder();
    write_file("config.json", data + 4, n);
    write_file("model.safetensors", data + 4 + n, size - 4 - n);
    lace_status status = run(&err);
    /* One line, of the same status, that says something. */
    if (status != LACE_OK && (err.status != status || err.text[0] == 0 || strchr(err.text, '\n')))
        abort();
    return 0;
}
