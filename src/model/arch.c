/* The table of architectures. */
#include <string.h>

#include "model/model.h"

#define X(name) extern const arch arch_##name;
#include "model/archs.def"
#undef X

static const arch *const archs[] = {
#define X(name) &arch_##name,
#include "model/archs.def"
#undef X
};

const arch *arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i]->name, name) == 0)
            return archs[i];
    return NULL;
}
