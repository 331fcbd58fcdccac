/* mbarrier, bulk copies and st.async: the instructions' operands for bulk_copy.h. */
#include <stdlib.h>
#include <string.h>

#include "bulk_copy.h"
#include "ptx_address.h"
#include "ptx_hopper.h"
#include "ptx_races.h"

static bulk_copies *copies_of(warp *w, const instr *i)
{
    team *t = w->block->team;
    if (!t->bulk)
        t->bulk = bulk_create();
    if (!t->bulk)
        warp_fault(w, i, 0, "the machine has no memory left");
    return t->bulk;
}

static uint64_t *barrier_at(warp *w, const instr *i, int lane, uint32_t address)
{
    if (address % 8) {
        warp_fault(w, i, lane, "an mbarrier at 0x%x, no multiple of 8", address);
        return NULL;
    }
    return (uint64_t *)(void *)one_pointer(w, i, lane, address, SPACE_SHARED, 8);
}

/* What a lane does: NULL, or what it did wrong. Whoever has said so itself returns NULL. */
typedef const char *lane_op(warp *w, const instr *i, int lane);

static void for_lanes(warp *w, const instr *i, uint32_t mask, lane_op *op)
{
    for (int lane = 0; lane < N_LANES && !w->block->team->failed; lane++) {
        const char *wrong = mask >> lane & 1 ? op(w, i, lane) : NULL;
        if (wrong)
            warp_fault(w, i, lane, "%s", wrong);
    }
}

static uint32_t word_of(const warp *w, const instr *i, uint32_t where, int lane)
{
    return row_of(w, i->op[where])[lane];
}

/* ---- Barriers -------------------------------------------------------------------------------- */

typedef enum barrier_op { BARRIER_INIT, BARRIER_ARRIVE, BARRIER_EXPECT_AND_ARRIVE } barrier_op;

/* op[0]: the barrier; op[1]: a number. */
static const char *change_barrier(warp *w, const instr *i, int lane)
{
    uint64_t *bar = barrier_at(w, i, lane, word_of(w, i, 0, lane));
    if (!bar)
        return NULL;
    if (i->mode == BARRIER_INIT)
        return barrier_init(bar, word_of(w, i, 1, lane));
    const char *wrong = NULL;
    if (i->mode == BARRIER_EXPECT_AND_ARRIVE)
        wrong = barrier_expect(bar, word_of(w, i, 1, lane));
    return wrong ? wrong : barrier_arrive(bar, 1);
}

static void run_barrier(warp *w, const instr *i, uint32_t mask)
{
    for_lanes(w, i, mask, change_barrier);
}

/* op: the predicate, the barrier, the parity. */
static const char *ask_barrier(warp *w, const instr *i, int lane)
{
    bool out = false;
    uint32_t *p = &w->predicates[i->op[0]];
    uint64_t *bar = barrier_at(w, i, lane, word_of(w, i, 1, lane));
    if (!bar)
        return NULL;
    const char *wrong = bulk_wait(w->block->team->bulk, bar, word_of(w, i, 2, lane), &out);
    if (out)
        races_pass(w->block);
    *p = out ? *p | 1u << lane : *p & ~(1u << lane);
    return wrong;
}

