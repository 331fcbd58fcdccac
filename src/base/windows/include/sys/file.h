/* A lock on a whole file. */
#ifndef LACE_WINDOWS_SYS_FILE_H
#define LACE_WINDOWS_SYS_FILE_H

enum { LOCK_SH = 1, LOCK_EX = 2, LOCK_NB = 4, LOCK_UN = 8 };
int flock(int fd, int operation);

#endif
