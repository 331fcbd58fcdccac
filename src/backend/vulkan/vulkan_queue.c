/*
 * Queues and recorded lists. A device has one queue of its own, which all of ours share; each of ours
 * has its commands and a semaphore that counts what is done.
 */
#include <assert.h>
#include <string.h>

#include "backend/vulkan/vulkan_internal.h"
#include "base/mem.h"
#include "base/numbers.h"

enum { STAGING_BYTES = 16 << 20 };

struct vulkan_queue {
    vulkan *v;
    VkCommandPool pool;
    VkSemaphore done;
    uint64_t n_submitted;
    vulkan_list *transfer; /* commands for copies, made anew for each */
    uint64_t staging;      /* STAGING_BYTES that the host sees; 0 until it is needed */
    uint8_t *staging_host;
};

struct vulkan_list {
    vulkan_queue *q;
    VkCommandBuffer commands;
    VkPipeline bound;
    uint64_t last_run;  /* its number among the submissions; 0: never */
    VkQueryPool stamps; /* none: it is not timed */
    uint32_t n_stamps, most_stamps;
};

/* Everything that was queued is over, and seen by what is queued behind it. */
static void barrier_between_lists(vulkan_list *l)
{
    VkPipelineStageFlags stages =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkMemoryBarrier m = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                         .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                                          VK_ACCESS_TRANSFER_READ_BIT |
                                          VK_ACCESS_TRANSFER_WRITE_BIT};
    l->q->v->CmdPipelineBarrier(l->commands, stages, stages, 0, 1, &m, 0, NULL, 0, NULL);
}

static lace_status restart(vulkan_list *l, lace_error *err)
{
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    VULKAN_CALL(l->q->v, BeginCommandBuffer, l->commands, &info);
    l->bound = VK_NULL_HANDLE;
    barrier_between_lists(l);
    return LACE_OK;
}

lace_status vulkan_list_begin(vulkan_queue *q, vulkan_list **out, lace_error *err)
{
    *out = NULL;
    vulkan_list *l = mem_calloc(1, sizeof *l);
    if (!l)
        return error_nomem(err, "a list");
    l->q = q;
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = q->pool,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
    VkResult r = q->v->AllocateCommandBuffers(q->v->device, &info, &l->commands);
    lace_status status =
        r == VK_SUCCESS ? restart(l, err) : vulkan_failed(r, "vkAllocateCommandBuffers", err);
    return GIVE_OR_FREE(status, l, out, vulkan_list_free);
}

void vulkan_list_launch(vulkan_list *l, const vulkan_pipeline *p, const uint32_t grid[3],
                        uint64_t params)
{
    vulkan *v = l->q->v;
    if (l->bound != p->pipeline)
        v->CmdBindPipeline(l->commands, VK_PIPELINE_BIND_POINT_COMPUTE, p->pipeline);
    l->bound = p->pipeline;
    v->CmdPushConstants(l->commands, v->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof params,
                        &params);
    v->CmdDispatch(l->commands, grid[0], grid[1], grid[2]);
}

/* Compute to compute alone: on an H200 2.0 us, and 4.1 with other stages named. */
void vulkan_list_barrier(vulkan_list *l)
{
    VkMemoryBarrier m = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
                         .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
    l->q->v->CmdPipelineBarrier(l->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &m, 0, NULL, 0, NULL);
}

/* What the device wrote is made visible to the host here, once. */
lace_status vulkan_list_end(vulkan_list *l, lace_error *err)
{
    VkMemoryBarrier m = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                         .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    l->q->v->CmdPipelineBarrier(
        l->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &m, 0, NULL, 0, NULL);
    VULKAN_CALL(l->q->v, EndCommandBuffer, l->commands);
    return LACE_OK;
}

lace_status vulkan_list_time(vulkan_list *l, uint32_t n, lace_error *err)
{
    vulkan *v = l->q->v;
    VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                  .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                  .queryCount = n};
    if (v->ns_per_stamp == 0)
        return LACE_OK;
    VULKAN_CALL(v, CreateQueryPool, v->device, &info, NULL, &l->stamps);
    v->CmdResetQueryPool(l->commands, l->stamps, 0, n);
    l->most_stamps = n;
    return LACE_OK;
}

void vulkan_list_stamp(vulkan_list *l)
{
    if (l->n_stamps < l->most_stamps)
        l->q->v->CmdWriteTimestamp(l->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, l->stamps,
                                   l->n_stamps++);
}

