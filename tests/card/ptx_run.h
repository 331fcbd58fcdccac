/*
 * Who computes: launches, the blocks of a cluster, and warps in lockstep.
 *
 * A team is a block, or the blocks of a cluster, that one thread of the pool runs for a while. Its
 * warps take turns. A warp runs the lanes that are at the lowest instruction, so that lanes which
 * went different ways meet again where their ways do.
 */
#ifndef TESTS_CARD_PTX_RUN_H
#define TESTS_CARD_PTX_RUN_H

#include "ptx_code.h"

#define FULL_MASK 0xFFFFFFFFu

enum {
    N_BARRIERS = 16,
    MAX_CLUSTER = 16,
    N_SPANS = 8, /* of memory that a team used last */
};

/* Windows of generic addresses; addresses of the host are below all of them. */
#define WINDOW(address) ((uint64_t)(address) >> 56)
enum { WINDOW_SHARED = 1, WINDOW_LOCAL = 2, WINDOW_PARAM = 3 };
#define WINDOW_BASE(window) ((uint64_t)(window) << 56)

typedef struct block block;
typedef struct team team;
typedef struct launch launch;
typedef struct async_copies async_copies;

struct warp {
    const uint32_t *base[2]; /* registers, constants */
    uint32_t *predicates;
    block *block;
    const kernel *kernel;
    uint32_t pc[N_LANES];
    uint32_t alive;
    uint32_t waits_together; /* lanes at an instruction that others must reach, too */
    uint32_t waits_launch;   /* lanes that wait for the launch in front of theirs */
    uint32_t waits_barrier;  /* lanes at any barrier of the block or the cluster */
    uint32_t barrier[N_BARRIERS];
    uint32_t cluster_wait;           /* lanes that wait for the cluster */
    uint32_t cluster_phase[N_LANES]; /* in which they arrived last */
    uint32_t index;                  /* in the block */
    int32_t registers;   /* of a thread, as setmaxnreg left them; 0: as the block was launched */
    bool polled;         /* asked for what another thread may change, and others may have a turn */
    uint8_t *local;      /* [N_LANES][kernel->local_bytes] */
    async_copies *async; /* NULL: none yet */
    void *matrix;        /* what is under way in the matrix units; see ptx_group.c */
    uint64_t n_done, n_lanes; /* instructions, and those of lanes */
};

struct block {
    team *team;
    uint32_t rank; /* in the cluster */
    uint32_t index[3];
    warp *warps;
    uint32_t n_warps;
    uint8_t *shared;
    uint32_t n_threads, n_alive;
    struct shared_use *uses; /* NULL: races are not looked for */
    uint32_t phase;          /* between barriers */
    uint32_t arrived[N_BARRIERS], expected[N_BARRIERS];
    uint32_t cluster_arrived;
    int32_t n_resized; /* warps whose registers are not those of the launch */
    int32_t spare;     /* registers of all threads that are given back, less those asked for */
};

struct team {
    launch *launch;
    block blocks[MAX_CLUSTER];
    uint32_t n_blocks;
    void *memory; /* of registers, shared memory, local memory */
    size_t memory_bytes;
    struct {
        uint64_t from, to;
    } spans[N_SPANS];
    uint64_t spans_epoch;
    uint32_t next_span;
    uint32_t cluster_arrived, cluster_phase;
    uint64_t dice; /* for turns of any length; 0: they are all the same */
    void *bulk;    /* copies under way; see ptx_bulk.c */
    bool failed;
    team *next;
};

struct launch {
    const kernel *kernel;
    uint32_t grid[3], block[3], cluster;
    uint32_t shared_bytes; /* asked for at launch */
    uint32_t all_shared;   /* of one block */
    uint8_t *params;
    int card;
    uint32_t n_processors;
    uint32_t n_teams, next_team, n_left;
    uint32_t n_under_way, most_under_way; /* teams */
    team *parked;                         /* teams of a launch that has begun early */
    bool is_early;                        /* the launch in front of it has not ended */
    bool failed;                          /* set by any of its teams, read by all */
};

/* Run what is left of a team for a while. Returns whether it has ended. */
bool team_run(team *t);

/* Make a team of the blocks with these numbers; team_free gives its memory back. */
team *team_make(launch *l);
void team_begin(team *t, uint32_t number);
void team_free(team *t);

/* One line on stderr about what this instruction did wrong; the launch fails. */
void warp_fault(warp *w, const instr *i, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- Operands -------------------------------------------------------------------------------- */

static inline const uint32_t *row_of(const warp *w, uint32_t at)
{
    return __builtin_assume_aligned(w->base[at >> 31] + (at & ~CONSTANT), 64);
}

static inline uint32_t *row_to(const warp *w, uint32_t at)
{
    return __builtin_assume_aligned((uint32_t *)w->base[0] + at, 64);
}

static inline const uint64_t *rows_of(const warp *w, uint32_t at)
{
    return (const uint64_t *)row_of(w, at);
}

/* Lanes are independent of each other, also where a result lies on its input. */
#if defined __clang__
#define LANES_PRAGMA _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES_PRAGMA _Pragma("GCC ivdep")
#endif

#define EACH_LANE LANES_PRAGMA for (int l = 0; l < N_LANES; l++)

/* `statement` for the lanes l in `mask`. */
#define FOR_LANES(mask, statement)                                                                 \
    do {                                                                                           \
        if ((mask) == FULL_MASK) {                                                                 \
            EACH_LANE statement                                                                    \
        } else {                                                                                   \
            EACH_LANE                                                                              \
            if ((mask) >> l & 1)                                                                   \
                statement                                                                          \
        }                                                                                          \
    } while (0)

#endif
