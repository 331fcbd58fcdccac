/*
 * Barriers in shared memory, and the copies that they count. A barrier's 8 bytes are
 *
 *     bits 0 to 19    arrivals that are still to come in this phase
 *          20 to 39   arrivals of a phase
 *          40 to 61   bytes that are still to come, below 0 if they came before they were expected
 *          62         1: this is a barrier
 *          63         the parity of the phase
 */
#include "bulk_copy.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- Barriers -------------------------------------------------------------------------------- */

enum { MOST_ARRIVALS = (1 << 20) - 1, MOST_BYTES = (1 << 20) - 1, CHUNK = 16 };

typedef struct barrier {
    uint32_t left, all, parity;
    int32_t n_bytes;
    bool is_barrier;
} barrier;

static barrier unpack(uint64_t bits)
{
    const int32_t n_bytes = (int32_t)(bits >> 40 & 0x3fffff);
    return (barrier){.left = bits & MOST_ARRIVALS,
                     .all = bits >> 20 & MOST_ARRIVALS,
                     .n_bytes = n_bytes - (n_bytes >> 21 << 22),
                     .is_barrier = bits >> 62 & 1,
                     .parity = (uint32_t)(bits >> 63)};
}

static uint64_t pack(barrier b)
{
    return b.left | (uint64_t)b.all << 20 | (uint64_t)((uint32_t)b.n_bytes & 0x3fffff) << 40 |
           (uint64_t)1 << 62 | (uint64_t)b.parity << 63;
}

static _Atomic uint64_t *shared_word(uint64_t *bar)
{
    return (_Atomic uint64_t *)bar;
}

/* Arrivals and bytes that have come, bytes that are expected. The phase ends when nothing is left. */
static const char *change(uint64_t *bar, uint32_t n_arrivals, int32_t n_bytes)
{
    uint64_t old = atomic_load(shared_word(bar)), now;
    do {
        barrier b = unpack(old);
        if (!b.is_barrier || b.all == 0)
            return "an mbarrier that was not initialised";
        if (n_arrivals > b.left)
            return "more arrivals at an mbarrier than its phase has";
        b.left -= n_arrivals;
        b.n_bytes += n_bytes;
        if (b.n_bytes > MOST_BYTES || b.n_bytes < -MOST_BYTES)
            return "more bytes than an mbarrier can count";
        if (b.left == 0 && b.n_bytes == 0) {
            b.left = b.all;
            b.parity ^= 1;
        }
        now = pack(b);
    } while (!atomic_compare_exchange_weak(shared_word(bar), &old, now));
    return NULL;
}

const char *barrier_init(uint64_t *bar, uint32_t n_arrivals)
{
    if (n_arrivals == 0 || n_arrivals > MOST_ARRIVALS)
        return "an mbarrier for a number of arrivals that there is not";
    atomic_store(shared_word(bar), pack((barrier){.left = n_arrivals, .all = n_arrivals}));
    return NULL;
}

const char *barrier_arrive(uint64_t *bar, uint32_t n)
{
    return change(bar, n, 0);
}

const char *barrier_expect(uint64_t *bar, uint32_t n_bytes)
{
    if (n_bytes > MOST_BYTES)
        return "more bytes than an mbarrier can count";
    return change(bar, 0, (int32_t)n_bytes);
}

const char *barrier_complete(uint64_t *bar, uint32_t n_bytes)
{
    if (n_bytes > MOST_BYTES)
        return "more bytes than an mbarrier can count";
    return change(bar, 0, -(int32_t)n_bytes);
}

const char *barrier_test(uint64_t *bar, uint32_t parity, bool *out)
{
    const barrier b = unpack(atomic_load(shared_word(bar)));
    *out = b.parity != (parity & 1);
    return b.is_barrier ? NULL : "an mbarrier that was not initialised";
}

/* ---- Maps ------------------------------------------------------------------------------------ */

