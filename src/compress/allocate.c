/* Allocation of bytes to tensors. */
#include "compress/allocate.h"

#include <stdbool.h>

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
    double best = 1e-15;
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

uint64_t allocate(allocate_item *items, size_t n, uint64_t budget)
{
    uint64_t used = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].chosen = 0;
        used += items[i].n_bytes[0];
    }
    while (buy(items, n, &used, budget) || exchange(items, n, &used, budget))
        ;
    return used;
}
