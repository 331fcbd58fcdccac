/* LoRA adapters for tests. */
#define _XOPEN_SOURCE 700
#include "lora_kit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "scratch.h"
#include "tap.h"
#include "tensor/codec/pack.h"
#include "tensor/codec/unpack.h"

static float *random_floats(random_state *r, int64_t n, dtype type)
{
    float *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; i < n; i++) {
        uint8_t packed[4];
        float y = (float)(2 * random_unit(r) - 1) * 0.3f;
        pack_row(type, &y, 1, packed);
        unpack_row(type, packed, 1, &x[i]);
    }
    return x;
}

static bool has_word(text name, const char *const *words)
{
    char copy[160];
    snprintf(copy, sizeof copy, "%.*s", (int)name.size, name.data);
    if (strstr(copy, "norm") || strstr(copy, "bias"))
        return false;
    for (; *words; words++)
        if (strstr(copy, *words))
            return true;
    return false;
}

void kit_make(kit_adapter *k, const weights *files, const char *const *words, int rank, float alpha,
              dtype type, uint32_t seed)
{
    random_state r;
    random_init(&r, seed);
    *k = (kit_adapter){.rank = rank, .alpha = alpha, .type = type};
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor *t = weights_at(files, i);
        if (t->shape.n_dims != 2 || !has_word(t->name, words) || k->n_pairs == KIT_MOST)
            continue;
        kit_pair *p = &k->pairs[k->n_pairs++];
        snprintf(p->name, sizeof p->name, "%.*s", (int)t->name.size, t->name.data);
        p->is_table = strstr(p->name, "embd") || strstr(p->name, "embed_tokens");
        p->n_in = t->shape.dims[p->is_table ? 1 : 0];
        p->n_out = t->shape.dims[p->is_table ? 0 : 1];
        p->a = random_floats(&r, rank * p->n_in, type);
        p->b = random_floats(&r, rank * p->n_out, type);
    }
    CHECK(k->n_pairs > 0);
}

void kit_free(kit_adapter *k)
{
    for (int i = 0; i < k->n_pairs; i++) {
        free(k->pairs[i].a);
        free(k->pairs[i].b);
    }
    k->n_pairs = 0;
}

/* ---- Merging --------------------------------------------------------------------------------- */

/* The values of a tensor with what the adapters add. */
static float *merged(const tensor *t, const kit_use *uses, int n_uses)
{
    float *x = malloc((size_t)t->n_values * sizeof *x);
    unpack_row(t->type, t->data, (int64_t)t->n_values, x);
    for (int u = 0; u < n_uses; u++)
        for (int i = 0; i < uses[u].k->n_pairs; i++) {
            const kit_adapter *k = uses[u].k;
            const kit_pair *p = &k->pairs[i];
            if (!text_is(t->name, p->name))
                continue;
            double factor = (double)uses[u].scale * (double)k->alpha / k->rank;
            for (int64_t out = 0; out < p->n_out; out++)
                for (int64_t in = 0; in < p->n_in; in++) {
                    double sum = 0;
                    for (int r = 0; r < k->rank; r++)
                        sum +=
                            (double)p->b[out * k->rank + r] *
                            (double)(p->is_table ? p->a[in * k->rank + r] : p->a[r * p->n_in + in]);
                    float *at = p->is_table ? &x[in * p->n_out + out] : &x[out * p->n_in + in];
                    *at = (float)((double)*at + factor * sum);
                }
        }
    return x;
}

buf kit_merge_gguf(const weights *files, const kit_use *uses, int n_uses)
{
    const gguf *g = weights_gguf(files);
    gguf_writer *w = NULL;
    buf out;
    buf_init(&out, 64 << 20);
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    for (size_t i = 0; i < gguf_n_values(g); i++)
        if (!text_is(gguf_value_at(g, i)->key, "general.alignment"))
            gguf_writer_add_value(w, gguf_value_at(g, i), NULL);
    float **data = calloc(weights_count(files), sizeof(float *));
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor *t = weights_at(files, i);
        data[i] = merged(t, uses, n_uses);
        gguf_writer_add_tensor(w, t->name, DTYPE_F32, &t->shape, data[i], NULL);
    }
    CHECK(gguf_writer_to_buf(w, &out, NULL) == LACE_OK);
    for (size_t i = 0; i < weights_count(files); i++)
        free(data[i]);
    free(data);
    gguf_writer_free(w);
    return out;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

static void add_half(gguf_writer *w, const char *tensor_name, const char *end, const float *values,
                     int64_t n_cols, int64_t n_rows, dtype type, buf *kept)
{
    char name[200];
    snprintf(name, sizeof name, "%s%s", tensor_name, end);
    /* The writer borrows: what is packed stays in `kept`, whose room was reserved. */
    uint8_t *data = (uint8_t *)kept->data + kept->size;
    pack_row(type, values, n_cols * n_rows, data);
    kept->size += row_bytes(type, n_cols * n_rows);
    gguf_writer_add_tensor(w, text_of(name), type, &(shape){2, {n_cols, n_rows, 1, 1}}, data, NULL);
}

static buf kept_halves; /* of the last writer */

gguf_writer *kit_gguf_writer(const kit_adapter *k, const char *architecture)
{
    gguf_writer *w = NULL;
    uint64_t n = 0;
    for (int i = 0; i < k->n_pairs; i++)
        n += 4 * (uint64_t)k->rank * (uint64_t)(k->pairs[i].n_in + k->pairs[i].n_out);
    free(kept_halves.data);
    kept_halves = (buf){.data = malloc(n)};
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    gguf_writer_add_text(w, "general.type", text_of("adapter"), NULL);
    gguf_writer_add_text(w, "general.architecture", text_of(architecture), NULL);
    gguf_writer_add_text(w, "adapter.type", text_of("lora"), NULL);
    gguf_writer_add_float(w, "adapter.lora.alpha", GGUF_F32, (double)k->alpha, NULL);
    for (int i = 0; i < k->n_pairs; i++) {
        const kit_pair *p = &k->pairs[i];
        add_half(w, p->name, ".lora_a", p->a, p->is_table ? k->rank : p->n_in,
                 p->is_table ? p->n_in : k->rank, k->type, &kept_halves);
        add_half(w, p->name, ".lora_b", p->b, k->rank, p->n_out, k->type, &kept_halves);
    }
    return w;
}

