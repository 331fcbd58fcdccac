/* Whether standard error takes a line; Windows does not say, and a line is written. */
#ifndef LACE_WINDOWS_POLL_H
#define LACE_WINDOWS_POLL_H

#include <sys/socket.h> /* struct pollfd */

int posix_poll(struct pollfd *list, unsigned n, int timeout_ms);
#define poll posix_poll

#endif