enum { MAGIC = 0x70616d74, MOST_BOX = 256 };

typedef struct tensor_map {
    uint32_t magic, n_dims, each; /* bytes of a value */
    uint32_t width;               /* of the swizzle: bytes, 16 is none */
    uint64_t address;
    uint64_t dims[TENSOR_MOST_DIMS];
    uint64_t strides[TENSOR_MOST_DIMS]; /* in bytes, [0] that of values */
    uint16_t box[TENSOR_MOST_DIMS];
} tensor_map;
static_assert(sizeof(tensor_map) <= TENSOR_MAP_BYTES, "a map has room");

/* Bytes of values of CUtensorMapDataType: u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16. */
static uint32_t bytes_of_type(int type)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 0;
}

static const char *check_dims(uint32_t n_dims, uint32_t each, const uint64_t *dims,
                              const uint64_t *strides, const uint32_t *box, const uint32_t *steps)
{
    uint64_t inner = dims[0] * each;
    for (uint32_t i = 0; i < n_dims; i++) {
        if (dims[i] == 0 || dims[i] > (uint64_t)1 << 32)
            return "a size that a tensor map cannot have";
        if (box[i] == 0 || box[i] > MOST_BOX)
            return "a box of more than 256 values along a dimension";
        if (steps[i] != 1)
            return "a tensor map whose steps are not 1, which is not supported";
    }
    for (uint32_t i = 0; i + 1 < n_dims; i++) {
        if (strides[i] % CHUNK || strides[i] >= (uint64_t)1 << 40)
            return "a stride that is no multiple of 16, or 2^40 or more";
        if (strides[i] < inner)
            return "a stride that is less than the dimensions in it";
        inner = strides[i]; /* rows of pages may be fewer than lie between them */
    }
    return NULL;
}

const char *tensor_map_encode(void *map, int type, uint32_t n_dims, void *address,
                              const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                              const uint32_t *steps, int interleave, int swizzle, int promotion,
                              int fill)
{
    static const uint32_t widths[4] = {CHUNK, 32, 64, 128};
    const uint32_t each = bytes_of_type(type);
    if ((uintptr_t)map % 64)
        return "a tensor map that does not begin at a multiple of 64";
    if (!each || n_dims == 0 || n_dims > TENSOR_MOST_DIMS)
        return "a type or a number of dimensions that a tensor map cannot have";
    if (interleave != 0 || fill != 0 || promotion < 0 || promotion > 3)
        return "a tensor map that is interleaved or fills in other than zeros: not supported";
    if (swizzle < 0 || swizzle > 3)
        return "a swizzle that there is not";
    if ((uintptr_t)address % CHUNK)
        return "a tensor that does not begin at a multiple of 16";
    const char *wrong = check_dims(n_dims, each, dims, strides, box, steps);
    if (wrong)
        return wrong;
    const uint32_t row = box[0] * each;
    if (row % CHUNK || (swizzle && row > widths[swizzle]))
        return "rows of a box that are no multiple of 16 bytes, or longer than those of the "
               "swizzle";
    tensor_map m = {.magic = MAGIC,
                    .n_dims = n_dims,
                    .each = each,
                    .width = widths[swizzle],
                    .address = (uint64_t)(uintptr_t)address};
    for (uint32_t i = 0; i < n_dims; i++) {
        m.dims[i] = dims[i];
        m.strides[i] = i ? strides[i - 1] : each;
        m.box[i] = (uint16_t)box[i];
    }
    memset(map, 0, TENSOR_MAP_BYTES);
    memcpy(map, &m, sizeof m);
    return NULL;
}

static const char *read_map(const void *map, tensor_map *out)
{
    memcpy(out, map, sizeof *out);
    return out->magic == MAGIC ? NULL : "this is no tensor map";
}

static uint32_t box_bytes(const tensor_map *m)
{
    uint32_t n = m->each;
    for (uint32_t i = 0; i < m->n_dims; i++)
        n *= m->box[i];
    return n;
}

