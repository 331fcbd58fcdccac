/* That of Windows, and what it lacks. */
#ifndef LACE_WINDOWS_SYS_STAT_H
#define LACE_WINDOWS_SYS_STAT_H

#define tell windows_tell /* a name that lace has, too */
#include_next <sys/stat.h>
#undef tell

#include "base/windows/posix_file.h"

#endif