bool kit_write_gguf(const kit_adapter *k, const char *architecture, const char *path)
{
    gguf_writer *w = kit_gguf_writer(k, architecture);
    lace_status status = gguf_writer_to_file(w, path, NULL, NULL, NULL);
    gguf_writer_free(w);
    return CHECK(status == LACE_OK);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static uint64_t n_values(const kit_tensor *t)
{
    return (uint64_t)(t->n_cols * (t->n_rows ? t->n_rows : 1));
}

bool kit_write_safetensors(const kit_tensor *t, int n, const char *path)
{
    char *head = malloc((size_t)n * 400 + 16), *at = head;
    uint64_t offset = 0;
    at += sprintf(at, "{");
    for (int i = 0; i < n; i++) {
        char dims[64];
        uint64_t end = offset + 4 * n_values(&t[i]);
        if (t[i].n_rows)
            snprintf(dims, sizeof dims, "%" PRId64 ",%" PRId64, t[i].n_rows, t[i].n_cols);
        else
            snprintf(dims, sizeof dims, "%" PRId64, t[i].n_cols);
        at += sprintf(at,
                      "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                      ",%" PRIu64 "]}",
                      i ? "," : "", t[i].name, dims, offset, end);
        offset = end;
    }
    at += sprintf(at, "}");
    uint64_t n_head = (uint64_t)(at - head);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(&n_head, 8, 1, f) == 1 && fwrite(head, n_head, 1, f) == 1;
    for (int i = 0; ok && i < n; i++)
        ok = fwrite(t[i].data, 4 * n_values(&t[i]), 1, f) == 1;
    ok = f && fclose(f) == 0 && ok;
    free(head);
    return CHECK(ok);
}

bool kit_write_peft(const kit_adapter *k, const char *more, const char *to)
{
    kit_tensor *t = calloc((size_t)k->n_pairs * 2, sizeof *t);
    float *turned[KIT_MOST] = {0};
    char path[4096];
    mkdir(to, 0700);
    for (int i = 0; i < k->n_pairs; i++) {
        const kit_pair *p = &k->pairs[i];
        int stem = (int)(strlen(p->name) - strlen(".weight"));
        const char *middle = p->is_table ? "lora_embedding_" : "lora_",
                   *end = p->is_table ? "" : ".weight";
        snprintf(t[2 * i].name, sizeof t->name, "base_model.model.%.*s.%sA%s", stem, p->name,
                 middle, end);
        snprintf(t[2 * i + 1].name, sizeof t->name, "base_model.model.%.*s.%sB%s", stem, p->name,
                 middle, end);
        t[2 * i].n_rows = k->rank;
        t[2 * i].n_cols = p->n_in;
        t[2 * i].data = p->a;
        if (p->is_table) { /* PEFT has it by rank */
            turned[i] = malloc((size_t)(k->rank * p->n_in) * sizeof(float));
            for (int64_t in = 0; in < p->n_in; in++)
                for (int r = 0; r < k->rank; r++)
                    turned[i][r * p->n_in + in] = p->a[in * k->rank + r];
            t[2 * i].data = turned[i];
        }
        t[2 * i + 1].n_rows = p->n_out;
        t[2 * i + 1].n_cols = k->rank;
        t[2 * i + 1].data = p->b;
    }
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", to);
    bool ok = kit_write_safetensors(t, 2 * k->n_pairs, path);
    snprintf(path, sizeof path, "%s/adapter_config.json", to);
    FILE *f = fopen(path, "w");
    ok =
        f &&
        fprintf(f, "{\"peft_type\": \"LORA\", %s\"r\": %d, \"lora_alpha\": %g, \"bias\": \"none\"}",
                more, k->rank, (double)k->alpha) > 0 &&
        ok;
    ok = f && fclose(f) == 0 && ok;
    for (int i = 0; i < k->n_pairs; i++)
        free(turned[i]);
    free(t);
    return CHECK(ok);
}

bool kit_merge_directory(const char *from, const weights *files, const kit_use *uses, int n_uses,
                         const char *to)
{
    size_t n = weights_count(files);
    kit_tensor *t = calloc(n, sizeof *t);
    char path[4096], source[4096];
    mkdir(to, 0700);
    for (size_t i = 0; i < n; i++) {
        const tensor *x = weights_at(files, i);
        snprintf(t[i].name, sizeof t->name, "%.*s", (int)x->name.size, x->name.data);
        t[i].n_cols = x->shape.dims[0];
        t[i].n_rows = x->shape.n_dims > 1 ? x->shape.dims[1] : 0;
        t[i].data = merged(x, uses, n_uses);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    bool ok = kit_write_safetensors(t, (int)n, path);
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)t[i].data);
    free(t);
    snprintf(source, sizeof source, "%s/config.json", from);
    snprintf(path, sizeof path, "%s/config.json", to);
    return CHECK(scratch_copy(source, path)) && ok;
}

void kit_remove(const char *directory)
{
    static const char *const files[] = {"adapter_model.safetensors", "adapter_config.json",
                                        "model.safetensors", "config.json"};
    char path[4096];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, files[i]);
        unlink(path);
    }
    rmdir(directory);
}
