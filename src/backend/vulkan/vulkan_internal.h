/* What the files behind vulkan.h share: the functions of the loader, and an opened device. */
#ifndef LACE_BACKEND_VULKAN_VULKAN_INTERNAL_H
#define LACE_BACKEND_VULKAN_VULKAN_INTERNAL_H

#include <pthread.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "backend/vulkan/vulkan.h"

/* Functions of an instance, and of a device. */
#define INSTANCE_LIST(X)                                                                           \
    X(EnumeratePhysicalDevices)                                                                    \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures2)                                                                  \
    X(GetPhysicalDeviceMemoryProperties2)                                                          \
    X(GetPhysicalDeviceQueueFamilyProperties)                                                      \
    X(EnumerateDeviceExtensionProperties)                                                          \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)
#define DEVICE_LIST(X)                                                                             \
    X(DestroyDevice)                                                                               \
    X(GetDeviceQueue)                                                                              \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements)                                                                 \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(BindBufferMemory)                                                                            \
    X(MapMemory)                                                                                   \
    X(GetBufferDeviceAddress)                                                                      \
    X(CreateShaderModule)                                                                          \
    X(DestroyShaderModule)                                                                         \
    X(CreatePipelineLayout)                                                                        \
    X(DestroyPipelineLayout)                                                                       \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)                                                                             \
    X(CreatePipelineCache)                                                                         \
    X(DestroyPipelineCache)                                                                        \
    X(GetPipelineCacheData)                                                                        \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(AllocateCommandBuffers)                                                                      \
    X(FreeCommandBuffers)                                                                          \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(CmdBindPipeline)                                                                             \
    X(CmdPushConstants)                                                                            \
    X(CmdDispatch)                                                                                 \
    X(CmdPipelineBarrier)                                                                          \
    X(CmdCopyBuffer)                                                                               \
    X(CmdFillBuffer)                                                                               \
    X(CreateQueryPool)                                                                             \
    X(DestroyQueryPool)                                                                            \
    X(CmdResetQueryPool)                                                                           \
    X(CmdWriteTimestamp)                                                                           \
    X(GetQueryPoolResults)                                                                         \
    X(CreateSemaphore)                                                                             \
    X(DestroySemaphore)                                                                            \
    X(WaitSemaphores)                                                                              \
    X(QueueSubmit)

#define DECLARE(name) PFN_vk##name name;

/* The loader and its instance: one for the process. */
typedef struct vulkan_loader {
    char why_not[256]; /* why there is none; "": there is */
    VkInstance instance;
    VkPhysicalDevice *devices; /* [n_devices] that can be used */
    int n_devices;
    bool validates, stages, refuses, loses, loses_once, dots, suspects; /* LACE_VULKAN_DEBUG */
    bool reverses, forgets, no_dots, no_matrices, emulates;
    uint32_t tile;
    uint64_t most_bytes; /* of device memory, of LACE_VULKAN_DEBUG; 0: all that there is */
    INSTANCE_LIST(DECLARE)
    PFN_vkVoidFunction GetMatrixShapes; /* or NULL */
} vulkan_loader;

const vulkan_loader *vulkan_find_loader(void);

/* LACE_E_DEVICE with the first message of the validation layer, if there was one. */
lace_status vulkan_check_messages(lace_error *err);

/* A piece of memory, by its address. */
typedef struct vulkan_buffer {
    uint64_t address, n_bytes;
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint8_t *host; /* NULL: the host does not see it */
} vulkan_buffer;

struct vulkan_pipeline {
    vulkan_shader shader;
    uint32_t constants[SHADER_MAX_CONSTANTS];
    VkPipeline pipeline;
};

struct vulkan {
    const vulkan_loader *loader;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    vulkan_info info;
    bool is_lost;        /* Vulkan has said so */
    int n_queues;        /* of ours that are open */
    bool has_budget;     /* VK_EXT_memory_budget */
    double ns_per_stamp; /* 0: lists cannot be timed */
    VkPhysicalDeviceMemoryProperties memory;

    /* One thread at a time: submissions, the list of buffers, the list of pipelines. */
    pthread_mutex_t lock;
    vulkan_buffer *buffers; /* [n_buffers] */
    size_t n_buffers, buffers_capacity;
    vulkan_pipeline **pipelines; /* [n_pipelines] */
    size_t n_pipelines, pipelines_capacity;
    VkPipelineLayout layout; /* of all: one address is pushed */
    VkPipelineCache cache;
    char cache_path[512]; /* "": there is none */
    uint64_t cache_hash;  /* of what the file holds */
    uint32_t passed;      /* VULKAN_PASSED_*, so far */

    DEVICE_LIST(DECLARE)
};

lace_status vulkan_failed(VkResult r, const char *call, lace_error *err);

#define VULKAN_CALL(v, name, ...)                                                                  \
    do {                                                                                           \
        VkResult result_ = (v)->name(__VA_ARGS__);                                                 \
        if (result_ != VK_SUCCESS)                                                                 \
            return vulkan_failed(result_, "vk" #name, err);                                        \
    } while (0)

/* The buffer that an address lies in; false: none. */
bool vulkan_find_buffer(vulkan *v, uint64_t address, vulkan_buffer *out);

/* The pipeline cache and the layout: when a device is opened, and when it is closed. */
lace_status vulkan_pipelines_open(vulkan *v, lace_error *err);
void vulkan_pipelines_close(vulkan *v);

#endif
