/* Slots: recurrent state of sequences, and snapshots of it. */
#include "state/slots.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

uint64_t slots_bytes(const slots *p)
{
    return (uint64_t)(p->n_sequences + p->n_snapshots) * p->slot_bytes;
}

uint64_t slots_bytes_on(const slots *p, int32_t device)
{
    return (uint64_t)(p->n_sequences + p->n_snapshots) * p->parts[device].slot_bytes;
}

int32_t slots_device(const slots *p)
{
    int32_t d = 0;
    while (d + 1 < DEVICES_MAX && !p->parts[d].slot_bytes)
        d++;
    return p->parts[d].slot_bytes ? d : 0;
}

static uint8_t *slot_data(const slot_part *part, int32_t slot)
{
    return part->data + (uint64_t)slot * part->slot_bytes;
}

static int32_t slot_of(const slots *p, int32_t snapshot)
{
    return p->n_sequences + snapshot;
}

/* A slot becomes a copy of another one, on all devices. */
static lace_status copy_slot(slots *p, int32_t to, int32_t from, lace_error *err)
{
    for (int32_t d = 0; d < DEVICES_MAX; d++) {
        const slot_part *part = &p->parts[d];
        if (part->slot_bytes)
            TRY(queue_copy(part->queue, slot_data(part, to), slot_data(part, from),
                           part->slot_bytes, err));
    }
    return LACE_OK;
}

