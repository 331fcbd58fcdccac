/* Rank 0's side of a runner that several ranks have. */
#include "runner/leader.h"

#include <assert.h>
#include <string.h>

#include "backend/mixed.h"
#include "base/mem.h"
#include "rank/record.h"

/* One of each device of the runner, around that device's own; the first stands for all, too. */
typedef struct told_queue {
    queue base;
    leader *l;
    queue *inner;
} told_queue;

struct leader {
    told_queue queues[DEVICES_MAX];
    queue *inner; /* of all devices */
    runner *r;
    ranks *ranks;
    int32_t n_devices;
    int32_t number; /* of the runner, as records have it */
    int32_t *known; /* [sequence, group, index] of page tables, as the others know them */
    record_writer record;
};

/* ---- Telling --------------------------------------------------------------------------------- */

/* The record goes out. Under the lock of the group. */
static lace_status send(leader *l, lace_error *err)
{
    if (l->record.has_failed)
        return error_nomem(err, "what ranks are told");
    ranks_tell(l->ranks, l->record.words, l->record.n);
    return ranks_status(l->ranks, err);
}

static lace_status tell(leader *l, lace_error *err)
{
    pthread_mutex_lock(&l->ranks->lock);
    lace_status status = send(l, err);
    pthread_mutex_unlock(&l->ranks->lock);
    return status;
}

/* Entries of page tables that have changed since they were told; returns how many. */
static int32_t add_edits(leader *l)
{
    const states *kv = l->r->states;
    int32_t n = 0, *known = l->known;
    for (int32_t s = 0; s < kv->options.n_sequences; s++)
        for (int32_t g = 0; g < kv->n_groups; g++, known += kv->pages_per_sequence) {
            const int32_t *table = kv->sequences[s].tables[g];
            if (memcmp(known, table, (size_t)kv->pages_per_sequence * sizeof *table) == 0)
                continue;
            for (int32_t i = 0; i < kv->pages_per_sequence; i++) {
                if (known[i] == table[i])
                    continue;
                record_add(&l->record, (int32_t[]){s, g, i, table[i]}, 4);
                known[i] = table[i];
                n++;
            }
        }
    return n;
}

static void write_run(leader *l)
{
    const batch *b = &l->r->b;
    record_writer *w = &l->record;
    record_begin(w, RECORD_RUN, l->number);
    int64_t counts = w->n;
    record_add(w, (int32_t[]){b->n_tokens, b->n_outputs, 0, b->seen != NULL}, 4);
    record_add(w, b->tokens, b->n_tokens);
    record_add(w, b->sequences, b->n_tokens);
    record_add(w, b->positions, b->n_tokens);
    if (b->seen) {
        record_add(w, b->seen, b->n_tokens);
        record_add(w, b->segments, b->n_tokens);
    }
    record_add(w, b->outputs, b->n_outputs);
    int32_t n_edits = add_edits(l);
    if (!w->has_failed)
        w->words[counts + 2] = n_edits;
}

