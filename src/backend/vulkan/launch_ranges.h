/*
 * Where barriers go. Launches of a list may run at the same time until a barrier stands between them.
 * The recorder says of each launch which memory it reads and writes; one that touches what a launch
 * since the last barrier wrote, or writes what one of them read, needs a barrier in front of it.
 *
 * This decides, and nothing else could find a mistake: validation layers do not see accesses by
 * address, and a processor that runs launches in order computes the right thing without any barrier.
 */
#ifndef LACE_BACKEND_VULKAN_LAUNCH_RANGES_H
#define LACE_BACKEND_VULKAN_LAUNCH_RANGES_H

#include <stdbool.h>
#include <stdint.h>

enum { RANGES_MAX = 64 };

typedef struct memory_range {
    uint64_t begin, end;
} memory_range;

/* What one launch, or all since a barrier, read and write. All zeros: nothing. */
typedef struct launch_ranges {
    memory_range reads[RANGES_MAX], writes[RANGES_MAX];
    int n_reads, n_writes;
    bool is_full; /* more than is known: in conflict with everything */
} launch_ranges;

void ranges_read(launch_ranges *r, uint64_t begin, uint64_t n_bytes);
void ranges_write(launch_ranges *r, uint64_t begin, uint64_t n_bytes);
void ranges_clear(launch_ranges *r);

/* Whether what is next must wait for what was since the last barrier. */
bool ranges_conflict(const launch_ranges *since, const launch_ranges *next);

/*
 * Whether a launch writes what it also reads as something else: one workgroup may then overwrite what
 * another one has not read yet. The same range in both is a row that is changed in its place.
 */
bool ranges_collide(const launch_ranges *one);

/* Add all of `next` to `since`. */
void ranges_join(launch_ranges *since, const launch_ranges *next);

#endif
