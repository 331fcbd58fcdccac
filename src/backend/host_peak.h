/*
 * The limits of a core: loops that do one thing as fast as it goes. `lace bench` runs them on every
 * thread at once, and states what a model reached as a share of that.
 */
#ifndef LACE_BACKEND_HOST_PEAK_H
#define LACE_BACKEND_HOST_PEAK_H

#include "base/cpu.h"
#include "base/status.h"

/* PEAK_READ_GRAIN: what `read` takes is a multiple of this. */
enum { PEAK_STREAMS = 8, PEAK_READ_GRAIN = PEAK_STREAMS * 1024, PEAK_PREFETCH = 6144 };

/* n_rounds of independent multiply-adds in registers; returns how many were done. */
typedef uint64_t (*peak_loop)(uint64_t n_rounds);

typedef struct peak_loops {
    peak_loop int8_dot; /* int8 products added up in int32, by the level's best instruction */
    peak_loop fp32_fma;

    /* Read all bytes through PEAK_STREAMS streams, prefetching. Depends on every byte read. */
    uint64_t (*read)(const uint8_t *data, size_t n_bytes);

    /* The same through two streams, left to the processor's own prefetching: Zen's is better. */
    uint64_t (*read_in_order)(const uint8_t *data, size_t n_bytes);
} peak_loops;

void peak_loops_init(peak_loops *out, cpu_level level);

#endif