lace_status leader_run(leader *l, bool is_traced, lace_error *err)
{
    if (l->r->b.n_tokens == 0)
        return LACE_OK;
    write_run(l);
    pthread_mutex_lock(&l->ranks->lock);
    lace_status status = send(l, err);
    if (status == LACE_OK)
        status = program_run(l->r->program, &l->r->b, NULL, is_traced, err);
    if (status == LACE_OK)
        status = ranks_status(l->ranks, err);
    else
        ranks_fail(l->ranks, status,
                   err ? err->text : lace_status_text(status)); /* all have begun */
    pthread_mutex_unlock(&l->ranks->lock);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static queue *inner_of(queue *q)
{
    return ((told_queue *)q)->inner;
}

static lace_status take(queue *q, uint64_t n_bytes, uint8_t **out, lace_error *err)
{
    return queue_take(inner_of(q), n_bytes, out, err);
}

static void give_back(queue *q, uint8_t *data, uint64_t n_bytes)
{
    queue_give_back(inner_of(q), data, n_bytes);
}

/* The number of the page or slot at an address of a memory that holds n of them; -1: it is not there. */
static int32_t number_of(const uint8_t *at, const uint8_t *data, uint64_t size, int64_t n)
{
    return data && at >= data && at < data + (uint64_t)n * size
               ? (int32_t)((uint64_t)(at - data) / size)
               : -1;
}

/* Tell what becomes a copy of what; from NULL: of zeros. */
static lace_status tell_copy(leader *l, const uint8_t *to, const uint8_t *from, lace_error *err)
{
    const states *kv = l->r->states;
    const slots *p = &kv->slots;
    const slot_part *part = &p->parts[slots_device(p)];
    int64_t n_slots = (int64_t)p->n_sequences + p->n_snapshots;
    record_copy c = {.what = RECORD_SLOTS,
                     .from = from ? number_of(from, part->data, part->slot_bytes, n_slots)
                                  : RECORD_NOTHING,
                     .to = number_of(to, part->data, part->slot_bytes, n_slots)};
    for (int32_t g = 0; c.to < 0 && g < kv->n_groups; g++) {
        const page_group *group = &kv->groups[g];
        c.what = g;
        c.to = number_of(to, group->data, group->page_bytes, group->n_pages);
        c.from = number_of(from, group->data, group->page_bytes, group->n_pages);
    }
    assert(c.to >= 0);
    record_begin(&l->record, RECORD_COPY, l->number);
    record_add(&l->record, (int32_t[]){c.what, c.from, c.to}, 3);
    return tell(l, err);
}

static lace_status copy(queue *q, uint8_t *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    TRY(tell_copy(((told_queue *)q)->l, to, from, err));
    return queue_copy(inner_of(q), to, from, n, err);
}

static lace_status zero(queue *q, uint8_t *data, uint64_t n, lace_error *err)
{
    TRY(tell_copy(((told_queue *)q)->l, data, NULL, err));
    return queue_zero(inner_of(q), data, n, err);
}

static lace_status wait(queue *q, lace_error *err)
{
    return queue_wait(((told_queue *)q)->l->inner, err);
}

static lace_status read_state(queue *q, void *to, const uint8_t *from, uint64_t n, lace_error *err)
{
    return queue_read(inner_of(q), to, from, n, err);
}

/* What one rank has of a state says nothing of what the others have. */
static lace_status write_state(queue *q, uint8_t *to, const void *from, uint64_t n, lace_error *err)
{
    return error_set(err, LACE_E_UNSUPPORTED, "states of several ranks cannot be written");
}

static void close_queue(queue *q)
{
    leader *l = ((told_queue *)q)->l;
    if (l->inner)
        queue_close(l->inner);
    l->inner = NULL;
}

static queue *of_device(queue *q, int32_t d)
{
    return &((told_queue *)q)->l->queues[d].base;
}

static const queue_calls calls = {.take = take,
                                  .give_back = give_back,
                                  .copy = copy,
                                  .zero = zero,
                                  .wait = wait,
                                  .read = read_state,
                                  .write = write_state,
                                  .close = close_queue,
                                  .of_device = of_device};

queue *leader_queue(leader *l, queue *inner)
{
    l->inner = inner;
    for (int32_t d = 0; d < l->n_devices; d++)
        l->queues[d] = (told_queue){{&calls}, l, queue_of_device(inner, d)};
    return &l->queues[0].base;
}

queue *leader_inner_queue(const leader *l)
{
    return l->inner;
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* A number that no other runner of the group has; -1: all are taken. */
static int32_t take_number(ranks *r)
{
    for (int32_t i = 0; i < RECORD_RUNNERS; i++)
        if (!(r->runners >> i & 1)) {
            r->runners |= (uint64_t)1 << i;
            return i;
        }
    return -1;
}

static void write_open(leader *l)
{
    const runner_options *o = &l->r->options;
    const states *kv = l->r->states;
    record_open open = {.n_sequences = o->n_sequences,
                        .n_context = o->n_context,
                        .n_batch = o->n_batch,
                        .n_outputs = o->n_outputs,
                        .n_threads = o->n_threads,
                        .kv_type = (int32_t)o->kv_type,
                        .v_type = (int32_t)o->v_type,
                        .stops_at_hidden = o->stops_at_hidden,
                        .wants_scores = o->wants_scores,
                        .n_groups = kv->n_groups};
    for (int32_t g = 0; g < kv->n_groups; g++)
        open.n_pages[g] = kv->groups[g].n_pages;
    record_begin(&l->record, RECORD_OPEN, l->number);
    record_add(&l->record, (const int32_t *)&open, sizeof open / sizeof(int32_t));
}

lace_status leader_open(runner *r, leader **out, lace_error *err)
{
    const states *kv = r->states;
    size_t n = (size_t)kv->options.n_sequences * (size_t)kv->n_groups *
               (size_t)kv->pages_per_sequence * sizeof(int32_t);
    *out = NULL;
    if (kv->n_groups > RECORD_GROUPS)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "the model has more than %d different attention windows, which several "
                         "ranks cannot compute",
                         RECORD_GROUPS);
    leader *l = mem_calloc(1, sizeof *l);
    if (!l || !(l->known = mem_alloc(n + 1))) {
        mem_free(l);
        return error_nomem(err, "a group of ranks");
    }
    memset(l->known, 0xFF, n); /* -1 */
    l->r = r;
    l->n_devices = device_n_parts(r->m->device);
    l->ranks = r->m->ranks;
    l->number = take_number(l->ranks);
    lace_status status = LACE_OK;
    if (l->number < 0) {
        status = error_set(err, LACE_E_LIMIT, "more than %d sessions at a time on several ranks",
                           RECORD_RUNNERS);
    } else {
        write_open(l);
        status = send(l, err);
    }
    if (status != LACE_OK) {
        mem_free_all(l->known, l);
        record_deinit(&l->record);
        return status;
    }
    *out = l;
    return LACE_OK;
}

void leader_close(leader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->ranks->lock);
    record_begin(&l->record, RECORD_CLOSE, l->number);
    send(l, NULL);
    l->ranks->runners &= ~((uint64_t)1 << l->number);
    pthread_mutex_unlock(&l->ranks->lock);
    record_deinit(&l->record);
    mem_free_all(l->known, l);
}
