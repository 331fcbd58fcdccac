/*
 * Queues: where the work of a device is done, in order, and through which its memory is used. What
 * was queued earlier is over before what was queued later begins, so a page that is copied between
 * two runs is copied between them on the device, too.
 *
 * Addresses belong to the device. Only where the device is the host can they be looked at.
 */
#ifndef LACE_BACKEND_QUEUE_H
#define LACE_BACKEND_QUEUE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct queue queue;

enum { DEVICES_MAX = 8 }; /* that one model is on (mixed.h) */

typedef struct queue_calls {
    lace_status (*take)(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err);
    void (*give_back)(queue *q, uint8_t *data, uint64_t n_bytes);
    lace_status (*copy)(queue *q, uint8_t *to, const uint8_t *from, uint64_t n, lace_error *err);
    lace_status (*zero)(queue *q, uint8_t *data, uint64_t n, lace_error *err);
    lace_status (*wait)(queue *q, lace_error *err);
    lace_status (*read)(queue *q, void *to, const uint8_t *from, uint64_t n, lace_error *err);
    lace_status (*write)(queue *q, uint8_t *to, const void *from, uint64_t n, lace_error *err);
    void (*close)(queue *q);
    queue *(*of_device)(queue *q, int32_t device); /* NULL: it is that of the only one */
    /* Both NULL: the device reads and writes none of the host's memory by itself. */
    lace_status (*take_shared)(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err);
    void (*give_back_shared)(queue *q, uint8_t *data);
} queue_calls;

struct queue {
    const queue_calls *calls;
};

/* The host's own memory, for devices that compute there. Never closed. */
extern queue host_queue;

/* Memory of the device. That of the host is zeros, and costs nothing until it is written. */
static inline lace_status queue_take(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err)
{
    return q->calls->take(q, n_bytes, out, err);
}

static inline void queue_give_back(queue *q, uint8_t *data, uint64_t n_bytes) /* NULL is fine */
{
    if (data)
        q->calls->give_back(q, data, n_bytes);
}

/* Memory of the host that the device, and others of its kind, can use by themselves. */
static inline bool queue_shares_memory(const queue *q)
{
    return q->calls->take_shared;
}

static inline lace_status queue_take_shared(queue *q, uint64_t n_bytes, uint8_t **out,
                                            lace_error *err)
{
    return q->calls->take_shared(q, n_bytes, out, err);
}

static inline void queue_give_back_shared(queue *q, uint8_t *data) /* NULL is fine */
{
    if (data)
        q->calls->give_back_shared(q, data);
}

/* From one place on the device to another, which do not overlap. */
static inline lace_status queue_copy(queue *q, uint8_t *to, const uint8_t *from, uint64_t n,
                                     lace_error *err)
{
    return q->calls->copy(q, to, from, n, err);
}

static inline lace_status queue_zero(queue *q, uint8_t *data, uint64_t n, lace_error *err)
{
    return q->calls->zero(q, data, n, err);
}

/* Until all that was queued is done. Reports what went wrong in it. */
static inline lace_status queue_wait(queue *q, lace_error *err)
{
    return q->calls->wait(q, err);
}

/* Between the device's memory and the host's, behind all that was queued; over when they return. */
static inline lace_status queue_read(queue *q, void *to, const uint8_t *from, uint64_t n,
                                     lace_error *err)
{
    return q->calls->read(q, to, from, n, err);
}

static inline lace_status queue_write(queue *q, uint8_t *to, const void *from, uint64_t n,
                                      lace_error *err)
{
    return q->calls->write(q, to, from, n, err);
}

/* The queue of one of the devices that a model is on. */
static inline queue *queue_of_device(queue *q, int32_t device)
{
    return q->calls->of_device ? q->calls->of_device(q, device) : q;
}

static inline void queue_close(queue *q) /* waits; NULL is fine */
{
    if (q)
        q->calls->close(q);
}

#endif
