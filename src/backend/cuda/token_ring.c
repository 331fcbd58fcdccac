/* Waiting for the card's choices, and the launch that makes them. */
#define _DEFAULT_SOURCE
#include "backend/cuda/token_ring.h"

#include <sched.h>
#include <string.h>

lace_status token_ring_create(gpu *g, token_ring *out, lace_error *err)
{
    *out = (token_ring){0};
    TRY(cuda_alloc_host(g->device, sizeof *out->words * DECODE_RING, (void **)&out->words,
                        (void **)&out->device, err));
    token_ring_clear(out);
    return LACE_OK;
}

void token_ring_free(gpu *g, token_ring *r)
{
    cuda_free_host(g->device, r->words);
    *r = (token_ring){0};
}

void token_ring_clear(token_ring *r)
{
    memset(r->words, 0, sizeof *r->words * DECODE_RING);
    r->n_taken = 0;
}

lace_status token_ring_take(token_ring *r, cuda_queue *q, int32_t *word, lace_error *err)
{
    volatile int32_t *slot = &r->words[r->n_taken % DECODE_RING];
    /* A kernel that failed would never write: look at the queue now and then. */
    for (uint64_t n = 1; *slot == 0; n++) {
        if (n % (1 << 22) == 0) {
            TRY(cuda_wait(q, err));
            if (*slot == 0)
                return error_set(err, LACE_E_DEVICE, "the GPU chose no token");
        }
        if (n % 256 == 0)
            sched_yield();
    }
    *word = *slot;
    *slot = 0;
    r->n_taken++;
    return LACE_OK;
}

/* ---- Sampling -------------------------------------------------------------------------------- */

/* Blocks for a row: those of a cluster share it, and one alone reads it from memory. */
static uint32_t blocks_of_row(const gpu *g)
{
    return g->can.most_cluster >= SAMPLE_CLUSTER ? SAMPLE_CLUSTER : 1;
}

/* Of a block's shared memory: its part of the logits, or a bit for each of all of them. */
static uint64_t part_bytes(const gpu *g, int64_t n_vocab)
{
    uint64_t each = blocks_of_row(g) > 1 ? SAMPLE_CLUSTER : 32;
    return 4 * (((uint64_t)n_vocab + each - 1) / each);
}

bool gpu_can_sample(const gpu *g, int64_t n_vocab)
{
    const uint64_t fixed = 24 * 1024; /* what the kernel has besides */
    return part_bytes(g, n_vocab) + fixed <= (uint64_t)g->info.max_shared_bytes;
}

lace_status gpu_sample(gpu *g, cuda_queue *q, const sample_params *p, int32_t n, lace_error *err)
{
    uint32_t shared = (uint32_t)part_bytes(g, p->n_vocab), n_blocks = blocks_of_row(g);
    cuda_launch l = {.grid = {(uint32_t)n * n_blocks},
                     .block = {SAMPLE_THREADS},
                     .shared_bytes = shared,
                     .cluster = n_blocks,
                     .overlaps = g->can.overlaps};
    TRY(gpu_prepare(g, "sample_rows", 0, &l.kernel, err));
    TRY(cuda_kernel_allow(l.kernel, shared, n_blocks > 8, err));
    void *arguments[] = {(void *)(uintptr_t)p};
    return cuda_run(q, &l, arguments, err);
}

lace_status gpu_fill_tokens(gpu *g, cuda_queue *q, const fill_tokens_params *p, lace_error *err)
{
    enum { THREADS = 128 };
    cuda_launch l = {.grid = {(uint32_t)(p->n + THREADS - 1) / THREADS}, .block = {THREADS}};
    TRY(gpu_prepare(g, "fill_tokens", 0, &l.kernel, err));
    void *arguments[] = {(void *)(uintptr_t)p};
    return cuda_run(q, &l, arguments, err);
}
