/*
 * Weights that do not lie on the card (weight.streamed): the rows of the file are brought for each step
 * that uses them, through the uploader's pinned memory, and put into tiles on the card. There are two
 * slots: while a step computes with the weights in one, those of the next such step come into the
 * other, in a queue of their own.
 */
#ifndef LACE_BACKEND_CUDA_WEIGHT_STREAM_H
#define LACE_BACKEND_CUDA_WEIGHT_STREAM_H

#include "backend/cuda/lower.h"

enum { WEIGHT_STREAM_SLOTS = 2 };

typedef struct weight_stream {
    gpu_uploader *uploader; /* NULL: no step has such weights */
    cuda_queue *queue;      /* where steps are launched */
    uint8_t *slots[WEIGHT_STREAM_SLOTS];
    cuda_event *used[WEIGHT_STREAM_SLOTS]; /* the step that had its weights there is over */
    cuda_event *ready;
    bool is_used[WEIGHT_STREAM_SLOTS];
    int32_t next, last;
} weight_stream;

/* What the step that has most of such weights needs of a slot; 0: none has any. */
uint64_t weight_stream_slot_bytes(const plan *p);

/* memory: of the slots, on the card. Weights of steps that are launched get their address there. */
lace_status weight_stream_init(weight_stream *w, gpu *g, gpu_uploader *u, cuda_queue *q,
                               uint8_t *memory, uint64_t slot_bytes, lace_error *err);
void weight_stream_deinit(weight_stream *w); /* zeros are fine */

/* In front of a launch: queue what brings its weights, and let it wait for them. *has_brought: there are
 * any; then say behind it that they are used. */
lace_status weight_stream_bring(weight_stream *w, const device_step *d, bool *has_brought,
                                lace_error *err);
lace_status weight_stream_used(weight_stream *w, lace_error *err);

#endif
