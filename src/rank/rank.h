/*
 * Ranks: several copies of a program that compute one model together. Each rank has some rows of
 * every matrix and some heads of the KV cache, and computes whole rows, so nothing is ever added
 * across ranks and the results are those of one device, to the bit.
 *
 * A `ranks` is one rank's end of its group. Rank 0 tells the others what to do (`tell`, records of
 * integers), they follow (`hear`). While all of them run the same batch they exchange columns:
 *
 *     memcpy(ranks_mine(r), ...);       what this rank has computed
 *     ranks_exchange(r, bytes);         until everybody's part is there
 *     ranks_part(r, k)                  what rank k has computed
 *
 * All ranks do the same exchanges in the same order. A part stays until the exchange after the next
 * one begins. Of a `ranks`, one thread
 * at a time may call, which `lock` is for; a failure stays, and names who is at fault.
 */
#ifndef LACE_RANK_RANK_H
#define LACE_RANK_RANK_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/numbers.h"
#include "base/status.h"

/* RANKS_LEAST_BYTES: room for parts that is there from the start. */
enum { RANKS_MAX = 64, RANK_SHARE_MAX = 1000000, RANKS_LEAST_BYTES = 512 };

/* Who there is, and how much of the work each one does. */
typedef struct rank_shares {
    int32_t n_ranks;          /* at least 1 */
    int32_t rank;             /* this one */
    int32_t parts[RANKS_MAX]; /* of the work, 1 to RANK_SHARE_MAX; equal numbers: equal parts */
} rank_shares;

/*
 * Which of n_units belong to a rank: [rank_begin(s, n, k), rank_begin(s, n, k + 1)). Nobody goes
 * without where there are as many units as ranks.
 */
int64_t rank_begin(const rank_shares *s, int64_t n_units, int32_t rank);

/*
 * Of `width` columns in n_units units, the last of which may be smaller, those that belong to a
 * rank; the same way.
 */
static inline int64_t rank_column(const rank_shares *s, int64_t width, int64_t n_units,
                                  int32_t rank)
{
    return min_i64(width, rank_begin(s, n_units, rank) * divide_up(width, n_units));
}

/* "4": four equal ranks; "3,1": two, the first does three times the work. LACE_E_ARG. */
lace_status rank_shares_parse(const char *text, rank_shares *out, lace_error *err);

typedef struct ranks ranks;

typedef struct rank_calls {
    lace_status (*reserve)(ranks *r, uint64_t n_bytes, lace_error *err);
    uint8_t *(*mine)(ranks *r);
    const uint8_t *(*part)(ranks *r, int32_t rank);
    lace_status (*exchange)(ranks *r, const uint64_t *bytes);
    lace_status (*tell)(ranks *r, const int32_t *words, int64_t n);
    lace_status (*hear)(ranks *r, const int32_t **words, int64_t *n);
    void (*fail)(ranks *r);
    void (*close)(ranks *r);
} rank_calls;

struct ranks {
    const rank_calls *calls;
    rank_shares shares;
    bool is_here;                /* all ranks are in this process */
    char hosts[RANKS_MAX][48];   /* where ranks are, once they have said so; "" before */
    _Atomic int32_t deadline_ms; /* how long an exchange may take, where a rank can be lost */
    _Atomic bool hurries;        /* this process has been told to end: it waits a moment at most */
    pthread_mutex_t lock; /* of rank 0: a record and what follows from it, while others may call */
    uint64_t runners;     /* of rank 0: bits of the numbers that are taken (record.h) */
    lace_status status;   /* of the first failure; all calls do nothing after it */
    lace_error fault;
};

/* Make room for parts of up to n_bytes, of this rank. Not while a batch is computed. */
static inline lace_status ranks_reserve(ranks *r, uint64_t n_bytes, lace_error *err)
{
    return r->calls->reserve(r, n_bytes, err);
}

/* Where this rank's part of the next exchange goes. */
static inline uint8_t *ranks_mine(ranks *r)
{
    return r->calls->mine(r);
}

static inline const uint8_t *ranks_part(ranks *r, int32_t rank)
{
    return r->calls->part(r, rank);
}

/* bytes: [n_ranks] how large each part is; the same numbers on all ranks. */
static inline lace_status ranks_exchange(ranks *r, const uint64_t *bytes)
{
    return r->status == LACE_OK ? r->calls->exchange(r, bytes) : r->status;
}

/* Rank 0: a record for all others, which is copied. */
static inline lace_status ranks_tell(ranks *r, const int32_t *words, int64_t n)
{
    return r->status == LACE_OK ? r->calls->tell(r, words, n) : r->status;
}

/* The others: wait for the next record, which stays until the one after it is waited for. */
static inline lace_status ranks_hear(ranks *r, const int32_t **words, int64_t *n)
{
    return r->status == LACE_OK ? r->calls->hear(r, words, n) : r->status;
}

/* This rank cannot go on: the others are told, and their next call fails with the same text. */
void ranks_fail(ranks *r, lace_status status, const char *text);

static inline void ranks_close(ranks *r) /* NULL is fine */
{
    if (r)
        r->calls->close(r);
}

/* The failure of this rank, for a caller who hands it on. */
lace_status ranks_status(const ranks *r, lace_error *err);

/*
 * Whether all ranks could do what they were told: `status` and err's text are this one's. The first
 * failure of any rank is what all return.
 */
lace_status ranks_agree(ranks *r, lace_status status, lace_error *err);

/* rank_threads.c: all ends of a group within this process, [shares->n_ranks]. */
lace_status rank_threads_open(const rank_shares *shares, ranks **out, lace_error *err);

#endif
