/* States: how they lie in memory, the sequences that hold pages, and who shares what. */
#include "state/states.h"

#include "tensor/cache_row.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"

static int32_t pages_for(int64_t n_tokens)
{
    return (int32_t)((n_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS);
}

/* The group of layers with this window on a device; made if it is new. -1 if there are too many. */
static int32_t group_of(states *kv, int32_t window, int32_t device)
{
    for (int32_t g = 0; g < kv->n_groups; g++)
        if (kv->groups[g].window == window && kv->groups[g].device == device)
            return g;
    if (kv->n_groups == STATES_MAX_GROUPS)
        return -1;
    kv->groups[kv->n_groups].window = window;
    kv->groups[kv->n_groups].device = device;
    return kv->n_groups++;
}

/* Fewer pages than all sequences could fill, but enough for one of them; groups in proportion. */
static lace_status limit_pages(states *kv, uint64_t one_sequence, lace_error *err)
{
    uint64_t max = kv->options.max_bytes, fixed = slots_bytes(&kv->slots);
    if (max == 0 || states_bytes(kv) <= max)
        return LACE_OK;
    if (max < one_sequence + fixed)
        return error_set(
            err, LACE_E_MEMORY,
            "a context of %d tokens needs %.1f MiB of KV cache, but only %.1f MiB are allowed",
            kv->options.n_context, (double)(one_sequence + fixed) / (1 << 20),
            (double)max / (1 << 20));
    double allowed = (double)(max - fixed) / (double)(states_bytes(kv) - fixed);
    for (int32_t g = 0; g < kv->n_groups; g++) {
        page_group *group = &kv->groups[g];
        int32_t least = group->n_pages / kv->options.n_sequences;
        int32_t share = (int32_t)((double)group->n_pages * allowed);
        group->n_pages = share > least ? share : least;
    }
    return LACE_OK;
}

/* A layer that uses the pages of an earlier one sees nothing that those do not hold. */
static lace_status share_layer(states *kv, const layer_state *shapes, int32_t i, lace_error *err)
{
    int32_t of = shapes[i].shares;
    if (of >= i || !(kv->layers[of].kind & STATE_PAGED))
        return error_set(err, LACE_E_UNSUPPORTED, "layer %d cannot share the pages of layer %d", i,
                         of);
    int32_t held = kv->groups[kv->layers[of].kv.group].window;
    if (held && (shapes[i].window == 0 || shapes[i].window > held))
        return error_set(err, LACE_E_UNSUPPORTED,
                         "layer %d cannot share the pages of layer %d, which has a shorter window",
                         i, of);
    kv->layers[i].kv = kv->layers[of].kv;
    return LACE_OK;
}

static lace_status lay_out_pages(states *kv, const layer_state *shapes, int32_t i, lace_error *err)
{
    const states_options *o = &kv->options;
    const layer_state *l = &shapes[i];
    if (l->shares >= 0)
        return share_layer(kv, shapes, i, err);
    const dtype types[] = {o->type, l->v_in_k ? o->type : o->v_type};
    const int32_t dims[] = {l->k_dim, l->v_dim};
    for (int k = 0; k < 2; k++) {
        const dtype_info *type = dtype_describe(types[k]);
        if (dims[k] % type->block_values != 0)
            return error_set(
                err, LACE_E_UNSUPPORTED,
                "heads have %d values, but a KV cache of type %s has blocks of %d values", dims[k],
                type->name, type->block_values);
    }
    /* A window that is never left is none. */
    int32_t g = group_of(kv, l->window >= o->n_context ? 0 : l->window, l->device);
    if (g < 0)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "the model has more than %d groups of layers, by attention window and "
                         "device",
                         STATES_MAX_GROUPS);
    page_group *group = &kv->groups[g];
    uint64_t k_row = row_bytes(types[0], l->k_dim), v_row = row_bytes(types[1], l->v_dim);
    uint64_t n_rows = (uint64_t)l->n_heads * PAGE_TOKENS, k_bytes = n_rows * k_row;
    kv->layers[i].kv = (kv_layer){.k_offset = group->page_bytes,
                                  .v_offset = group->page_bytes + (l->v_in_k ? 0 : k_bytes),
                                  .row_bytes = k_row,
                                  .v_row_bytes = l->v_in_k ? k_row : v_row,
                                  .type = types[0],
                                  .v_type = types[1],
                                  .k_span = cache_span(types[0], l->k_dim),
                                  .v_span = cache_span(types[1], l->v_in_k ? l->k_dim : l->v_dim),
                                  .page_tokens = PAGE_TOKENS,
                                  .n_heads = l->n_heads,
                                  .n_total = l->n_total,
                                  .head_dim = l->k_dim,
                                  .v_dim = l->v_dim,
                                  .v_in_k = l->v_in_k,
                                  .group = g,
                                  .device = l->device};
    group->page_bytes += k_bytes + (l->v_in_k ? 0 : n_rows * v_row);
    return LACE_OK;
}

