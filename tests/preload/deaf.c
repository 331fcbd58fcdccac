/*
 * For LD_PRELOAD: watching a listening socket fails with ENOMEM. $LACE_DEAF is "AFTER,COUNT": the
 * first AFTER calls of epoll_ctl for such a socket go through, the next COUNT fail.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    static int n_seen;
    int (*next)(int, int, int, struct epoll_event *) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "epoll_ctl");
    int is_listening = 0, after = 0, count = 0;
    socklen_t n = sizeof is_listening;
    const char *when = getenv("LACE_DEAF");
    bool is_watched = op == EPOLL_CTL_ADD && when && sscanf(when, "%d,%d", &after, &count) == 2 &&
                      getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &n) == 0 &&
                      is_listening;
    if (is_watched && n_seen++ >= after && n_seen <= after + count) {
        errno = ENOMEM;
        return -1;
    }
    return next(epoll, op, fd, event);
}
