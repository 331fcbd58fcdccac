/* The Vulkan backend of a build without shaders: there is no device, and it says why. */
#include "backend/vulkan/vulkan_device.h"

static int count(void)
{
    return 0;
}

static lace_status open(int index, const device_options *o, device **out, lace_error *err)
{
    *out = NULL;
    return error_set(err, LACE_E_DEVICE,
                     "this lace was built without Vulkan: glslang-tools, spirv-tools and "
                     "libvulkan-dev were not installed");
}

const backend backend_vulkan = {.name = "vulkan", .count = count, .open = open};