const char *tensor_box_bytes(const void *map, uint32_t *out)
{
    tensor_map m;
    const char *wrong = read_map(map, &m);
    *out = wrong ? 0 : box_bytes(&m);
    return wrong;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

typedef struct copy {
    struct copy *next;
    uint64_t *bar;
    uint8_t *to;
    uint32_t address, n_bytes;
    const void *from; /* NULL: the bytes, or a box if there is a map */
    uint8_t bytes[CHUNK];
    tensor_map map;
    int32_t at[TENSOR_MOST_DIMS];
} copy;

struct bulk_copies {
    copy *first, **end; /* where the next one goes */
};

bulk_copies *bulk_create(void)
{
    bulk_copies *c = calloc(1, sizeof *c);
    if (c)
        c->end = &c->first;
    return c;
}

static void forget(bulk_copies *c)
{
    while (c->first) {
        copy *old = c->first;
        c->first = old->next;
        free(old);
    }
    c->end = &c->first;
}

void bulk_free(bulk_copies *c)
{
    if (!c)
        return;
    forget(c);
    free(c);
}

/* The rows of a box, one after the other: number `row` of it. */
typedef struct box_row {
    uint32_t n_bytes;
    int64_t first;       /* value, below 0 or behind the last one where it is outside */
    const uint8_t *from; /* where value 0 is; NULL: all of it is outside */
} box_row;

static box_row find_row(const tensor_map *m, const int32_t *at, uint32_t row)
{
    box_row out = {.n_bytes = m->box[0] * m->each, .first = at[0]};
    uint64_t address = m->address;
    bool is_inside = true;
    for (uint32_t i = 1; i < m->n_dims; i++) {
        const int64_t here = (int64_t)at[i] + row % m->box[i];
        row /= m->box[i];
        is_inside = is_inside && here >= 0 && (uint64_t)here < m->dims[i];
        address += (uint64_t)here * m->strides[i];
    }
    out.from = is_inside ? (const uint8_t *)(uintptr_t)address : NULL;
    return out;
}

/* Values of a row of a box that are in the tensor: [*first, *end) of the box. */
static void clip_row(const tensor_map *m, const box_row *r, uint32_t *first, uint32_t *end)
{
    const int64_t before = r->first < 0 ? -r->first : 0;
    const int64_t behind = (int64_t)m->dims[0] - r->first;
    *first = before < m->box[0] ? (uint32_t)before : m->box[0];
    *end = behind < 0 ? 0 : behind < m->box[0] ? (uint32_t)behind : m->box[0];
    if (!r->from || *end < *first)
        *end = *first = 0;
}

static uint32_t n_rows_of(const tensor_map *m)
{
    return box_bytes(m) / (m->box[0] * m->each);
}

/* Chunks of 16 bytes go where the swizzle of their addresses has them. */
static void put_row(const copy *c, uint32_t row, const uint8_t *bytes, uint32_t n_bytes)
{
    const uint32_t mask = c->map.width / CHUNK - 1;
    for (uint32_t i = 0; i < n_bytes; i += CHUNK) {
        const uint32_t plain = c->address + row * n_bytes + i;
        const uint32_t at = plain ^ (plain >> 7 & mask) << 4;
        memcpy(c->to + (at - c->address), bytes + i, CHUNK);
    }
}

static void bring_box(const copy *c)
{
    const tensor_map *m = &c->map;
    uint8_t bytes[MOST_BOX * 8];
    for (uint32_t row = 0; row < n_rows_of(m); row++) {
        const box_row r = find_row(m, c->at, row);
        uint32_t first, end;
        clip_row(m, &r, &first, &end);
        memset(bytes, 0, r.n_bytes);
        if (end > first)
            memcpy(bytes + first * m->each, r.from + (r.first + first) * m->each,
                   (end - first) * m->each);
        put_row(c, row, bytes, r.n_bytes);
    }
}

static const char *bring(const copy *c)
{
    if (c->from)
        memcpy(c->to, c->from, c->n_bytes);
    else if (!c->map.magic)
        memcpy(c->to, c->bytes, c->n_bytes);
    else
        bring_box(c);
    return barrier_complete(c->bar, c->n_bytes);
}

static const char *begin(bulk_copies *c, copy what)
{
    if ((uintptr_t)what.bar % sizeof *what.bar)
        return "an mbarrier that does not begin at a multiple of 8";
    if (!unpack(atomic_load(shared_word(what.bar))).is_barrier)
        return "a bulk copy for an mbarrier that was not initialised";
    copy *new = malloc(sizeof *new);
    if (!new)
        return "no memory for a copy";
    *new = what;
    new->next = NULL;
    *c->end = new;
    c->end = &new->next;
    memset(new->to, 0xff, new->n_bytes);
    return NULL;
}

const char *bulk_load(bulk_copies *c, uint8_t *to, uint32_t address, const void *from,
                      uint32_t n_bytes, uint64_t *bar)
{
    if (address % CHUNK || (uintptr_t)from % CHUNK || n_bytes % CHUNK)
        return "a bulk copy whose places or size are no multiple of 16";
    if (n_bytes == 0)
        return NULL;
    return begin(
        c, (copy){.bar = bar, .to = to, .address = address, .n_bytes = n_bytes, .from = from});
}

const char *bulk_store(bulk_copies *c, uint8_t *to, const void *bytes, uint32_t n_bytes,
                       uint64_t *bar)
{
    copy what = {.bar = bar, .to = to, .n_bytes = n_bytes};
    assert(n_bytes <= sizeof what.bytes);
    memcpy(what.bytes, bytes, n_bytes);
    return begin(c, what);
}

const char *bulk_load_box(bulk_copies *c, uint8_t *to, uint32_t address, const void *map,
                          uint32_t n_dims, const int32_t *at, uint64_t *bar,
                          bulk_may_read *may_read, void *context)
{
    copy what = {.bar = bar, .to = to, .address = address};
    const char *wrong = read_map(map, &what.map);
    if (wrong)
        return wrong;
    if (n_dims != what.map.n_dims)
        return "a box with a number of coordinates that its tensor map has not";
    /* The pattern of a swizzle repeats after 8 of its rows; boxes begin with it. */
    if (address % (what.map.width == CHUNK ? 128 : 8 * what.map.width))
        return "a box that does not begin where its swizzle does";
    memcpy(what.at, at, n_dims * sizeof *at);
    what.n_bytes = box_bytes(&what.map);
    for (uint32_t row = 0; may_read && row < n_rows_of(&what.map); row++) {
        const box_row r = find_row(&what.map, at, row);
        uint32_t first, end;
        clip_row(&what.map, &r, &first, &end);
        if (end > first && !may_read(context, r.from + (r.first + first) * what.map.each,
                                     (uint64_t)(end - first) * what.map.each))
            return "a box of memory that is not there";
    }
    return begin(c, what);
}

const char *bulk_wait(bulk_copies *c, uint64_t *bar, uint32_t parity, bool *out)
{
    const char *wrong = barrier_test(bar, parity, out);
    if (wrong || *out)
        return wrong;
    for (copy **at = &c->first; *at;) {
        copy *now = *at;
        if (now->bar != bar) {
            at = &now->next;
            continue;
        }
        *at = now->next;
        if (!*at)
            c->end = at;
        const char *also = bring(now);
        wrong = wrong ? wrong : also;
        free(now);
    }
    return wrong ? wrong : barrier_test(bar, parity, out);
}

const char *bulk_end(bulk_copies *c)
{
    const char *wrong = c->first ? "a block ends while a bulk copy is under way" : NULL;
    forget(c);
    return wrong;
}
