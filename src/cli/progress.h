/*
 * Progress on standard error. A terminal gets a bar that wipes itself out at the end, with the time
 * that is left if the work is long; nothing is drawn in the first tenth of a second. Anything else,
 * a pipe or a log, gets a line now and then.
 */
#ifndef LACE_CLI_PROGRESS_H
#define LACE_CLI_PROGRESS_H

#include "lace.h"

typedef struct progress {
    uint64_t begun_ns;
    uint64_t shown_ns; /* a bar or a line; at first begun_ns */
    int n_drawn;       /* columns on the screen to be wiped out */
    bool is_terminal;
    const volatile int *stop; /* becomes nonzero when the work shall be cancelled; may be NULL */
    uint64_t part_ns;         /* the part under way: when it began, */
    double part_from, done;   /* at which share, and the last one reported */
} progress;

void progress_init(progress *p, const volatile int *stop);

/*
 * A lace_progress_fn; `user` is a progress. `done` grows from 0 to 1; where it falls back, another
 * part of the work has begun, and the time left is that of this part.
 */
bool progress_report(void *user, const char *what, double done);

/* Say at once what begins now, if that is work which reports nothing until it is done. */
void progress_show(progress *p, const char *what);

void progress_end(progress *p); /* wipes the bar out; twice is fine */

enum { PROGRESS_MAX_TEXT = 512 };

/*
 * What a report at this moment writes, on a terminal of so many columns: into out, "" if nothing is
 * due. progress_report is this and a clock.
 */
void progress_step(progress *p, const char *what, double done, uint64_t now_ns, int n_columns,
                   char out[PROGRESS_MAX_TEXT]);

#endif
