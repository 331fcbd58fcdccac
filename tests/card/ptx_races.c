#include "ptx_races.h"

#include <stdlib.h>

#include "card_options.h"

enum { GRAIN = 2, SEVERAL = 0xFFFE };

/* Of two bytes: who used them last, and in which phase. */
struct shared_use {
    uint32_t write_phase, read_phase, line; /* of the PTX, where they were used last */
    uint16_t writer, reader;                /* warps */
};

bool races_make(block *b)
{
    const uint32_t n = b->team->launch->all_shared / GRAIN + 1;
    b->phase = 0;
    if (card_options_get()->races)
        b->uses = calloc(n, sizeof *b->uses);
    return b->uses != NULL;
}

void races_free(block *b)
{
    free(b->uses);
    b->uses = NULL;
}

static void note_lane(warp *w, const instr *i, int lane, uint64_t at, uint32_t n_bytes, bool writes)
{
    const block *b = w->block;
    const uint16_t me = (uint16_t)w->index;
    for (uint64_t k = at / GRAIN; k <= (at + n_bytes - 1) / GRAIN; k++) {
        struct shared_use *u = &b->uses[k];
        const bool was_written = u->write_phase == b->phase && u->writer != me;
        const bool was_read = writes && u->read_phase == b->phase && u->reader != me;
        if (was_written || was_read) {
            warp_fault(
                w, i, lane,
                "byte %llu of shared memory was %s by warp %d in line %u, and no barrier lies "
                "between",
                (unsigned long long)(k * GRAIN), was_written ? "written" : "read",
                was_written            ? u->writer
                : u->reader == SEVERAL ? -1
                                       : u->reader,
                u->line);
            return;
        }
        u->line = i->line;
        if (writes) {
            u->write_phase = b->phase;
            u->writer = me;
        } else if (u->read_phase != b->phase) {
            u->read_phase = b->phase;
            u->reader = me;
        } else if (u->reader != me) {
            u->reader = SEVERAL;
        }
    }
}

void races_note(warp *w, const instr *i, uint32_t mask, uint8_t *const at[N_LANES],
                uint32_t n_bytes, bool writes)
{
    const block *b = w->block;
    const uint64_t size = b->team->launch->all_shared;
    for (int l = 0; l < N_LANES && !b->team->failed; l++) {
        const uint64_t place = (uint64_t)(uintptr_t)at[l] - (uint64_t)(uintptr_t)b->shared;
        if (mask >> l & 1 && place < size)
            note_lane(w, i, l, place, n_bytes, writes);
    }
}
