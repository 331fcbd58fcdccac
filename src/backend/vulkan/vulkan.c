/* Vulkan's loader, opened when it is first needed, and the devices behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/vulkan/vulkan_internal.h"
#include "base/mem.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static const char *result_name(VkResult r)
{
    switch (r) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "the host's memory is full";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "the device's memory is full";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "initialization failed";
    case VK_ERROR_DEVICE_LOST:
        return "the device is lost";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return "no driver is installed, or none that is new enough";
    case VK_ERROR_LAYER_NOT_PRESENT:
        return "the validation layer is not installed";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
        return "an extension is not there";
    case VK_ERROR_FEATURE_NOT_PRESENT:
        return "a feature is not there";
    case VK_ERROR_INVALID_SHADER_NV:
        return "the driver refuses the shader";
    case VK_TIMEOUT:
        return "no answer within a minute";
    default:
        return "an unknown error";
    }
}

lace_status vulkan_failed(VkResult r, const char *call, lace_error *err)
{
    bool is_full = r == VK_ERROR_OUT_OF_HOST_MEMORY || r == VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return error_set(err, is_full ? LACE_E_MEMORY : LACE_E_DEVICE, "Vulkan: %s: %s (%d)", call,
                     result_name(r), (int)r);
}

/* ---- Validation ------------------------------------------------------------------------------ */

/* The first message of the layer. Written once, by whichever thread made it. */
static struct {
    pthread_mutex_t lock;
    char first[512];
    int n;
} messages = {.lock = PTHREAD_MUTEX_INITIALIZER};

static VkBool32 on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                           VkDebugUtilsMessageTypeFlagsEXT type,
                           const VkDebugUtilsMessengerCallbackDataEXT *data, void *user)
{
    pthread_mutex_lock(&messages.lock);
    if (messages.n++ == 0)
        snprintf(messages.first, sizeof messages.first, "%s", data->pMessage);
    pthread_mutex_unlock(&messages.lock);
    return VK_FALSE;
}

lace_status vulkan_check_messages(lace_error *err)
{
    pthread_mutex_lock(&messages.lock);
    lace_status status =
        messages.n ? error_set(err, LACE_E_DEVICE, "Vulkan's validation layer: %s", messages.first)
                   : LACE_OK;
    pthread_mutex_unlock(&messages.lock);
    return status;
}

/* ---- The loader ------------------------------------------------------------------------------ */

static vulkan_loader loader;

static bool debug_has(const char *word)
{
    const char *list = getenv("LACE_VULKAN_DEBUG");
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == 0))
            return true;
    return false;
}

/* The N of a word like "memory=N"; 0 without. */
static uint64_t debug_number(const char *word)
{
    const char *list = getenv("LACE_VULKAN_DEBUG"), *at = list ? strstr(list, word) : NULL;
    return at ? strtoull(at + strlen(word), NULL, 10) : 0;
}

/* Whether a list of extensions has one. */
static bool has_name(const VkExtensionProperties *all, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(all[i].extensionName, name) == 0)
            return true;
    return false;
}

static bool instance_has(PFN_vkGetInstanceProcAddr get, const char *name)
{
    PFN_vkEnumerateInstanceExtensionProperties list =
        (PFN_vkEnumerateInstanceExtensionProperties)get(NULL,
                                                        "vkEnumerateInstanceExtensionProperties");
    uint32_t n = 0;
    if (!list || list(NULL, &n, NULL) != VK_SUCCESS)
        return false;
    VkExtensionProperties *all = mem_calloc(n + 1, sizeof *all);
    bool found = all && list(NULL, &n, all) == VK_SUCCESS && has_name(all, n, name);
    mem_free(all);
    return found;
}

