/* A valid tiny model to spoil, and the way in which a spoiled one is loaded. */
#define _GNU_SOURCE
#include "bad_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/weights.h"
#include "model/config.h"
#include "tap.h"
#include "tiny_model.h"

buf bad_seed;
gguf *bad_seed_gguf;

bool bad_seed_create(void)
{
    tiny_options o = tiny_options_small();
    o.n_heads = 4;
    o.n_kv_heads = 2;
    lace_error err;
    buf_init(&bad_seed, 1 << 16);
    if (tiny_model_build(&o, &bad_seed, &err) == LACE_OK &&
        gguf_parse((span){(uint8_t *)bad_seed.data, bad_seed.size}, &bad_seed_gguf, &err) ==
            LACE_OK)
        return true;
    printf("Bail out! %s\n", err.text);
    return false;
}

void bad_seed_free(void)
{
    gguf_free(bad_seed_gguf);
    buf_deinit(&bad_seed);
}

static volatile unsigned sum;

static void touch(const void *data, size_t n_bytes)
{
    const uint8_t *p = data;
    unsigned s = 0;
    for (size_t i = 0; i < n_bytes; i++)
        s += p[i];
    sum = s;
}

lace_status bad_load(const void *data, size_t n_bytes, lace_error *err)
{
    weights *w;
    model_config config;
    lace_status status = weights_open_memory((span){data, n_bytes}, "bad", &w, err);
    if (status != LACE_OK) {
        CHECK(w == NULL);
        return status;
    }
    const gguf *g = weights_gguf(w);
    for (size_t i = 0; i < gguf_n_values(g); i++)
        touch(gguf_value_at(g, i)->bytes.data, gguf_value_at(g, i)->bytes.size);
    for (size_t i = 0; i < weights_count(w); i++)
        touch(weights_at(w, i)->data, (size_t)weights_at(w, i)->n_bytes);
    status = config_from_gguf(g, &config, err);
    weights_close(w);
    return status;
}

lace_status bad_load_exact(const void *data, size_t n_bytes, lace_error *err)
{
    void *copy = malloc(n_bytes ? n_bytes : 1);
    memcpy(copy, data, n_bytes);
    lace_status status = bad_load(copy, n_bytes, err);
    free(copy);
    return status;
}

double bad_cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void bad_set_u32(buf *b, size_t at, uint64_t value)
{
    for (int i = 0; i < 4; i++)
        b->data[at + (size_t)i] = (char)(value >> 8 * i);
}

void bad_set_u64(buf *b, size_t at, uint64_t value)
{
    bad_set_u32(b, at, value);
    bad_set_u32(b, at + 4, value >> 32);
}

void bad_insert(buf *b, size_t at, const void *data, size_t n_bytes)
{
    CHECK(buf_reserve(b, n_bytes) == LACE_OK);
    memmove(b->data + at + n_bytes, b->data + at, b->size - at);
    memcpy(b->data + at, data, n_bytes);
    b->size += n_bytes;
}

bool bad_message_is_good(const lace_error *err, lace_status status)
{
    return err->status == status && !strchr(err->text, '\n') &&
           strncmp(err->text, "bad: ", 5) == 0 &&
           (strstr(err->text, "at byte ") || strstr(err->text, "llama."));
}
