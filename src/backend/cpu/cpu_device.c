/* The CPU as a backend: its weights are packed into the layouts that its kernels want. */
#include "backend/cpu/cpu_device.h"

#include <stdio.h>

#include "backend/cpu/columns.h"
#include "base/mem.h"
#include "base/numbers.h"

typedef struct cpu_device {
    device base;
    kernel_table kernels;
    weight_mode mode;
    uint64_t memory_bytes; /* that it may use, in the manner of a card; 0: it is the host */
    uint64_t packed_bytes; /* of all weights that are packed */
    uint8_t *packed;       /* NULL until loading begins */
} cpu_device;

enum { USUAL_BATCH = 512, PAGE_BYTES = 4096 };

const kernel_table *cpu_device_kernels(const device *d)
{
    return &((const cpu_device *)d)->kernels;
}

static int count(void)
{
    return 1;
}

static lace_status open(int index, const device_options *o, device **out, lace_error *err)
{
    *out = NULL;
    if (index != 0)
        return error_set(err, LACE_E_DEVICE, "there is one CPU, number 0, not %d", index);
    cpu_device *d = mem_calloc(1, sizeof *d);
    if (!d)
        return error_nomem(err, "a device");
    d->base.backend = &backend_cpu;
    d->base.is_host = d->base.collects = true;
    d->mode = o->mode;
    kernels_init(&d->kernels, o->level);
    if (o->mode == WEIGHTS_EXACT)
        d->kernels.ops[OP_ATTEND] = d->kernels.exact_attend;
    *out = &d->base;
    return LACE_OK;
}

lace_status cpu_device_open_apart(uint64_t memory_bytes, const device_options *o, device **out,
                                  lace_error *err)
{
    TRY(open(0, o, out, err));
    ((cpu_device *)*out)->memory_bytes = memory_bytes;
    return LACE_OK;
}

static void close(device *dev)
{
    cpu_device *d = (cpu_device *)dev;
    mem_unmap(d->packed, d->packed_bytes);
    mem_free(d);
}

static lace_status describe(device *dev, device_info *out, lace_error *err)
{
    const cpu_device *d = (const cpu_device *)dev;
    *out = (device_info){.usual_batch = USUAL_BATCH, .has_all_caches = true};
    if (d->memory_bytes) {
        uint64_t used = d->packed ? dev->weight_bytes : 0;
        snprintf(out->name, sizeof out->name, "cpu with %.0f MiB",
                 (double)d->memory_bytes / (1 << 20));
        out->total_bytes = d->memory_bytes;
        out->free_bytes = d->memory_bytes > used ? d->memory_bytes - used : 0;
    }
    return LACE_OK;
}

/* ---- Placing --------------------------------------------------------------------------------- */

static const matmul_impl *choose_impl(const cpu_device *d, dtype type, int64_t n_cols)
{
    const matmul_impl *impl = d->mode == WEIGHTS_IN_PLACE ? d->kernels.in_place[type]
                              : d->mode == WEIGHTS_EXACT  ? d->kernels.exact[type]
                                                          : d->kernels.packed[type];
    /* Kernels with int8 activations work on blocks of 32. */
    return impl->act == ACT_Q8 && n_cols % 32 != 0 ? d->kernels.exact[type] : impl;
}

/* Takes n bytes of the packed memory. */
static uint64_t take_packed(cpu_device *d, uint64_t n_bytes)
{
    uint64_t offset = d->packed_bytes;
    d->packed_bytes += round_up(n_bytes, PAGE_BYTES);
    d->base.weight_bytes += round_up(n_bytes, PAGE_BYTES);
    return offset;
}

static lace_status place(device *dev, const weight_rows *rows, weight *out, lace_error *err)
{
    cpu_device *d = (cpu_device *)dev;
    *out = (weight){.type = rows->type,
                    .n_rows = rows->n_rows,
                    .n_cols = rows->n_cols,
                    .data = rows->blocks,
                    .n_bytes = rows->n_bytes,
                    .offset = WEIGHT_IN_PLACE};
    if (rows->is_table) {
        d->base.weight_bytes += rows->is_shared ? 0 : rows->n_bytes;
        return LACE_OK;
    }
    out->impl = choose_impl(d, rows->type, rows->n_cols);
    if (!matmul_packs(out->impl)) {
        d->base.weight_bytes += rows->n_bytes;
        return LACE_OK;
    }
    out->n_bytes =
        matmul_packed_bytes(out->impl, rows->type, rows->blocks, rows->n_rows, rows->n_cols);
    out->offset = take_packed(d, out->n_bytes);
    /* Where results are the same to the bit, rows are packed in passing at first. */
    const matmul_impl *in_place = d->kernels.in_place[rows->type];
    if (d->mode == WEIGHTS_PACKED_LATER && in_place && in_place->panels == out->impl)
        out->impl = in_place;
    return LACE_OK;
}

