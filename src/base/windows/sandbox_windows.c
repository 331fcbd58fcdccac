/* Windows has no such process here: nothing of strangers is decoded. */
#include "base/sandbox.h"

/* What no process will share: the one that would is refused, and says why. */
void *sandbox_share(size_t n_bytes)
{
    static char nothing;
    return &nothing;
}

void sandbox_unshare(void *memory, size_t n_bytes)
{
}

bool sandbox_enter(uint64_t max_bytes, uint64_t max_ns)
{
    return false;
}
