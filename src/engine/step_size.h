/*
 * How many rows a step of the batcher has while texts wait for its end: what prompts get beside the
 * tokens of those that generate.
 *
 * Where every row costs, on the CPU, prompts get a share. A device that multiplies by tiles of rows
 * (device_info) gets whole tiles: as many as are worth a step, more where the requests that ended
 * have had so many tokens to be read for each one made that prompts would pile up otherwise. Steps
 * that take several prompts at once would be no faster, and those prompts' texts would end together,
 * so that the next ones come together and wait for each other.
 * Targets for the time between tokens and to the first one change that, by the times that steps of
 * so many tiles have taken. By those it is known, too, when a step under way will end.
 */
#ifndef LACE_ENGINE_STEP_SIZE_H
#define LACE_ENGINE_STEP_SIZE_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

enum { STEP_MOST_TILES = 64, STEP_FEW_KINDS = 10 };

typedef struct step_size {
    int32_t tile_rows, step_rows; /* of the device, see device_info; 0: every row costs */
    uint64_t next_ns, first_ns;   /* targets: between tokens, to the first; 0: none */
    size_t n_read, n_made;        /* tokens of the last requests that ended: prompts, answers */
    uint64_t times[STEP_MOST_TILES + 1]
                  [2]; /* of the last two steps of so many tiles; 0: none yet */
    /* The same for steps within one tile, of up to 2^i rows: those of few rows are shorter. */
    uint64_t few_times[STEP_FEW_KINDS][2];
} step_size;

/* What the rows of a step are chosen from. */
typedef struct step_load {
    size_t n_next;     /* rows of those that generate */
    size_t n_prompts;  /* that are not read to the end */
    size_t n_unread;   /* their tokens */
    size_t most;       /* rows of a batch */
    uint64_t waits_ns; /* how long the prompt that came first has waited */
} step_load;

size_t step_size_rows(const step_size *s, const step_load *l);

/* A step of so many rows has taken so long. */
void step_size_note(step_size *s, size_t n_rows, uint64_t ns);

/* What a step of so many rows takes, going by the last two like it; 0: not known. */
uint64_t step_size_time(const step_size *s, size_t n_rows);

/* A request has ended: so many tokens of its prompt were computed, so many were generated. */
void step_size_end(step_size *s, size_t n_read, size_t n_made);

#endif
