/* A queue of a Vulkan device, as backend/queue.h has it. */
#include "backend/vulkan/vulkan_program.h"
#include "base/mem.h"
#include "base/numbers.h"

typedef struct device_queue {
    queue base;
    vulkan_queue *q;
    lace_status (*settle)(void *arg, lace_error *err); /* or NULL */
    void *settle_arg;
} device_queue;

void vulkan_queue_settle(queue *q, lace_status (*fn)(void *arg, lace_error *err), void *arg)
{
    ((device_queue *)q)->settle = fn;
    ((device_queue *)q)->settle_arg = arg;
}

static lace_status settle(queue *base, lace_error *err)
{
    device_queue *q = (device_queue *)base;
    return q->settle ? q->settle(q->settle_arg, err) : LACE_OK;
}

vulkan_queue *vulkan_queue_of(const queue *q)
{
    return ((const device_queue *)q)->q;
}

static lace_status take(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err)
{
    uint64_t address = 0;
    lace_status status = vulkan_alloc(vulkan_queue_device(vulkan_queue_of(q)), VULKAN_LOCAL,
                                      n_bytes, &address, NULL, err);
    *out = (uint8_t *)(uintptr_t)address;
    return status;
}

static void give_back(queue *q, uint8_t *data, uint64_t n_bytes)
{
    settle(q, NULL);
    vulkan_wait(vulkan_queue_of(q), NULL);
    vulkan_free(vulkan_queue_device(vulkan_queue_of(q)), (uint64_t)(uintptr_t)data);
}

static lace_status copy(queue *q, uint8_t *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    TRY(settle(q, err));
    return vulkan_copy(vulkan_queue_of(q), (uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, n,
                       err);
}

static lace_status zero(queue *q, uint8_t *data, uint64_t n, lace_error *err)
{
    TRY(settle(q, err));
    return vulkan_fill(vulkan_queue_of(q), (uint64_t)(uintptr_t)data, 0, round_up(n, 4), err);
}

static lace_status wait(queue *q, lace_error *err)
{
    TRY(settle(q, err));
    return vulkan_wait(vulkan_queue_of(q), err);
}

static lace_status read(queue *q, void *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    TRY(settle(q, err));
    return vulkan_read(vulkan_queue_of(q), to, (uint64_t)(uintptr_t)from, n, err);
}

static lace_status write(queue *q, uint8_t *to, const void *from, uint64_t n, lace_error *err)
{
    TRY(settle(q, err));
    TRY(vulkan_write(vulkan_queue_of(q), (uint64_t)(uintptr_t)to, from, n, err));
    return vulkan_wait(vulkan_queue_of(q), err);
}

static void close(queue *q)
{
    vulkan_queue_free(vulkan_queue_of(q));
    mem_free(q);
}

static const queue_calls calls = {.take = take,
                                  .give_back = give_back,
                                  .copy = copy,
                                  .zero = zero,
                                  .wait = wait,
                                  .read = read,
                                  .write = write,
                                  .close = close};

lace_status vulkan_open_queue(vulkan *v, queue **out, lace_error *err)
{
    *out = NULL;
    device_queue *q = mem_calloc(1, sizeof *q);
    if (!q)
        return error_nomem(err, "a queue");
    q->base.calls = &calls;
    lace_status status = vulkan_queue_create(v, &q->q, err);
    if (status != LACE_OK) {
        mem_free(q);
        return status;
    }
    *out = &q->base;
    return LACE_OK;
}
