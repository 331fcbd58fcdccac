/* Merging symbols pairwise, best pair first. */
#include "tokenizer/merge.h"

#include <assert.h>

#include "base/mem.h"

void merger_deinit(merger *m)
{
    mem_free_all(m->symbols, m->heap);
    *m = (merger){0};
}

lace_status merger_reset(merger *m, size_t n)
{
    m->n_symbols = m->n_heap = 0;
    if (n <= m->symbols_capacity)
        return LACE_OK;
    size_t n_bytes;
    if (n > INT32_MAX || !mem_mul(n, sizeof *m->symbols, &n_bytes))
        return LACE_E_NOMEM;
    symbol *symbols = mem_realloc(m->symbols, n_bytes);
    if (!symbols)
        return LACE_E_NOMEM;
    m->symbols = symbols;
    m->symbols_capacity = n;
    return LACE_OK;
}

void merger_add(merger *m, int32_t id, size_t start, size_t n_bytes)
{
    assert(m->n_symbols < m->symbols_capacity);
    int32_t i = (int32_t)m->n_symbols++;
    m->symbols[i] = (symbol){id, (uint32_t)start, (uint32_t)n_bytes, i - 1, -1};
    if (i > 0)
        m->symbols[i - 1].next = i;
}

static lace_status heap_push(merger *m, merge_candidate c)
{
    if (!mem_grow(&m->heap, m->n_heap, &m->heap_capacity, sizeof *m->heap, 64))
        return LACE_E_NOMEM;
    size_t i = m->n_heap++;
    while (i > 0 && c.key < m->heap[(i - 1) / 2].key) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = c;
    return LACE_OK;
}

static merge_candidate heap_pop(merger *m)
{
    merge_candidate top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < m->n_heap; child = 2 * i + 1) {
        if (child + 1 < m->n_heap && m->heap[child + 1].key < m->heap[child].key)
            child++;
        if (last.key <= m->heap[child].key)
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return top;
}

static lace_status consider(merger *m, int32_t left, merge_fn fn, const void *context)
{
    if (left < 0 || m->symbols[left].next < 0)
        return LACE_OK;
    const symbol *a = &m->symbols[left], *b = &m->symbols[a->next];
    uint32_t rank;
    int32_t id;
    if (!fn(context, a, b, &rank, &id))
        return LACE_OK;
    return heap_push(
        m, (merge_candidate){(uint64_t)rank << 32 | (uint32_t)left, a->n_bytes + b->n_bytes, id});
}

lace_status merger_run(merger *m, merge_fn fn, const void *context)
{
    for (size_t i = 0; i + 1 < m->n_symbols; i++)
        TRY(consider(m, (int32_t)i, fn, context));
    while (m->n_heap > 0) {
        merge_candidate c = heap_pop(m);
        int32_t left = (int32_t)(uint32_t)c.key;
        symbol *a = &m->symbols[left];
        /*
         * A symbol's start never moves, so both are what they were exactly if the sum of their
         * lengths is: had `a` grown, it would have that length alone.
         */
        if (a->n_bytes == 0 || a->next < 0 || a->n_bytes + m->symbols[a->next].n_bytes != c.n_bytes)
            continue;
        symbol *b = &m->symbols[a->next];
        a->id = c.id;
        a->n_bytes = c.n_bytes;
        b->n_bytes = 0;
        a->next = b->next;
        if (a->next >= 0)
            m->symbols[a->next].prev = left;
        TRY(consider(m, a->prev, fn, context));
        TRY(consider(m, left, fn, context));
    }
    return LACE_OK;
}
