/*
 * The first exchange of ranks: whether they are the same lace with the same model and options, and
 * which CPU level all of them have. A difference is named with the rank and its host.
 */
#ifndef LACE_ENGINE_HELLO_H
#define LACE_ENGINE_HELLO_H

#include "base/cpu.h"
#include "formats/weights.h"
#include "rank/rank.h"

enum { HELLO_PROTOCOL = 1 };

/* What a rank says of itself. */
typedef struct hello {
    char magic[8];
    uint32_t protocol, endian;
    char version[32], host[48];
    uint64_t model;   /* a hash of its directory and of pages all over it */
    uint64_t options; /* of what changes results */
    int32_t level;    /* cpu_level */
} hello;

hello hello_of(const weights *files, uint64_t options, cpu_level level);

/* LACE_E_RANK: they differ. *level becomes the lowest of all. */
lace_status hello_exchange(ranks *r, const hello *own, cpu_level *level, lace_error *err);

#endif