/* All recurrent layers of a slot that are on one device lie behind each other. */
static lace_status lay_out_slots(states *kv, const layer_state *shapes, lace_error *err)
{
    const states_options *o = &kv->options;
    slots *p = &kv->slots;
    uint64_t bytes;
    for (int32_t i = 0; i < kv->n_layers; i++) {
        if (!(shapes[i].kind & STATE_RECURRENT))
            continue;
        if (shapes[i].n_bytes > (uint64_t)1 << 40)
            return error_set(err, LACE_E_OVERFLOW, "recurrent state of layer %d is too large", i);
        slot_part *part = &p->parts[shapes[i].device];
        kv->layers[i].recurrent = (recurrent_layer){
            .offset = part->slot_bytes, .n_bytes = shapes[i].n_bytes, .device = shapes[i].device};
        part->slot_bytes += (shapes[i].n_bytes + 63) & ~(uint64_t)63;
    }
    for (int32_t d = 0; d < DEVICES_MAX; d++)
        p->slot_bytes += p->parts[d].slot_bytes;
    p->n_sequences = o->n_sequences;
    p->n_snapshots = p->slot_bytes ? o->n_snapshots : 0;
    int64_t n_slots = (int64_t)p->n_sequences + p->n_snapshots;
    if (n_slots > INT32_MAX || __builtin_mul_overflow((uint64_t)n_slots, p->slot_bytes, &bytes) ||
        bytes > INT64_MAX)
        return error_set(err, LACE_E_OVERFLOW, "recurrent state for %d sequences is too large",
                         o->n_sequences);
    for (int32_t i = 0; i < kv->n_layers; i++)
        if (kv->layers[i].kind & STATE_RECURRENT)
            kv->layers[i].recurrent.slot_bytes = p->parts[shapes[i].device].slot_bytes;
    return LACE_OK;
}

/* How many pages every group has. */
static lace_status count_pages(states *kv, lace_error *err)
{
    const states_options *o = &kv->options;
    kv->pages_per_sequence = pages_for(o->n_context);
    uint64_t one_sequence = 0;
    for (int32_t g = 0; g < kv->n_groups; g++) {
        page_group *group = &kv->groups[g];
        group->page_bytes = (group->page_bytes + 63) & ~(uint64_t)63;
        int32_t per_sequence = kv->pages_per_sequence;
        if (group->window) {
            /* The window, what may be taken back, the batch being added, and a page cut in two. */
            int32_t most = pages_for((int64_t)group->window + STATES_TAKE_BACK + o->n_batch) + 1;
            per_sequence = most < per_sequence ? most : per_sequence;
        }
        int64_t n = (int64_t)per_sequence * o->n_sequences;
        if (o->max_tokens) /* every sequence may have a page that is not full */
            n = min_i64(n, pages_for(o->max_tokens) + (int64_t)o->n_sequences);
        uint64_t bytes;
        if (n > INT32_MAX || __builtin_mul_overflow((uint64_t)n, group->page_bytes, &bytes) ||
            bytes > INT64_MAX)
            return error_set(err, LACE_E_OVERFLOW,
                             "a KV cache for %d sequences of %d tokens is too large",
                             o->n_sequences, o->n_context);
        group->n_pages = (int32_t)n;
        one_sequence += (uint64_t)per_sequence * group->page_bytes;
    }
    return limit_pages(kv, one_sequence, err);
}

static lace_status lay_out(states *kv, const layer_state *shapes, lace_error *err)
{
    for (int32_t i = 0; i < kv->n_layers; i++) {
        kv->layers[i].kind = shapes[i].kind;
        if (shapes[i].kind & STATE_PAGED)
            TRY(lay_out_pages(kv, shapes, i, err));
    }
    TRY(lay_out_slots(kv, shapes, err));
    TRY(count_pages(kv, err));
    for (int32_t i = 0; i < kv->n_layers; i++)
        if (kv->layers[i].kind & STATE_PAGED)
            kv->layers[i].kv.page_bytes = kv->groups[kv->layers[i].kv.group].page_bytes;
    return LACE_OK;
}

