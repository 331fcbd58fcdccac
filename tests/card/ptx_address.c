#include "ptx_address.h"

#include <inttypes.h>

#include "card_memory.h"

void lane_addresses(const warp *w, const instr *i, uint32_t where, int64_t offset,
                    uint64_t out[N_LANES])
{
    if (i->wide_address) {
        const uint64_t *a = rows_of(w, i->op[where]);
        EACH_LANE out[l] = a[l] + (uint64_t)offset;
    } else {
        const uint32_t *a = row_of(w, i->op[where]);
        EACH_LANE out[l] = (uint32_t)(a[l] + (uint32_t)offset);
    }
}

/* Whether [from, to) lies in memory that this card may touch. */
static bool is_known(team *t, uint64_t from, uint64_t to)
{
    uint64_t epoch = memory_epoch();
    if (t->spans_epoch != epoch) {
        for (int n = 0; n < N_SPANS; n++)
            t->spans[n].from = t->spans[n].to = 0;
        t->spans_epoch = epoch;
    }
    for (int n = 0; n < N_SPANS; n++)
        if (from >= t->spans[n].from && to <= t->spans[n].to)
            return true;
    uint64_t begin, end;
    if (!memory_span(t->launch->card, from, &begin, &end))
        return false;
    t->spans[t->next_span].from = begin;
    t->spans[t->next_span].to = end;
    t->next_span = (t->next_span + 1) % N_SPANS;
    return to <= end;
}

static uint8_t *global_pointer(warp *w, const instr *i, int lane, uint64_t a, uint32_t n_bytes)
{
    if (is_known(w->block->team, a, a + n_bytes))
        return (uint8_t *)(uintptr_t)a;
    warp_fault(w, i, lane, "%u bytes at 0x%" PRIx64 " are in no allocation", n_bytes, a);
    return NULL;
}

/* Addresses of shared memory name a block of the cluster in the bits above 24, plus 1; 0: this one. */
static uint8_t *shared_pointer(warp *w, const instr *i, int lane, uint64_t a, uint32_t n_bytes)
{
    block *b = w->block;
    uint32_t rank = (uint32_t)(a >> 24 & 0xFF);
    if (rank > b->team->n_blocks || (rank == 0 && a >> 24)) {
        warp_fault(w, i, lane, "0x%" PRIx64 " is no address of shared memory", a);
        return NULL;
    }
    uint64_t at = a & 0xFFFFFF;
    if (at + n_bytes > b->team->launch->all_shared) {
        warp_fault(w, i, lane, "%u bytes at %" PRIu64 " of %u bytes of shared memory", n_bytes, at,
                   b->team->launch->all_shared);
        return NULL;
    }
    return (rank ? b->team->blocks[rank - 1].shared : b->shared) + at;
}

static uint8_t *local_pointer(warp *w, const instr *i, int lane, uint64_t a, uint32_t n_bytes)
{
    if (a + n_bytes > w->kernel->local_bytes) {
        warp_fault(w, i, lane, "%u bytes at %" PRIu64 " of %u bytes of local memory", n_bytes, a,
                   w->kernel->local_bytes);
        return NULL;
    }
    return w->local + (size_t)lane * w->kernel->local_bytes + a;
}

static uint8_t *param_pointer(warp *w, const instr *i, int lane, uint64_t a, uint32_t n_bytes)
{
    if (a + n_bytes > w->kernel->param_bytes) {
        warp_fault(w, i, lane, "%u bytes at %" PRIu64 " of %u bytes of parameters", n_bytes, a,
                   w->kernel->param_bytes);
        return NULL;
    }
    return w->block->team->launch->params + a;
}

uint8_t *one_pointer(warp *w, const instr *i, int lane, uint64_t address, space_kind space,
                     uint32_t n_bytes)
{
    const uint64_t inside = address & 0x00FFFFFFFFFFFFFF;
    switch (WINDOW(address)) {
    case WINDOW_SHARED:
        return shared_pointer(w, i, lane, inside, n_bytes);
    case WINDOW_LOCAL:
        return local_pointer(w, i, lane, inside, n_bytes);
    case WINDOW_PARAM:
        return param_pointer(w, i, lane, inside, n_bytes);
    default:
        break;
    }
    switch (space) {
    case SPACE_SHARED:
        return shared_pointer(w, i, lane, address, n_bytes);
    case SPACE_LOCAL:
        return local_pointer(w, i, lane, address, n_bytes);
    case SPACE_PARAM:
        return param_pointer(w, i, lane, address, n_bytes);
    default:
        return global_pointer(w, i, lane, address, n_bytes);
    }
}

bool lane_pointers(warp *w, const instr *i, uint32_t where, int64_t offset, space_kind space,
                   uint32_t n_bytes, uint32_t align, uint32_t mask, uint8_t *out[N_LANES])
{
    uint64_t at[N_LANES];
    const int first = __builtin_ctz(mask);
    lane_addresses(w, i, where, offset, at);
    if (mask != FULL_MASK) {
        const uint64_t a = at[first];
        EACH_LANE at[l] = mask >> l & 1 ? at[l] : a;
    }
    uint64_t least = at[0], most = at[0], bits = 0;
    for (int l = 0; l < N_LANES; l++) {
        least = at[l] < least ? at[l] : least;
        most = at[l] > most ? at[l] : most;
        bits |= at[l];
    }
    if (bits & (align - 1)) {
        for (int l = 0; l < N_LANES; l++)
            if (mask >> l & 1 && at[l] & (align - 1)) {
                warp_fault(w, i, l, "address 0x%" PRIx64 " is no multiple of %u", at[l], align);
                return false;
            }
    }
    /* All lanes in one place, as nearly always. */
    if (space == SPACE_SHARED && most + n_bytes <= w->block->team->launch->all_shared) {
        uint8_t *base = w->block->shared;
        EACH_LANE out[l] = base + at[l];
        return true;
    }
    if ((space == SPACE_GLOBAL || space == SPACE_GENERIC) && WINDOW(most) == 0 &&
        is_known(w->block->team, least, most + n_bytes)) {
        EACH_LANE out[l] = (uint8_t *)(uintptr_t)at[l];
        return true;
    }
    if (least == most && (space == SPACE_PARAM || space == SPACE_LOCAL)) {
        uint8_t *p = one_pointer(w, i, first, least, space, n_bytes);
        if (!p)
            return false;
        /* Local memory differs by lane. */
        bool is_local = WINDOW(least) ? WINDOW(least) == WINDOW_LOCAL : space == SPACE_LOCAL;
        ptrdiff_t step = is_local ? (ptrdiff_t)w->kernel->local_bytes : 0;
        for (int l = 0; l < N_LANES; l++)
            out[l] = p + (l - first) * step;
        return true;
    }
    for (int l = 0; l < N_LANES; l++) {
        /* A lane without a place of its own has that of the first; local memory differs by lane. */
        int lane = mask >> l & 1 ? l : first;
        out[l] = one_pointer(w, i, lane, at[l], space, n_bytes);
        if (!out[l])
            return false;
    }
    return true;
}
