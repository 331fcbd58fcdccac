/*
 * Latent attention of prompts on the CPU, expanded (plan/latents.h): the steps around ATTEND do
 * nothing then, and ATTEND itself makes keys and values. A worker takes a head, makes those of
 * LATENT_CHUNK positions, attends to them with all rows of a run, and goes on to the next ones, so
 * that nothing is as long as the context (attend_expanded.h).
 *
 * Only batches of more than ATTEND_SAME tokens are expanded: below, what comes of a token does not
 * depend on the others (ops.h).
 */
#ifndef LACE_BACKEND_CPU_LATENTS_CPU_H
#define LACE_BACKEND_CPU_LATENTS_CPU_H

#include "backend/cpu/kernels.h"
#include "plan/plan.h"

enum { LATENT_CHUNK = 256 };

/* Gives the three steps what they need, wherever a level can expand; before plan_place. */
void latents_prepare(plan *p, const kernel_table *table);

/* Whether a batch is expanded; the same in all three steps. f->rank 0: never. */
bool latents_are_expanded(const latent_form *f, const batch *b);

/* The scratch of a worker that expands. */
typedef struct latent_room {
    float *latents;             /* [LATENT_CHUNK, rank] */
    float *k_matrix;            /* of a head, [nope, rank] */
    float *identity;            /* [nope, nope] */
    float *k_turned;            /* [rank, nope], where keys are made of floats */
    float *keys;                /* [LATENT_CHUNK, nope + turned] */
    float *values;              /* [LATENT_CHUNK, value] */
    uint8_t *k_words, *x_words; /* k_matrix and latents in fixed point */
    uint8_t *queries;           /* [n_tokens] */
    uint8_t *attend;            /* of attention, for n_tokens rows */
    uint8_t *product;
} latent_room;

enum { LATENT_QUERY_BYTES = 64 };

/* Bytes of scratch, 0 for steps that never expand; and where it all lies. */
uint64_t latent_room_bytes(const step *s, int64_t n_tokens);
latent_room latent_room_at(const step *s, int64_t n_tokens, uint8_t *scratch);

#endif