static bool place_columns(device *dev, weight *w)
{
    cpu_device *d = (cpu_device *)dev;
    const columns_impl *impl = d->kernels.columns[w->type];
    /* Exact arithmetic has no kernel of its own: thresholds hold, and everything is read. */
    if (d->mode == WEIGHTS_EXACT)
        return true;
    if (!impl || !columns_has(w->type, w->n_cols) || impl->act != w->impl->act)
        return false;
    w->columns_impl = impl;
    w->columns_offset = take_packed(d, columns_bytes(w->type, w->n_rows, w->n_cols));
    return true;
}

/* ---- Loading --------------------------------------------------------------------------------- */

typedef struct pack_job {
    const weight_rows *rows;
    const weight *w;
    uint8_t *out;
} pack_job;

static void pack_share(void *arg, int index, int n_workers)
{
    const pack_job *job = arg;
    const weight *w = job->w;
    int64_t begin, end;
    pool_share(w->n_rows, MATMUL_TILE_ROWS, index, n_workers, &begin, &end);
    if (begin < end)
        w->impl->pack(w->type, job->rows->blocks, w->n_rows, w->n_cols, begin, end, job->out);
}

static void pack_columns_share(void *arg, int index, int n_workers)
{
    const pack_job *job = arg;
    const weight *w = job->w;
    int64_t begin, end;
    pool_share(w->n_cols / COLUMNS_GROUP, 1, index, n_workers, &begin, &end);
    columns_pack(w->type, job->rows->blocks, w->n_rows, w->n_cols, begin, end, job->out);
}

static lace_status begin_load(device *dev, lace_error *err)
{
    cpu_device *d = (cpu_device *)dev;
    if (d->packed_bytes && !d->packed) {
        d->packed = mem_map(d->packed_bytes);
        if (!d->packed)
            return error_nomem(err, "the packed weights");
    }
    return LACE_OK;
}

static void pack_weight(cpu_device *d, const weight_rows *rows, weight *w, pool *workers)
{
    if (w->impl->panels)
        w->impl = w->impl->panels;
    pack_job job = {rows, w, d->packed + w->offset};
    pool_run(workers, pack_share, &job);
    w->data = job.out;
}

static lace_status load(device *dev, const weight_rows *rows, weight *w, pool *workers,
                        lace_error *err)
{
    cpu_device *d = (cpu_device *)dev;
    if (w->columns_impl) {
        pack_job job = {rows, w, d->packed + w->columns_offset};
        pool_run(workers, pack_columns_share, &job);
        w->columns = job.out;
    }
    if (w->offset != WEIGHT_IN_PLACE && !w->impl->panels)
        pack_weight(d, rows, w, workers);
    return LACE_OK;
}

static bool pack(device *dev, const weight_rows *rows, weight *w, pool *workers)
{
    if (w->offset == WEIGHT_IN_PLACE || !w->impl->panels)
        return false;
    pack_weight((cpu_device *)dev, rows, w, workers);
    return true;
}

const backend backend_cpu = {
    .name = "cpu",
    .count = count,
    .open = open,
    .close = close,
    .describe = describe,
    .place = place,
    .place_columns = place_columns,
    .begin_load = begin_load,
    .load = load,
    .pack = pack,
    .compile = cpu_program_compile,
    .prepare = cpu_program_prepare,
    .free = cpu_program_free,
    .run = cpu_program_run,
    .logits = cpu_program_logits,
    .hidden = cpu_program_hidden,
    .n_steps = cpu_program_n_steps,
    .step_at = cpu_program_step_at,
    .run_steps = cpu_program_run_steps,
    .make_weight = cpu_weight_make,
    .free_weight = cpu_weight_free,
    .time_product = cpu_time_product,
};