lace_status vulkan_list_times(vulkan_list *l, uint64_t *ns, lace_error *err)
{
    vulkan *v = l->q->v;
    uint64_t stamps[2];
    for (uint32_t i = 0; i + 1 < l->n_stamps; i++) {
        VULKAN_CALL(v, GetQueryPoolResults, v->device, l->stamps, i, 2, sizeof stamps, stamps,
                    sizeof *stamps, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
        ns[i] = (uint64_t)((double)(stamps[1] - stamps[0]) * v->ns_per_stamp);
    }
    return LACE_OK;
}

static lace_status failed(vulkan *v, VkResult r, const char *call, lace_error *err)
{
    if (r == VK_ERROR_DEVICE_LOST) {
        pthread_mutex_lock(&v->lock);
        v->is_lost = true;
        pthread_mutex_unlock(&v->lock);
    }
    return vulkan_failed(r, call, err);
}

static lace_status wait_for(vulkan_queue *q, uint64_t number, lace_error *err)
{
    const uint64_t minute_ns = (uint64_t)60e9;
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &q->done,
                                .pValues = &number};
    VkResult r = q->v->WaitSemaphores(q->v->device, &info, minute_ns);
    if (r != VK_SUCCESS)
        return failed(q->v, r, "vkWaitSemaphores", err);
    return q->v->loader->validates ? vulkan_check_messages(err) : LACE_OK;
}

/* What "lose" and "lose-once" of LACE_VULKAN_DEBUG ask for. With the lock held. */
static bool is_lost(vulkan *v)
{
    static int n_left = 40; /* lists until the device is lost once, in this process */
    if (v->loader->loses_once && n_left > 0 && --n_left == 0)
        v->is_lost = true;
    return v->loader->loses || v->is_lost;
}

lace_status vulkan_lists_run(vulkan_list *const *lists, int n, uint64_t *number, lace_error *err)
{
    vulkan_queue *q = lists[0]->q;
    VkCommandBuffer commands[VULKAN_MOST_LISTS];
    uint64_t next = q->n_submitted + 1;
    assert(n <= VULKAN_MOST_LISTS);
    for (int i = 0; i < n; i++)
        commands[i] = lists[i]->commands;
    VkTimelineSemaphoreSubmitInfo timeline = {.sType =
                                                  VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                              .signalSemaphoreValueCount = 1,
                                              .pSignalSemaphoreValues = &next};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &timeline,
                         .commandBufferCount = (uint32_t)n,
                         .pCommandBuffers = commands,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &q->done};
    pthread_mutex_lock(&q->v->lock);
    VkResult r = lists[0] != q->transfer && is_lost(q->v)
                     ? VK_ERROR_DEVICE_LOST
                     : q->v->QueueSubmit(q->v->queue, 1, &info, VK_NULL_HANDLE);
    pthread_mutex_unlock(&q->v->lock);
    if (r != VK_SUCCESS)
        return failed(q->v, r, "vkQueueSubmit", err);
    q->n_submitted = next;
    for (int i = 0; i < n; i++)
        lists[i]->last_run = next;
    if (number)
        *number = next;
    return LACE_OK;
}

lace_status vulkan_list_run(vulkan_list *l, lace_error *err)
{
    return vulkan_lists_run(&l, 1, NULL, err);
}

lace_status vulkan_wait_for(vulkan_queue *q, uint64_t number, lace_error *err)
{
    return wait_for(q, number, err);
}

void vulkan_list_free(vulkan_list *l)
{
    if (!l)
        return;
    if (l->last_run)
        wait_for(l->q, l->last_run, NULL);
    if (l->stamps)
        l->q->v->DestroyQueryPool(l->q->v->device, l->stamps, NULL);
    if (l->commands)
        l->q->v->FreeCommandBuffers(l->q->v->device, l->q->pool, 1, &l->commands);
    mem_free(l);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

vulkan *vulkan_queue_device(const vulkan_queue *q)
{
    return q->v;
}

lace_status vulkan_wait(vulkan_queue *q, lace_error *err)
{
    return wait_for(q, q->n_submitted, err);
}

static lace_status prepare_queue(vulkan_queue *q, lace_error *err)
{
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = q->v->family};
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                       .pNext = &type};
    VULKAN_CALL(q->v, CreateCommandPool, q->v->device, &pool, NULL, &q->pool);
    VULKAN_CALL(q->v, CreateSemaphore, q->v->device, &semaphore, NULL, &q->done);
    TRY(vulkan_list_begin(q, &q->transfer, err));
    return vulkan_list_end(q->transfer, err);
}

static void count_queue(vulkan *v, int n)
{
    pthread_mutex_lock(&v->lock);
    v->n_queues += n;
    pthread_mutex_unlock(&v->lock);
}

