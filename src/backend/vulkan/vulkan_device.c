/* GPUs of all kinds through Vulkan as a backend: weights in chunks of memory, programs of launches. */
#include "backend/vulkan/vulkan_device.h"

#include <stdio.h>

#include "backend/vulkan/self_test.h"
#include "backend/vulkan/vulkan_program.h"
#include "backend/vulkan/vulkan_weights.h"
#include "base/mem.h"
#include "base/numbers.h"

/* A piece of memory for weights. No matrix lies across two. */
typedef struct weight_chunk {
    uint64_t begin, n_bytes; /* among the offsets of all weights */
    uint64_t address;        /* 0 until loading begins */
} weight_chunk;

typedef struct vulkan_card {
    device base;
    vulkan *v;
    int index;
    uint64_t chunk_bytes; /* of a chunk, but for matrices that are larger */
    weight_chunk *chunks;
    size_t n_chunks, chunks_capacity;
    vulkan_queue *loading; /* while loading */
} vulkan_card;

enum { USUAL_BATCH = 512, WEIGHT_ALIGN = 256, LOAD_BYTES = 16 << 20 };

static const uint64_t MOST_CHUNK_BYTES = (uint64_t)1 << 30;

/* The pieces through which weights are loaded, and what a driver takes for itself. */
static const uint64_t LOADING_BYTES = (uint64_t)128 << 20;

static lace_status open_tested(int index, vulkan **out, lace_error *err)
{
    TRY(vulkan_open(index, out, err));
    return vulkan_self_test(*out, err);
}

static lace_status open(int index, const device_options *o, device **out, lace_error *err)
{
    *out = NULL;
    vulkan_card *c = mem_calloc(1, sizeof *c);
    if (!c)
        return error_nomem(err, "a device");
    c->base.backend = &backend_vulkan;
    c->index = index;
    lace_status status = open_tested(index, &c->v, err);
    vulkan_info info;
    if (status == LACE_OK)
        status = vulkan_describe(c->v, &info, err);
    if (status != LACE_OK) {
        vulkan_close(c->v);
        mem_free(c);
        return status;
    }
    c->chunk_bytes =
        info.max_allocation < MOST_CHUNK_BYTES ? info.max_allocation : MOST_CHUNK_BYTES;
    *out = &c->base;
    return LACE_OK;
}

static void close(device *d)
{
    vulkan_card *c = (vulkan_card *)d;
    vulkan_queue_free(c->loading);
    vulkan_close(c->v);
    mem_free(c->chunks);
    mem_free(c);
}

static lace_status describe(device *d, device_info *out, lace_error *err)
{
    vulkan_info info;
    TRY(vulkan_describe(((vulkan_card *)d)->v, &info, err));
    *out = (device_info){.total_bytes = info.total_bytes,
                         .free_bytes = info.free_bytes,
                         .loading_bytes = LOADING_BYTES,
                         .usual_batch = USUAL_BATCH};
    char text[256];
    snprintf(text, sizeof text, "%.60s (Vulkan %u.%u; %.60s; subgroups of %u%s%s)", info.name,
             info.api_major, info.api_minor, info.driver, info.subgroup_lanes,
             info.has_dot4     ? "; dot4"
             : info.dot4_fails ? "; dot4 fails"
                               : "",
             info.has_matrices    ? "; matrices"
             : info.matrices_fail ? "; matrices fail"
                                  : "");
    snprintf(out->name, sizeof out->name, "%.127s", text);
    return LACE_OK;
}

static lace_status renew(device *d, bool *is_new, lace_error *err)
{
    vulkan_card *c = (vulkan_card *)d;
    *is_new = false;
    if (!vulkan_is_lost(c->v))
        return LACE_OK;
    if (vulkan_n_queues(c->v) > 0)
        return error_set(
            err, LACE_E_DEVICE,
            "the Vulkan device is lost, and cannot be opened anew while other sessions "
            "are open");
    vulkan *v = NULL;
    lace_status status = open_tested(c->index, &v, err);
    if (status != LACE_OK) {
        vulkan_close(v);
        return status;
    }
    vulkan_close(c->v);
    c->v = v;
    for (size_t i = 0; i < c->n_chunks; i++)
        c->chunks[i].address = 0;
    *is_new = true;
    return LACE_OK;
}

static lace_status open_queue(device *d, queue **out, lace_error *err)
{
    return vulkan_open_queue(((vulkan_card *)d)->v, out, err);
}

/* ---- Weights --------------------------------------------------------------------------------- */

static dtype kept_as(device *d, dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols)
{
    return weights_kept_as(type);
}

