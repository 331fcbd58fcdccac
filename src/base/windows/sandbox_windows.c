/* Windows has no such process here: nothing of strangers is decoded. */
#include "base/sandbox.h"

void *sandbox_share(size_t n_bytes)
{
    return NULL;
}

void sandbox_unshare(void *memory, size_t n_bytes)
{
}

bool sandbox_enter(uint64_t max_bytes, uint64_t max_ns)
{
    return false;
}
