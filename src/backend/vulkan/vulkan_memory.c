/* Memory of a device: buffers of their own, known by their addresses. */
#include "backend/vulkan/vulkan_internal.h"
#include "base/mem.h"

/* A type of memory among `allowed` with all of `must`; of those, one with most of `likes`. */
static int choose_type(const vulkan *v, uint32_t allowed, VkMemoryPropertyFlags must,
                       VkMemoryPropertyFlags likes)
{
    int best = -1, best_score = -1;
    for (uint32_t i = 0; i < v->memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags f = v->memory.memoryTypes[i].propertyFlags;
        int score = __builtin_popcount(f & likes);
        if ((allowed >> i & 1) && (f & must) == must && score > best_score) {
            best = (int)i;
            best_score = score;
        }
    }
    return best;
}

static int type_for(const vulkan *v, vulkan_place place, uint32_t allowed, bool *is_seen)
{
    const VkMemoryPropertyFlags seen =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    *is_seen = place != VULKAN_LOCAL || v->info.is_unified;
    if (place == VULKAN_LOCAL)
        return choose_type(v, allowed,
                           VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | (v->info.is_unified ? seen : 0),
                           v->info.is_unified ? VK_MEMORY_PROPERTY_HOST_CACHED_BIT : 0);
    return choose_type(v, allowed, seen,
                       place == VULKAN_UPLOAD ? VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
                                              : VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
}

static void destroy(vulkan *v, const vulkan_buffer *b)
{
    v->DestroyBuffer(v->device, b->buffer, NULL);
    v->FreeMemory(v->device, b->memory, NULL);
}

/* Memory behind a buffer that was made. */
static lace_status back(vulkan *v, vulkan_place place, vulkan_buffer *b, lace_error *err)
{
    VkMemoryRequirements needs;
    bool is_seen;
    v->GetBufferMemoryRequirements(v->device, b->buffer, &needs);
    int type = type_for(v, place, needs.memoryTypeBits, &is_seen);
    if (type < 0)
        return error_set(err, LACE_E_DEVICE, "Vulkan: %s has no memory of the kind that is needed",
                         v->info.name);
    VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = &flags,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex = (uint32_t)type};
    vulkan_info before;
    TRY(vulkan_describe(v, &before, err));
    /* More than the budget would be taken from other programs, or moved to the host's memory. */
    bool is_over = place == VULKAN_LOCAL && needs.size > before.free_bytes;
    VkResult r = is_over ? VK_ERROR_OUT_OF_DEVICE_MEMORY
                         : v->AllocateMemory(v->device, &info, NULL, &b->memory);
    if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY || r == VK_ERROR_OUT_OF_HOST_MEMORY) {
        return error_set(err, LACE_E_MEMORY,
                         "%s: %.1f MiB are needed, but only %.1f of %.1f MiB are free", before.name,
                         (double)b->n_bytes / 1048576, (double)before.free_bytes / 1048576,
                         (double)before.total_bytes / 1048576);
    }
    if (r != VK_SUCCESS)
        return vulkan_failed(r, "vkAllocateMemory", err);
    VULKAN_CALL(v, BindBufferMemory, v->device, b->buffer, b->memory, 0);
    if (is_seen)
        VULKAN_CALL(v, MapMemory, v->device, b->memory, 0, VK_WHOLE_SIZE, 0, (void **)&b->host);
    VkBufferDeviceAddressInfo of = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                    .buffer = b->buffer};
    b->address = v->GetBufferDeviceAddress(v->device, &of);
    return LACE_OK;
}

static lace_status remember(vulkan *v, const vulkan_buffer *b, lace_error *err)
{
    pthread_mutex_lock(&v->lock);
    bool has_room = mem_grow(&v->buffers, v->n_buffers, &v->buffers_capacity, sizeof *b, 64);
    if (has_room)
        v->buffers[v->n_buffers++] = *b;
    pthread_mutex_unlock(&v->lock);
    return has_room ? LACE_OK : error_nomem(err, "a buffer");
}

lace_status vulkan_alloc(vulkan *v, vulkan_place place, uint64_t n_bytes, uint64_t *out,
                         void **out_host, lace_error *err)
{
    vulkan_buffer b = {.n_bytes = (n_bytes + 15) / 16 * 16 + (n_bytes == 0) * 16};
    *out = 0;
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = b.n_bytes,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
    if (b.n_bytes > v->info.max_allocation)
        return error_set(err, LACE_E_MEMORY,
                         "%s: %.1f MiB are needed in one piece, which may have %.1f MiB at most",
                         v->info.name, (double)n_bytes / 1048576,
                         (double)v->info.max_allocation / 1048576);
    VULKAN_CALL(v, CreateBuffer, v->device, &info, NULL, &b.buffer);
    lace_status status = back(v, place, &b, err);
    if (status == LACE_OK)
        status = remember(v, &b, err);
    if (status != LACE_OK) {
        destroy(v, &b);
        return status;
    }
    *out = b.address;
    if (out_host)
        *out_host = b.host;
    return LACE_OK;
}

void vulkan_free(vulkan *v, uint64_t address)
{
    vulkan_buffer found = {0};
    pthread_mutex_lock(&v->lock);
    for (size_t i = 0; address && i < v->n_buffers; i++)
        if (v->buffers[i].address == address) {
            found = v->buffers[i];
            v->buffers[i] = v->buffers[--v->n_buffers];
        }
    pthread_mutex_unlock(&v->lock);
    if (found.address)
        destroy(v, &found);
}

bool vulkan_find_buffer(vulkan *v, uint64_t address, vulkan_buffer *out)
{
    bool is_found = false;
    pthread_mutex_lock(&v->lock);
    for (size_t i = 0; i < v->n_buffers && !is_found; i++) {
        *out = v->buffers[i];
        is_found = address - out->address < out->n_bytes;
    }
    pthread_mutex_unlock(&v->lock);
    return is_found;
}

void *vulkan_host_address(vulkan *v, uint64_t address)
{
    vulkan_buffer b;
    return vulkan_find_buffer(v, address, &b) && b.host ? b.host + (address - b.address) : NULL;
}
