/* How long one token takes in a matrix of some type on this machine, by doing it. */
#ifndef LACE_COMPRESS_KERNEL_TIME_H
#define LACE_COMPRESS_KERNEL_TIME_H

#include "base/threads.h"
#include "backend/cpu/kernels.h"

/*
 * Microseconds of y = W x for one x, with all workers: the fastest of a few runs over copies of W
 * that together take `room` bytes, so that weights come from where those of a model of that size
 * come from. `blocks` holds MATMUL_TILE_ROWS rows, which are repeated. 0 if no kernel is there.
 */
lace_status kernel_time_measure(const kernel_table *kernels, pool *workers, dtype type,
                                const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                                uint64_t room, double *out, lace_error *err);

#endif
