/* How the loops of backend/host_peak.h are written for each CPU level (peak_tmpl.c). */
#ifndef LACE_BACKEND_CPU_PEAK_H
#define LACE_BACKEND_CPU_PEAK_H

#include "backend/host_peak.h"

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
