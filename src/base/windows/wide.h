/* Paths and words between UTF-8 and what Windows has. For the files in this folder. */
#ifndef LACE_BASE_WINDOWS_WIDE_H
#define LACE_BASE_WINDOWS_WIDE_H

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <winsock2.h>
#include <windows.h>

#include <stdbool.h>
#include <wchar.h>

#include "base/windows/posix_file.h"

enum { WIDE_PATH = 4096 };

/* A path as Windows wants it; a '/' at its end goes. False, with errno set, if it is not UTF-8 or too
 * long. */
bool wide_path(const char *path, wchar_t out[WIDE_PATH]);

/* Back, with '/' between its parts and without the prefix that says that it may be long. */
bool wide_to_path(const wchar_t *wide, char *out, size_t size);

/* The path of an open file or folder. */
bool wide_path_of(int fd, wchar_t out[WIDE_PATH]);

/* errno as the last error of Windows; returns -1. */
int wide_fail(void);

#endif
