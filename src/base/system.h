/* What Linux has and other systems have in their own way: another one is a second system.c. */
#ifndef LACE_BASE_SYSTEM_H
#define LACE_BASE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that nobody can guess. False if the system has none; `out` is then undefined. */
bool system_random(void *out, size_t n_bytes);

/* A bell: something to poll for reading, that any thread may ring. -1 on failure; closed by close. */
int system_bell_open(void);
void system_bell_ring(int bell);
void system_bell_silence(int bell);

/* The processor's name as its maker has it, or "unknown processor". */
void system_cpu_name(char out[128]);

/* A path that opens an open file once more, though it may have no name. */
void system_fd_path(int fd, char *out, size_t size);

/* In a new process: it is killed when the one that made it ends; its files from fd on are closed. */
void system_end_with_parent(void);
void system_close_from(int fd);

#endif
