/* The size of a terminal. */
#ifndef LACE_WINDOWS_SYS_IOCTL_H
#define LACE_WINDOWS_SYS_IOCTL_H

struct winsize {
    unsigned short ws_row, ws_col;
};
enum { TIOCGWINSZ = 1 };
int ioctl(int fd, int what, struct winsize *out);

#endif