static bool device_has(VkPhysicalDevice d, const char *name)
{
    uint32_t n = 0;
    if (loader.EnumerateDeviceExtensionProperties(d, NULL, &n, NULL) != VK_SUCCESS)
        return false;
    VkExtensionProperties *all = mem_calloc(n + 1, sizeof *all);
    bool found = all && loader.EnumerateDeviceExtensionProperties(d, NULL, &n, all) == VK_SUCCESS &&
                 has_name(all, n, name);
    mem_free(all);
    return found;
}

static VkResult create_instance(PFN_vkGetInstanceProcAddr get)
{
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "lace",
                             .apiVersion = VK_API_VERSION_1_2};
    VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                           VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = on_message};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pNext = loader.validates ? &messenger : NULL,
                                 .pApplicationInfo = &app};
    const char *extensions[2], *layers[] = {"VK_LAYER_KHRONOS_validation"};
    info.ppEnabledExtensionNames = extensions;
    info.ppEnabledLayerNames = layers;
    if (loader.validates) {
        extensions[info.enabledExtensionCount++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
        info.enabledLayerCount = 1;
    }
    /* Drivers that lack a part of Vulkan, as Apple's do, are listed only on demand. */
    if (instance_has(get, "VK_KHR_portability_enumeration")) {
        extensions[info.enabledExtensionCount++] = "VK_KHR_portability_enumeration";
        info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    VkResult r = create ? create(&info, NULL, &loader.instance) : VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkCreateDebugUtilsMessengerEXT listen =
        r == VK_SUCCESS && loader.validates ? (PFN_vkCreateDebugUtilsMessengerEXT)get(
                                                  loader.instance, "vkCreateDebugUtilsMessengerEXT")
                                            : NULL;
    VkDebugUtilsMessengerEXT listening;
    if (listen)
        r = listen(loader.instance, &messenger, NULL, &listening);
    return r;
}

/* Whether shaders can run there at all. */
static bool is_usable(VkPhysicalDevice d)
{
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    loader.GetPhysicalDeviceProperties2(d, &p);
    if (p.properties.apiVersion < VK_API_VERSION_1_2)
        return false;
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = &f12};
    loader.GetPhysicalDeviceFeatures2(d, &f);
    return f12.bufferDeviceAddress && f12.timelineSemaphore && f12.scalarBlockLayout;
}

static bool is_cpu(VkPhysicalDevice d)
{
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    loader.GetPhysicalDeviceProperties2(d, &p);
    return p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU && !debug_has("gpu");
}

/* GPUs first, then processors that pretend to be one. */
static VkResult list_devices(void)
{
    uint32_t n = 0;
    VkResult r = loader.EnumeratePhysicalDevices(loader.instance, &n, NULL);
    VkPhysicalDevice *all = mem_calloc(n + 1, sizeof(VkPhysicalDevice));
    loader.devices = mem_calloc(n + 1, sizeof(VkPhysicalDevice));
    if (r == VK_SUCCESS && (!all || !loader.devices))
        r = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (r == VK_SUCCESS)
        r = loader.EnumeratePhysicalDevices(loader.instance, &n, all);
    for (int cpus = 0; r == VK_SUCCESS && cpus < 2; cpus++)
        for (uint32_t i = 0; i < n; i++)
            if (is_usable(all[i]) && is_cpu(all[i]) == (cpus == 1))
                loader.devices[loader.n_devices++] = all[i];
    mem_free(all);
    return r;
}

