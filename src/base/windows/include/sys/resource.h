/* Limits, which Windows has not, and the priority of a thread. */
#ifndef LACE_WINDOWS_SYS_RESOURCE_H
#define LACE_WINDOWS_SYS_RESOURCE_H

#include <stdint.h>

enum { PRIO_PROCESS = 0, RLIMIT_NOFILE = 7 };
typedef uint64_t rlim_t;
struct rlimit {
    rlim_t rlim_cur, rlim_max;
};
int getrlimit(int what, struct rlimit *out); /* there is none */
int setrlimit(int what, const struct rlimit *limit);
int setpriority(int which, int who, int nice); /* of this thread, below others if above 0 */

#endif
