/*
 * A process that can only compute, for bytes of strangers and code that may have holes. Linux alone:
 * seccomp.
 */
#ifndef LACE_BASE_SANDBOX_H
#define LACE_BASE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Zeros that a new process shares with the one that makes it; pages cost nothing until they are
 * written. NULL: there is no room.
 */
void *sandbox_share(size_t n_bytes);
void sandbox_unshare(void *memory, size_t n_bytes);

/*
 * From now on this process can only compute: it has max_bytes more of memory than now, max_ns of the
 * processor's time, no open files, and every system call fails but those for memory and for its end.
 * Nothing takes it back. False: the system could not do it.
 */
bool sandbox_enter(uint64_t max_bytes, uint64_t max_ns);

#endif
