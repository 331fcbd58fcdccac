/*
 * Steps of the search for codes of BITS bits, a part of trellis_search_tmpl.c.
 *
 * A path is known by its class, its newest bits; the newest code is at the bottom. Classes h, q for
 * all codes h become q, b with the next code b: for each q, the best h is chosen for all b at once,
 * in vectors of as many numbers as there are codes. The number h of a path lies in the lowest bits
 * of its cost, so that the least cost brings it along.
 */
#define OF(name) CAT(name, BITS)

enum { OF(CODES) = 1 << BITS };

typedef float OF(vf) __attribute__((vector_size(4 * OF(CODES)), aligned(4), may_alias));
typedef int32_t OF(vi) __attribute__((vector_size(4 * OF(CODES)), aligned(4), may_alias));
typedef uint8_t OF(vb) __attribute__((vector_size(OF(CODES)), aligned(1), may_alias));

/* Which of the paths goes on to each class, and at what cost. at: the value's place in `wish`. */
static void OF(choose)(const trellis_task *t, int i, int at, const float *table, const paths *from,
                       paths *to, uint8_t *back)
{
    int class_bits = t->merge - BITS, n_rests = 1 << (class_bits - BITS);
    float x = t->left[i], weight = t->weights[i];
    for (int q = 0; q < n_rests; q++) {
        OF(vf) best = (OF(vf)){0} + 3e38f;
        for (int h = 0; h < OF(CODES); h++) {
            int p = h << (class_bits - BITS) | q;
            OF(vf) levels = *(const OF(vf) *)(table + ((size_t)from->older[p] << BITS));
            OF(vf) d = (x + from->wish[p][at]) - t->scale * levels;
            OF(vf) cost = from->cost[p] + weight * d * d;
            OF(vi) tagged = ((OF(vi))cost & ~(OF(CODES) - 1)) | h;
            OF(vi) is_less = (OF(vf))tagged < best;
            best = (OF(vf))((is_less & tagged) | (~is_less & (OF(vi))best));
        }
        OF(vi) parent = (OF(vi))best & (OF(CODES) - 1);
        *(OF(vf) *)(to->cost + (q << BITS)) = best;
        *(OF(vb) *)(back + (q << BITS)) = __builtin_convertvector(parent, OF(vb));
    }
}

/* The rest of each path that was chosen. u: feedback to this generation and the next, or NULL. */
static void OF(follow)(const trellis_task *t, int i, int at, const float *table, const float *u,
                       const paths *from, paths *to, const uint8_t *back)
{
    int class_bits = t->merge - BITS;
    vf16 u0 = {0}, u1 = {0};
    if (u) {
        u0 = *(const vf16 *)u;
        u1 = *(const vf16 *)(u + GENERATION);
    }
    for (int p = 0; p < 1 << class_bits; p++) {
        uint32_t b = (uint32_t)p & (OF(CODES) - 1);
        int parent = back[p] << (class_bits - BITS) | p >> BITS;
        uint32_t older = from->older[parent];
        to->older[p] = (uint16_t)((older | b << (TRELLIS_WINDOW - BITS)) >> BITS);
        to->origin[p] = from->origin[parent];
        if (!u)
            continue;
        const float *wish = from->wish[parent];
        float error = t->left[i] + wish[at] - t->scale * table[older << BITS | b];
        *(vf16 *)to->wish[p] = *(const vf16 *)wish - error * u0;
        *(vf16 *)(to->wish[p] + GENERATION) = *(const vf16 *)(wish + GENERATION) - error * u1;
    }
}

#undef OF
#undef BITS
