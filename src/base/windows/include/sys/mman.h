/* Mapped memory and files. */
#ifndef LACE_WINDOWS_SYS_MMAN_H
#define LACE_WINDOWS_SYS_MMAN_H

#include <stddef.h>
#include <stdint.h>

enum { PROT_READ = 1, PROT_WRITE = 2 };
enum { MAP_SHARED = 1, MAP_PRIVATE = 2, MAP_ANONYMOUS = 32 };
enum { MADV_DONTNEED = 4 };
#define MAP_FAILED ((void *)-1)

/* Anonymous memory to write, or a file to read. */
void *mmap(void *at, size_t n_bytes, int protection, int flags, int fd, int64_t offset);
int munmap(void *at, size_t n_bytes);
/* Of anonymous memory MADV_DONTNEED makes zeros; of files it changes nothing. */
int madvise(void *at, size_t n_bytes, int advice);

#endif
