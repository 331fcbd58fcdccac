/*
 * cp.async: a thread's copies from memory to shared memory, in groups.
 *
 * A copy is done when its thread waits for its group. Until then its place is filled with 0xFF, so
 * that who reads without waiting finds no numbers.
 */
#include "ptx_async.h"

#include <stdlib.h>
#include <string.h>

#include "ptx_address.h"
#include "ptx_decode.h"
#include "ptx_races.h"

typedef struct async_copy {
    uint32_t lanes; /* whose copies are not done yet */
    uint32_t group[N_LANES];
    uint8_t *to[N_LANES];
    const uint8_t *from[N_LANES];
    uint32_t n_bytes[N_LANES]; /* from memory; what is left of the place becomes 0 */
    uint32_t place_bytes;
} async_copy;

struct async_copies {
    async_copy *copies;
    size_t n, room;
    uint32_t n_groups[N_LANES]; /* that a lane has committed */
};

static async_copies *copies_of(warp *w)
{
    if (!w->async)
        w->async = calloc(1, sizeof *w->async);
    return w->async;
}

/* op: place, source, bytes of the source; i->n_bytes of the place. */
static void copy_later(warp *w, const instr *i, uint32_t mask)
{
    async_copies *a = copies_of(w);
    uint8_t *to[N_LANES], *from[N_LANES];
    uint32_t n_bytes[N_LANES];
    if (a && a->n == a->room) {
        size_t room = a->room ? 2 * a->room : 64;
        async_copy *more = realloc(a->copies, room * sizeof *more);
        if (more) {
            a->copies = more;
            a->room = room;
        }
    }
    if (!a || a->n == a->room) {
        warp_fault(w, i, 0, "the machine has no memory left");
        return;
    }
    const int first = __builtin_ctz(mask);
    for (int l = 0; l < N_LANES; l++) {
        n_bytes[l] = i->is_wide ? row_of(w, i->op[2])[l] : i->n_bytes;
        if (n_bytes[l] > i->n_bytes)
            n_bytes[l] = i->n_bytes;
    }
    instr place = *i;
    place.wide_address = i->is_signed;
    if (!lane_pointers(w, &place, 0, (int32_t)i->target, SPACE_SHARED, i->n_bytes, i->n_bytes, mask,
                       to))
        return;
    /* Where nothing is read, the address may be any. */
    uint32_t reads = 0;
    for (int l = 0; l < N_LANES; l++)
        reads |= (uint32_t)(n_bytes[l] > 0) << l;
    reads &= mask;
    for (int l = 0; l < N_LANES; l++)
        from[l] = NULL;
    if (reads && !lane_pointers(w, i, 1, i->offset, SPACE_GLOBAL,
                                n_bytes[first] ? n_bytes[first] : 1, i->n_bytes, reads, from))
        return;
    if (w->block->uses)
        races_note(w, i, mask, to, i->n_bytes, true);
    async_copy *c = &a->copies[a->n++];
    c->lanes = mask;
    c->place_bytes = i->n_bytes;
    for (int l = 0; l < N_LANES; l++) {
        c->group[l] = a->n_groups[l];
        c->to[l] = to[l];
        c->from[l] = from[l];
        c->n_bytes[l] = n_bytes[l];
        if (mask >> l & 1)
            memset(to[l], 0xFF, i->n_bytes);
    }
}

static void commit(warp *w, const instr *i, uint32_t mask)
{
    async_copies *a = copies_of(w);
    if (!a) {
        warp_fault(w, i, 0, "the machine has no memory left");
        return;
    }
    FOR_LANES(mask, a->n_groups[l]++;);
}

