/*
 * The search of trellis_search.h. Compiled once per CPU level (level.h). Vectors are the compiler's
 * own.
 */
#include "backend/cpu/level.h"

#include "backend/cpu/trellis_paths.h"

#include <stdbool.h>
#include <string.h>

#define IMPOSSIBLE 1e30f

typedef float vf16 __attribute__((vector_size(64), aligned(4), may_alias));

#define BITS 2
#include "backend/cpu/trellis_bits_tmpl.h"
#define BITS 3
#include "backend/cpu/trellis_bits_tmpl.h"
#define BITS 4
#include "backend/cpu/trellis_bits_tmpl.h"
#define BITS 5
#include "backend/cpu/trellis_bits_tmpl.h"

typedef struct search_steps {
    void (*choose)(const trellis_task *t, int i, int at, const float *table, const paths *from,
                   paths *to, uint8_t *back);
    void (*follow)(const trellis_task *t, int i, int at, const float *table, const float *u,
                   const paths *from, paths *to, const uint8_t *back);
} search_steps;

static const search_steps steps_of[] = {
    [2] = {choose_2, follow_2},
    [3] = {choose_3, follow_3},
    [4] = {choose_4, follow_4},
    [5] = {choose_5, follow_5},
};

static void make_table(trellis_scratch *s, int n_bits)
{
    uint32_t n_older = 1u << (TRELLIS_WINDOW - n_bits);
    for (uint32_t older = 0; older < n_older && s->n_bits != n_bits; older++)
        for (uint32_t b = 0; b < 1u << n_bits; b++)
            s->table[older << n_bits | b] = (float)trellis_level(older | b * n_older);
    s->n_bits = n_bits;
}

/* One path: nothing is written yet. */
static void begin_paths(paths *x, const trellis_task *t, int n_classes)
{
    memset(x->wish, 0, (size_t)n_classes * sizeof x->wish[0]);
    for (int p = 0; p < n_classes; p++) {
        x->cost[p] = p == 0 ? 0 : IMPOSSIBLE;
        x->older[p] = (uint16_t)(trellis_start(t->n_bits) >> t->n_bits);
        x->origin[p] = 0;
    }
}

static int best_of(const paths *x, int n_classes)
{
    int best = 0;
    for (int p = 1; p < n_classes; p++)
        if (x->cost[p] < x->cost[best])
            best = p;
    return best;
}

/* The codes of values [begin, end) of the path that is in class p after them. */
static void trace_back(const trellis_scratch *s, const trellis_task *t, int begin, int end, int p,
                       uint8_t *codes)
{
    for (int i = end - 1; i >= begin; i--) {
        codes[i] = (uint8_t)(p & ((1 << t->n_bits) - 1));
        p = s->back[i][p] << (t->merge - 2 * t->n_bits) | p >> t->n_bits;
    }
}

/* Values that are decided: their levels, and with feedback what is left to the others. */
static void settle(const trellis_task *t, int begin, int end, const uint8_t *codes,
                   uint32_t *window, int8_t *levels)
{
    for (int i = begin; i < end; i++) {
        *window = trellis_next(*window, t->n_bits, codes[i]);
        levels[i] = (int8_t)trellis_level(*window);
        if (!t->u)
            continue;
        const float *u = t->u + i * t->stride;
        float error = (t->left[i] - t->scale * (float)levels[i]) / u[i];
        for (int64_t k = i + 1; k < t->n_left; k++)
            t->left[k] -= error * u[k];
    }
}

/* The feedback of value i to its generation, which begins at `first`, and to the next. */
static const float *feedback_of(const trellis_task *t, int i, int first, float *out)
{
    if (!t->u)
        return NULL;
    const float *u = t->u + i * t->stride;
    for (int k = 0; k < 2 * GENERATION; k++)
        out[k] = first + k < t->n_left ? u[first + k] / u[i] : 0;
    return out;
}

/* Paths go on if they came through `origin`, which is decided. Costs begin at 0 again. */
static void next_generation(paths *x, int n_classes, int origin, bool is_decided, float base)
{
    for (int p = 0; p < n_classes; p++) {
        bool goes_on = x->cost[p] < IMPOSSIBLE && (x->origin[p] == origin || !is_decided);
        x->cost[p] = goes_on ? x->cost[p] - base : IMPOSSIBLE;
        x->origin[p] = (uint16_t)p;
        memcpy(x->wish[p], x->wish[p] + GENERATION, GENERATION * sizeof(float));
        memset(x->wish[p] + GENERATION, 0, GENERATION * sizeof(float));
    }
}

void FN(trellis_search)(const trellis_task *t, trellis_scratch *s, uint8_t codes[TRELLIS_VALUES],
                        int8_t levels[TRELLIS_VALUES])
{
    const search_steps *steps = &steps_of[t->n_bits];
    int n_classes = 1 << (t->merge - t->n_bits), now = 0, decided = 0;
    uint32_t window = trellis_start(t->n_bits);
    make_table(s, t->n_bits);
    begin_paths(&s->paths[0], t, n_classes);
    for (int begin = 0; begin < TRELLIS_VALUES; begin += GENERATION) {
        int end = begin + GENERATION;
        for (int i = begin; i < end; i++, now ^= 1) {
            float row[2 * GENERATION];
            const float *u = feedback_of(t, i, begin, row);
            const paths *from = &s->paths[now];
            paths *to = &s->paths[!now];
            steps->choose(t, i, i - begin, s->table, from, to, s->back[i]);
            steps->follow(t, i, i - begin, s->table, u, from, to, s->back[i]);
        }
        paths *x = &s->paths[now];
        int best = best_of(x, n_classes), origin = x->origin[best];
        trace_back(s, t, decided, begin, origin, codes);
        settle(t, decided, begin, codes, &window, levels);
        next_generation(x, n_classes, origin, begin > 0, x->cost[best]);
        decided = begin;
        if (end == TRELLIS_VALUES) {
            trace_back(s, t, decided, end, best, codes);
            settle(t, decided, end, codes, &window, levels);
        }
    }
}
