/*
 * COLLECT among the cards of one process, each a rank, as C and CUDA see it.
 *
 * The board lies in pinned memory that all cards write and read. A rank copies its columns to the board,
 * says so by a number, waits until the others have said so, and copies theirs:
 *
 *     done[k]      so many exchanges rank k has given its part to
 *     parts[k]     two places for parts of rank k, for exchanges in turn
 *
 * A place is written again in the exchange after the next, which no rank reaches before all have
 * read it: to leave an exchange a rank needs the number of all others. The host waits for nothing.
 */
#ifndef LACE_BACKEND_CUDA_COLLECT_PARAMS_H
#define LACE_BACKEND_CUDA_COLLECT_PARAMS_H

#include <stdint.h>

enum {
    COLLECT_RANKS = 64, /* RANKS_MAX */
    COLLECT_THREADS = 1024,
    COLLECT_BLOCKS = 16, /* at most */
    COLLECT_LINE = 32,   /* words from one number to the next */
};

typedef struct collect_board {
    uint32_t done[COLLECT_RANKS][COLLECT_LINE];
    uint32_t has_failed; /* a rank did not come in time: nobody waits any more */
    uint32_t pad[COLLECT_LINE - 1];
    uint64_t parts[COLLECT_RANKS][2]; /* addresses as cards know them */
} collect_board;

/* What of a rank is counted on its own card. */
typedef struct collect_counts {
    uint32_t n_exchanges;
    uint32_t n_sent, n_taken; /* blocks of the exchange under way */
} collect_counts;

typedef struct gpu_collect {
    float *x; /* [n_rows] rows with the columns of all ranks */
    int64_t stride;
    int32_t n_rows, n_ranks, rank;
    int32_t at_first; /* only rank 0 needs the others' columns */
    int32_t is_wide;  /* all columns begin at multiples of 4, addresses of 16 bytes */
    int32_t first[COLLECT_RANKS + 1]; /* columns of rank k: [first[k], first[k + 1]) */
    collect_board *board;             /* NULL: */
    uint8_t *staging; /* parts of all ranks, part_bytes each, on the card; NCCL brings them */
    uint64_t part_bytes;
    collect_counts *counts;
    uint64_t deadline_ns;
} gpu_collect;

#endif
