/*
 * Shaders as pipelines, made when they are first needed, and a file that keeps what a driver made of
 * them for the next start. The file is an aid: whatever is wrong with it, pipelines are made anew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/vulkan/vulkan_internal.h"
#include "base/file.h"
#include "base/file_write.h"
#include "base/mem.h"

/* The compiled shaders: embedded by the build. */
#define X(name) extern const uint32_t vulkan_code_##name[], vulkan_code_##name##_end[];
#include "backend/vulkan/shaders.def"
#undef X

static const struct {
    const char *name;
    const uint32_t *code, *end;
} shaders[SHADER_COUNT] = {
#define X(name) [SHADER_##name] = {#name, vulkan_code_##name, vulkan_code_##name##_end},
#include "backend/vulkan/shaders.def"
#undef X
};

/* In front of what the driver gave. */
typedef struct cache_head {
    char magic[8];
    uint64_t n_bytes, hash; /* of what follows; the hash with `passed` */
    uint64_t passed;        /* VULKAN_PASSED_*: what the self-test need not look at again */
} cache_head;

static const char cache_magic[8] = "lacevk2";

enum { CACHE_MOST_BYTES = 256 << 20 };

static uint64_t fnv(uint64_t h, const void *data, size_t n)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

static const uint64_t fnv_start = 14695981039346656037u;

static uint64_t hash_of(uint64_t passed, const void *data, size_t n)
{
    return fnv(fnv(fnv_start, &passed, sizeof passed), data, n);
}

/* ---- The file -------------------------------------------------------------------------------- */

/* A file for this driver and these shaders, in the user's cache; "" where there is no such place. */
static void name_cache(vulkan *v)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[400];
    bool is_fine =
        base && base[0] == '/'
            ? snprintf(folder, sizeof folder, "%s", base) < (int)sizeof folder
            : home && home[0] == '/' &&
                  snprintf(folder, sizeof folder, "%s/.cache", home) < (int)sizeof folder;
    if (!is_fine || strlen(folder) + 6 > sizeof folder)
        return;
    mkdir(folder, 0700);
    strcat(folder, "/lace");
    mkdir(folder, 0700);
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    v->loader->GetPhysicalDeviceProperties2(v->physical, &p);
    uint64_t device = fnv(fnv_start, p.properties.pipelineCacheUUID, VK_UUID_SIZE),
             code = fnv_start;
    device = fnv(device, &p.properties.driverVersion, sizeof p.properties.driverVersion);
    for (int i = 0; i < SHADER_COUNT; i++)
        code = fnv(code, shaders[i].code,
                   (size_t)((const char *)shaders[i].end - (const char *)shaders[i].code));
    snprintf(v->cache_path, sizeof v->cache_path, "%s/vulkan-%016llx-%016llx.pipelines", folder,
             (unsigned long long)device, (unsigned long long)code);
}

/* What the driver once gave, if the file is whole; else nothing. */
static span read_cache(const buf *file, uint32_t *passed)
{
    cache_head head;
    span none = {0};
    if (file->size < sizeof head)
        return none;
    memcpy(&head, file->data, sizeof head);
    span body = {.data = (const uint8_t *)file->data + sizeof head,
                 .size = file->size - sizeof head};
    bool is_whole = memcmp(head.magic, cache_magic, sizeof head.magic) == 0 &&
                    head.n_bytes == body.size &&
                    head.hash == hash_of(head.passed, body.data, body.size);
    *passed = is_whole ? (uint32_t)head.passed : 0;
    return is_whole ? body : none;
}

static void save_cache(vulkan *v)
{
    size_t n = 0;
    if (!v->cache_path[0] || v->GetPipelineCacheData(v->device, v->cache, &n, NULL) != VK_SUCCESS ||
        n > CACHE_MOST_BYTES)
        return;
    uint8_t *file = mem_alloc(sizeof(cache_head) + n);
    if (file &&
        v->GetPipelineCacheData(v->device, v->cache, &n, file + sizeof(cache_head)) == VK_SUCCESS) {
        cache_head head = {
            .n_bytes = n, .hash = hash_of(v->passed, file + sizeof head, n), .passed = v->passed};
        memcpy(head.magic, cache_magic, sizeof head.magic);
        memcpy(file, &head, sizeof head);
        if (head.hash != v->cache_hash)
            file_write_whole(v->cache_path, NULL, file, sizeof head + n, NULL);
    }
    mem_free(file);
}

/* ---- Pipelines ------------------------------------------------------------------------------- */

