#include "fatbin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_PTX = 1, FATBIN_MAGIC = (int)0xBA55ED50, ZSTD_MAGIC = (int)0xFD2FB528 };

/* What lies where in an entry. */
enum {
    AT_HEADER_BYTES = 4,
    AT_PAYLOAD_BYTES = 8,
    AT_PACKED_BYTES = 16, /* without what fills up to a multiple of 8; 0: not packed */
    AT_ARCH = 28,
    AT_FLAGS = 40,
    AT_TEXT_BYTES = 56,
};

static uint64_t number(const uint8_t *p, int n_bytes)
{
    uint64_t x = 0;
    memcpy(&x, p, (size_t)n_bytes);
    return x;
}

typedef size_t unpack_fn(void *to, size_t n_to, const void *from, size_t n_from);

static unpack_fn *unpacker;

static void find_unpacker(void)
{
    void *zstd = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (zstd)
        *(void **)&unpacker = dlsym(zstd, "ZSTD_decompress");
}

static char *text_of(const uint8_t *entry)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *payload = entry + number(entry + AT_HEADER_BYTES, 4);
    const uint64_t n_payload = number(entry + AT_PAYLOAD_BYTES, 8);
    const uint64_t n_packed = number(entry + AT_PACKED_BYTES, 4);
    if (number(payload, 4) != (uint32_t)ZSTD_MAGIC) {
        char *text = calloc(1, n_payload + 1);
        if (text)
            memcpy(text, payload, n_payload);
        return text;
    }
    pthread_once(&once, find_unpacker);
    if (!unpacker) {
        fprintf(stderr, "card: libzstd.so.1, which unpacks kernels, is not installed\n");
        return NULL;
    }
    const uint64_t n_text = number(entry + AT_TEXT_BYTES, 8);
    char *text = n_text < (uint64_t)1 << 30 ? calloc(1, n_text + 1) : NULL;
    if (text && unpacker(text, n_text, payload, n_packed) != n_text) {
        fprintf(stderr, "card: the text of kernels cannot be unpacked\n");
        free(text);
        return NULL;
    }
    return text;
}

char *fatbin_ptx(const void *image, uint32_t card_arch, uint32_t *arch)
{
    const uint8_t *p = image, *best = NULL;
    *arch = 0;
    if (number(p, 4) != (uint32_t)FATBIN_MAGIC)
        return NULL;
    const uint8_t *end = p + number(p + 6, 2) + number(p + 8, 8);
    for (p += number(p + 6, 2); p < end;
         p += number(p + AT_HEADER_BYTES, 4) + number(p + AT_PAYLOAD_BYTES, 8)) {
        const uint32_t its_arch = (uint32_t)number(p + AT_ARCH, 4);
        if (number(p, 2) != KIND_PTX || its_arch > card_arch || its_arch < *arch)
            continue;
        /* All text for 9.0 that lace has is for sm_90a, which no later card runs. */
        if (its_arch == 90 && card_arch != 90)
            continue;
        best = p;
        *arch = its_arch;
    }
    return best ? text_of(best) : NULL;
}