static lace_status place(device *d, const weight_rows *rows, weight *out, lace_error *err)
{
    vulkan_card *c = (vulkan_card *)d;
    dtype kept = weights_kept_as(rows->type);
    uint64_t n = weights_bytes(kept, rows->is_table, rows->n_rows, rows->n_cols);
    weight_chunk *last = c->n_chunks > 0 ? &c->chunks[c->n_chunks - 1] : NULL;
    if (!last || last->n_bytes + n > c->chunk_bytes) {
        if (!mem_grow(&c->chunks, c->n_chunks, &c->chunks_capacity, sizeof *last, 8))
            return error_nomem(err, "a list of weights");
        last = &c->chunks[c->n_chunks++];
        *last = (weight_chunk){.begin = d->weight_bytes};
    }
    *out = (weight){.type = kept,
                    .n_rows = rows->n_rows,
                    .n_cols = rows->n_cols,
                    .n_bytes = n,
                    .offset = d->weight_bytes};
    last->n_bytes += round_up(n, WEIGHT_ALIGN);
    d->weight_bytes += round_up(n, WEIGHT_ALIGN);
    return LACE_OK;
}

static lace_status begin_load(device *d, lace_error *err)
{
    vulkan_card *c = (vulkan_card *)d;
    for (size_t i = 0; i < c->n_chunks; i++)
        if (!c->chunks[i].address)
            TRY(vulkan_alloc(c->v, VULKAN_LOCAL, c->chunks[i].n_bytes, &c->chunks[i].address, NULL,
                             err));
    return c->loading ? LACE_OK : vulkan_queue_create(c->v, &c->loading, err);
}

static uint64_t address_at(const vulkan_card *c, uint64_t offset)
{
    for (size_t i = c->n_chunks; i-- > 0;)
        if (offset >= c->chunks[i].begin)
            return c->chunks[i].address + (offset - c->chunks[i].begin);
    return 0;
}

/* Rows by way of the host's memory, a piece at a time. */
static lace_status load_pieces(vulkan_card *c, weights_job *job, int64_t n_rows, uint64_t to,
                               pool *workers, lace_error *err)
{
    uint64_t stride = weights_bytes(job->kept, job->is_table, TILE_ROWS, job->n_cols);
    int64_t most = max_i64((int64_t)(LOAD_BYTES / stride), 1) * TILE_ROWS;
    lace_status status = LACE_OK;
    job->out = mem_alloc((size_t)(most / TILE_ROWS) * stride);
    if (!job->out)
        return error_nomem(err, "a piece of weights");
    for (int64_t at = 0; status == LACE_OK && at < n_rows; at += most) {
        job->first = at;
        job->n_rows = min_i64(most, n_rows - at);
        status = weights_pack(job, workers, err);
        if (status == LACE_OK)
            status = vulkan_write(c->loading, to + (uint64_t)(at / TILE_ROWS) * stride, job->out,
                                  weights_bytes(job->kept, job->is_table, job->n_rows, job->n_cols),
                                  err);
    }
    mem_free(job->out);
    return status;
}

static lace_status load(device *d, const weight_rows *rows, weight *w, pool *workers,
                        lace_error *err)
{
    vulkan_card *c = (vulkan_card *)d;
    uint64_t to = address_at(c, w->offset);
    weights_job job = {.type = rows->type,
                       .kept = w->type,
                       .is_table = rows->is_table,
                       .blocks = rows->blocks,
                       .n_rows = rows->n_rows,
                       .n_cols = rows->n_cols,
                       .out = vulkan_host_address(c->v, to)};
    w->data = (const uint8_t *)(uintptr_t)to;
    return job.out ? weights_pack(&job, workers, err)
                   : load_pieces(c, &job, rows->n_rows, to, workers, err);
}

static lace_status end_load(device *d, lace_error *err)
{
    vulkan_card *c = (vulkan_card *)d;
    lace_status status = c->loading ? vulkan_wait(c->loading, err) : LACE_OK;
    vulkan_queue_free(c->loading);
    c->loading = NULL;
    return status;
}

static lace_status compile(device *d, const plan *p, const program_options *o, program **out,
                           lace_error *err)
{
    return vulkan_program_compile(d, ((vulkan_card *)d)->v, p, o, out, err);
}

const backend backend_vulkan = {
    .name = "vulkan",
    .count = vulkan_count,
    .count_gpus = vulkan_count_gpus,
    .open = open,
    .close = close,
    .describe = describe,
    .renew = renew,
    .open_queue = open_queue,
    .kept_as = kept_as,
    .place = place,
    .begin_load = begin_load,
    .load = load,
    .end_load = end_load,
    .compile = compile,
    .prepare = vulkan_program_prepare,
    .free = vulkan_program_free,
    .run = vulkan_program_run,
    .submit = vulkan_program_submit,
    .collect = vulkan_program_collect,
    .logits = vulkan_program_logits,
    .hidden = vulkan_program_hidden,
    .n_steps = vulkan_program_n_steps,
    .step_at = vulkan_program_step_at,
    .word = vulkan_program_word,
    .begin = vulkan_program_begin,
    .ahead = vulkan_program_ahead,
    .next = vulkan_program_next,
};