lace_status states_create(const layer_state *layers, int32_t n_layers,
                          const states_options *options, states **out, lace_error *err)
{
    assert(n_layers > 0 && options->n_sequences > 0 && options->n_context > 0);
    *out = NULL;
    states *kv = mem_calloc(1, sizeof *kv);
    if (!kv)
        return error_nomem(err, "a KV cache");
    kv->options = *options;
    kv->n_layers = n_layers;
    kv->layers = mem_calloc((size_t)n_layers, sizeof *kv->layers);
    lace_status status = kv->layers ? lay_out(kv, layers, err) : error_nomem(err, "a KV cache");
    return GIVE_OR_FREE(status, kv, out, states_free);
}

uint64_t states_bytes(const states *kv)
{
    uint64_t bytes = slots_bytes(&kv->slots);
    for (int32_t g = 0; g < kv->n_groups; g++)
        bytes += (uint64_t)kv->groups[g].n_pages * kv->groups[g].page_bytes;
    return bytes;
}

uint64_t states_bytes_on(const states *kv, int32_t device)
{
    uint64_t bytes = slots_bytes_on(&kv->slots, device);
    for (int32_t g = 0; g < kv->n_groups; g++)
        if (kv->groups[g].device == device)
            bytes += (uint64_t)kv->groups[g].n_pages * kv->groups[g].page_bytes;
    return bytes;
}

uint64_t states_token_bytes(const states *kv)
{
    uint64_t bytes = 0;
    for (int32_t g = 0; g < kv->n_groups; g++)
        bytes += kv->groups[g].page_bytes / PAGE_TOKENS;
    return bytes;
}

uint64_t states_sequence_bytes(const states *kv)
{
    return kv->slots.slot_bytes;
}

void states_set_pages(states *kv, const int32_t *n_pages)
{
    for (int32_t g = 0; g < kv->n_groups; g++)
        kv->groups[g].n_pages = n_pages[g];
}

lace_status states_allocate(states *kv, queue *q, lace_error *err)
{
    kv->queue = q;
    for (int32_t g = 0; g < kv->n_groups; g++) {
        page_group *group = &kv->groups[g];
        size_t n = (size_t)group->n_pages;
        group->free_pages = mem_calloc(n, sizeof *group->free_pages);
        group->n_users = mem_calloc(n, sizeof *group->n_users);
        group->queue = queue_of_device(q, group->device);
        TRY(queue_take(group->queue, n * group->page_bytes, &group->data, err));
        if (!group->free_pages || !group->n_users)
            return error_nomem(err, "the KV cache's pages");
        /* The lowest page is on top of the stack. */
        for (int32_t i = 0; i < group->n_pages; i++)
            group->free_pages[i] = group->n_pages - 1 - i;
        group->n_free = group->n_pages;
    }
    kv->sequences = mem_calloc((size_t)kv->options.n_sequences, sizeof *kv->sequences);
    if (!kv->sequences)
        return error_nomem(err, "the KV cache's sequences");
    for (int32_t s = 0; s < kv->options.n_sequences; s++)
        for (int32_t g = 0; g < kv->n_groups; g++) {
            size_t bytes = (size_t)kv->pages_per_sequence * sizeof(int32_t);
            kv->sequences[s].tables[g] = mem_alloc(bytes);
            if (!kv->sequences[s].tables[g])
                return error_nomem(err, "the KV cache's page tables");
            memset(kv->sequences[s].tables[g], 0xFF, bytes); /* -1 */
        }
    return slots_allocate(&kv->slots, q, err);
}

void states_free(states *kv)
{
    if (!kv)
        return;
    for (int32_t s = 0; kv->sequences && s < kv->options.n_sequences; s++)
        for (int32_t g = 0; g < STATES_MAX_GROUPS; g++)
            mem_free(kv->sequences[s].tables[g]);
    for (int32_t g = 0; g < kv->n_groups; g++) {
        mem_free_all(kv->groups[g].free_pages, kv->groups[g].n_users);
        queue_give_back(kv->groups[g].queue, kv->groups[g].data,
                        (size_t)kv->groups[g].n_pages * kv->groups[g].page_bytes);
    }
    slots_free(&kv->slots);
    mem_free_all(kv->sequences, kv->layers, kv);
}

