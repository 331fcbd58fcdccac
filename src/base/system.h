/*
 * What Linux has and other systems have in their own way: system.c, and windows/system_windows.c. They
 * also have the machine's memory, mem_machine_* of base/mem.h.
 */
#ifndef LACE_BASE_SYSTEM_H
#define LACE_BASE_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that nobody can guess. False if the system has none; `out` is then undefined. */
bool system_random(void *out, size_t n_bytes);

/* Sleep while a word is `old`, or until somebody wakes those who do; it may also end for no reason. */
void system_sleep_on(_Atomic uint32_t *word, uint32_t old);
void system_wake(_Atomic uint32_t *word);

/* A bell: something to poll for reading, that any thread may ring. -1 on failure. */
int system_bell_open(void);
void system_bell_close(int bell);
void system_bell_ring(int bell);
void system_bell_silence(int bell);

/* Cores that this process may use; at least 1. */
int system_cpu_count(void);

/* The processor's name as its maker has it, or "unknown processor". */
void system_cpu_name(char out[128]);

/* A path that opens an open file once more, though it may have no name. */
void system_fd_path(int fd, char *out, size_t size);

/* Give a file another name in its folder, unless a file has it: -1 and EEXIST. ENOSYS or EINVAL: cannot tell. */
int system_rename_new(int dir_fd, const char *from, const char *to);

/* Take the name from an open file, which stays open and can be opened by its system_fd_path. The
 * descriptor may become another one. */
int system_forget_name(int dir_fd, const char *name, int *fd);

/* Whether a program can start others: routers, ranks and rivals in `lace bench` are such. */
bool system_has_children(void);

/* Whether a server can listen at a path in place of a port. */
bool system_has_unix_sockets(void);

/* In a new process: it is killed when the one that made it ends; its files from fd on are closed. */
void system_end_with_parent(void);
void system_close_from(int fd);

#endif
