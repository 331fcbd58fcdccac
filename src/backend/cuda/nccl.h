/*
 * NVIDIA's library for exchanges between cards, libnccl.so.2, opened with dlopen when several cards
 * first want it. Every failure is one line that names the call and the library's own words for it.
 */
#ifndef LACE_BACKEND_CUDA_NCCL_H
#define LACE_BACKEND_CUDA_NCCL_H

#include "backend/cuda/cuda.h"

/*
 * The oldest version that is used, and the first whose exchanges are recorded in graphs; as the library
 * numbers them: 2.8.4 is 2804, and from 2.9 on 2.9.6 is 20906.
 */
enum { NCCL_ID_BYTES = 128, NCCL_OLDEST = 2700, NCCL_RECORDS = 20900 };

typedef struct nccl_comm nccl_comm; /* a card's end of a group */

/* LACE_E_DEVICE: there is no such library, or it is too old. Any thread, at any time. */
lace_status nccl_find(lace_error *err);

/* Whether what it does can be recorded. */
bool nccl_can_be_recorded(void);

/* What all who join the same group are told. */
lace_status nccl_make_id(uint8_t out[NCCL_ID_BYTES], lace_error *err);

/* All ranks of the group at the same time, each with its card (NULL in tests). */
lace_status nccl_join(cuda_device *d, const uint8_t id[NCCL_ID_BYTES], int32_t n_ranks,
                      int32_t rank, nccl_comm **out, lace_error *err);
void nccl_leave(nccl_comm *c); /* NULL is fine */

/*
 * Queue an exchange: parts[k], on this card, gets what rank k has there, n_bytes[k] of it. All ranks,
 * with the same sizes.
 */
lace_status nccl_share(nccl_comm *c, cuda_queue *q, void *const *parts, const uint64_t *n_bytes,
                       lace_error *err);

#endif