static void look_for_loader(void)
{
    static const char *const names[] = {"libvulkan.so.1", "libvulkan.1.dylib", "libMoltenVK.dylib"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(loader.why_not, sizeof loader.why_not,
                 "no Vulkan: libvulkan.so.1 cannot be opened");
        return;
    }
    loader.validates = debug_has("validate");
    loader.stages = debug_has("staging");
    loader.refuses = debug_has("refuse");
    loader.loses = debug_has("lose");
    loader.loses_once = debug_has("lose-once");
    loader.reverses = debug_has("reverse");
    loader.forgets = debug_has("forget");
    loader.most_bytes = debug_number("memory=") << 20;
    loader.dots = debug_has("dot4");
    loader.no_dots = debug_has("no-dot4");
    loader.no_matrices = debug_has("no-matrices");
    loader.emulates = debug_has("matrices");
    loader.tile = (uint32_t)debug_number("tile=");
    loader.suspects = debug_has("suspect");
    PFN_vkGetInstanceProcAddr get =
        (PFN_vkGetInstanceProcAddr)(uintptr_t)dlsym(library, "vkGetInstanceProcAddr");
    VkResult r = get ? create_instance(get) : VK_ERROR_INITIALIZATION_FAILED;
#define X(name)                                                                                    \
    if (r == VK_SUCCESS && !(loader.name = (PFN_vk##name)get(loader.instance, "vk" #name)))        \
        r = VK_ERROR_INCOMPATIBLE_DRIVER;
    INSTANCE_LIST(X)
#undef X
    if (r == VK_SUCCESS)
        loader.GetMatrixShapes =
            get(loader.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    if (r == VK_SUCCESS)
        r = list_devices();
    if (r != VK_SUCCESS)
        snprintf(loader.why_not, sizeof loader.why_not, "Vulkan does not start: %s",
                 result_name(r));
    else if (loader.n_devices == 0)
        snprintf(loader.why_not, sizeof loader.why_not,
                 "Vulkan finds no device with version 1.2 and buffer addresses");
}

const vulkan_loader *vulkan_find_loader(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_for_loader);
    return &loader;
}

int vulkan_count(void)
{
    return vulkan_find_loader()->n_devices;
}

/* Whether the system has a GPU at all: its drivers have files that say so. */
static bool has_gpu_files(void)
{
#ifdef __APPLE__
    return true;
#else
    static const char *const names[] = {"/dev/dri/renderD128", "/dev/dri/renderD129",
                                        "/dev/nvidiactl",      "/dev/dxg",
                                        "/dev/kgsl-3d0",       "/dev/mali0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (access(names[i], F_OK) == 0)
            return true;
    return debug_has("gpu");
#endif
}

int vulkan_count_gpus(void)
{
    int n = 0;
    for (int i = 0; has_gpu_files() && i < vulkan_count(); i++)
        n += !is_cpu(loader.devices[i]);
    return n;
}

/* ---- Devices --------------------------------------------------------------------------------- */

static void ask_for_properties(vulkan *v)
{
    vulkan_info *o = &v->info;
    VkPhysicalDeviceVulkan11Properties p11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
    VkPhysicalDeviceVulkan12Properties p12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &p11};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &p12};
    v->loader->GetPhysicalDeviceProperties2(v->physical, &p);
    snprintf(o->name, sizeof o->name, "%.127s", p.properties.deviceName);
    snprintf(o->driver, sizeof o->driver, "%.60s %.60s", p12.driverName, p12.driverInfo);
    o->api_major = VK_API_VERSION_MAJOR(p.properties.apiVersion);
    o->api_minor = VK_API_VERSION_MINOR(p.properties.apiVersion);
    o->subgroup_lanes = p11.subgroupSize;
    o->shared_bytes = p.properties.limits.maxComputeSharedMemorySize;
    o->max_threads = p.properties.limits.maxComputeWorkGroupInvocations;
    o->is_cpu = is_cpu(v->physical);
    o->max_allocation = p11.maxMemoryAllocationSize;
    v->has_budget = device_has(v->physical, "VK_EXT_memory_budget");
    v->ns_per_stamp = p.properties.limits.timestampComputeAndGraphics
                          ? (double)p.properties.limits.timestampPeriod
                          : 0;
}

static void ask_for_memory(vulkan *v)
{
    VkPhysicalDeviceMemoryProperties2 p = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    v->loader->GetPhysicalDeviceMemoryProperties2(v->physical, &p);
    v->memory = p.memoryProperties;
    v->info.is_unified = !v->loader->stages;
    for (uint32_t i = 0; i < v->memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags f = v->memory.memoryTypes[i].propertyFlags;
        if ((f & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) && !(f & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT))
            v->info.is_unified = false;
    }
    for (uint32_t i = 0; i < v->memory.memoryHeapCount; i++)
        if (v->memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            v->info.total_bytes += v->memory.memoryHeaps[i].size;
    if (v->loader->most_bytes)
        v->info.total_bytes = min_u64(v->info.total_bytes, v->loader->most_bytes);
}

static const char dot4_name[] = "VK_KHR_shader_integer_dot_product";

/* Whether sums of four products of bytes are an instruction, and not a loop in the driver. */
static bool has_fast_dot4(const vulkan *v)
{
    VkPhysicalDeviceShaderIntegerDotProductFeatures f = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &f};
    VkPhysicalDeviceShaderIntegerDotProductProperties p = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &p};
    if (v->loader->no_dots || !device_has(v->physical, dot4_name))
        return false;
    v->loader->GetPhysicalDeviceFeatures2(v->physical, &features);
    v->loader->GetPhysicalDeviceProperties2(v->physical, &properties);
    return f.shaderIntegerDotProduct &&
           (p.integerDotProduct4x8BitPackedSignedAccelerated || v->loader->dots);
}

/* VK_KHR_cooperative_matrix, which headers of before 2023 do not have. */
enum { EMULATED_LANES = 32 }; /* as matrices.glsl has it */
static const char matrix_name[] = "VK_KHR_cooperative_matrix";
enum { MATRIX_FEATURES = 1000506000, MATRIX_SHAPE = 1000506001, MATRIX_MOST_SHAPES = 64 };

typedef struct matrix_features {
    uint32_t sType;
    void *pNext;
    VkBool32 has_matrices, is_robust;
} matrix_features;

typedef struct matrix_shape {
    uint32_t sType;
    void *pNext;
    uint32_t m, n, k;
    uint32_t a, b, c, result; /* types of values: 0 f16, 1 f32 */
    VkBool32 saturates;
    uint32_t scope; /* 3: a subgroup */
} matrix_shape;

typedef VkResult(VKAPI_PTR *get_shapes_fn)(VkPhysicalDevice, uint32_t *, matrix_shape *);

/* Whether the shape is there that shaders use, in subgroups that they can have. */
static bool has_matrices(const vulkan *v)
{
    enum { LEAST_SHARED = 48 << 10 };
    matrix_shape shapes[MATRIX_MOST_SHAPES] = {{0}};
    uint32_t n = MATRIX_MOST_SHAPES;
    matrix_features f = {.sType = MATRIX_FEATURES};
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &f};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &f12};
    const vulkan_info *i = &v->info;
    bool fits = i->shared_bytes >= LEAST_SHARED && 8 * i->subgroup_lanes <= i->max_threads &&
                i->subgroup_lanes >= 32;
    if (!fits || v->loader->no_matrices || !v->loader->GetMatrixShapes ||
        !device_has(v->physical, matrix_name))
        return false;
    v->loader->GetPhysicalDeviceFeatures2(v->physical, &features);
    for (uint32_t k = 0; k < n; k++)
        shapes[k].sType = MATRIX_SHAPE;
    ((get_shapes_fn)v->loader->GetMatrixShapes)(v->physical, &n, shapes);
    bool found = false;
    for (uint32_t k = 0; k < n; k++) {
        const matrix_shape *s = &shapes[k];
        found |= s->m == 16 && s->n == 16 && s->k == 16 && s->a == 0 && s->b == 0 && s->c == 1 &&
                 s->result == 1 && s->scope == 3;
    }
    return found && f.has_matrices && f12.vulkanMemoryModel && f12.vulkanMemoryModelDeviceScope &&
           f12.shaderFloat16;
}