lace_status vulkan_queue_create(vulkan *v, vulkan_queue **out, lace_error *err)
{
    *out = NULL;
    vulkan_queue *q = mem_calloc(1, sizeof *q);
    if (!q)
        return error_nomem(err, "a queue");
    q->v = v;
    count_queue(v, 1);
    lace_status status = prepare_queue(q, err);
    return GIVE_OR_FREE(status, q, out, vulkan_queue_free);
}

void vulkan_queue_free(vulkan_queue *q)
{
    if (!q)
        return;
    if (q->n_submitted > 0)
        vulkan_wait(q, NULL);
    vulkan_list_free(q->transfer);
    vulkan_free(q->v, q->staging);
    q->v->DestroySemaphore(q->v->device, q->done, NULL);
    q->v->DestroyCommandPool(q->v->device, q->pool, NULL);
    count_queue(q->v, -1);
    mem_free(q);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static lace_status begin_transfer(vulkan_queue *q, lace_error *err)
{
    if (q->transfer->last_run)
        TRY(wait_for(q, q->transfer->last_run, err));
    return restart(q->transfer, err);
}

static lace_status end_transfer(vulkan_queue *q, lace_error *err)
{
    barrier_between_lists(q->transfer);
    TRY(vulkan_list_end(q->transfer, err));
    return vulkan_list_run(q->transfer, err);
}

/* The buffer of an address, and how far behind its beginning that is. */
static lace_status locate(vulkan_queue *q, uint64_t address, vulkan_buffer *out, uint64_t *offset,
                          lace_error *err)
{
    if (!vulkan_find_buffer(q->v, address, out))
        return error_set(err, LACE_E_DEVICE, "Vulkan: an address that is not of this device");
    *offset = address - out->address;
    return LACE_OK;
}

lace_status vulkan_copy(vulkan_queue *q, uint64_t to, uint64_t from, uint64_t n, lace_error *err)
{
    vulkan_buffer a, b;
    VkBufferCopy c = {.size = n};
    if (n == 0)
        return LACE_OK;
    TRY(locate(q, from, &a, &c.srcOffset, err));
    TRY(locate(q, to, &b, &c.dstOffset, err));
    TRY(begin_transfer(q, err));
    q->v->CmdCopyBuffer(q->transfer->commands, a.buffer, b.buffer, 1, &c);
    return end_transfer(q, err);
}

lace_status vulkan_fill(vulkan_queue *q, uint64_t to, uint32_t word, uint64_t n, lace_error *err)
{
    vulkan_buffer b;
    uint64_t offset = 0;
    assert(n % 4 == 0);
    if (n == 0)
        return LACE_OK;
    TRY(locate(q, to, &b, &offset, err));
    TRY(begin_transfer(q, err));
    q->v->CmdFillBuffer(q->transfer->commands, b.buffer, offset, n, word);
    return end_transfer(q, err);
}

static lace_status need_staging(vulkan_queue *q, lace_error *err)
{
    if (q->staging)
        return LACE_OK;
    return vulkan_alloc(q->v, VULKAN_READBACK, STAGING_BYTES, &q->staging,
                        (void **)&q->staging_host, err);
}

lace_status vulkan_write(vulkan_queue *q, uint64_t to, const void *from, uint64_t n,
                         lace_error *err)
{
    uint8_t *host = vulkan_host_address(q->v, to);
    if (host) {
        TRY(vulkan_wait(q, err));
        memcpy(host, from, n);
        return LACE_OK;
    }
    TRY(need_staging(q, err));
    for (uint64_t at = 0; at < n; at += STAGING_BYTES) {
        uint64_t piece = (uint64_t)min_i64((int64_t)(n - at), STAGING_BYTES);
        TRY(vulkan_wait(q, err));
        memcpy(q->staging_host, (const uint8_t *)from + at, piece);
        TRY(vulkan_copy(q, to + at, q->staging, piece, err));
    }
    return LACE_OK;
}

lace_status vulkan_read(vulkan_queue *q, void *to, uint64_t from, uint64_t n, lace_error *err)
{
    uint8_t *host = vulkan_host_address(q->v, from);
    if (host) {
        TRY(vulkan_wait(q, err));
        memcpy(to, host, n);
        return LACE_OK;
    }
    TRY(need_staging(q, err));
    for (uint64_t at = 0; at < n; at += STAGING_BYTES) {
        uint64_t piece = (uint64_t)min_i64((int64_t)(n - at), STAGING_BYTES);
        TRY(vulkan_copy(q, q->staging, from + at, piece, err));
        TRY(vulkan_wait(q, err));
        memcpy((uint8_t *)to + at, q->staging_host, piece);
    }
    return LACE_OK;
}
