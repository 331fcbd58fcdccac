/* How long one token takes in a matrix of some type on this machine, by doing it. */
#include "backend/cpu/cpu_device.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/numbers.h"

enum { MAX_COPIES = 256, N_RUNS = 3, RUN_NS = 15 * 1000 * 1000 };

typedef struct timing {
    const weight *w;
    const uint8_t *copies;
    uint64_t stride; /* from copy to copy */
    int n_copies, n_repeats;
    const uint8_t *x;
    uint64_t x_bytes;
    float *out; /* [n_rows] */
    uint8_t **scratch;
} timing;

static void multiply(void *arg, int me, int n_workers)
{
    const timing *t = arg;
    int64_t begin, end;
    weight w = *t->w;
    pool_share(w.n_rows, MATMUL_TILE_ROWS, me, n_workers, &begin, &end);
    for (int i = 0; i < t->n_repeats && begin < end; i++) {
        w.data = t->copies + (uint64_t)(i % t->n_copies) * t->stride;
        w.impl->rows(&w, begin, end, t->x, t->x_bytes, 1, t->out + begin, w.n_rows, t->scratch[me]);
    }
}

/* Repeat until a run is long enough to be timed, then take the fastest. */
static double run(timing *t, pool *workers)
{
    double best = 0;
    t->n_repeats = t->n_copies;
    for (int i = 0; i < N_RUNS;) {
        uint64_t begin = clock_ns();
        pool_run(workers, multiply, t);
        uint64_t taken = clock_ns() - begin;
        if (taken < RUN_NS && t->n_repeats < 1 << 20) {
            t->n_repeats *= 2;
            continue;
        }
        double us = (double)taken * 1e-3 / t->n_repeats;
        best = i == 0 || us < best ? us : best;
        i++;
    }
    return best;
}

/* The file's blocks of the whole matrix. */
static uint8_t *repeat_rows(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols)
{
    uint64_t stride = row_bytes(type, n_cols);
    uint8_t *out = mem_map((uint64_t)n_rows * stride);
    for (int64_t r = 0; out && r < n_rows; r++)
        memcpy(out + (uint64_t)r * stride, blocks + (uint64_t)(r % TIMED_ROWS) * stride, stride);
    return out;
}

static lace_status prepare(timing *t, weight *w, const uint8_t *rows, uint64_t room, pool *workers,
                           lace_error *err)
{
    const matmul_impl *impl = w->impl;
    uint64_t blocks = row_bytes(w->type, w->n_cols) * (uint64_t)w->n_rows;
    bool packs = matmul_packs(impl);
    uint64_t size = packs ? matmul_packed_bytes(impl, w->type, rows, w->n_rows, w->n_cols) : blocks;
    uint64_t scratch = impl->scratch_bytes ? impl->scratch_bytes(w->n_cols, 1) : 0;
    t->stride = round_up(size, 64);
    uint64_t n = room / t->stride;
    t->n_copies = n < 1 ? 1 : n > MAX_COPIES ? MAX_COPIES : (int)n;
    t->x_bytes = act_row_bytes(impl->act, w->n_cols);
    t->x = mem_map(t->x_bytes); /* zeros: the time does not depend on them */
    t->out = mem_calloc((size_t)w->n_rows, sizeof *t->out);
    uint8_t *copies = mem_map(t->stride * (uint64_t)t->n_copies);
    t->copies = copies;
    t->scratch = mem_calloc((size_t)pool_size(workers), sizeof *t->scratch);
    bool ok = t->x && t->out && copies && t->scratch;
    for (int i = 0; ok && i < pool_size(workers); i++)
        ok = (t->scratch[i] = mem_map(scratch + 64)) != NULL;
    if (!ok)
        return error_nomem(err, "a matrix to be timed");
    if (packs)
        impl->pack(w->type, rows, w->n_rows, w->n_cols, 0, w->n_rows, copies);
    else
        memcpy(copies, rows, size);
    for (int i = 1; i < t->n_copies; i++)
        memcpy(copies + (uint64_t)i * t->stride, copies, size);
    return LACE_OK;
}

lace_status cpu_time_product(device *d, pool *workers, const timed_rows *m, double *out,
                             lace_error *err)
{
    const kernel_table *kernels = cpu_device_kernels(d);
    weight w = {.type = m->type,
                .n_rows = m->n_rows,
                .n_cols = m->n_cols,
                .impl = kernels->packed[m->type]};
    timing t = {.w = &w};
    *out = 0;
    if (!w.impl)
        w.impl = kernels->in_place[m->type];
    if (!w.impl)
        return LACE_OK;
    uint64_t n_blocks = row_bytes(m->type, m->n_cols) * (uint64_t)m->n_rows;
    uint8_t *rows = repeat_rows(m->type, m->blocks, m->n_rows, m->n_cols);
    lace_status status = rows ? prepare(&t, &w, rows, m->room, workers, err)
                              : error_nomem(err, "a matrix to be timed");
    if (status == LACE_OK)
        *out = run(&t, workers);
    uint64_t scratch = w.impl->scratch_bytes ? w.impl->scratch_bytes(m->n_cols, 1) : 0;
    for (int i = 0; t.scratch && i < pool_size(workers); i++)
        mem_unmap(t.scratch[i], scratch + 64);
    mem_free(t.scratch);
    mem_unmap((uint8_t *)t.copies, t.stride * (uint64_t)t.n_copies);
    mem_unmap((uint8_t *)t.x, t.x_bytes);
    mem_free(t.out);
    mem_unmap(rows, n_blocks);
    return status;
}
