/*
 * Fuzzing checkpoints that others have quantized: a line of config.json, then a safetensors file.
 * Whatever they say, the directory is refused in one line, or every value of its tensors can be
 * made.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "formats/weights_impl.h"
#include "hf/hf_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_TENSOR = 1 << 24 }; /* bytes that are made at once */

static void check_error(lace_status status, const lace_error *err)
{
    if (err->status != status || err->text[0] == 0 || strchr(err->text, '\n'))
        abort();
}

static void make_all(hf_tensors *h)
{
    for (size_t i = 0; i < hf_tensors_count(h); i++) {
        const tensor *t = hf_tensors_at(h, i);
        uint8_t *out = t->n_bytes <= MAX_TENSOR ? mem_alloc((size_t)t->n_bytes) : NULL;
        if (out)
            hf_tensors_make(h, i, 0, t->n_values, out);
        mem_free(out);
    }
}

static void open_directory(weights *w, const json_t *json)
{
    static hf_config config;
    lace_error err = {0};
    hf_tensors *h = NULL;
    lace_status status = hf_config_read(json, &config, &err);
    for (int layout = 0; status == LACE_OK && layout < 2; layout++) {
        status = hf_tensors_create(w, &config, (hf_layout)layout, &h, &err);
        if (status == LACE_OK)
            make_all(h);
        hf_tensors_free(h);
    }
    if (status != LACE_OK)
        check_error(status, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    if (!line)
        return 0;
    json_t *json = NULL;
    weights *w = NULL;
    size_t n = (size_t)(line - data);
    if (json_read((span){data, n}, 0, &json, NULL) == LACE_OK && json_is_object(json) &&
        weights_create("directory", 1, &w, NULL) == LACE_OK &&
        safetensors_parse((span){line + 1, size - n - 1}, &w->parts[0].st, NULL) == LACE_OK &&
        weights_join(w, NULL) == LACE_OK)
        open_directory(w, json);
    weights_close(w);
    json_decref(json);
    return 0;
}
