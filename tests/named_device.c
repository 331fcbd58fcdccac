/* The device that LACE_DEVICE names. */
#include "named_device.h"

#include <stdlib.h>

#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

const char *named_device(void)
{
    const char *name = getenv("LACE_DEVICE");
    return name && *name ? name : NULL;
}

static void the_named_device_opens(void *is_open)
{
    buf file = tiny_model_bytes(tiny_options_small());
    lace_model *lm = NULL;
    lace_error err;
    lace_model_options o = lace_model_options_default();
    o.device = named_device();
    *(bool *)is_open =
        CHECK(is_ok(lace_model_open_memory(file.data, file.size, "tiny", &o, &lm, &err), &err));
    lace_model_close(lm);
    buf_deinit(&file);
}

bool named_device_opens(void)
{
    bool is_open = true;
    if (named_device())
        tap_case_arg("the_named_device_opens", the_named_device_opens, &is_open);
    return is_open;
}
