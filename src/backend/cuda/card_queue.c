/* A card's stream as a queue. */
#include "backend/cuda/card_queue.h"

#include "base/mem.h"

typedef struct card_queue {
    queue base;
    cuda_queue *stream;
} card_queue;

cuda_queue *card_queue_stream(const queue *q)
{
    return ((const card_queue *)q)->stream;
}

static lace_status take(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err)
{
    return cuda_alloc(cuda_queue_device(card_queue_stream(q)), n_bytes, (void **)out, err);
}

static void give_back(queue *q, uint8_t *data, uint64_t n_bytes)
{
    cuda_free(cuda_queue_device(card_queue_stream(q)), data);
}

static lace_status copy(queue *q, uint8_t *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    return cuda_copy_on(card_queue_stream(q), to, from, n, err);
}

static lace_status zero(queue *q, uint8_t *data, uint64_t n, lace_error *err)
{
    return cuda_fill(card_queue_stream(q), data, 0, n, err);
}

static lace_status wait(queue *q, lace_error *err)
{
    return cuda_wait(card_queue_stream(q), err);
}

static lace_status read(queue *q, void *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    TRY(cuda_copy_from(card_queue_stream(q), to, from, n, err));
    return cuda_wait(card_queue_stream(q), err);
}

static lace_status write(queue *q, uint8_t *to, const void *from, uint64_t n, lace_error *err)
{
    TRY(cuda_copy_to(card_queue_stream(q), to, from, n, err));
    return cuda_wait(card_queue_stream(q), err);
}

static void close(queue *q)
{
    cuda_queue_free(card_queue_stream(q));
    mem_free(q);
}

static lace_status take_shared(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err)
{
    return cuda_alloc_host(cuda_queue_device(card_queue_stream(q)), n_bytes, (void **)out, NULL,
                           err);
}

static void give_back_shared(queue *q, uint8_t *data)
{
    cuda_free_host(cuda_queue_device(card_queue_stream(q)), data);
}

static const queue_calls calls = {.take = take,
                                  .give_back = give_back,
                                  .copy = copy,
                                  .zero = zero,
                                  .wait = wait,
                                  .read = read,
                                  .write = write,
                                  .close = close,
                                  .take_shared = take_shared,
                                  .give_back_shared = give_back_shared};

lace_status card_queue_open(cuda_device *d, queue **out, lace_error *err)
{
    *out = NULL;
    card_queue *q = mem_calloc(1, sizeof *q);
    if (!q)
        return error_nomem(err, "a queue");
    q->base.calls = &calls;
    lace_status status = cuda_queue_create(d, &q->stream, err);
    if (status != LACE_OK) {
        mem_free(q);
        return status;
    }
    *out = &q->base;
    return LACE_OK;
}