void page_drop(page_group *group, int32_t *slot)
{
    assert(*slot >= 0 && group->n_users[*slot] > 0);
    if (--group->n_users[*slot] == 0)
        group->free_pages[group->n_free++] = *slot;
    *slot = -1;
}

int32_t page_take(page_group *group)
{
    int32_t page = group->free_pages[--group->n_free];
    group->n_users[page] = 1;
    return page;
}

uint8_t *page_data(const page_group *group, int32_t page)
{
    return group->data + (uint64_t)page * group->page_bytes;
}

/* The first page that a window sees when the next token has this position. */
static int32_t first_seen_page(const page_group *group, int32_t position)
{
    int32_t first = position + 1 - group->window;
    return group->window && first > 0 ? first / PAGE_TOKENS : 0;
}

void states_add_demand(const states *kv, int32_t sequence, int32_t n, page_demand *demand)
{
    const sequence_state *s = &kv->sequences[sequence];
    int32_t begin = s->n_tokens / PAGE_TOKENS, end = pages_for((int64_t)s->n_tokens + n);
    for (int32_t g = 0; n > 0 && g < kv->n_groups; g++)
        for (int32_t i = begin; i < end; i++)
            demand->n_pages[g] += s->tables[g][i] < 0 || kv->groups[g].n_users[s->tables[g][i]] > 1;
}

bool states_can_meet(const states *kv, const page_demand *demand)
{
    for (int32_t g = 0; g < kv->n_groups; g++)
        if (demand->n_pages[g] > kv->groups[g].n_free)
            return false;
    return true;
}

static lace_status copy_page(const page_group *group, int32_t from, int32_t to, lace_error *err)
{
    return queue_copy(group->queue, page_data(group, to), page_data(group, from), group->page_bytes,
                      err);
}

static lace_status check_context(const states *kv, int32_t sequence, int32_t n, lace_error *err)
{
    const sequence_state *s = &kv->sequences[sequence];
    if (n <= kv->options.n_context - s->n_tokens)
        return LACE_OK;
    return error_set(err, LACE_E_CONTEXT,
                     "sequence %d holds %d tokens, %d more exceed the context of %d", sequence,
                     s->n_tokens, n, kv->options.n_context);
}

static lace_status check_pages(const states *kv, const page_demand *demand, lace_error *err)
{
    for (int32_t g = 0; g < kv->n_groups; g++)
        if (demand->n_pages[g] > kv->groups[g].n_free)
            return error_set(err, LACE_E_CONTEXT, "the KV cache is full: %d pages needed, %d free",
                             demand->n_pages[g], kv->groups[g].n_free);
    return LACE_OK;
}

lace_status states_reserve_pages(states *kv, int32_t sequence, int32_t n, lace_error *err)
{
    sequence_state *s = &kv->sequences[sequence];
    TRY(check_context(kv, sequence, n, err));
    if (n == 0)
        return LACE_OK;
    int32_t begin = s->n_tokens / PAGE_TOKENS, end = pages_for((int64_t)s->n_tokens + n);

    /* First what would be taken, in all groups, so that a failure changes nothing. */
    page_demand demand = {0};
    states_add_demand(kv, sequence, n, &demand);
    TRY(check_pages(kv, &demand, err));
    for (int32_t g = 0; g < kv->n_groups; g++) {
        page_group *group = &kv->groups[g];
        for (int32_t i = begin; i < end; i++) {
            int32_t *slot = &s->tables[g][i];
            if (*slot >= 0 && group->n_users[*slot] == 1)
                continue;
            int32_t page = page_take(group);
            if (*slot >= 0) {
                TRY(copy_page(group, *slot, page, err)); /* fails with the card only */
                page_drop(group, slot);
            }
            *slot = page;
        }
    }
    return LACE_OK;
}

lace_status states_reserve(states *kv, int32_t sequence, int32_t n, lace_error *err)
{
    TRY(states_reserve_pages(kv, sequence, n, err));
    return n == 0 ? LACE_OK
                  : slot_reserve(&kv->slots, sequence, kv->sequences[sequence].n_tokens + n, err);
}

