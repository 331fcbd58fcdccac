/* Where a model runs: "cpu", "cuda", "cuda:1", or whatever is best. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

/* The number behind "cuda:"; 0 for "cuda" alone. */
static lace_status parse_index(const char *name, int *out, lace_error *err)
{
    *out = 0;
    if (strcmp(name, "cuda") == 0)
        return LACE_OK;
    char *end = NULL;
    long n = strncmp(name, "cuda:", 5) == 0 ? strtol(name + 5, &end, 10) : -1;
    if (!end || end == name + 5 || *end || n < 0 || n > 1023)
        return error_set(err, LACE_E_ARG,
                         "device is \"%s\", expected auto, cpu, cuda, or cuda:N for GPU number N",
                         name);
    *out = (int)n;
    return LACE_OK;
}

/* Room on the card for weights and something beside them. */
static bool has_room(const gpu *g, uint64_t weight_bytes)
{
    return g->info.free_bytes > weight_bytes + weight_bytes / 8 + ((uint64_t)512 << 20);
}

lace_status device_choose(const char *name, uint64_t weight_bytes, gpu **out, lace_error *err)
{
    *out = NULL;
    if (!name || strcmp(name, "cpu") == 0)
        return LACE_OK;
    if (strcmp(name, "auto") == 0) {
        if (!gpu_is_built() || cuda_count() == 0 || gpu_open(0, out, NULL) != LACE_OK)
            return LACE_OK;
        if (!has_room(*out, weight_bytes)) {
            gpu_close(*out);
            *out = NULL;
        }
        return LACE_OK;
    }
    int index;
    TRY(parse_index(name, &index, err));
    return gpu_open(index, out, err);
}
