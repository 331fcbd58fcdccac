/* The reference device in the manner of a card ("ref:1"), for tests of what stands on cards. */
#ifndef LACE_BACKEND_REF_LATE_DEVICE_H
#define LACE_BACKEND_REF_LATE_DEVICE_H

#include "backend/backend.h"

lace_status late_device_open(device **out, lace_error *err);

#endif
