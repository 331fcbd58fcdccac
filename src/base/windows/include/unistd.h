/* That of Windows, and what it lacks. */
#ifndef LACE_WINDOWS_UNISTD_H
#define LACE_WINDOWS_UNISTD_H

#define tell windows_tell /* a name that lace has, too */
#include_next <unistd.h>
#undef tell

#include "base/windows/posix_file.h"

/* Windows' own says yes to NUL, too, which stands for /dev/null. */
int posix_isatty(int fd);
#define isatty posix_isatty

#endif
