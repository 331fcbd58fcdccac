/* Windows lets nobody cut a file short while it is mapped: there is nothing to guard. */
#include "base/file_guard.h"

void file_guard_install(void)
{
}

bool file_guard_is_broken(void)
{
    return false;
}

lace_status file_guard_check(lace_error *err)
{
    return LACE_OK;
}

bool file_guard_add(const void *start, size_t n_bytes)
{
    return true;
}

void file_guard_remove(const void *start)
{
}
