/* The console stays as it is: nothing here changes it. */
#ifndef LACE_WINDOWS_TERMIOS_H
#define LACE_WINDOWS_TERMIOS_H

struct termios {
    int unused;
};
enum { TCSANOW = 0 };
int tcgetattr(int fd, struct termios *out);
int tcsetattr(int fd, int when, const struct termios *state);

#endif
