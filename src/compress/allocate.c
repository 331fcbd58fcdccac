/* Allocation of bytes to tensors. */
#include "compress/allocate.h"

#include <stdbool.h>

#include "base/mem.h"

/* Smaller gains are errors of rounding. */
#define LEAST_GAIN 1e-15

static double gain_of(const allocate_item *t, int to)
{
    return t->cost[t->chosen] - t->cost[to];
}

static int64_t growth_of(const allocate_item *t, int to)
{
    return (int64_t)t->n_bytes[to] - (int64_t)t->n_bytes[t->chosen];
}

/* The step with the most gain for a byte that still fits; false if there is none. */
static bool buy(allocate_item *items, size_t n, uint64_t *used, uint64_t budget)
{
    allocate_item *best = NULL;
    int best_choice = 0;
    double best_rate = 0;
    for (size_t i = 0; i < n; i++)
        for (int c = items[i].chosen + 1; c < items[i].n; c++) {
            int64_t growth = growth_of(&items[i], c);
            double gain = gain_of(&items[i], c);
            if (growth <= 0 || gain <= 0 || *used + (uint64_t)growth > budget)
                continue;
            if (gain / (double)growth > best_rate) {
                best_rate = gain / (double)growth;
                best = &items[i];
                best_choice = c;
            }
        }
    if (!best)
        return false;
    *used += (uint64_t)growth_of(best, best_choice);
    best->chosen = best_choice;
    return true;
}

/* One tensor larger, another smaller; the pair that gains most. */
static bool exchange(allocate_item *items, size_t n, uint64_t *used, uint64_t budget)
{
    allocate_item *up = NULL, *down = NULL;
    int up_choice = 0, down_choice = 0;
    double best = LEAST_GAIN;
    for (size_t i = 0; i < n; i++)
        for (int c = items[i].chosen + 1; c < items[i].n; c++)
            for (size_t k = 0; k < n; k++)
                for (int d = 0; d < items[k].chosen && k != i; d++) {
                    int64_t growth = growth_of(&items[i], c) + growth_of(&items[k], d);
                    double gain = gain_of(&items[i], c) + gain_of(&items[k], d);
                    if (gain <= best || (int64_t)*used + growth > (int64_t)budget)
                        continue;
                    best = gain;
                    up = &items[i];
                    down = &items[k];
                    up_choice = c;
                    down_choice = d;
                }
    if (!up)
        return false;
    *used = (uint64_t)((int64_t)*used + growth_of(up, up_choice) + growth_of(down, down_choice));
    up->chosen = up_choice;
    down->chosen = down_choice;
    return true;
}

/* The step down that loses least for a byte, of all but `kept`; NULL if there is none. */
static allocate_item *cheapest_step_down(allocate_item *items, size_t n, const allocate_item *kept,
                                         int *to)
{
    allocate_item *best = NULL;
    double least = 0;
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < items[i].chosen && &items[i] != kept; c++) {
            double saved = -(double)growth_of(&items[i], c);
            double rate = -gain_of(&items[i], c) / saved;
            if (saved > 0 && (!best || rate < least)) {
                least = rate;
                best = &items[i];
                *to = c;
            }
        }
    return best;
}

/*
 * One tensor becomes larger, and others smaller until all fit: a large tensor can be paid for by
 * several small ones only. What is left over is spent again. True if the sum has become smaller;
 * otherwise everything is as before.
 */
static bool trade(allocate_item *items, size_t n, size_t up, int choice, uint64_t *used,
                  uint64_t budget, int *before)
{
    uint64_t used_before = *used;
    double gain = gain_of(&items[up], choice);
    for (size_t i = 0; i < n; i++)
        before[i] = items[i].chosen;
    *used += (uint64_t)growth_of(&items[up], choice);
    items[up].chosen = choice;
    while (*used > budget && gain > 0) {
        int to = 0;
        allocate_item *down = cheapest_step_down(items, n, &items[up], &to);
        if (!down)
            break;
        gain += gain_of(down, to);
        *used = (uint64_t)((int64_t)*used + growth_of(down, to));
        down->chosen = to;
    }
    if (*used <= budget) {
        while (buy(items, n, used, budget))
            ;
        gain = 0;
        for (size_t i = 0; i < n; i++)
            gain += items[i].cost[before[i]] - items[i].cost[items[i].chosen];
        if (gain > LEAST_GAIN)
            return true;
    }
    for (size_t i = 0; i < n; i++)
        items[i].chosen = before[i];
    *used = used_before;
    return false;
}

static bool trade_any(allocate_item *items, size_t n, uint64_t *used, uint64_t budget, int *before)
{
    int to = 0;
    const allocate_item *down = cheapest_step_down(items, n, NULL, &to);
    double rate = down ? gain_of(down, to) / (double)growth_of(down, to) : 0;
    for (size_t i = 0; i < n; i++)
        for (int c = items[i].chosen + 1; c < items[i].n; c++) {
            int64_t growth = growth_of(&items[i], c), missing = growth - (int64_t)(budget - *used);
            /* No byte can be had for less than that. */
            if (growth > 0 && gain_of(&items[i], c) > rate * (double)missing &&
                trade(items, n, i, c, used, budget, before))
                return true;
        }
    return false;
}

uint64_t allocate(allocate_item *items, size_t n, uint64_t budget)
{
    uint64_t used = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].chosen = 0;
        used += items[i].n_bytes[0];
    }
    int *before = mem_alloc(n * sizeof *before); /* without it there are no trades */
    while (buy(items, n, &used, budget) || exchange(items, n, &used, budget) ||
           (before && used <= budget && trade_any(items, n, &used, budget, before)))
        ;
    mem_free(before);
    return used;
}
