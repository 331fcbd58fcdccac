/*
 * Files, folders and processes as POSIX has them: what include/ gives as unistd.h, fcntl.h, sys/stat.h
 * and dirent.h. Apart from posix.h, because other sources have functions named open and close.
 */
#ifndef LACE_BASE_WINDOWS_POSIX_FILE_H
#define LACE_BASE_WINDOWS_POSIX_FILE_H

/* First what Windows has under these names. */
#include <direct.h>
#include <dirent.h>
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files ----------------------------------------------------------------------------------- */

#define O_CLOEXEC           _O_NOINHERIT
#define O_NONBLOCK          0 /* nothing that is opened by a path waits */
#define O_NOFOLLOW          0
#define O_DIRECTORY         0x1000000
#define O_TMPFILE           0x2000000 /* refused: a file has a name here */
#define AT_FDCWD            (-100)
#define AT_SYMLINK_NOFOLLOW 0x100
#define AT_SYMLINK_FOLLOW   0x400

#undef S_ISLNK
#undef S_ISSOCK
#define S_IFLNK     0xA000
#define S_IFSOCK    0xC000
#define S_ISLNK(m)  (((m)&0xF000) == S_IFLNK)
#define S_ISSOCK(m) (((m)&0xF000) == S_IFSOCK)

struct posix_stat {
    uint64_t st_dev, st_ino;
    unsigned st_mode;
    int64_t st_size;
    int64_t st_blocks; /* of 512 bytes */
    struct timespec st_mtim;
};
#define st_mtime st_mtim.tv_sec

int posix_stat(const char *path, struct posix_stat *out);
int posix_lstat(const char *path, struct posix_stat *out);
int posix_fstat(int fd, struct posix_stat *out);
int fstatat(int dir, const char *name, struct posix_stat *out, int flags);
#undef stat
#undef fstat
#define stat  posix_stat
#define lstat posix_lstat
#define fstat posix_fstat

int posix_open(const char *path, int flags, ...);
int openat(int dir, const char *name, int flags, ...);
int posix_access(const char *path, int mode);
int faccessat(int dir, const char *name, int mode, int flags);
int renameat(int from_dir, const char *from, int to_dir, const char *to);
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags); /* fails */
int symlink(const char *to, const char *path);                                     /* fails */
ssize_t readlink(const char *path, char *out, size_t n); /* only /proc/self/exe */
int unlinkat(int dir, const char *name, int flags);
int posix_mkdir(const char *path, unsigned mode);
int posix_rmdir(const char *path);
int posix_fsync(int fd);
int posix_ftruncate(int fd, int64_t size);
int fchmod(int fd, unsigned mode);
int mkfifo(const char *path, unsigned mode);              /* fails */
int fallocate(int fd, int mode, int64_t from, int64_t n); /* fails: there is no such room */
int futimens(int fd, const struct timespec times[2]);
ssize_t pread(int fd, void *out, size_t n, int64_t at);
ssize_t pwrite(int fd, const void *data, size_t n, int64_t at);
ssize_t posix_read(int fd, void *out, size_t n);
ssize_t posix_write(int fd, const void *data, size_t n);
int posix_close(int fd);
enum { F_SETFL = 4 };
int fcntl(int fd, int what, ...); /* fails */
#define UTIME_NOW  0x3FFFFFFF
#define UTIME_OMIT 0x3FFFFFFE
#define open       posix_open
#define access     posix_access
#define unlink     posix_unlink
#define mkdir      posix_mkdir
#define rmdir      posix_rmdir
#define fsync      posix_fsync
#undef ftruncate
#define ftruncate posix_ftruncate
#define read      posix_read
#define write     posix_write
#define close     posix_close
#undef X_OK
#define X_OK 0

typedef struct posix_dir posix_dir;
struct posix_dirent {
    char d_name[1024];
};
posix_dir *posix_opendir(const char *path);
posix_dir *fdopendir(int fd); /* takes fd */
struct posix_dirent *posix_readdir(posix_dir *d);
void posix_rewinddir(posix_dir *d);
int posix_closedir(posix_dir *d);
int dirfd(posix_dir *d);
int scandir(const char *path, struct posix_dirent ***out, int (*wants)(const struct posix_dirent *),
            int (*compare)(const struct posix_dirent **, const struct posix_dirent **));
int alphasort(const struct posix_dirent **a, const struct posix_dirent **b);
#define DIR       posix_dir
#define dirent    posix_dirent
#define opendir   posix_opendir
#define readdir   posix_readdir
#define rewinddir posix_rewinddir
#define closedir  posix_closedir

/* ---- The system ------------------------------------------------------------------------------ */

enum { _SC_PAGESIZE = 1, _SC_NPROCESSORS_ONLN = 2 };
long sysconf(int what);
int __stdcall gethostname(char *out, int size);

/* There are no children: these fail. system_has_children (base/system.h) says so beforehand. */
int fork(void);
int posix_execv(const char *path, char *const *words);
int posix_execvp(const char *path, char *const *words);
int kill(pid_t pid, int number);
pid_t getppid(void);
int setpgid(pid_t pid, pid_t group);
int posix_pipe(int ends[2]);
int posix_pipe2(int ends[2], int flags);
#define execv  posix_execv
#define execvp posix_execvp
#define pipe   posix_pipe
#define pipe2  posix_pipe2

#endif