/* A family that computes; the first is one that also draws, which on some cards is quicker. */
static lace_status choose_family(vulkan *v, lace_error *err)
{
    VkQueueFamilyProperties f[16];
    uint32_t n = 16;
    v->loader->GetPhysicalDeviceQueueFamilyProperties(v->physical, &n, f);
    for (v->family = 0; v->family < n; v->family++)
        if (f[v->family].queueFlags & VK_QUEUE_COMPUTE_BIT)
            return LACE_OK;
    return error_set(err, LACE_E_DEVICE, "Vulkan: %s has no queue that computes", v->info.name);
}

static lace_status create_device(vulkan *v, lace_error *err)
{
    VkPhysicalDeviceVulkan12Features has12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceFeatures2 has = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &has12};
    v->loader->GetPhysicalDeviceFeatures2(v->physical, &has);
    v->info.has_f16 = has12.shaderFloat16;
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot4 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
        .shaderIntegerDotProduct = VK_TRUE};
    matrix_features matrices = {.sType = MATRIX_FEATURES,
                                .pNext = v->info.has_dot4 ? &dot4 : NULL,
                                .has_matrices = VK_TRUE};
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .pNext = v->info.has_matrices ? (void *)&matrices : matrices.pNext,
        .shaderFloat16 = v->info.has_matrices,
        .vulkanMemoryModel = v->info.has_matrices,
        .vulkanMemoryModelDeviceScope = v->info.has_matrices,
        .bufferDeviceAddress = VK_TRUE,
        .timelineSemaphore = VK_TRUE,
        .scalarBlockLayout = VK_TRUE};
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = v->family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    const char *extensions[4];
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &f12,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .ppEnabledExtensionNames = extensions};
    if (v->has_budget)
        extensions[info.enabledExtensionCount++] = "VK_EXT_memory_budget";
    if (v->info.has_dot4)
        extensions[info.enabledExtensionCount++] = dot4_name;
    if (v->info.has_matrices)
        extensions[info.enabledExtensionCount++] = matrix_name;
    if (device_has(v->physical, "VK_KHR_portability_subset"))
        extensions[info.enabledExtensionCount++] = "VK_KHR_portability_subset";
    VkResult r = v->loader->CreateDevice(v->physical, &info, NULL, &v->device);
    if (r != VK_SUCCESS)
        return vulkan_failed(r, "vkCreateDevice", err);