lace_status states_reserve_all(states *kv, const int32_t *lengths, lace_error *err)
{
    page_demand demand = {0};
    for (int32_t i = 0; kv->slots.slot_bytes && i < kv->options.n_sequences; i++) {
        int32_t n = lengths[i] - kv->sequences[i].n_tokens;
        TRY(check_context(kv, i, n, err));
        states_add_demand(kv, i, n, &demand);
    }
    TRY(check_pages(kv, &demand, err));
    for (int32_t i = 0; i < kv->options.n_sequences; i++)
        TRY(states_reserve(kv, i, lengths[i] - kv->sequences[i].n_tokens, err));
    return LACE_OK;
}

void states_set_length(states *kv, int32_t sequence, int32_t n_tokens)
{
    sequence_state *s = &kv->sequences[sequence];
    for (int32_t g = 0; g < kv->n_groups; g++) {
        page_group *group = &kv->groups[g];
        int32_t keep_from = first_seen_page(group, n_tokens - STATES_TAKE_BACK);
        int32_t keep_to = pages_for(n_tokens);
        for (int32_t i = s->first_page[g]; i < keep_from; i++)
            if (s->tables[g][i] >= 0)
                page_drop(group, &s->tables[g][i]);
        int32_t beyond = keep_to > s->first_page[g] ? keep_to : s->first_page[g];
        for (int32_t i = beyond; i < kv->pages_per_sequence && s->tables[g][i] >= 0; i++)
            page_drop(group, &s->tables[g][i]);
        if (keep_from > s->first_page[g])
            s->first_page[g] = keep_from;
        if (n_tokens == 0)
            s->first_page[g] = 0;
    }
    slot_set_length(&kv->slots, sequence, n_tokens);
    if (n_tokens > s->n_tokens && n_tokens % PAGE_TOKENS == 0)
        slot_keep_page(&kv->slots, sequence);
    s->n_tokens = n_tokens;
}

int32_t states_reach(const states *kv, int32_t sequence, int32_t n_tokens)
{
    const sequence_state *s = &kv->sequences[sequence];
    int32_t n = slot_reach(&kv->slots, sequence, n_tokens);
    for (int32_t g = 0; g < kv->n_groups; g++)
        if (first_seen_page(&kv->groups[g], n) < s->first_page[g])
            return 0;
    return n;
}

bool states_can_truncate(const states *kv, int32_t sequence, int32_t n_tokens)
{
    return states_reach(kv, sequence, n_tokens) == n_tokens;
}

int32_t states_next_stop(const states *kv, int32_t sequence, int32_t n)
{
    int32_t from = kv->sequences[sequence].n_tokens;
    int32_t stop = (from + n) / PAGE_TOKENS * PAGE_TOKENS;
    return kv->slots.slot_bytes && stop > from ? stop - from : n;
}

lace_status states_fork(states *kv, int32_t from, int32_t to, lace_error *err)
{
    sequence_state *a = &kv->sequences[from], *b = &kv->sequences[to];
    assert(from != to && b->n_tokens == 0);
    TRY(slot_fork(&kv->slots, from, to, err));
    for (int32_t g = 0; g < kv->n_groups; g++) {
        int32_t n = pages_for(a->n_tokens);
        for (int32_t i = a->first_page[g]; i < n; i++) {
            b->tables[g][i] = a->tables[g][i];
            kv->groups[g].n_users[b->tables[g][i]]++;
        }
        b->first_page[g] = a->first_page[g];
    }
    b->n_tokens = a->n_tokens;
    return LACE_OK;
}

int32_t states_slot(const states *kv, int32_t sequence)
{
    return sequence;
}

int32_t states_snapshot(states *kv, int32_t sequence)
{
    assert(slot_reach(&kv->slots, sequence, kv->sequences[sequence].n_tokens) ==
           kv->sequences[sequence].n_tokens);
    return slot_snapshot(&kv->slots, sequence);
}

void states_restore(states *kv, int32_t sequence, int32_t snapshot)
{
    if (kv->slots.slot_bytes == 0)
        return;
    assert(snapshot >= 0 &&
           kv->slots.snapshots[snapshot].n_tokens == kv->sequences[sequence].n_tokens);
    slot_restore(&kv->slots, sequence, snapshot);
}

int32_t states_first_page(const states *kv, int32_t group, int32_t n_tokens)
{
    return first_seen_page(&kv->groups[group], n_tokens);
}

int32_t states_pages_used(const states *kv, int32_t group)
{
    return kv->groups[group].n_pages - kv->groups[group].n_free;
}

int32_t states_snapshots_used(const states *kv)
{
    return kv->slots.n_snapshots - kv->slots.n_free;
}
