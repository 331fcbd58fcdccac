/* A card's stream as a queue (backend/queue.h). */
#ifndef LACE_BACKEND_CUDA_CARD_QUEUE_H
#define LACE_BACKEND_CUDA_CARD_QUEUE_H

#include "backend/cuda/cuda.h"
#include "backend/queue.h"

lace_status card_queue_open(cuda_device *d, queue **out, lace_error *err);

/* The stream of a queue that was opened so. */
cuda_queue *card_queue_stream(const queue *q);

#endif
