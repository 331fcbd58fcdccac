#include "card_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct span {
    uint64_t from, to;
    int card;
    void *owned; /* to free */
} span;

static struct {
    pthread_mutex_t lock;
    span *spans; /* by address */
    size_t n, room;
    uint64_t used[64];
    atomic_uint_fast64_t epoch;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoch = 1};

/* The first span that ends behind the address. */
static size_t place_of(uint64_t address)
{
    size_t low = 0, high = all.n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (all.spans[middle].to <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool add(span s)
{
    if (all.n == all.room) {
        size_t room = all.room ? 2 * all.room : 256;
        span *more = realloc(all.spans, room * sizeof *more);
        if (!more)
            return false;
        all.spans = more;
        all.room = room;
    }
    size_t at = place_of(s.from);
    memmove(all.spans + at + 1, all.spans + at, (all.n - at) * sizeof s);
    all.spans[at] = s;
    all.n++;
    return true;
}

/* What lies at the address, without its entry. */
static void *take_out(void *address)
{
    uint64_t from = (uintptr_t)address;
    size_t at = place_of(from);
    if (at == all.n || all.spans[at].from != from)
        return NULL;
    span s = all.spans[at];
    if (s.card >= 0)
        all.used[s.card] -= s.to - s.from;
    memmove(all.spans + at, all.spans + at + 1, (all.n - at - 1) * sizeof s);
    all.n--;
    atomic_fetch_add(&all.epoch, 1);
    return s.owned;
}

/* Between what two allocations have lies a gap, so that none ends where another begins. */
enum { ALIGNMENT = 512, GAP = 512 };

void *memory_take(int card, size_t n_bytes, uint64_t budget)
{
    void *p = NULL;
    pthread_mutex_lock(&all.lock);
    bool fits = card < 0 || all.used[card] + n_bytes <= budget;
    pthread_mutex_unlock(&all.lock);
    size_t whole = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP;
    if (!fits || whole < n_bytes || posix_memalign(&p, ALIGNMENT, whole) != 0)
        return NULL;
    memset(p, 0xFF, whole);
    pthread_mutex_lock(&all.lock);
    bool is_in = add((span){(uintptr_t)p, (uintptr_t)p + n_bytes, card, p});
    if (is_in && card >= 0)
        all.used[card] += n_bytes;
    pthread_mutex_unlock(&all.lock);
    if (!is_in) {
        free(p);
        return NULL;
    }
    return p;
}

void memory_give(void *address)
{
    pthread_mutex_lock(&all.lock);
    void *owned = take_out(address);
    pthread_mutex_unlock(&all.lock);
    free(owned);
}

uint64_t memory_used(int card)
{
    pthread_mutex_lock(&all.lock);
    uint64_t used = all.used[card];
    pthread_mutex_unlock(&all.lock);
    return used;
}

bool memory_add(int card, void *address, size_t n_bytes)
{
    pthread_mutex_lock(&all.lock);
    bool is_in = add((span){(uintptr_t)address, (uintptr_t)address + n_bytes, card, NULL});
    if (is_in && card >= 0)
        all.used[card] += n_bytes;
    pthread_mutex_unlock(&all.lock);
    return is_in;
}

void memory_drop(void *address)
{
    pthread_mutex_lock(&all.lock);
    take_out(address);
    pthread_mutex_unlock(&all.lock);
}

bool memory_span(int card, uint64_t address, uint64_t *from, uint64_t *to)
{
    pthread_mutex_lock(&all.lock);
    size_t at = place_of(address);
    bool found = at < all.n && all.spans[at].from <= address &&
                 (all.spans[at].card == card || all.spans[at].card == EVERY_CARD);
    if (found) {
        *from = all.spans[at].from;
        *to = all.spans[at].to;
    }
    pthread_mutex_unlock(&all.lock);
    return found;
}

uint64_t memory_epoch(void)
{
    return atomic_load_explicit(&all.epoch, memory_order_relaxed);
}
