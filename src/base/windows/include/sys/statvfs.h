/* Room on a disk. */
#ifndef LACE_WINDOWS_SYS_STATVFS_H
#define LACE_WINDOWS_SYS_STATVFS_H

#include <stdint.h>

struct statvfs {
    uint64_t f_bavail, f_frsize;
};
int statvfs(const char *path, struct statvfs *out);

#endif
