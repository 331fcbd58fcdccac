/* The table of architectures. */
#include <string.h>

#include "model/model.h"

/* clang-format off */
/* Every architecture once. */
#define ARCH_LIST(X)                                                                               \
    X(llama) X(granite) X(smollm3) X(qwen2) X(qwen3) X(qwen3moe) X(gemma2) X(gemma3) X(phi3)       \
    X(olmo2) X(gpt_oss) X(mamba2) X(granitehybrid) X(nemotron_h) X(falcon_h1) X(lfm2)
/* clang-format on */

#define DECLARE(name) extern const arch arch_##name;
ARCH_LIST(DECLARE)
#undef DECLARE

static const arch *const archs[] = {
#define ROW(name) &arch_##name,
    ARCH_LIST(ROW)
#undef ROW
};

const arch *arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i]->name, name) == 0)
            return archs[i];
    return NULL;
}
