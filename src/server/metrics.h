/* What the server counts, and how Prometheus reads it. Belongs to the event loop. */
#ifndef LACE_SERVER_METRICS_H
#define LACE_SERVER_METRICS_H

#include "server/json_out.h"

enum { METRICS_BUCKETS = 18, METRICS_STATUSES = 24 };

/* Durations, by how many were at most so long. */
typedef struct histogram {
    uint64_t buckets[METRICS_BUCKETS + 1]; /* not cumulative; the last one is for longer ones */
    uint64_t n;
    double sum; /* seconds */
} histogram;

typedef struct metrics {
    histogram first_token, inter_token, queue, end_to_end, prompt;
    uint64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    uint64_t n_finished[5]; /* by lace_finish */
    uint64_t n_timed_out, n_slow_readers, n_disconnected;
    struct {
        int status; /* 0: free */
        uint64_t n;
    } statuses[METRICS_STATUSES];
} metrics;

void metrics_observe(histogram *h, uint64_t ns);
void metrics_count_status(metrics *m, int status);

typedef struct server server;
void metrics_write(server *s, json_out *out); /* the text format of Prometheus */

#endif