lace_status vulkan_pipelines_open(vulkan *v, lace_error *err)
{
    buf file;
    buf_init(&file, CACHE_MOST_BYTES);
    name_cache(v);
    span body = {0};
    if (v->cache_path[0] && file_read_regular(v->cache_path, &file, NULL) == LACE_OK)
        body = read_cache(&file, &v->passed);
    v->cache_hash = hash_of(v->passed, body.data, body.size);
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                      .initialDataSize = body.size,
                                      .pInitialData = body.data};
    VkResult r = v->CreatePipelineCache(v->device, &info, NULL, &v->cache);
    if (r != VK_SUCCESS && body.size > 0) { /* the driver knows better */
        info.initialDataSize = 0;
        r = v->CreatePipelineCache(v->device, &info, NULL, &v->cache);
    }
    buf_deinit(&file);
    if (r != VK_SUCCESS)
        return vulkan_failed(r, "vkCreatePipelineCache", err);
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(uint64_t)};
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .pushConstantRangeCount = 1,
                                         .pPushConstantRanges = &range};
    VULKAN_CALL(v, CreatePipelineLayout, v->device, &layout, NULL, &v->layout);
    return LACE_OK;
}

void vulkan_pipelines_close(vulkan *v)
{
    if (v->cache)
        save_cache(v);
    for (size_t i = 0; i < v->n_pipelines; i++) {
        v->DestroyPipeline(v->device, v->pipelines[i]->pipeline, NULL);
        mem_free(v->pipelines[i]);
    }
    mem_free(v->pipelines);
    v->DestroyPipelineLayout(v->device, v->layout, NULL);
    v->DestroyPipelineCache(v->device, v->cache, NULL);
}

static lace_status compile(vulkan *v, vulkan_pipeline *p, lace_error *err)
{
    size_t n_bytes =
        (size_t)((const char *)shaders[p->shader].end - (const char *)shaders[p->shader].code);
    VkShaderModuleCreateInfo code = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                     .codeSize = n_bytes,
                                     .pCode = shaders[p->shader].code};
    VkShaderModule module;
    VULKAN_CALL(v, CreateShaderModule, v->device, &code, NULL, &module);
    VkSpecializationMapEntry entries[SHADER_MAX_CONSTANTS];
    for (uint32_t i = 0; i < SHADER_MAX_CONSTANTS; i++)
        entries[i] = (VkSpecializationMapEntry){i, 4 * i, 4};
    VkSpecializationInfo special = {SHADER_MAX_CONSTANTS, entries, sizeof p->constants,
                                    p->constants};
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &special},
        .layout = v->layout};
    VkResult r = v->loader->refuses
                     ? VK_ERROR_INVALID_SHADER_NV
                     : v->CreateComputePipelines(v->device, v->cache, 1, &info, NULL, &p->pipeline);
    v->DestroyShaderModule(v->device, module, NULL);
    if (r == VK_SUCCESS)
        return LACE_OK;
    vulkan_failed(r, "vkCreateComputePipelines", err);
    return error_prefix(err, LACE_E_DEVICE, shaders[p->shader].name);
}

/* With the lock held. */
static lace_status find_or_make(vulkan *v, vulkan_shader shader, const uint32_t *constants,
                                const vulkan_pipeline **out, lace_error *err)
{
    for (size_t i = 0; i < v->n_pipelines; i++) {
        const vulkan_pipeline *p = v->pipelines[i];
        if (p->shader == shader && memcmp(p->constants, constants, sizeof p->constants) == 0) {
            *out = p;
            return LACE_OK;
        }
    }
    vulkan_pipeline *p = mem_calloc(1, sizeof *p);
    if (!p || !mem_grow(&v->pipelines, v->n_pipelines, &v->pipelines_capacity, sizeof *v->pipelines,
                        64)) {
        mem_free(p);
        return error_nomem(err, "a pipeline");
    }
    p->shader = shader;
    memcpy(p->constants, constants, sizeof p->constants);
    lace_status status = compile(v, p, err);
    if (status != LACE_OK) {
        mem_free(p);
        return status;
    }
    v->pipelines[v->n_pipelines++] = p;
    *out = p;
    return LACE_OK;
}

lace_status vulkan_find_pipeline(vulkan *v, vulkan_shader shader,
                                 const uint32_t constants[SHADER_MAX_CONSTANTS],
                                 const vulkan_pipeline **out, lace_error *err)
{
    *out = NULL;
    pthread_mutex_lock(&v->lock);
    lace_status status = find_or_make(v, shader, constants, out, err);
    pthread_mutex_unlock(&v->lock);
    return status;
}
