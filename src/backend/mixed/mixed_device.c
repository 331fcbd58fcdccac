/* Several devices as one backend: each weight goes to its own. */
#include "backend/mixed/mixed_device.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- The queue ------------------------------------------------------------------------------- */

/* One of each device. What is asked of the whole is asked of the host's. */
typedef struct mixed_queue {
    queue base;
    queue *parts[DEVICES_MAX];
    int32_t n_parts;
} mixed_queue;

static queue *of_device(queue *q, int32_t i)
{
    return ((mixed_queue *)q)->parts[i];
}

static lace_status take(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err)
{
    return queue_take(of_device(q, 0), n_bytes, out, err);
}

static void give_back(queue *q, uint8_t *data, uint64_t n_bytes)
{
    queue_give_back(of_device(q, 0), data, n_bytes);
}

static lace_status copy(queue *q, uint8_t *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    return queue_copy(of_device(q, 0), to, from, n, err);
}

static lace_status zero(queue *q, uint8_t *data, uint64_t n, lace_error *err)
{
    return queue_zero(of_device(q, 0), data, n, err);
}

static lace_status wait(queue *q, lace_error *err)
{
    for (int32_t i = 0; i < ((mixed_queue *)q)->n_parts; i++)
        TRY(queue_wait(of_device(q, i), err));
    return LACE_OK;
}

static lace_status read(queue *q, void *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    return queue_read(of_device(q, 0), to, from, n, err);
}

static lace_status write(queue *q, uint8_t *to, const void *from, uint64_t n, lace_error *err)
{
    return queue_write(of_device(q, 0), to, from, n, err);
}

static void close_queue(queue *q)
{
    for (int32_t i = 0; i < ((mixed_queue *)q)->n_parts; i++)
        queue_close(of_device(q, i));
    mem_free(q);
}

static const queue_calls calls = {.take = take,
                                  .give_back = give_back,
                                  .copy = copy,
                                  .zero = zero,
                                  .wait = wait,
                                  .read = read,
                                  .write = write,
                                  .close = close_queue,
                                  .of_device = of_device};

static lace_status open_queue(device *dev, queue **out, lace_error *err)
{
    const mixed_device *d = (const mixed_device *)dev;
    *out = NULL;
    mixed_queue *q = mem_calloc(1, sizeof *q);
    if (!q)
        return error_nomem(err, "a queue");
    q->base.calls = &calls;
    for (; q->n_parts < d->n_parts; q->n_parts++) {
        lace_status status = device_open_queue(d->parts[q->n_parts], &q->parts[q->n_parts], err);
        if (status != LACE_OK) {
            close_queue(&q->base);
            return status;
        }
    }
    *out = &q->base;
    return LACE_OK;
}

/* ---- The device ------------------------------------------------------------------------------ */

static void close(device *dev)
{
    mixed_device *d = (mixed_device *)dev;
    for (int32_t i = 0; i < d->n_parts; i++)
        device_close(d->parts[i]);
    mem_free_all(d->layers, d->host, d);
}

lace_status device_mix(const mixed_options *o, device **out, lace_error *err)
{
    *out = NULL;
    mixed_device *d = mem_calloc(1, sizeof *d);
    uint8_t *layers = d ? mem_calloc((size_t)o->n_layers + 1, 1) : NULL;
    if (!layers) {
        for (int32_t i = 0; i < o->n_devices; i++)
            device_close(o->devices[i]);
        mem_free(d);
        return error_nomem(err, "a device");
    }
    memcpy(layers, o->layers, (size_t)o->n_layers);
    d->base.backend = &backend_mixed;
    d->n_parts = o->n_devices;
    memcpy(d->parts, o->devices, sizeof d->parts);
    d->layers = layers;
    d->n_layers = o->n_layers;
    d->output = o->output;
    d->stream_tokens = o->stream_tokens;
    for (int32_t i = o->n_devices - 1; i > 0 && o->stream_tokens != 0; i--)
        if (o->devices[i]->backend->place_streamed)
            d->streamer = i;
    *out = &d->base;
    return LACE_OK;
}

