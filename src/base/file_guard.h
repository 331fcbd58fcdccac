/*
 * Mapped files that another program cuts short while they are in use.
 *
 * Reading beyond the new end raises SIGBUS, which ends a process. With the guard installed, such
 * pages of files mapped by base/file.h become zeros and a flag is set; whoever computes with the
 * contents asks for the flag afterwards and reports an error in place of a result.
 */
#ifndef LACE_BASE_FILE_GUARD_H
#define LACE_BASE_FILE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Handle SIGBUS from now on. For programs; a library leaves signals alone. */
void file_guard_install(void);

/* True if a mapped file was found too short since the start. */
bool file_guard_is_broken(void);

/* LACE_E_IO, and what to do, if so. */
lace_status file_guard_check(lace_error *err);

/* What is mapped; called by base/file.c. False: no memory to remember it. */
bool file_guard_add(const void *start, size_t n_bytes);
void file_guard_remove(const void *start);

#endif
