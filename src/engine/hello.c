/* The first exchange of ranks. */
#define _DEFAULT_SOURCE
#include "engine/hello.h"

#include <string.h>
#include <unistd.h>

enum { PAGES = 64, PAGE_BYTES = 4096, HELLO_MS = 60000 };

/* FNV-1a: the same on every machine. */
static uint64_t mix(const void *data, uint64_t n, uint64_t h)
{
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
    return h;
}

/* The tensors' names, types and shapes, and some pages of what a file holds of them. */
static uint64_t hash_model(const weights *files)
{
    uint64_t h = 0xcbf29ce484222325;
    size_t n = weights_count(files);
    for (size_t i = 0; i < n; i++) {
        const tensor *t = weights_at(files, i);
        h = mix(t->name.data, t->name.size, h);
        h = mix(&t->type, sizeof t->type, h);
        h = mix(t->shape.dims, (size_t)t->shape.n_dims * sizeof *t->shape.dims, h);
    }
    if (!weights_gguf(files)) /* tensors of a directory may be made when they are needed */
        return h;
    for (size_t i = 0; i < PAGES && n > 0; i++) {
        const tensor *t = weights_at(files, i * n / PAGES);
        uint64_t at = t->n_bytes > PAGE_BYTES ? (t->n_bytes - PAGE_BYTES) * i / PAGES : 0;
        h = mix(t->data + at, t->n_bytes - at < PAGE_BYTES ? t->n_bytes - at : PAGE_BYTES, h);
    }
    return h;
}

hello hello_of(const weights *files, uint64_t options, cpu_level level)
{
    hello h = {.magic = "lacerank",
               .protocol = HELLO_PROTOCOL,
               .endian = 0x01020304,
               .version = LACE_VERSION,
               .model = hash_model(files),
               .options = options,
               .level = (int32_t)level};
    if (gethostname(h.host, sizeof h.host - 1) != 0)
        memcpy(h.host, "unknown host", sizeof "unknown host");
    return h;
}

static lace_status compare(const hello *first, const hello *h, int32_t rank, lace_error *err)
{
    if (memcmp(h->magic, first->magic, sizeof h->magic) != 0 || h->endian != first->endian ||
        h->protocol != first->protocol || strcmp(h->version, first->version) != 0)
        return error_set(err, LACE_E_VERSION, "rank %d (%s) is lace %s, and rank 0 (%s) is %s",
                         rank, h->host, h->version, first->host, first->version);
    if (h->model != first->model)
        return error_set(err, LACE_E_META, "rank %d (%s) has another model than rank 0 (%s)", rank,
                         h->host, first->host);
    if (h->options != first->options)
        return error_set(err, LACE_E_ARG, "rank %d (%s) has other options than rank 0 (%s)", rank,
                         h->host, first->host);
    return LACE_OK;
}

lace_status hello_exchange(ranks *r, const hello *own, cpu_level *level, lace_error *err)
{
    _Static_assert(sizeof(hello) <= RANKS_LEAST_BYTES, "there is room for it from the start");
    hello all[RANKS_MAX];
    uint64_t bytes[RANKS_MAX];
    int32_t n = r->shares.n_ranks;
    memcpy(ranks_mine(r), own, sizeof *own);
    for (int32_t k = 0; k < n; k++)
        bytes[k] = sizeof *own;
    int32_t usual = atomic_exchange(&r->deadline_ms, HELLO_MS); /* programs start at any time */
    lace_status status = ranks_exchange(r, bytes);
    atomic_store(&r->deadline_ms, usual);
    if (status != LACE_OK)
        return ranks_status(r, err);
    for (int32_t k = 0; k < n; k++) {
        memcpy(&all[k], ranks_part(r, k), sizeof all[k]);
        all[k].version[sizeof all[k].version - 1] = all[k].host[sizeof all[k].host - 1] = 0;
        memcpy(r->hosts[k], all[k].host, sizeof r->hosts[k]);
        *level = (int32_t)*level < all[k].level ? *level : (cpu_level)all[k].level;
    }
    for (int32_t k = 1; k < n; k++) {
        TRY(compare(&all[0], &all[k], k, err));
        /* Not every CPU with AVX-512 has the level below it. */
        if (all[k].level != all[0].level && *level == CPU_AVX2_VNNI)
            *level = CPU_AVX2;
    }
    return LACE_OK;
}
