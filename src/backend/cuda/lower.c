/* Lists of device steps: how they grow, and how their kernels are found and launched. */
#include "backend/cuda/lower.h"

#include <string.h>

#include "base/mem.h"

void device_list_free(device_list *l)
{
    mem_free(l->steps);
    *l = (device_list){0};
}

device_step *device_list_add(device_list *l)
{
    if (l->n_steps == l->capacity) {
        int32_t more = l->capacity ? 2 * l->capacity : 64;
        device_step *grown = mem_realloc(l->steps, (size_t)more * sizeof *grown);
        if (!grown)
            return NULL;
        l->steps = grown;
        l->capacity = more;
    }
    device_step *d = &l->steps[l->n_steps++];
    memset(d, 0, sizeof *d);
    d->layer = -1;
    return d;
}

lace_status device_list_prepare(gpu *g, device_step *steps, int32_t n, lace_error *err)
{
    for (int32_t i = 0; i < n; i++) {
        device_step *d = &steps[i];
        for (int32_t k = i - 1; d->kernel && !d->found && k >= 0; k--)
            if (steps[k].kernel && strcmp(steps[k].kernel, d->kernel) == 0)
                d->found = steps[k].found;
        if (!d->kernel || d->found)
            continue;
        TRY(gpu_find(g, d->kernel, &d->found, err));
        bool is_large = d->divides && g->can.most_cluster > 8;
        TRY(cuda_kernel_allow(d->found, d->most_bytes, is_large, err));
    }
    return LACE_OK;
}
