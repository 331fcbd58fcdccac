/* How long a program takes: the median of some runs, each with caches that hold nothing of it. */
#ifndef LACE_RUNNER_MEASURE_TIME_H
#define LACE_RUNNER_MEASURE_TIME_H

#include "backend/backend.h"
#include "base/threads.h"

/* Memory that is written between runs. A server's last cache holds 100 MB and more: a whole layer. */
typedef struct spoiler {
    pool *workers;
    uint8_t *bytes; /* NULL: nothing is spoiled */
} spoiler;

/* Without memory for it, runs find what the one before left. */
void spoiler_init(spoiler *s, pool *workers);
void spoiler_deinit(spoiler *s);

/* Seconds that a batch of one sequence takes. s may be NULL. */
lace_status time_batch(program *p, const batch *b, const spoiler *s, double *out, lace_error *err);

/* The same of n tokens, all of them row 0 of a table. n is at most MEASURE_MOST_ROWS. */
enum { MEASURE_MOST_ROWS = 512 };
lace_status time_rows(program *p, int32_t n, const spoiler *s, double *out, lace_error *err);

/* In the middle of some times, which are sorted. */
double median_of(double *times, int n);

#endif
