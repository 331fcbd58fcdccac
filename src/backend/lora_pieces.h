/*
 * Adapters on their way to a device. A program brings what its plan's steps point to (lora_site) to a
 * piece of its own memory, with a list of pieces for kernels in front of each site's matrices.
 */
#ifndef LACE_BACKEND_LORA_PIECES_H
#define LACE_BACKEND_LORA_PIECES_H

#include "backend/lora_piece.h"
#include "ops/lora.h"
#include "plan/plan.h"

uint64_t lora_down_size(const lora_site *site, const lora_pair *p);
uint64_t lora_up_size(const lora_site *site, const lora_pair *p);

/* As kernels read it, with its matrices at these addresses. */
lora_piece lora_piece_of(const lora_pair *p, uint64_t down, uint64_t up);

/* Memory for all sites of a plan; 0: it has none. */
uint64_t lora_memory_bytes(const plan *p);

/* How bytes come to the device. */
typedef lace_status lora_write(void *user, uint64_t to, const void *from, uint64_t n,
                               lace_error *err);

/* Bring them there, from `at` on, and let the plan's steps know where (step.a.lora.pieces). */
lace_status lora_memory_fill(plan *p, uint64_t at, lora_write *write, void *user, lace_error *err);

#endif
