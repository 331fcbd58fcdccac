/* Which device sums up and factorizes. */
#include "backend/large_math.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

/* Room beside the sums, for what comes and goes. */
static const uint64_t LEAST_BYTES = (uint64_t)1 << 30;

lace_status large_math_open(const char *device_name, large_math **out, lace_error *err)
{
    device *d;
    device_info info = {0};
    device_options o = {.level = cpu_level_detect(), .weight_bytes = LEAST_BYTES};
    *out = NULL;
    if (!device_name)
        return LACE_OK;
    TRY(device_open(device_name, &o, &d, err)); /* says what is wrong with a name, or a card */
    lace_status status = device_describe(d, &info, err);
    const char *kind = d->backend->name, *colon = strchr(device_name, ':');
    device_close(d);
    TRY(status);
    if (strcmp(kind, "cpu") == 0)
        return LACE_OK;
    if (strcmp(kind, "ref") == 0)
        return ref_math_open(out, err);
    if (strcmp(kind, "cuda") == 0)
        return cuda_math_open(colon ? atoi(colon + 1) : 0, out, err);
    return error_set(err, LACE_E_UNSUPPORTED,
                     "%s devices cannot calibrate; use --device cpu or cuda", kind);
}
