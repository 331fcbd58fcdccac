/*
 * Which rows the registers of a kernel lie in. PTX has a register for each value, thousands of them;
 * those that are not needed at the same time share a row, so that a warp's registers stay in the
 * processor's cache.
 *
 * What is needed where follows from the branches; a register then has its row from the first place
 * in the text where it is needed to the last one.
 */
#include <stdlib.h>
#include <string.h>

#include "ptx_decode.h"

typedef struct range {
    uint32_t from, to; /* instruction * 2: it is read; + 1: it is written */
    uint32_t next_from, next_to;
    uint32_t place;
} range;

enum { NOWHERE = 0xFFFFFFFFu };

typedef struct work {
    const slot_problem *p;
    uint32_t n_blocks, n_words;
    uint32_t *begin;                     /* [n_blocks + 1] of blocks of code */
    uint32_t *block_of;                  /* of an instruction that begins a block */
    uint32_t *use_of;                    /* [n_code + 1] first use of an instruction */
    uint64_t *in, *out, *written, *read; /* [n_blocks][n_words] */
    range *ranges;
    uint32_t *from_list, *to_list; /* [2 * n_code + 2] */
} work;

static bool is_end(const instr *i)
{
    return i->kind == KIND_BRANCH || i->kind == KIND_EXIT;
}

static bool find_blocks(work *k)
{
    const slot_problem *p = k->p;
    uint8_t *starts = calloc(p->n_code + 1, 1);
    k->begin = malloc(((size_t)p->n_code + 1) * sizeof *k->begin);
    k->block_of = malloc(((size_t)p->n_code + 1) * sizeof *k->block_of);
    k->use_of = malloc(((size_t)p->n_code + 2) * sizeof *k->use_of);
    bool done = starts && k->begin && k->block_of && k->use_of;
    if (done) {
        starts[0] = 1;
        for (uint32_t i = 0; i < p->n_code; i++) {
            if (is_end(&p->code[i]))
                starts[i + 1] = 1;
            if (p->code[i].kind == KIND_BRANCH)
                starts[p->code[i].target] = 1;
        }
        for (uint32_t i = 0; i < p->n_code; i++) {
            k->block_of[i] = NOWHERE;
            if (starts[i]) {
                k->block_of[i] = k->n_blocks;
                k->begin[k->n_blocks++] = i;
            }
        }
        k->begin[k->n_blocks] = p->n_code;
        uint32_t u = 0;
        for (uint32_t i = 0; i <= p->n_code; i++) {
            while (u < p->n_uses && p->uses[u].instr < i)
                u++;
            k->use_of[i] = u;
        }
    }
    free(starts);
    return done;
}

static void set_bit(uint64_t *set, uint32_t n)
{
    set[n / 64] |= (uint64_t)1 << n % 64;
}

static bool has_bit(const uint64_t *set, uint32_t n)
{
    return set[n / 64] >> n % 64 & 1;
}

/* What a block reads before it writes it, and what it writes whatever happens. */
static void look_at_blocks(work *k)
{
    const slot_problem *p = k->p;
    for (uint32_t b = 0; b < k->n_blocks; b++) {
        uint64_t *read = k->read + (size_t)b * k->n_words;
        uint64_t *written = k->written + (size_t)b * k->n_words;
        for (uint32_t i = k->begin[b]; i < k->begin[b + 1]; i++) {
            for (int pass = 0; pass < 2; pass++)
                for (uint32_t u = k->use_of[i]; u < k->use_of[i + 1]; u++) {
                    const reg_use *use = &p->uses[u];
                    if (use->is_write != (pass == 1))
                        continue;
                    /* What only some lanes write keeps what the others had. */
                    bool is_whole = use->is_write && p->code[i].guard == NO_GUARD;
                    if (is_whole)
                        set_bit(written, use->number);
                    else if (!has_bit(written, use->number))
                        set_bit(read, use->number);
                }
        }
    }
}

static bool join(work *k, uint32_t b, uint32_t next)
{
    uint64_t *out = k->out + (size_t)b * k->n_words, changed = 0;
    const uint64_t *in = k->in + (size_t)next * k->n_words;
    for (uint32_t n = 0; n < k->n_words; n++) {
        changed |= in[n] & ~out[n];
        out[n] |= in[n];
    }
    return changed != 0;
}

static void flow(work *k)
{
    const slot_problem *p = k->p;
    for (bool changed = true, first = true; changed; first = false) {
        changed = false;
        for (uint32_t b = k->n_blocks; b-- > 0;) {
            const instr *last = &p->code[k->begin[b + 1] - 1];
            bool grew = first;
            if (last->kind == KIND_BRANCH)
                grew |= join(k, b, k->block_of[last->target]);
            if (b + 1 < k->n_blocks && (!is_end(last) || last->guard != NO_GUARD))
                grew |= join(k, b, b + 1);
            if (!grew)
                continue;
            uint64_t *in = k->in + (size_t)b * k->n_words;
            const uint64_t *out = k->out + (size_t)b * k->n_words;
            const uint64_t *read = k->read + (size_t)b * k->n_words;
            const uint64_t *written = k->written + (size_t)b * k->n_words;
            for (uint32_t n = 0; n < k->n_words; n++) {
                uint64_t next = read[n] | (out[n] & ~written[n]);
                changed |= next != in[n];
                in[n] = next;
            }
        }
    }
}

