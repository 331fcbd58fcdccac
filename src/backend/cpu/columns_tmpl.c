/*
 * Products with matrices in columns (columns.h), in the words of tile_<level>.h and dot_<level>.h.
 * Compiled once per CPU level (level.h).
 *
 * A group is done a few rows at a time, with the sums of all its columns in registers. Memory has
 * fetched it by then: while one group is multiplied, the live columns of the next are asked for, in
 * the order in which they lie. Asking for the second cache only (prefetcht1) brings a fifth more
 * bytes a second than for the first, and runs with holes are not fetched ahead by the processor.
 */
#include "backend/cpu/level.h"
#include LEVEL_DOT

#include "backend/cpu/columns.h"

enum {
    VB = 4 * VW, /* bytes of a vector */
    WORDS = VB / 4,
    LINE = 64,
    BYTE_OFFSET = LEVEL_SIGNED ? 0 : 128 /* what dot_bytes takes as added to bytes */
};

ALWAYS_INLINE vi set_words(int32_t word)
{
    return broadcast_word((const uint8_t *)&word);
}

/* ---- Fetching ahead -------------------------------------------------------------------------- */

/*
 * Where fetching is: in the scales of a group, or in STREAMS of its live columns. Lines of several
 * columns are asked for in turn: 31 GB/s with half of all columns of 2 KB left out, where one after
 * the other brings 28 (Zen 4, two threads).
 */
enum { STREAMS = 4 };

typedef struct ahead {
    const uint8_t *columns;
    const columns_live *live;
    uint64_t column_bytes;
    const uint8_t *now[STREAMS]; /* what comes next */
    uint64_t left;               /* bytes from there on that belong together */
    int next;                    /* live column behind them */
} ahead;

static const columns_live nothing;

static ahead ahead_of(const columns_part *p, int64_t group, const columns_live *live)
{
    const uint8_t *at = columns_group(p->shape, p->strip, group);
    ahead a = {.columns = at + p->shape->scale_bytes,
               .live = live,
               .column_bytes = p->shape->column_bytes,
               .left = p->shape->scale_bytes / STREAMS};
    for (int i = 0; i < STREAMS; i++)
        a.now[i] = at + (uint64_t)i * a.left;
    return a;
}

/* Ask for the next `lines` of each stream, or as many as there are. */
ALWAYS_INLINE void fetch(ahead *a, const int lines)
{
    if (a->left == 0) {
        if (a->next >= a->live->n)
            return;
        for (int i = 0; i < STREAMS; i++)
            a->now[i] = a->columns + (uint64_t)a->live->at[a->next + i] * a->column_bytes;
        a->next += STREAMS;
        a->left = a->column_bytes;
    }
    int n = a->left < (uint64_t)(LINE * lines) ? (int)(a->left / LINE) : lines;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < STREAMS; i++)
            __builtin_prefetch(a->now[i] + LINE * k, 0, 2);
    for (int i = 0; i < STREAMS; i++)
        a->now[i] += LINE * n;
    a->left -= (uint64_t)(LINE * n);
}

