/* That of Windows, and what it lacks. */
#ifndef LACE_WINDOWS_FCNTL_H
#define LACE_WINDOWS_FCNTL_H

#define tell windows_tell /* a name that lace has, too */
#include_next <fcntl.h>
#undef tell

#include "base/windows/posix_file.h"

#endif