static void stretch(range *r, uint32_t at)
{
    if (r->from == NOWHERE || at < r->from)
        r->from = at;
    if (r->to == NOWHERE || at > r->to)
        r->to = at;
}

static void stretch_set(work *k, const uint64_t *set, uint32_t at)
{
    for (uint32_t n = 0; n < k->n_words; n++)
        for (uint64_t bits = set[n]; bits; bits &= bits - 1)
            stretch(&k->ranges[n * 64 + (uint32_t)__builtin_ctzll(bits)], at);
}

static bool find_ranges(work *k)
{
    const slot_problem *p = k->p;
    const uint32_t n_places = 2 * p->n_code + 2;
    k->ranges = malloc(((size_t)p->n_registers + 1) * sizeof *k->ranges);
    k->from_list = malloc((size_t)n_places * sizeof *k->from_list);
    k->to_list = malloc((size_t)n_places * sizeof *k->to_list);
    if (!k->ranges || !k->from_list || !k->to_list)
        return false;
    for (uint32_t r = 0; r < p->n_registers; r++)
        k->ranges[r] = (range){.from = NOWHERE, .to = NOWHERE};
    for (uint32_t u = 0; u < p->n_uses; u++)
        stretch(&k->ranges[p->uses[u].number], 2 * p->uses[u].instr + p->uses[u].is_write);
    for (uint32_t b = 0; b < k->n_blocks; b++) {
        stretch_set(k, k->in + (size_t)b * k->n_words, 2 * k->begin[b]);
        stretch_set(k, k->out + (size_t)b * k->n_words, 2 * k->begin[b + 1] - 1);
    }
    memset(k->from_list, 0xFF, (size_t)n_places * sizeof *k->from_list);
    memset(k->to_list, 0xFF, (size_t)n_places * sizeof *k->to_list);
    for (uint32_t r = 0; r < p->n_registers; r++) {
        range *each = &k->ranges[r];
        if (each->from == NOWHERE)
            continue;
        each->next_from = k->from_list[each->from];
        k->from_list[each->from] = r;
        each->next_to = k->to_list[each->to];
        k->to_list[each->to] = r;
    }
    return true;
}

/* Places that are free are taken again, the last one first: it is still in the cache. */
static bool give_places(work *k, uint32_t n_places[N_CLASSES])
{
    const slot_problem *p = k->p;
    uint32_t *free_places[N_CLASSES], n_free[N_CLASSES] = {0};
    bool done = true;
    for (int c = 0; c < N_CLASSES; c++) {
        n_places[c] = 0;
        free_places[c] = malloc(((size_t)p->n_registers + 1) * sizeof **free_places);
        done = done && free_places[c];
    }
    for (uint32_t at = 0; done && at < 2 * p->n_code + 2; at++) {
        for (uint32_t r = k->from_list[at]; r != NOWHERE; r = k->ranges[r].next_from) {
            int c = p->classes[r];
            k->ranges[r].place = n_free[c] ? free_places[c][--n_free[c]] : n_places[c]++;
        }
        for (uint32_t r = k->to_list[at]; r != NOWHERE; r = k->ranges[r].next_to) {
            int c = p->classes[r];
            free_places[c][n_free[c]++] = k->ranges[r].place;
        }
    }
    for (int c = 0; c < N_CLASSES; c++)
        free(free_places[c]);
    return done;
}

/* Rows of two words for each lane lie in front, because they must be aligned. */
static void write_places(const work *k, const uint32_t n_places[N_CLASSES])
{
    const slot_problem *p = k->p;
    for (uint32_t u = 0; u < p->n_uses; u++) {
        const reg_use *use = &p->uses[u];
        const uint32_t place = k->ranges[use->number].place;
        uint32_t code = use->class == CLASS_PREDICATE ? place
                        : use->class == CLASS_ROWS    ? place * 2 * N_LANES
                                                   : (2 * n_places[CLASS_ROWS] + place) * N_LANES;
        instr *i = &p->code[use->instr];
        if (use->where == GUARD_PLACE)
            i->guard = code;
        else if (use->where >= N_OPERANDS)
            p->lists[use->where - N_OPERANDS] = code;
        else
            i->op[use->where] = code;
    }
}

bool slots_assign(const slot_problem *p, uint32_t *n_rows, uint32_t *n_predicates)
{
    work k = {.p = p, .n_words = p->n_registers / 64 + 1};
    uint32_t n_places[N_CLASSES];
    bool done = find_blocks(&k);
    if (done) {
        size_t all = (size_t)k.n_blocks * k.n_words;
        k.in = calloc(4 * all, sizeof *k.in);
        done = k.in != NULL;
        k.out = k.in + all;
        k.read = k.out + all;
        k.written = k.read + all;
    }
    if (done) {
        look_at_blocks(&k);
        flow(&k);
        done = find_ranges(&k) && give_places(&k, n_places);
    }
    if (done) {
        write_places(&k, n_places);
        *n_rows = 2 * n_places[CLASS_ROWS] + n_places[CLASS_ROW];
        *n_predicates = n_places[CLASS_PREDICATE];
    }
    free(k.begin);
    free(k.block_of);
    free(k.use_of);
    free(k.in);
    free(k.ranges);
    free(k.from_list);
    free(k.to_list);
    return done;
}
