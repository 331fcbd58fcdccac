/*
 * Cost oracles: time and memory of a call in proportion to its input. Twice the input may take at
 * most 2.5 times the time (measured from n to 8 n), and no byte may cost more than it says.
 *
 * Time is the CPU time of the thread, the least of some runs, and a failure is measured again: a
 * busy machine makes a run slower, but nothing makes a quadratic one fast.
 */
#ifndef LACE_TESTS_COST_H
#define LACE_TESTS_COST_H

#include "base/buf.h"
#include "base/bytes.h"

typedef struct cost_subject {
    const char *name;
    void (*make)(size_t n_bytes, buf *out); /* an input of about this size */
    void (*run)(span input);                /* what is measured; may refuse the input */
    size_t max_bytes;                       /* of the inputs; 0: 8 MiB */
    double heap_per_byte;                   /* most memory for a byte of input; 0: 64 */
} cost_subject;

/* One test case. */
void cost_check(const cost_subject *s);

typedef struct call_cost {
    int code;       /* what the call returned; -1: it did not return */
    double ms, mib; /* processor time, and memory beside what there was before */
} call_cost;

/* What one call costs in a copy of this process. On Windows, where none can be made, it is called here,
 * and memory is not measured: 0. */
call_cost cost_of_call(int (*call)(const void *arg), const void *arg);

/* The most memory that this process has had; 0 on Windows. */
double cost_peak_bytes(void);

#endif
