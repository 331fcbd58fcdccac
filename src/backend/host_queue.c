/* The queue of devices that compute in the host's memory: everything is done at once. */
#include <string.h>

#include "backend/queue.h"
#include "base/mem.h"

static lace_status take(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err)
{
    *out = mem_map(n_bytes);
    return *out || n_bytes == 0 ? LACE_OK : error_nomem(err, "a session");
}

static void give_back(queue *q, uint8_t *data, uint64_t n_bytes)
{
    mem_unmap(data, n_bytes);
}

static lace_status copy(queue *q, uint8_t *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    memcpy(to, from, n);
    return LACE_OK;
}

static lace_status zero(queue *q, uint8_t *data, uint64_t n, lace_error *err)
{
    memset(data, 0, n);
    return LACE_OK;
}

static lace_status wait(queue *q, lace_error *err)
{
    return LACE_OK;
}

static lace_status read(queue *q, void *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    memcpy(to, from, n);
    return LACE_OK;
}

static lace_status write(queue *q, uint8_t *to, const void *from, uint64_t n, lace_error *err)
{
    memcpy(to, from, n);
    return LACE_OK;
}

static void close(queue *q)
{
}

static const queue_calls calls = {.take = take,
                                  .give_back = give_back,
                                  .copy = copy,
                                  .zero = zero,
                                  .wait = wait,
                                  .read = read,
                                  .write = write,
                                  .close = close};

queue host_queue = {&calls};