#define X(name)                                                                                    \
    v->name = (PFN_vk##name)v->loader->GetDeviceProcAddr(v->device, "vk" #name);                   \
    if (!v->name)                                                                                  \
        return error_set(err, LACE_E_DEVICE, "the Vulkan driver has no vk" #name);
    DEVICE_LIST(X)
#undef X
    v->GetDeviceQueue(v->device, v->family, 0, &v->queue);
    return LACE_OK;
}

/* Says which there are. */
static lace_status no_such_device(int index, lace_error *err)
{
    char list[160] = "";
    size_t n = 0;
    for (int i = 0; i < loader.n_devices && n < sizeof list; i++) {
        VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
        loader.GetPhysicalDeviceProperties2(loader.devices[i], &p);
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%d is %s", i ? ", " : "", i,
                              p.properties.deviceName);
    }
    return error_set(err, LACE_E_DEVICE, "there is no Vulkan device number %d: %s", index, list);
}

lace_status vulkan_open(int index, vulkan **out, lace_error *err)
{
    *out = NULL;
    const vulkan_loader *l = vulkan_find_loader();
    if (l->why_not[0])
        return error_set(err, LACE_E_DEVICE, "%s", l->why_not);
    if (index < 0 || index >= l->n_devices)
        return no_such_device(index, err);
    vulkan *v = mem_calloc(1, sizeof *v);
    if (!v)
        return error_nomem(err, "a device");
    v->loader = l;
    v->physical = l->devices[index];
    pthread_mutex_init(&v->lock, NULL);
    ask_for_properties(v);
    ask_for_memory(v);
    v->info.has_dot4 = has_fast_dot4(v);
    v->info.has_matrices = has_matrices(v);
    lace_status status;
    TRY_GOTO(status, done, choose_family(v, err));
    TRY_GOTO(status, done, create_device(v, err));
    v->info.emulates_matrices = l->emulates && !v->info.has_matrices;
    v->info.has_matrices |= v->info.emulates_matrices;
    v->info.matrix_lanes = v->info.emulates_matrices ? EMULATED_LANES : v->info.subgroup_lanes;
    TRY_GOTO(status, done, vulkan_pipelines_open(v, err));
    TRY_GOTO(status, done, vulkan_check_messages(err));
done:
    return GIVE_OR_FREE(status, v, out, vulkan_close);
}

