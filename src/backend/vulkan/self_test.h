/* The fast ways of a device, tried before they are used. */
#ifndef LACE_BACKEND_VULKAN_SELF_TEST_H
#define LACE_BACKEND_VULKAN_SELF_TEST_H

#include "backend/vulkan/vulkan.h"

/*
 * Multiplies a small matrix by dot4 and by cooperative matrices, if the device says that it has them.
 * What cannot be made, or gives other numbers than plain C, is not used, and the device's name says so.
 * A failure is one of the device.
 */
lace_status vulkan_self_test(vulkan *v, lace_error *err);

#endif
