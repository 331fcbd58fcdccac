/*
 * Fuzzing GGUF: whatever the bytes are, parsing says no or gives a directory in which every value
 * and every tensor can be read to its last byte, and decoded.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"
#include "tensor/codec/unpack.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sum up the bytes so that the compiler must read them. */
static volatile unsigned sum;

static void touch(const void *data, size_t n_bytes)
{
    const uint8_t *p = data;
    unsigned s = 0;
    for (size_t i = 0; i < n_bytes; i++)
        s += p[i];
    sum = s;
}

static void touch_value(const gguf_value *v)
{
    touch(v->key.data, v->key.size);
    touch(v->bytes.data, v->bytes.size);
    int64_t item;
    for (uint64_t i = 0; i <= v->n_items && i < 10000; i++)
        gguf_value_int(v, i, &item);
    if (v->type == GGUF_ARRAY && v->item_type == GGUF_STRING) {
        text *texts = calloc((size_t)v->n_items + 1, sizeof *texts);
        if (!texts)
            abort();
        gguf_array_texts(v, texts);
        for (uint64_t i = 0; i < v->n_items; i++)
            touch(texts[i].data, texts[i].size);
        free(texts);
    }
}

/* The first and the last block of a tensor as numbers. */
static void read_blocks(const tensor *t)
{
    const dtype_info *info = dtype_describe(t->type);
    float values[256];
    if (!unpack_ref[t->type] || t->n_values == 0)
        return;
    unpack_row(t->type, t->data, info->block_values, values);
    touch(values, (size_t)info->block_values * sizeof *values);
    unpack_row(t->type, t->data + t->n_bytes - info->block_bytes, info->block_values, values);
    touch(values, (size_t)info->block_values * sizeof *values);
}

static void check_error(lace_status status, const lace_error *err)
{
    /* One line, of the same status, that says something. */
    if (err->status != status || err->text[0] == 0 || strchr(err->text, '\n'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf *g;
    lace_error err = {0};
    lace_status status = gguf_parse((span){data, size}, &g, &err);
    if (status != LACE_OK) {
        check_error(status, &err);
        if (g)
            abort();
        return 0;
    }
    for (size_t i = 0; i < gguf_n_values(g); i++)
        touch_value(gguf_value_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const tensor *t = gguf_tensor_at(g, i);
        touch(t->name.data, t->name.size);
        touch(t->data, (size_t)t->n_bytes);
        read_blocks(t);
    }
    model_config config;
    status = config_from_gguf(g, &config, &err);
    if (status != LACE_OK)
        check_error(status, &err);
    else if (config.n_heads % config.n_kv_heads != 0 || config.rope.n_dims > config.head_dim)
        abort();
    gguf_free(g);
    return 0;
}
