/* Cuts and draws as sampler/sampler.c makes them, for devices that leave these to the host. */
#include "backend/choice_draw.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* The best first, and of equal ones the smaller token. */
static int compare(const void *left, const void *right)
{
    const choice_edit *a = left, *b = right;
    return a->bias != b->bias ? (a->bias > b->bias ? -1 : 1) : (a->token > b->token ? 1 : -1);
}

/* How many of the first n, whose probabilities add up to 1, reach top_p together. */
static int32_t cut_top_p(const choice_edit *list, int32_t n, double top_p)
{
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        total += exp((double)list[i].bias - list[0].bias);
    int32_t n_kept = 0;
    while (n_kept < n && (n_kept == 0 || sum / total < top_p))
        sum += exp((double)list[n_kept++].bias - list[0].bias);
    return n_kept;
}

static int32_t cut_min_p(choice_edit *list, int32_t n, float most, double min_p)
{
    int32_t n_kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (exp((double)list[i].bias - most) >= min_p)
            list[n_kept++] = list[i];
    return n_kept;
}

/* In [0, 1), by the generator that the rule brings. */
static double draw(choice_rule *rule)
{
    random_state r;
    memcpy(r.s, rule->random, sizeof r.s);
    double x = random_unit(&r);
    memcpy(rule->random, r.s, sizeof r.s);
    return x;
}

static int32_t draw_one(const choice_edit *list, int32_t n, float most, choice_rule *rule)
{
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        total += exp(((double)list[i].bias - most) / rule->temperature);
    double target = n > 1 ? draw(rule) * total : 0;
    int32_t chosen = 0;
    for (int32_t i = 0; i < n && sum <= target; i++) {
        double weight = exp(((double)list[i].bias - most) / rule->temperature);
        chosen = weight > 0 ? i : chosen;
        sum += weight;
    }
    return (list[chosen].token + 1) | (n > 1 ? CHOICE_DREW : 0);
}

int32_t choice_draw(choice_rule *rule, choice_edit *list, int32_t n)
{
    float most = list[0].bias;
    for (int32_t i = 1; i < n; i++)
        most = list[i].bias > most ? list[i].bias : most;
    if (rule->top_k > 0 || rule->top_p < 1)
        qsort(list, (size_t)n, sizeof *list, compare);
    if (rule->top_k > 0 && rule->top_k < n)
        n = rule->top_k;
    if (rule->top_p < 1)
        n = cut_top_p(list, n, rule->top_p);
    if (rule->min_p > 0)
        n = cut_min_p(list, n, most, rule->min_p);
    return draw_one(list, n, most, rule);
}