/* All groups but the last `but` are done; `everything`: what was not committed, too. */
static void finish_copies(warp *w, uint32_t mask, uint32_t but, bool everything)
{
    async_copies *a = w->async;
    if (!a)
        return;
    size_t kept = 0;
    for (size_t n = 0; n < a->n; n++) {
        async_copy *c = &a->copies[n];
        for (int l = 0; l < N_LANES; l++) {
            bool is_due = everything || c->group[l] + but < a->n_groups[l];
            if (!(mask & c->lanes & 1u << l) || !is_due)
                continue;
            if (c->n_bytes[l])
                memcpy(c->to[l], c->from[l], c->n_bytes[l]);
            memset(c->to[l] + c->n_bytes[l], 0, c->place_bytes - c->n_bytes[l]);
            c->lanes &= ~(1u << l);
        }
        if (c->lanes && kept != n)
            a->copies[kept] = *c;
        kept += c->lanes != 0;
    }
    a->n = kept;
}

/* The bytes come when they are waited for, or before. */
static void note_copies(warp *w, const instr *i, uint32_t mask, uint32_t but, bool everything)
{
    const async_copies *a = w->async;
    for (size_t n = 0; a && n < a->n; n++) {
        const async_copy *c = &a->copies[n];
        uint32_t due = 0;
        for (int l = 0; l < N_LANES; l++)
            due |= (uint32_t)(everything || c->group[l] + but < a->n_groups[l]) << l;
        races_note(w, i, due & mask & c->lanes, c->to, c->place_bytes, true);
    }
}

static void wait_group(warp *w, const instr *i, uint32_t mask)
{
    if (w->block->uses)
        note_copies(w, i, mask, (uint32_t)i->offset, false);
    finish_copies(w, mask, (uint32_t)i->offset, false);
}

static void wait_all(warp *w, const instr *i, uint32_t mask)
{
    if (w->block->uses)
        note_copies(w, i, mask, 0, true);
    finish_copies(w, mask, 0, true);
}

const char *async_end(warp *w)
{
    if (w->async) {
        w->async->n = 0;
        memset(w->async->n_groups, 0, sizeof w->async->n_groups);
    }
    return NULL;
}

void async_free(warp *w)
{
    if (!w->async)
        return;
    free(w->async->copies);
    free(w->async);
    w->async = NULL;
}

void async_team_free(team *t)
{
    (void)t;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

/* cp.async.cg.shared.global [to], [from], bytes (, bytes of the source or policy) */
static decoded decode_copy(decoder *d, const statement *s)
{
    if (s->n < 3 || s->operands[2].kind != OPERAND_CONSTANT)
        return NOT_MINE;
    instr *i = decode_add(d, s, KIND_PLAIN, copy_later);
    if (!i || !decode_address(d, i, 0, &s->operands[0]))
        return DECODE_FAILED;
    i->target = (uint32_t)i->offset;
    i->is_signed = i->wide_address;
    i->n_bytes = (uint8_t)s->operands[2].value;
    const bool has_policy = op_has(s->op, "L2::cache_hint");
    if (s->n > 3u + has_policy) {
        i->is_wide = true;
        if (!decode_operand(d, i, 2, &s->operands[3], CLASS_ROW, false))
            return DECODE_FAILED;
    }
    return decode_address(d, i, 1, &s->operands[1]) ? DECODED : DECODE_FAILED;
}

decoded decode_async(decoder *d, const statement *s)
{
    if (op_begins(s->op, "cp.async.commit_group"))
        return decode_add(d, s, KIND_PLAIN, commit) ? DECODED : DECODE_FAILED;
    if (op_begins(s->op, "cp.async.wait_all"))
        return decode_add(d, s, KIND_PLAIN, wait_all) ? DECODED : DECODE_FAILED;
    if (op_begins(s->op, "cp.async.wait_group") && s->n == 1) {
        instr *i = decode_add(d, s, KIND_PLAIN, wait_group);
        if (i)
            i->offset = (int64_t)s->operands[0].value;
        return i ? DECODED : DECODE_FAILED;
    }
    if (op_begins(s->op, "cp.async.cg") || op_begins(s->op, "cp.async.ca"))
        return decode_copy(d, s);
    return NOT_MINE;
}
