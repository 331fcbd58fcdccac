/* Streams: queues of work, each with a thread of its own; events, and graphs of recorded work. */
#ifndef TESTS_CARD_CARD_STREAM_H
#define TESTS_CARD_CARD_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx_code.h"

typedef struct card {
    int number;
    bool failed; /* computes nothing more */
} card;

typedef struct stream stream;
typedef struct event event;
typedef struct graph graph;

typedef enum work_kind {
    WORK_LAUNCH,
    WORK_COPY,
    WORK_FILL,
    WORK_RECORD,
    WORK_WAIT,
    WORK_GRAPH
} work_kind;

/* One thing to do. Streams copy it; `owned` is given back by free when it has been done. */
typedef struct work_item {
    work_kind kind;
    void *owned;
    /* launch; `owned` has the parameters */
    const kernel *kernel;
    uint32_t grid[3], block[3], cluster, shared_bytes;
    bool overlaps; /* may begin before what is in front of it has ended */
    /* copy, fill */
    void *to;
    const void *from;
    size_t n;
    uint8_t byte;
    event *event;
    uint64_t ticket; /* of the event: how often it must have been passed */
    graph *graph;
} work_item;

stream *stream_create(card *c);
void stream_free(stream *s); /* waits */
card *stream_card(const stream *s);

/* Add work, or record it. false: no memory. */
bool stream_add(stream *s, work_item item);
void stream_wait(stream *s);

void stream_record_begin(stream *s);
graph *stream_record_end(stream *s); /* NULL: it was not recording */
bool stream_is_recording(const stream *s);

/* A graph may be given back while a stream runs it. */
graph *graph_keep(graph *g);
void graph_drop(graph *g);

event *event_create(void);
void event_free(event *e);
/* How often it has been recorded, counting from now on one more. */
uint64_t event_next(event *e);
uint64_t event_last(event *e);
void event_wait(event *e);
double event_ns(event *e); /* when it was passed last */

#endif