static const mixed_device *as_mixed(const device *d)
{
    return d->backend == &backend_mixed ? (const mixed_device *)d : NULL;
}

int32_t device_n_parts(const device *d)
{
    return as_mixed(d) ? as_mixed(d)->n_parts : 1;
}

device *device_part(device *d, int32_t i)
{
    return as_mixed(d) ? as_mixed(d)->parts[i] : d;
}

static const char *name_of(const device *d, const device_info *info)
{
    return info->name[0] ? info->name : d->backend->name;
}

/* What all of them can, and how many tokens the one computes together that likes most. */
static lace_status describe(device *dev, device_info *out, lace_error *err)
{
    mixed_device *d = (mixed_device *)dev;
    device_info all = {.has_all_caches = true};
    size_t n = 0;
    for (int32_t i = d->n_parts - 1; i >= 0; i--) {
        device_info one = {0};
        TRY(device_describe(d->parts[i], &one, err));
        if (n < sizeof all.name)
            n += (size_t)snprintf(all.name + n, sizeof all.name - n, "%s%s", n ? " + " : "",
                                  name_of(d->parts[i], &one));
        all.usual_batch = one.usual_batch > all.usual_batch ? one.usual_batch : all.usual_batch;
        all.has_all_caches = all.has_all_caches && one.has_all_caches;
    }
    *out = all;
    return LACE_OK;
}

/* ---- Weights --------------------------------------------------------------------------------- */

static lace_status place(device *dev, const weight_rows *rows, weight *out, lace_error *err)
{
    mixed_device *d = (mixed_device *)dev;
    device *to = d->parts[rows->device];
    uint64_t before = to->weight_bytes;
    TRY(device_place(to, rows, out, err));
    out->device = rows->device;
    if (d->streamer > 0 && rows->device == 0 && !rows->is_table)
        TRY(stream_note(d, out, rows, err));
    dev->weight_bytes += to->weight_bytes - before;
    return LACE_OK;
}

static lace_status begin_load(device *dev, lace_error *err)
{
    mixed_device *d = (mixed_device *)dev;
    for (int32_t i = 0; i < d->n_parts; i++)
        TRY(device_begin_load(d->parts[i], err));
    return LACE_OK;
}

static lace_status load(device *dev, const weight_rows *rows, weight *w, pool *workers,
                        lace_error *err)
{
    return device_load(((mixed_device *)dev)->parts[w->device], rows, w, workers, err);
}

/* Of all, also where one fails: each gives back what loading took. */
static lace_status end_load(device *dev, lace_error *err)
{
    mixed_device *d = (mixed_device *)dev;
    lace_status status = LACE_OK;
    for (int32_t i = 0; i < d->n_parts; i++) {
        lace_status ended = device_end_load(d->parts[i], status == LACE_OK ? err : NULL);
        status = status == LACE_OK ? ended : status;
    }
    return status;
}

static bool pack(device *dev, const weight_rows *rows, weight *w, pool *workers)
{
    return device_pack(((mixed_device *)dev)->parts[w->device], rows, w, workers);
}

const backend backend_mixed = {
    .name = "mixed",
    .close = close,
    .describe = describe,
    .open_queue = open_queue,
    .place = place,
    .begin_load = begin_load,
    .load = load,
    .end_load = end_load,
    .pack = pack,
    .compile = mixed_program_compile,
    .prepare = mixed_program_prepare,
    .free = mixed_program_free,
    .run = mixed_program_run,
    .warm_up = mixed_program_warm_up,
    .logits = mixed_program_logits,
    .hidden = mixed_program_hidden,
    .n_steps = mixed_program_n_steps,
    .step_at = mixed_program_step_at,
};
