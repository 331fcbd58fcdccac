/*
 * How the cards of one process, each of which is a rank (rank/rank.h), give each other columns: COLLECT
 * as a step of their queues, so that no host waits for another one. By NCCL, where every rank has a
 * card of its own and the library is there; else through pinned memory (collect_params.h).
 * LACE_CARD_LINK=nccl, pinned or host chooses; host: there is no link, and a host beside each card
 * exchanges (backend/mixed.h).
 */
#ifndef LACE_BACKEND_CUDA_CARD_LINK_H
#define LACE_BACKEND_CUDA_CARD_LINK_H

#include "backend/backend.h"
#include "backend/cuda/gpu.h"
#include "rank/rank.h"

typedef struct card_link card_link;

/* When an exchange may be recorded in a graph. */
typedef enum link_records {
    LINK_RECORDS,          /* at any time, or there is no link */
    LINK_RECORDS_TOGETHER, /* when all ranks do */
    LINK_RECORDS_NEVER
} link_records;

/*
 * All ranks at the same time. *out is NULL where there is no link, for all of them. `note` says why it
 * is not what one might expect, or is empty.
 */
lace_status card_link_open(gpu *g, ranks *r, char note[DEVICE_NOTE_BYTES], card_link **out,
                           lace_error *err);
void card_link_close(card_link *l); /* rank 0 behind the others; NULL is fine */

/* Room for parts of so many bytes. All ranks, while nothing is computed. */
lace_status card_link_reserve(card_link *l, uint64_t n_bytes, lace_error *err);

link_records card_link_records(const card_link *l); /* of NULL, too */

/* Behind a batch: whether all ranks have come to its exchanges. Of NULL, too. */
lace_status card_link_check(const card_link *l, lace_error *err);

/* Queue the exchange of a step COLLECT; the card has a link. */
lace_status card_link_collect(const gpu_job *j, const step *s, lace_error *err);

#endif