static void run_wait(warp *w, const instr *i, uint32_t mask)
{
    if (copies_of(w, i))
        for_lanes(w, i, mask, ask_barrier);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

enum { ADDRESS_IN_BLOCK = 0xffffff };

/* op: place, source, bytes, barrier. */
static const char *copy_bytes(warp *w, const instr *i, int lane)
{
    const uint32_t to = word_of(w, i, 0, lane), n = word_of(w, i, 2, lane);
    uint8_t *place = one_pointer(w, i, lane, to, SPACE_SHARED, n);
    uint64_t *bar = barrier_at(w, i, lane, word_of(w, i, 3, lane));
    const uint8_t *from = one_pointer(w, i, lane, rows_of(w, i->op[1])[lane], SPACE_GLOBAL, n);
    if (!place || !bar || !from)
        return NULL;
    return bulk_load(w->block->team->bulk, place, to & ADDRESS_IN_BLOCK, from, n, bar);
}

static void run_copy(warp *w, const instr *i, uint32_t mask)
{
    if (copies_of(w, i))
        for_lanes(w, i, mask, copy_bytes);
}

/* op: as above, and a bit for each block of the cluster that gets the bytes. */
static const char *copy_to_all(warp *w, const instr *i, int lane)
{
    const uint32_t to = word_of(w, i, 0, lane), n = word_of(w, i, 2, lane);
    const uint32_t bar_at = word_of(w, i, 3, lane), blocks = word_of(w, i, 4, lane) & 0xffff;
    const uint8_t *from = one_pointer(w, i, lane, rows_of(w, i->op[1])[lane], SPACE_GLOBAL, n);
    if (blocks >> w->block->team->n_blocks)
        return "a copy to blocks that the cluster has not";
    for (uint32_t k = 0; from && blocks >> k; k++) {
        if (!(blocks >> k & 1))
            continue;
        const uint32_t which = (k + 1) << 24, place = to & ADDRESS_IN_BLOCK;
        uint8_t *there = one_pointer(w, i, lane, which | place, SPACE_SHARED, n);
        uint64_t *bar = barrier_at(w, i, lane, which | (bar_at & ADDRESS_IN_BLOCK));
        if (!there || !bar)
            return NULL;
        const char *wrong = bulk_load(w->block->team->bulk, there, place, from, n, bar);
        if (wrong)
            return wrong;
    }
    return NULL;
}

static void run_copy_to_all(warp *w, const instr *i, uint32_t mask)
{
    if (copies_of(w, i))
        for_lanes(w, i, mask, copy_to_all);
}

typedef struct reader {
    warp *w;
    const instr *i;
    int lane;
} reader;

static bool may_read(void *context, const void *from, uint64_t n_bytes)
{
    const reader *r = context;
    return one_pointer(r->w, r->i, r->lane, (uint64_t)(uintptr_t)from, SPACE_GLOBAL,
                       (uint32_t)n_bytes) != NULL;
}

/* op: place, map, barrier; the list: coordinates. */
static const char *copy_box(warp *w, const instr *i, int lane)
{
    const uint32_t *lists = w->kernel->lists + i->first, to = word_of(w, i, 0, lane);
    const uint64_t map_at = rows_of(w, i->op[1])[lane];
    int32_t at[TENSOR_MOST_DIMS];
    uint32_t n_bytes = 0;
    reader r = {w, i, lane};
    const uint8_t *map = one_pointer(w, i, lane, map_at, SPACE_GENERIC, TENSOR_MAP_BYTES);
    uint64_t *bar = barrier_at(w, i, lane, word_of(w, i, 2, lane));
    if (!map || !bar)
        return NULL;
    for (uint32_t k = 0; k < i->n_list; k++)
        at[k] = (int32_t)row_of(w, lists[k])[lane];
    const char *wrong = tensor_box_bytes(map, &n_bytes);
    if (wrong)
        return wrong;
    uint8_t *place = one_pointer(w, i, lane, to, SPACE_SHARED, n_bytes);
    if (!place)
        return NULL;
    return bulk_load_box(w->block->team->bulk, place, to & ADDRESS_IN_BLOCK, map, i->n_list, at,
                         bar, may_read, &r);
}

static void run_box(warp *w, const instr *i, uint32_t mask)
{
    if (copies_of(w, i))
        for_lanes(w, i, mask, copy_box);
}

/* op: place, barrier; the list: words. */
static const char *store_words(warp *w, const instr *i, int lane)
{
    const uint32_t *lists = w->kernel->lists + i->first;
    const uint32_t n_bytes = 4 * i->n_list, to = word_of(w, i, 0, lane);
    uint32_t words[4];
    uint8_t *place = one_pointer(w, i, lane, to, SPACE_SHARED, n_bytes);
    uint64_t *bar = barrier_at(w, i, lane, word_of(w, i, 1, lane));
    if (!place || !bar)
        return NULL;
    for (uint32_t k = 0; k < i->n_list; k++)
        words[k] = row_of(w, lists[k])[lane];
    return to % n_bytes ? "st.async to a place that is no multiple of its size"
                        : bulk_store(w->block->team->bulk, place, words, n_bytes, bar);
}

static void run_store(warp *w, const instr *i, uint32_t mask)
{
    if (copies_of(w, i))
        for_lanes(w, i, mask, store_words);
}

const char *bulk_warp_end(warp *w)
{
    const team *t = w->block->team;
    for (uint32_t k = 0; k < t->n_blocks; k++)
        if (t->blocks[k].n_alive)
            return NULL;
    return t->bulk ? bulk_end(t->bulk) : NULL;
}

void bulk_team_free(team *t)
{
    bulk_free(t->bulk);
    t->bulk = NULL;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

/* The register of an address to which nothing is added. */
static bool plain_address(decoder *d, instr *i, uint32_t where, const operand *o,
                          register_class class)
{
    return o->kind == OPERAND_MEMORY && o->value == 0 &&
           decode_operand(d, i, where, decode_element(d, o, 0), class, false);
}

static decoded decode_mbarrier(decoder *d, const statement *s)
{
    const operand *o = s->operands;
    instr *i;
    if (op_has(s->op, "shared::cluster") && !op_begins(s->op, "mbarrier.arrive.release.cluster"))
        return NOT_MINE;
    if (op_begins(s->op, "mbarrier.try_wait.parity") ||
        op_begins(s->op, "mbarrier.test_wait.parity")) {
        i = s->n == 3 ? decode_add(d, s, KIND_POLL, run_wait) : NULL;
        return i && decode_operand(d, i, 0, &o[0], CLASS_PREDICATE, true) &&
                       plain_address(d, i, 1, &o[1], CLASS_ROW) &&
                       decode_operand(d, i, 2, &o[2], CLASS_ROW, false)
                   ? DECODED
                   : DECODE_FAILED;
    }
    const bool inits = op_begins(s->op, "mbarrier.init"),
               arrives = op_begins(s->op, "mbarrier.arrive");
    const bool expects = op_begins(s->op, "mbarrier.arrive.expect_tx");
    if (!inits && !(arrives && s->n >= 1 && o[0].kind == OPERAND_SINK))
        return NOT_MINE;
    i = decode_add(d, s, KIND_PLAIN, run_barrier);
    if (!i || s->n != (inits ? 2u : expects ? 3u : 2u))
        return DECODE_FAILED;
    i->mode = inits ? BARRIER_INIT : expects ? BARRIER_EXPECT_AND_ARRIVE : BARRIER_ARRIVE;
    return plain_address(d, i, 0, &o[inits ? 0 : 1], CLASS_ROW) &&
                   (i->mode == BARRIER_ARRIVE ||
                    decode_operand(d, i, 1, &o[inits ? 1 : 2], CLASS_ROW, false))
               ? DECODED
               : DECODE_FAILED;
}

static decoded decode_box(decoder *d, const statement *s)
{
    const operand *o = s->operands;
    if (!op_has(s->op, "tile") || s->n != 3 || o[1].kind != OPERAND_MEMORY || o[1].n != 2)
        return NOT_MINE;
    const operand at = *decode_element(d, &o[1], 1);
    instr *i = decode_add(d, s, KIND_PLAIN, run_box);
    return i && at.kind == OPERAND_LIST && at.n <= TENSOR_MOST_DIMS &&
                   plain_address(d, i, 0, &o[0], CLASS_ROW) &&
                   plain_address(d, i, 1, &o[1], CLASS_ROWS) &&
                   plain_address(d, i, 2, &o[2], CLASS_ROW) &&
                   decode_list(d, i, &at, CLASS_ROW, false)
               ? DECODED
               : DECODE_FAILED;
}

decoded decode_bulk(decoder *d, const statement *s)
{
    const operand *o = s->operands;
    if (op_begins(s->op, "mbarrier"))
        return decode_mbarrier(d, s);
    if (op_begins(s->op, "cp.async.bulk.tensor"))
        return decode_box(d, s);
    if (op_begins(s->op, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes") &&
        s->n >= 4) {
        const bool to_all = op_has(s->op, "multicast::cluster");
        instr *i = decode_add(d, s, KIND_PLAIN, to_all ? run_copy_to_all : run_copy);
        if (to_all && !(i && s->n >= 5 && decode_operand(d, i, 4, &o[4], CLASS_ROW, false)))
            return DECODE_FAILED;
        return i && plain_address(d, i, 0, &o[0], CLASS_ROW) &&
                       plain_address(d, i, 1, &o[1], CLASS_ROWS) &&
                       decode_operand(d, i, 2, &o[2], CLASS_ROW, false) &&
                       plain_address(d, i, 3, &o[3], CLASS_ROW)
                   ? DECODED
                   : DECODE_FAILED;
    }
    if (op_begins(s->op, "st.async") && op_has(s->op, "shared::cluster") && s->n == 3 &&
        (op_has(s->op, "f32") || op_has(s->op, "b32") || op_has(s->op, "u32"))) {
        instr *i = decode_add(d, s, KIND_PLAIN, run_store);
        return i && plain_address(d, i, 0, &o[0], CLASS_ROW) &&
                       plain_address(d, i, 1, &o[2], CLASS_ROW) &&
                       decode_list(d, i, &o[1], CLASS_ROW, false) && i->n_list <= 4
                   ? DECODED
                   : DECODE_FAILED;
    }
    return NOT_MINE;
}
