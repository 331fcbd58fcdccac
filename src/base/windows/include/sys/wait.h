/* There are no children to wait for. */
#ifndef LACE_WINDOWS_SYS_WAIT_H
#define LACE_WINDOWS_SYS_WAIT_H

#include <sys/types.h>

enum { WNOHANG = 1 };
#define WIFEXITED(status)   1
#define WEXITSTATUS(status) (status)
#define WIFSIGNALED(status) 0
#define WTERMSIG(status)    0
pid_t waitpid(pid_t pid, int *status, int flags);

#endif
