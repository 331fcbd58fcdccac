/*
 * What lace uses of POSIX and Windows lacks, or has in another form. The build for Windows puts this
 * file in front of every source (-include), and include/ has the headers that Windows has not, so
 * that all other code is written for POSIX alone.
 *
 * Paths and the environment are UTF-8, files are binary and may be renamed and removed while they
 * are open, and '/' separates the parts of a path. Functions do what lace needs of them and no more.
 */
#if !defined(LACE_BASE_WINDOWS_POSIX_H) && !defined(__ASSEMBLER__)
#define LACE_BASE_WINDOWS_POSIX_H

#define _POSIX_C_SOURCE 200809L

/* First what Windows has under these names: a macro below must not change its declarations. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

/* ---- Text, names and streams ------------------------------------------------------------------------- */

void *memmem(const void *data, size_t n_data, const void *part, size_t n_part);
char *strcasestr(const char *text, const char *part);
char *strndup(const char *text, size_t n);
ssize_t getline(char **line, size_t *capacity, FILE *f);
int setenv(const char *name, const char *value, int replaces);
int unsetenv(const char *name);
char *posix_getenv(const char *name);
#define getenv posix_getenv
FILE *posix_fopen(const char *path, const char *mode);
int posix_rename(const char *from, const char *to);
int posix_unlink(const char *path);
#define fopen  posix_fopen
#define rename posix_rename
#define remove posix_unlink
#define timegm _mkgmtime
typedef long suseconds_t;

#undef PATH_MAX
#define PATH_MAX 4096
#undef NAME_MAX
#define NAME_MAX 255
char *posix_realpath(const char *path, char out[PATH_MAX]); /* out is not NULL */
char *mkdtemp(char *path);
#define realpath posix_realpath

/* ---- Signals --------------------------------------------------------------------------------- */

/* Ctrl-C is SIGINT; those that Windows has not never come. */
enum { SIGHUP = 1, SIGBUS = 7, SIGKILL = 9, SIGPIPE = 13, SIGCHLD = 17, SIGXFSZ = 25 };
enum { SA_RESTART = 1, SA_RESETHAND = 2 };
struct sigaction {
    void (*sa_handler)(int number);
    int sa_mask;
    int sa_flags;
};
int sigaction(int number, const struct sigaction *action, struct sigaction *old);
int sigemptyset(int *mask);
#define sigemptyset posix_sigemptyset
int posix_sigemptyset(int *mask);
void (*posix_signal(int number, void (*handler)(int)))(int);
#define signal posix_signal

#endif
