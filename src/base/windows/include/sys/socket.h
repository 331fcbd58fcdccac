/* Sockets: those of Windows. They are no files; libevent closes them. */
#ifndef LACE_WINDOWS_SYS_SOCKET_H
#define LACE_WINDOWS_SYS_SOCKET_H

#define WIN32_LEAN_AND_MEAN
#define NOGDI
#define NOMINMAX
#pragma push_macro("open")
#pragma push_macro("close")
#pragma push_macro("read")
#pragma push_macro("write")
#undef open
#undef close
#undef read
#undef write
#include <winsock2.h>
#include <ws2tcpip.h>
#pragma pop_macro("open")
#pragma pop_macro("close")
#pragma pop_macro("read")
#pragma pop_macro("write")

#undef MAX_PATH /* names that lace has, too */
enum { SHUT_WR = SD_SEND };
enum { SOCK_CLOEXEC = 0, SOCK_NONBLOCK = 0, MSG_NOSIGNAL = 0 };

#endif
