/* NVIDIA's GPUs as a backend (backend/backend.h). */
#ifndef LACE_BACKEND_CUDA_CUDA_DEVICE_H
#define LACE_BACKEND_CUDA_CUDA_DEVICE_H

#include "backend/backend.h"

extern const backend backend_cuda;

#endif