static void fetch_all(ahead *a)
{
    while (a->left || a->next < a->live->n)
        fetch(a, 4);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

typedef void find_fn(const void *x, int64_t group, columns_live *live);
typedef void group_fn(const columns_part *p, int64_t group, const columns_live *live, ahead *next);

/* add() each group with its live columns, while those of the next are asked for. */
ALWAYS_INLINE void walk_groups(const columns_part *p, find_fn *find, group_fn *add)
{
    columns_live live[2];
    find(p->x, p->group_begin, &live[p->group_begin % 2]);
    ahead first = ahead_of(p, p->group_begin, &live[p->group_begin % 2]);
    fetch_all(&first);
    for (int64_t g = p->group_begin; g < p->group_end; g++) {
        columns_live *then = &live[(g + 1) % 2];
        ahead next = {.live = &nothing};
        if (g + 1 < p->group_end) {
            find(p->x, g + 1, then);
            next = ahead_of(p, g + 1, then);
        }
        if (live[g % 2].n)
            add(p, g, &live[g % 2], &next);
        fetch_all(&next);
    }
}

/* ---- Quants ---------------------------------------------------------------------------------- */

/* How the weights of a type lie; known when this is compiled. */
typedef struct kind {
    bool is_nibble;
    int offset, most; /* of their numbers */
    bool has_units;   /* scales are bytes, times a number for 256 columns */
    bool has_halves;  /* one for 16 columns each */
    bool has_mins;    /* in place of the second half's */
} kind;

/* What is multiplied: live columns [begin, end) of a group, which share a scale. */
typedef struct share {
    const uint8_t *group, *units, *scales;
    int begin, end;
    int32_t start; /* of the sums */
    float d;       /* scale of the activations */
    float minus;   /* how often mins count */
} share;

/* The scales of VW rows, without that of the activations. */
ALWAYS_INLINE vf scales_of(const share *h, uint64_t row, const kind k)
{
    if (!k.has_units)
        return v_load_f16(h->group + 2 * row);
    return v_mul(v_load_f16(h->units + 2 * row), v_load_i8((const int8_t *)h->scales + row));
}

/*
 * `vectors` of each live column, from byte `at` on, times x: to the sums of their rows. A vector of
 * bytes holds WORDS rows of every 16, and of nibbles as many again, 64 rows behind.
 */
ALWAYS_INLINE void add_vectors(const share *h, const columns_shape *s, const columns_live *live,
                               uint64_t at, ahead *next, float *sums, const kind k)
{
    enum { VECTORS = 2 };
    const int n_vectors = k.is_nibble ? 1 : VECTORS, n_sums = 8;
    vi sum[8];
    UNROLL
    for (int i = 0; i < n_sums; i++)
        sum[i] = set_words(h->start);
    const uint8_t *columns = h->group + s->scale_bytes + at;
    for (int c = h->begin; c < h->end; c += 4) {
        const uint8_t *from[4];
        int32_t word;
        for (int i = 0; i < 4; i++)
            from[i] = columns + (uint64_t)live->at[c + i] * s->column_bytes;
        __builtin_memcpy(&word, live->q + c, 4);
        vi x = set_words(word);
        fetch(next, n_vectors * VB < LINE ? 1 : n_vectors * VB / LINE);
        UNROLL
        for (int v = 0; v < n_vectors; v++) {
            vi w[4] = {load_words(from[0] + VB * v, 0), load_words(from[1] + VB * v, 0),
                       load_words(from[2] + VB * v, 0), load_words(from[3] + VB * v, 0)};
            vi words[4];
            weave_columns(w, words);
            UNROLL
            for (int i = 0; i < 4; i++) {
                if (k.is_nibble) {
                    sum[i] = dot_bytes(sum[i], bits(words[i], 0, 15), x, 15);
                    sum[4 + i] = dot_bytes(sum[4 + i], high_nibbles(words[i]), x, 15);
                } else {
                    sum[4 * v + i] = dot_bytes(sum[4 * v + i], words[i], x, k.most);
                }
            }
        }
    }
    UNROLL
    for (int i = 0; i < n_sums; i++) {
        uint64_t byte = at + (k.is_nibble ? 0 : VB * (uint64_t)(i / 4));
        uint64_t row = byte / LINE * (k.is_nibble ? 2 * LINE : LINE) + byte % LINE / VB * WORDS +
                       16 * (uint64_t)(i % 4) + (k.is_nibble && i >= 4 ? LINE : 0);
        vf scale = v_mul(v_set(h->d), scales_of(h, row, k));
        vf f = v_fma(floats_from_words(sum[i]), scale, v_load(sums + row));
        if (k.has_mins) {
            uint64_t min = (uint64_t)s->strip_rows + row;
            f = v_fma(
                v_mul(v_load_f16(h->units + 2 * min), v_load_i8((const int8_t *)h->group + min)),
                v_set(h->minus), f);
        }
        v_store(sums + row, f);
    }
}

ALWAYS_INLINE void add_quants(const columns_part *p, int64_t g, const columns_live *live,
                              ahead *next, const kind k)
{
    const columns_shape *s = p->shape;
    const int16_t *x_sums = act_q8_sums(p->x, p->n_cols) + 2 * g;
    share h = {.group = columns_group(s, p->strip, g),
               .units = columns_units(s, p->strip, g),
               .end = k.has_halves ? live->n_first : live->n,
               .d = act_q8_scales(p->x, p->n_cols)[g]};
    int32_t sum = k.has_halves ? x_sums[0] : x_sums[0] + x_sums[1];
    h.scales = h.group;
    h.start = -k.offset * sum;
    h.minus = -h.d * (float)sum;
    share second = h;
    second.begin = live->n_first;
    second.end = live->n;
    second.start = -k.offset * x_sums[1];
    second.scales = h.group + s->strip_rows;
    for (uint64_t at = 0; at < s->column_bytes; at += (k.is_nibble ? 1 : 2) * VB) {
        add_vectors(&h, s, live, at, next, p->sums, k);
        if (k.has_halves)
            add_vectors(&second, s, live, at, next, p->sums, k);
    }
}

static inline void find_q8(const void *x, int64_t group, columns_live *live)
{
    columns_find_q8((const int8_t *)x + COLUMNS_GROUP * group, live);
}

static inline void find_halves(const void *x, int64_t group, columns_live *live)
{
    columns_find_halves((const int8_t *)x + COLUMNS_GROUP * group, live);
}

#define QUANTS(type, find, ...)                                                                    \
    static inline void CAT(group, type)(const columns_part *p, int64_t g,                          \
                                        const columns_live *live, ahead *next)                     \
    {                                                                                              \
        add_quants(p, g, live, next, (kind){__VA_ARGS__});                                         \
    }                                                                                              \
    static void CAT(add, type)(const columns_part *p)                                              \
    {                                                                                              \
        walk_groups(p, find, CAT(group, type));                                                    \
    }
QUANTS(q8_0, find_q8, .offset = BYTE_OFFSET, .most = 255)
QUANTS(q4_0, find_q8, .offset = 8, .most = 15, .is_nibble = true)
QUANTS(q4_k, find_q8, .most = 15, .is_nibble = true, .has_units = true, .has_mins = true)
QUANTS(q6_k, find_halves, .offset = 32, .most = 63, .has_units = true, .has_halves = true)

/* ---- Floats ---------------------------------------------------------------------------------- */

static inline void find_f32(const void *x, int64_t group, columns_live *live)
{
    columns_find_f32((const float *)x + COLUMNS_GROUP * group, live);
}

static inline void add_halves(const columns_part *p, int64_t g, const columns_live *live,
                              ahead *next)
{
    enum { VECTORS = 8 };
    const columns_shape *s = p->shape;
    const uint8_t *group = columns_group(s, p->strip, g);
    for (int64_t row = 0; row < s->strip_rows; row += VECTORS * VW) {
        vf sum[VECTORS];
        UNROLL
        for (int i = 0; i < VECTORS; i++)
            sum[i] = v_load(p->sums + row + i * VW);
        for (int k = 0; k < live->n; k++) {
            const uint8_t *at = group + (uint64_t)live->at[k] * s->column_bytes + 2 * row;
            vf x = v_set(live->x[k]);
            if (k % STREAMS == 0)
                fetch(next, 2 * VECTORS * VW / LINE);
            UNROLL
            for (int i = 0; i < VECTORS; i++)
                sum[i] = v_fma(x, v_load_f16(at + 2 * i * VW), sum[i]);
        }
        UNROLL
        for (int i = 0; i < VECTORS; i++)
            v_store(p->sums + row + i * VW, sum[i]);
    }
}

static void add_f16(const columns_part *p)
{
    walk_groups(p, find_f32, add_halves);
}

#define IMPL(type, act)                                                                            \
    const columns_impl FN(CAT(columns, type)) = {#type " columns " LEVEL_NAME, act, CAT(add, type)};
IMPL(f16, ACT_F32)
IMPL(q8_0, ACT_Q8)
IMPL(q4_0, ACT_Q8)
IMPL(q4_k, ACT_Q8)
IMPL(q6_k, ACT_Q8)
