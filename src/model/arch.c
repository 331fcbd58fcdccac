/* The table of architectures. */
#include <string.h>

#include "model/model.h"

extern const arch arch_llama;

static const arch *const archs[] = {
    &arch_llama,
};

const arch *arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i]->name, name) == 0)
            return archs[i];
    return NULL;
}