void vulkan_close(vulkan *v)
{
    if (!v)
        return;
    if (v->DestroyDevice) {
        vulkan_pipelines_close(v);
        while (v->n_buffers > 0)
            vulkan_free(v, v->buffers[v->n_buffers - 1].address);
        v->DestroyDevice(v->device, NULL);
    }
    mem_free(v->buffers);
    pthread_mutex_destroy(&v->lock);
    mem_free(v);
}

bool vulkan_has_passed(const vulkan *v, uint32_t what)
{
    return (v->passed & what) && !v->loader->suspects;
}

void vulkan_note_passed(vulkan *v, uint32_t what)
{
    v->passed |= what;
}

void vulkan_distrust_dot4(vulkan *v)
{
    v->info.has_dot4 = false;
    v->info.dot4_fails = true;
}

void vulkan_distrust_matrices(vulkan *v)
{
    v->info.has_matrices = false;
    v->info.matrices_fail = true;
}

bool vulkan_is_lost(vulkan *v)
{
    pthread_mutex_lock(&v->lock);
    bool is_lost = v->is_lost;
    pthread_mutex_unlock(&v->lock);
    return is_lost;
}

int vulkan_n_queues(vulkan *v)
{
    pthread_mutex_lock(&v->lock);
    int n = v->n_queues;
    pthread_mutex_unlock(&v->lock);
    return n;
}

bool vulkan_is_suspect(const vulkan *v)
{
    return v->loader->suspects;
}

bool vulkan_reverses(const vulkan *v)
{
    return v->loader->reverses;
}

bool vulkan_forgets(const vulkan *v)
{
    return v->loader->forgets;
}

uint32_t vulkan_tile(const vulkan *v)
{
    return v->loader->tile;
}

const vulkan_info *vulkan_features(const vulkan *v)
{
    return &v->info;
}

lace_status vulkan_describe(vulkan *v, vulkan_info *out, lace_error *err)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 p = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = v->has_budget ? &budget : NULL};
    *out = v->info;
    v->loader->GetPhysicalDeviceMemoryProperties2(v->physical, &p);
    uint64_t used = 0;
    for (uint32_t i = 0; i < p.memoryProperties.memoryHeapCount; i++) {
        if (!(p.memoryProperties.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT))
            continue;
        uint64_t its = budget.heapBudget[i] > budget.heapUsage[i]
                           ? budget.heapBudget[i] - budget.heapUsage[i]
                           : 0;
        out->free_bytes += v->has_budget ? its : p.memoryProperties.memoryHeaps[i].size;
    }
    pthread_mutex_lock(&v->lock);
    for (size_t i = 0; i < v->n_buffers; i++)
        used += v->buffers[i].n_bytes;
    pthread_mutex_unlock(&v->lock);
    if (!v->has_budget)
        out->free_bytes -= used < out->free_bytes ? used : out->free_bytes;
    uint64_t most = v->loader->most_bytes;
    if (most)
        out->free_bytes = min_u64(out->free_bytes, most > used ? most - used : 0);
    return LACE_OK;
}