static lace_status zero_slot(slots *p, int32_t slot, lace_error *err)
{
    for (int32_t d = 0; d < DEVICES_MAX; d++) {
        const slot_part *part = &p->parts[d];
        if (part->slot_bytes)
            TRY(queue_zero(part->queue, slot_data(part, slot), part->slot_bytes, err));
    }
    return LACE_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

lace_status slots_allocate(slots *p, queue *q, lace_error *err)
{
    if (p->slot_bytes == 0)
        return LACE_OK;
    p->of = mem_calloc((size_t)p->n_sequences, sizeof *p->of);
    p->snapshots = mem_calloc((size_t)p->n_snapshots + 1, sizeof *p->snapshots);
    p->free_snapshots = mem_calloc((size_t)p->n_snapshots + 1, sizeof *p->free_snapshots);
    if (!p->of || !p->snapshots || !p->free_snapshots)
        return error_nomem(err, "recurrent state");
    for (int32_t d = 0; d < DEVICES_MAX; d++) {
        slot_part *part = &p->parts[d];
        if (!part->slot_bytes)
            continue;
        part->queue = queue_of_device(q, d);
        TRY(queue_take(part->queue, slots_bytes_on(p, d), &part->data, err));
    }
    for (int32_t i = 0; i < p->n_sequences; i++) {
        p->of[i].source = -1;
        memset(p->of[i].kept, 0xFF, sizeof p->of[i].kept); /* -1 */
    }
    /* The lowest one is on top of the stack. */
    for (int32_t i = 0; i < p->n_snapshots; i++)
        p->free_snapshots[i] = p->n_snapshots - 1 - i;
    p->n_free = p->n_snapshots;
    return LACE_OK;
}

void slots_free(slots *p)
{
    for (int32_t d = 0; d < DEVICES_MAX; d++)
        if (p->parts[d].data)
            queue_give_back(p->parts[d].queue, p->parts[d].data, slots_bytes_on(p, d));
    mem_free_all(p->of, p->snapshots, p->free_snapshots);
}

/* ---- Snapshots ------------------------------------------------------------------------------- */

int32_t snapshot_hold(slots *p, int32_t k)
{
    assert(p->snapshots[k].n_users > 0);
    p->snapshots[k].n_users++;
    return k;
}

void snapshot_drop(slots *p, int32_t *snapshot)
{
    int32_t k = *snapshot;
    *snapshot = -1;
    if (k < 0)
        return;
    assert(p->snapshots[k].n_users > 0);
    if (--p->snapshots[k].n_users == 0)
        p->free_snapshots[p->n_free++] = k;
}

/* Whether a slot is free, or could be made so. */
static bool has_free(slots *p)
{
    while (p->n_free == 0)
        if (!p->give_up || !p->give_up(p->keeper))
            return false;
    return true;
}

int32_t snapshot_load(slots *p, int32_t n_tokens, const void *data)
{
    if (!has_free(p))
        return -1;
    int32_t k = p->free_snapshots[p->n_free - 1];
    const uint8_t *from = data;
    for (int32_t d = 0; d < DEVICES_MAX; d++) {
        const slot_part *part = &p->parts[d];
        if (part->slot_bytes && queue_write(part->queue, slot_data(part, slot_of(p, k)), from,
                                            part->slot_bytes, NULL) != LACE_OK)
            return -1;
        from += part->slot_bytes;
    }
    p->n_free--;
    p->snapshots[k] = (snapshot_state){.n_tokens = n_tokens, .n_users = 1};
    return k;
}

lace_status snapshot_read(const slots *p, int32_t k, void *out, lace_error *err)
{
    uint8_t *to = out;
    for (int32_t d = 0; d < DEVICES_MAX; d++) {
        const slot_part *part = &p->parts[d];
        if (part->slot_bytes)
            TRY(queue_read(part->queue, to, slot_data(part, slot_of(p, k)), part->slot_bytes, err));
        to += part->slot_bytes;
    }
    return LACE_OK;
}

/* A snapshot of what the slot holds, with one user; -1: no slot is free. */
static int32_t take_snapshot(slots *p, int32_t sequence)
{
    if (!has_free(p))
        return -1;
    int32_t k = p->free_snapshots[p->n_free - 1];
    /* Fails with the card only, which then says so with the next run. */
    if (copy_slot(p, slot_of(p, k), sequence, NULL) != LACE_OK)
        return -1;
    p->n_free--;
    p->snapshots[k] = (snapshot_state){.n_tokens = p->of[sequence].n_tokens, .n_users = 1};
    return k;
}

int32_t slot_kept_at(const slots *p, int32_t sequence, int32_t n_tokens)
{
    for (int i = 0; p->slot_bytes && i < SLOT_KEPT; i++) {
        int32_t k = p->of[sequence].kept[i];
        if (k >= 0 && p->snapshots[k].n_tokens == n_tokens)
            return k;
    }
    return -1;
}

int32_t slot_snapshot(slots *p, int32_t sequence)
{
    if (p->slot_bytes == 0)
        return -1;
    slot_state *s = &p->of[sequence];
    if (s->source >= 0)
        return snapshot_hold(p, s->source);
    if (s->n_tokens == 0)
        return -1;
    int32_t k = slot_kept_at(p, sequence, s->n_tokens);
    if (k >= 0)
        return snapshot_hold(p, k);
    snapshot_drop(p, &s->kept[KEPT_ASKED]);
    k = take_snapshot(p, sequence);
    if (k >= 0)
        s->kept[KEPT_ASKED] = snapshot_hold(p, k);
    return k;
}

void slot_keep_page(slots *p, int32_t sequence)
{
    if (p->slot_bytes == 0)
        return;
    slot_state *s = &p->of[sequence];
    snapshot_drop(p, &s->kept[KEPT_EARLIER_PAGE]);
    s->kept[KEPT_EARLIER_PAGE] = s->kept[KEPT_PAGE];
    s->kept[KEPT_PAGE] = take_snapshot(p, sequence);
    if (s->kept[KEPT_PAGE] >= 0)
        return;
    snapshot_drop(p, &s->kept[KEPT_EARLIER_PAGE]);
    s->kept[KEPT_PAGE] = take_snapshot(p, sequence);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

/* How many tokens the state that the next token meets has seen. */
static int32_t n_seen(const slots *p, const slot_state *s)
{
    return s->source >= 0 ? p->snapshots[s->source].n_tokens : s->n_tokens;
}

lace_status slot_reserve(slots *p, int32_t sequence, int32_t n_tokens, lace_error *err)
{
    if (p->slot_bytes == 0)
        return LACE_OK;
    slot_state *s = &p->of[sequence];
    if (s->source >= 0)
        TRY(copy_slot(p, sequence, slot_of(p, s->source), err));
    else if (s->n_tokens == 0)
        TRY(zero_slot(p, sequence, err));
    snapshot_drop(p, &s->source);
    s->n_tokens = n_tokens;
    return LACE_OK;
}

int32_t slot_reach(const slots *p, int32_t sequence, int32_t n_tokens)
{
    if (p->slot_bytes == 0)
        return n_tokens;
    const slot_state *s = &p->of[sequence];
    int32_t best = n_seen(p, s) <= n_tokens ? n_seen(p, s) : 0;
    for (int i = 0; i < SLOT_KEPT; i++) {
        int32_t n = s->kept[i] >= 0 ? p->snapshots[s->kept[i]].n_tokens : 0;
        if (n <= n_tokens && n > best)
            best = n;
    }
    return best;
}

void slot_set_length(slots *p, int32_t sequence, int32_t n_tokens)
{
    if (p->slot_bytes == 0)
        return;
    slot_state *s = &p->of[sequence];
    if (n_tokens != n_seen(p, s)) {
        int32_t k = slot_kept_at(p, sequence, n_tokens);
        assert(n_tokens == 0 || k >= 0); /* slot_reach says where to go */
        snapshot_drop(p, &s->source);
        if (n_tokens > 0)
            s->source = snapshot_hold(p, k);
        s->n_tokens = 0;
    }
    for (int i = 0; i < SLOT_KEPT; i++)
        if (s->kept[i] >= 0 && p->snapshots[s->kept[i]].n_tokens > n_tokens)
            snapshot_drop(p, &s->kept[i]);
    if (s->kept[KEPT_PAGE] < 0) {
        s->kept[KEPT_PAGE] = s->kept[KEPT_EARLIER_PAGE];
        s->kept[KEPT_EARLIER_PAGE] = -1;
    }
}

lace_status slot_fork(slots *p, int32_t from, int32_t to, lace_error *err)
{
    if (p->slot_bytes == 0)
        return LACE_OK;
    const slot_state *a = &p->of[from];
    slot_state *b = &p->of[to];
    assert(b->source < 0 && b->n_tokens == 0);
    if (a->source >= 0)
        b->source = snapshot_hold(p, a->source);
    else if (a->n_tokens > 0)
        TRY(copy_slot(p, to, from, err));
    b->n_tokens = a->n_tokens;
    for (int i = 0; i < SLOT_KEPT; i++)
        b->kept[i] = a->kept[i] >= 0 ? snapshot_hold(p, a->kept[i]) : -1;
    return LACE_OK;
}

void slot_restore(slots *p, int32_t sequence, int32_t k)
{
    slot_state *s = &p->of[sequence];
    snapshot_hold(p, k);
    snapshot_drop(p, &s->source);
    s->source = k;
    if (slot_kept_at(p, sequence, p->snapshots[k].n_tokens) < 0) {
        snapshot_drop(p, &s->kept[KEPT_ASKED]);
        s->kept[KEPT_ASKED] = snapshot_hold(p, k);
    }
}
