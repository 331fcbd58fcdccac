/* In one header with the other calls of sockets. */
#include <sys/socket.h>
