/* An index of texts for scanning others. */
#include "tokenizer/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int compare(const void *a, const void *b)
{
    const scan_entry *x = a, *y = b;
    size_t n = x->key.size < y->key.size ? x->key.size : y->key.size;
    int order = memcmp(x->key.data, y->key.data, n);
    if (order)
        return order;
    if (x->key.size != y->key.size)
        return x->key.size < y->key.size ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* ---- The trie -------------------------------------------------------------------------------- */

/* The entries that begin with the text of a state, and how long that is. */
typedef struct range {
    uint32_t low, high, depth;
} range;

static unsigned char byte_at(const scan_entry *e, uint32_t depth)
{
    return (unsigned char)e->key.data[depth];
}

/* A state for each beginning of a key; entries are sorted. */
static size_t count_states(const scan_entry *entries, size_t n)
{
    size_t count = 1;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        while (i > 0 && same < entries[i].key.size && same < entries[i - 1].key.size &&
               entries[i].key.data[same] == entries[i - 1].key.data[same])
            same++;
        count += entries[i].key.size - same;
    }
    return count;
}

/* Level by level, so that children are neighbours. */
static void add_states(scan_index *s, const scan_entry *entries, range *ranges)
{
    uint32_t n = 1;
    s->ids[0] = -1;
    for (uint32_t state = 0; state < s->n_states; state++) {
        range r = ranges[state];
        uint32_t at = r.low;
        s->first_child[state] = n;
        s->ids[state] = -1;
        if (at < r.high && entries[at].key.size == r.depth)
            s->ids[state] = entries[at].id;
        while (at < r.high && entries[at].key.size == r.depth)
            at++;
        while (at < r.high) {
            unsigned char label = byte_at(&entries[at], r.depth);
            uint32_t end = at + 1;
            while (end < r.high && byte_at(&entries[end], r.depth) == label)
                end++;
            s->labels[n] = label;
            if (state == 0)
                s->of_byte[label] = n;
            ranges[n++] = (range){at, end, r.depth + 1};
            at = end;
        }
    }
    s->first_child[s->n_states] = n;
}

uint32_t scan_child(const scan_index *s, uint32_t state, unsigned char byte)
{
    if (state == 0)
        return s->of_byte[byte];
    uint32_t low = s->first_child[state], high = s->first_child[state + 1], end = high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->labels[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && s->labels[low] == byte ? low : 0;
}

/* ---- The automaton --------------------------------------------------------------------------- */

uint32_t scan_next(const scan_index *s, uint32_t state, unsigned char byte)
{
    for (;;) {
        uint32_t child = scan_child(s, state, byte);
        if (child || state == 0)
            return child;
        state = s->fallbacks[state];
    }
}

/* States come after those that are shorter. n_nested: scratch, [n_states]. */
static lace_status add_fallbacks(scan_index *s, uint16_t *n_nested)
{
    for (uint32_t state = 0; state < s->n_states; state++) {
        uint32_t back = state ? s->fallbacks[state] : 0;
        s->shorter[state] = state && back ? scan_longest(s, back) : 0;
        n_nested[state] =
            (uint16_t)(n_nested[s->shorter[state]] + (state > 0 && s->ids[state] >= 0));
        if (n_nested[state] > SCAN_MAX_NESTED)
            return LACE_E_LIMIT;
        for (uint32_t c = s->first_child[state]; c < s->first_child[state + 1]; c++)
            s->fallbacks[c] = state ? scan_next(s, back, s->labels[c]) : 0;
    }
    return LACE_OK;
}

static lace_status take_memory(scan_index *s, arena *memory)
{
    size_t n = s->n_states;
    s->first_child = arena_alloc(memory, n + 1, sizeof *s->first_child);
    s->labels = arena_alloc(memory, n, sizeof *s->labels);
    s->fallbacks = arena_alloc(memory, n, sizeof *s->fallbacks);
    s->shorter = arena_alloc(memory, n, sizeof *s->shorter);
    s->ids = arena_alloc(memory, n, sizeof *s->ids);
    bool ok = s->first_child && s->labels && s->fallbacks && s->shorter && s->ids;
    return ok ? LACE_OK : LACE_E_NOMEM;
}

lace_status scan_init(scan_index *s, scan_entry *entries, size_t n, arena *memory)
{
    size_t n_bytes = 0;
    *s = (scan_index){0};
    for (size_t i = 0; i < n && n_bytes <= SCAN_MAX_BYTES; i++)
        n_bytes += entries[i].key.size;
    if (n_bytes > SCAN_MAX_BYTES)
        return LACE_E_LIMIT;
    if (n > 1)
        qsort(entries, n, sizeof *entries, compare);
    s->n_states = (uint32_t)count_states(entries, n);
    TRY(take_memory(s, memory));
    range *ranges = mem_calloc(s->n_states, sizeof *ranges);
    uint16_t *n_nested = mem_calloc(s->n_states, sizeof *n_nested);
    lace_status status = ranges && n_nested ? LACE_OK : LACE_E_NOMEM;
    if (status == LACE_OK) {
        ranges[0] = (range){0, (uint32_t)n, 0};
        add_states(s, entries, ranges);
        status = add_fallbacks(s, n_nested);
    }
    mem_free_all(ranges, n_nested);
    return status;
}
