/* GPUs of all kinds through Vulkan, as a backend (backend/backend.h). */
#ifndef LACE_BACKEND_VULKAN_VULKAN_DEVICE_H
#define LACE_BACKEND_VULKAN_VULKAN_DEVICE_H

#include "backend/backend.h"

extern const backend backend_vulkan;

#endif
