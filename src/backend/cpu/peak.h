/*
 * The limits of a core: loops that do one thing as fast as it goes. `lace bench` runs them on every
 * thread at once, and states what a model reached as a share of that.
 */
#ifndef LACE_BACKEND_CPU_PEAK_H
#define LACE_BACKEND_CPU_PEAK_H

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

/* Results go here, so that no compiler finds the work useless. */
extern _Thread_local volatile float peak_sink;

/*
 * The body of a peak_loop: `n` accumulators of type `vec` (enough to hide the latency), each
 * updated by `update`, an expression of `acc`, x and y; `macs` multiply-adds in each.
 */
#define PEAK_LOOP(function, vec, n, zero, x_init, y_init, update, macs, first_lane)                \
    uint64_t function(uint64_t n_rounds)                                                           \
    {                                                                                              \
        vec sums[n], x = x_init, y = y_init;                                                       \
        (void)x;                                                                                   \
        for (int i = 0; i < (n); i++)                                                              \
            sums[i] = zero;                                                                        \
        for (uint64_t r = 0; r < n_rounds; r++) {                                                  \
            _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)                                 \
            {                                                                                      \
                vec acc = sums[i];                                                                 \
                sums[i] = update;                                                                  \
            }                                                                                      \
        }                                                                                          \
        float total = 0;                                                                           \
        for (int i = 0; i < (n); i++) {                                                            \
            vec acc = sums[i];                                                                     \
            total += (float)(first_lane);                                                          \
        }                                                                                          \
        peak_sink = total;                                                                         \
        return n_rounds * (n) * (macs);                                                            \
    }

/* The level's own, in peak_tmpl.c. */
#define PEAK_DECLARE(level)                                                                        \
    uint64_t peak_int8_##level(uint64_t n_rounds);                                                 \
    uint64_t peak_fp32_##level(uint64_t n_rounds);                                                 \
    uint64_t peak_read_##level(const uint8_t *data, size_t n_bytes)

PEAK_DECLARE(avx2);
PEAK_DECLARE(avx2vnni);
PEAK_DECLARE(avx512);
PEAK_DECLARE(avx512vnni);
PEAK_DECLARE(neon);
PEAK_DECLARE(dotprod);
PEAK_DECLARE(i8mm);

#endif
