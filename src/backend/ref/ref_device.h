/* The plain kernels alone, as a backend: slow, and what is right (backend/backend.h). */
#ifndef LACE_BACKEND_REF_REF_DEVICE_H
#define LACE_BACKEND_REF_REF_DEVICE_H

#include "backend/backend.h"

extern const backend backend_ref;

#endif
