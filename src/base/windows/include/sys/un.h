/* Unix sockets, which libevent cannot listen at here: `lace serve --unix` says so. */
#ifndef LACE_WINDOWS_SYS_UN_H
#define LACE_WINDOWS_SYS_UN_H

#include <sys/socket.h>

struct sockaddr_un {
    unsigned short sun_family;
    char sun_path[108];
};

#endif
