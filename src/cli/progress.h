/*
 * A progress bar on standard error, for people only: nothing is drawn if that is no terminal, nor
 * in the first tenth of a second. It wipes itself out at the end.
 */
#ifndef LACE_CLI_PROGRESS_H
#define LACE_CLI_PROGRESS_H

#include "lace.h"

typedef struct progress {
    uint64_t begun_ns;
    uint64_t drawn_ns; /* 0: not yet */
    int n_drawn;       /* columns on the screen to be wiped out */
    bool is_terminal;
    const volatile int *stop; /* becomes nonzero when the work shall be cancelled; may be NULL */
} progress;

void progress_init(progress *p, const volatile int *stop);

/* A lace_progress_fn; `user` is a progress. */
bool progress_report(void *user, const char *what, double done);

/* Say at once what begins now, if that is work which reports nothing until it is done. */
void progress_show(progress *p, const char *what);

void progress_end(progress *p); /* wipes the bar out; twice is fine */

#endif
