/* What lanes do together, barriers, special registers, and moves that pack and unpack. */
#include <string.h>
#include <time.h>

#include "ptx_decode.h"
#include "ptx_run.h"

/* ---- Exchanges between lanes ----------------------------------------------------------------- */

enum { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };

/* op: result, value, distance, bounds, mask, predicate of the result. A lane that is not there gives
 * what nobody counts on. */
static void shuffle(warp *w, const instr *i, uint32_t mask)
{
    const uint32_t *a = row_of(w, i->op[1]), *b = row_of(w, i->op[2]), *c = row_of(w, i->op[3]);
    uint32_t r[N_LANES], from[N_LANES], is_in[N_LANES], in_bounds = 0;
    EACH_LANE
    {
        const uint32_t segment = c[l] >> 8 & 31, clamp = c[l] & 31, by = b[l] & 31;
        const uint32_t lane = (uint32_t)l, most = (lane & segment) | (clamp & ~segment);
        const uint32_t up = lane - by, down = lane + by, across = lane ^ by;
        const uint32_t named = (lane & segment) | (by & ~segment);
        const uint32_t to = i->mode == SHUFFLE_UP     ? up
                            : i->mode == SHUFFLE_DOWN ? down
                            : i->mode == SHUFFLE_BFLY ? across
                                                      : named;
        const uint32_t holds = i->mode == SHUFFLE_UP ? (int32_t)to >= (int32_t)most : to <= most;
        is_in[l] = holds ? 1u << l : 0;
        from[l] = holds ? to : lane;
    }
    for (int l = 0; l < N_LANES; l++)
        in_bounds |= is_in[l];
    for (int l = 0; l < N_LANES; l++)
        r[l] = a[from[l]];
    if (mask != FULL_MASK)
        EACH_LANE r[l] = mask >> from[l] & 1 ? r[l] : 0xFFFFFFFF;
    if (i->op[0] != SINK) {
        uint32_t *d = row_to(w, i->op[0]);
        FOR_LANES(mask, d[l] = r[l];);
    }
    if (i->op[5] != SINK) {
        uint32_t *p = &w->predicates[i->op[5]];
        *p = (*p & ~mask) | (in_bounds & mask);
    }
}

enum { VOTE_BALLOT, VOTE_ALL, VOTE_ANY, VOTE_UNI };

/* op: result, predicate; i->space: the predicate is negated. */
static void vote(warp *w, const instr *i, uint32_t mask)
{
    uint32_t votes = w->predicates[i->op[1]];
    votes = (i->is_signed ? ~votes : votes) & mask;
    if (i->mode == VOTE_BALLOT) {
        uint32_t *d = row_to(w, i->op[0]);
        FOR_LANES(mask, d[l] = votes;);
        return;
    }
    bool is_true = i->mode == VOTE_ALL   ? votes == mask
                   : i->mode == VOTE_ANY ? votes != 0
                                         : votes == 0 || votes == mask;
    uint32_t *p = &w->predicates[i->op[0]];
    *p = (*p & ~mask) | (is_true ? mask : 0);
}

enum {
    REDUX_ADD,
    REDUX_MIN_S,
    REDUX_MAX_S,
    REDUX_MIN_U,
    REDUX_MAX_U,
    REDUX_AND,
    REDUX_OR,
    REDUX_XOR
};

static void redux(warp *w, const instr *i, uint32_t mask)
{
    const uint32_t *a = row_of(w, i->op[1]);
    uint32_t *d = row_to(w, i->op[0]), r = a[__builtin_ctz(mask)];
    for (uint32_t rest = mask & (mask - 1); rest; rest &= rest - 1) {
        const uint32_t x = a[__builtin_ctz(rest)];
        switch (i->mode) {
        case REDUX_ADD:
            r += x;
            break;
        case REDUX_MIN_S:
            r = (int32_t)x < (int32_t)r ? x : r;
            break;
        case REDUX_MAX_S:
            r = (int32_t)x > (int32_t)r ? x : r;
            break;
        case REDUX_MIN_U:
            r = x < r ? x : r;
            break;
        case REDUX_MAX_U:
            r = x > r ? x : r;
            break;
        case REDUX_AND:
            r &= x;
            break;
        case REDUX_OR:
            r |= x;
            break;
        default:
            r ^= x;
            break;
        }
    }
    FOR_LANES(mask, d[l] = r;);
}

static void match_any(warp *w, const instr *i, uint32_t mask)
{
    const uint32_t *a = row_of(w, i->op[1]);
    uint32_t r[N_LANES];
    for (int l = 0; l < N_LANES; l++) {
        r[l] = 0;
        for (int o = 0; o < N_LANES; o++)
            r[l] |= (uint32_t)(a[o] == a[l]) << o;
        r[l] &= mask;
    }
    uint32_t *d = row_to(w, i->op[0]);
    FOR_LANES(mask, d[l] = r[l];);
}

static void active_mask(warp *w, const instr *i, uint32_t mask)
{
    uint32_t *d = row_to(w, i->op[0]);
    FOR_LANES(mask, d[l] = mask;);
}

/* elect.sync: the first lane is chosen. */
static void elect(warp *w, const instr *i, uint32_t mask)
{
    const uint32_t first = (uint32_t)__builtin_ctz(mask);
    if (i->op[0] != SINK) {
        uint32_t *d = row_to(w, i->op[0]);
        FOR_LANES(mask, d[l] = first;);
    }
    uint32_t *p = &w->predicates[i->op[1]];
    *p = (*p & ~mask) | 1u << first;
}

/*
 * A block has the registers it is launched with: here as many as fit evenly, which is what compilers take
 * where a kernel asks for more later. A warp that asks waits for what others give back; whether they do is
 * known when all have changed theirs.
 */
static void set_registers(warp *w, const instr *i, uint32_t mask)
{
    enum { ALL = 65536, MOST = 248 };
    block *b = w->block;
    const int32_t even = ALL / (int32_t)b->n_threads / 8 * 8, launched = even < MOST ? even : MOST;
    if (!w->registers)
        b->n_resized++;
    b->spare += N_LANES * ((w->registers ? w->registers : launched) - (int32_t)i->offset);
    w->registers = (int32_t)i->offset;
    if (b->n_resized == (int32_t)b->n_warps && b->spare < 0)
        warp_fault(w, i, __builtin_ctz(mask), "%d registers too few are given back", -b->spare);
}

static void nothing(warp *w, const instr *i, uint32_t mask)
{
    (void)w;
    (void)i;
    (void)mask;
}

/* ---- Special registers ----------------------------------------------------------------------- */

typedef enum special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    SMID,
    NSMID,
    CLOCK,
    CLOCK64,
    GLOBALTIMER,
    CLUSTERID_X,
    NCLUSTERID_X,
    CLUSTER_CTARANK,
    CLUSTER_NCTARANK,
    CLUSTER_CTAID_X,
    CLUSTER_NCTAID_X,
    LANEMASK_LT,
    LANEMASK_LE,
    LANEMASK_EQ,
    LANEMASK_GT,
    LANEMASK_GE,
    DYNAMIC_SMEM_SIZE,
    TOTAL_SMEM_SIZE,
    N_SPECIALS,
} special;

static const char *const special_names[N_SPECIALS] = {
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%laneid",
    "%warpid",
    "%smid",
    "%nsmid",
    "%clock",
    "%clock64",
    "%globaltimer",
    "%clusterid.x",
    "%nclusterid.x",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%cluster_ctaid.x",
    "%cluster_nctaid.x",
    "%lanemask_lt",
    "%lanemask_le",
    "%lanemask_eq",
    "%lanemask_gt",
    "%lanemask_ge",
    "%dynamic_smem_size",
    "%total_smem_size",
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t special_value(const warp *w, special s, uint32_t l)
{
    const block *b = w->block;
    const launch *g = b->team->launch;
    const uint32_t thread = w->index * N_LANES + l, bit = 1u << l;
    switch (s) {
    case TID_X:
        return thread % g->block[0];
    case TID_Y:
        return thread / g->block[0] % g->block[1];
    case TID_Z:
        return thread / g->block[0] / g->block[1];
    case NTID_X:
    case NTID_Y:
    case NTID_Z:
        return g->block[s - NTID_X];
    case CTAID_X:
    case CTAID_Y:
    case CTAID_Z:
        return b->index[s - CTAID_X];
    case NCTAID_X:
    case NCTAID_Y:
    case NCTAID_Z:
        return g->grid[s - NCTAID_X];
    case LANEID:
        return l;
    case WARPID:
        return w->index;
    case SMID:
        return (b->index[0] + b->index[1] + b->index[2]) % g->n_processors;
    case NSMID:
        return g->n_processors;
    case CLOCK:
    case CLOCK64:
    case GLOBALTIMER:
        return now_ns();
    case CLUSTERID_X:
        return b->index[0] / g->cluster;
    case NCLUSTERID_X:
        return g->grid[0] / g->cluster;
    case CLUSTER_CTARANK:
    case CLUSTER_CTAID_X:
        return b->rank;
    case CLUSTER_NCTARANK:
    case CLUSTER_NCTAID_X:
        return g->cluster;
    case LANEMASK_LT:
        return bit - 1;
    case LANEMASK_LE:
        return (bit - 1) | bit;
    case LANEMASK_EQ:
        return bit;
    case LANEMASK_GT:
        return ~((bit - 1) | bit);
    case LANEMASK_GE:
        return ~(bit - 1);
    case DYNAMIC_SMEM_SIZE:
        return g->shared_bytes;
    case TOTAL_SMEM_SIZE:
        return g->all_shared;
    default:
        return 0;
    }
}

/* Whether its lanes have values of their own. */
static bool differs_by_lane(special s)
{
    return s <= TID_Z || s == LANEID || (s >= LANEMASK_LT && s <= LANEMASK_GE);
}

static void read_special(warp *w, const instr *i, uint32_t mask)
{
    const special s = (special)i->mode;
    uint64_t value[N_LANES];
    if (s == TID_X && w->block->team->launch->block[1] * w->block->team->launch->block[2] == 1) {
        const uint64_t first = w->index * N_LANES;
        EACH_LANE value[l] = first + (uint64_t)l;
    } else if (differs_by_lane(s)) {
        for (uint32_t l = 0; l < N_LANES; l++)
            value[l] = special_value(w, s, l);
    } else {
        const uint64_t same = special_value(w, s, 0);
        EACH_LANE value[l] = same;
    }
    if (i->is_wide) {
        uint64_t *d = (uint64_t *)row_to(w, i->op[0]);
        FOR_LANES(mask, d[l] = value[l];);
    } else {
        uint32_t *d = row_to(w, i->op[0]);
        FOR_LANES(mask, d[l] = (uint32_t)value[l];);
    }
}

/* ---- Packing --------------------------------------------------------------------------------- */

/* op[0] = {op[1], op[2]}; i->n_bytes: of a part. */
static void pack(warp *w, const instr *i, uint32_t mask)
{
    const uint32_t *a = row_of(w, i->op[1]), *b = row_of(w, i->op[2]);
    if (i->n_bytes == 2) {
        uint32_t *d = row_to(w, i->op[0]);
        FOR_LANES(mask, d[l] = (a[l] & 0xFFFF) | b[l] << 16;);
    } else {
        uint64_t *d = (uint64_t *)row_to(w, i->op[0]);
        FOR_LANES(mask, d[l] = a[l] | (uint64_t)b[l] << 32;);
    }
}

/* {op[0], op[1]} = op[2]; one of them may lie on the input. */
static void unpack(warp *w, const instr *i, uint32_t mask)
{
    uint32_t low[N_LANES], high[N_LANES];
    if (i->n_bytes == 2) {
        const uint32_t *a = row_of(w, i->op[2]);
        EACH_LANE low[l] = a[l] & 0xFFFF;
        EACH_LANE high[l] = a[l] >> 16;
    } else {
        const uint64_t *a = rows_of(w, i->op[2]);
        EACH_LANE low[l] = (uint32_t)a[l];
        EACH_LANE high[l] = (uint32_t)(a[l] >> 32);
    }
    if (i->op[0] != SINK) {
        uint32_t *d = row_to(w, i->op[0]);
        FOR_LANES(mask, d[l] = low[l];);
    }
    if (i->op[1] != SINK) {
        uint32_t *d = row_to(w, i->op[1]);
        FOR_LANES(mask, d[l] = high[l];);
    }
}

/* i->mode: 1 or 0, for all lanes. */
static void set_predicate(warp *w, const instr *i, uint32_t mask)
{
    uint32_t *p = &w->predicates[i->op[0]];
    *p = (*p & ~mask) | (i->mode ? mask : 0);
}

static decoded decode_mov(decoder *d, const statement *s)
{
    if (s->n != 2)
        return NOT_MINE;
    if (op_has(s->op, "pred") && s->operands[1].kind == OPERAND_CONSTANT) {
        instr *i = decode_add(d, s, KIND_PLAIN, set_predicate);
        if (!i)
            return DECODE_FAILED;
        i->mode = s->operands[1].value != 0;
        return decode_operand(d, i, 0, &s->operands[0], CLASS_PREDICATE, true) ? DECODED
                                                                               : DECODE_FAILED;
    }
    const operand *to = &s->operands[0], *from = &s->operands[1];
    const bool is_64 = strstr(s->op, "64") != NULL, is_32 = strstr(s->op, "32") != NULL;
    const register_class whole = is_64 ? CLASS_ROWS : CLASS_ROW;
    if (from->kind == OPERAND_SPECIAL && (is_64 || is_32)) {
        for (int n = 0; n < N_SPECIALS; n++)
            if (strlen(special_names[n]) == from->name_length &&
                memcmp(special_names[n], from->name, from->name_length) == 0) {
                instr *i = decode_add(d, s, KIND_PLAIN, read_special);
                if (!i)
                    return DECODE_FAILED;
                i->mode = (uint8_t)n;
                i->is_wide = is_64;
                return decode_operand(d, i, 0, to, whole, true) ? DECODED : DECODE_FAILED;
            }
        return NOT_MINE;
    }
    const bool packs = from->kind == OPERAND_LIST && from->n == 2;
    const bool unpacks = to->kind == OPERAND_LIST && to->n == 2;
    if (packs == unpacks || (!is_64 && !is_32))
        return NOT_MINE;
    instr *i = decode_add(d, s, KIND_PLAIN, packs ? pack : unpack);
    if (!i)
        return DECODE_FAILED;
    i->n_bytes = is_64 ? 4 : 2;
    const operand low = *decode_element(d, packs ? from : to, 0);
    const operand high = *decode_element(d, packs ? from : to, 1);
    bool done = packs ? decode_operand(d, i, 0, to, whole, true) &&
                            decode_operand(d, i, 1, &low, CLASS_ROW, false) &&
                            decode_operand(d, i, 2, &high, CLASS_ROW, false)
                      : decode_operand(d, i, 2, from, whole, false) &&
                            decode_operand(d, i, 0, &low, CLASS_ROW, true) &&
                            decode_operand(d, i, 1, &high, CLASS_ROW, true);
    return done ? DECODED : DECODE_FAILED;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

/* The number of the first of these words that the operation has. */
static int word_of(const char *op, const char *const *words, int n)
{
    for (int k = 0; k < n; k++)
        if (op_has(op, words[k]))
            return k;
    return -1;
}

/* Lanes that must be there are named by the operand that becomes op[4]. */
static instr *add_together(decoder *d, const statement *s, op_run *run, const operand *members)
{
    instr *i = decode_add(d, s, KIND_TOGETHER, run);
    return i && decode_operand(d, i, 4, members, CLASS_ROW, false) ? i : NULL;
}

static decoded decode_shuffle(decoder *d, const statement *s)
{
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    const int mode = word_of(s->op, modes, 4);
    const uint32_t has_predicate = s->n == 6;
    if (mode < 0 || (s->n != 5 && s->n != 6))
        return NOT_MINE;
    instr *i = add_together(d, s, shuffle, &s->operands[4 + has_predicate]);
    if (!i)
        return DECODE_FAILED;
    i->mode = (uint8_t)mode;
    i->op[5] = SINK;
    bool done = decode_operand(d, i, 0, &s->operands[0], CLASS_ROW, true);
    if (has_predicate)
        done = done && decode_operand(d, i, 5, &s->operands[1], CLASS_PREDICATE, true);
    for (uint32_t k = 1; k < 4; k++)
        done = done && decode_operand(d, i, k, &s->operands[k + has_predicate], CLASS_ROW, false);
    return done ? DECODED : DECODE_FAILED;
}

static decoded decode_vote(decoder *d, const statement *s)
{
    static const char *const modes[] = {"ballot", "all", "any", "uni"};
    const int mode = word_of(s->op, modes, 4);
    if (mode < 0 || s->n != 3)
        return NOT_MINE;
    instr *i = add_together(d, s, vote, &s->operands[2]);
    if (!i)
        return DECODE_FAILED;
    operand from = s->operands[1];
    i->mode = (uint8_t)mode;
    i->is_signed = from.is_not;
    from.is_not = false;
    return decode_operand(d, i, 0, &s->operands[0],
                          mode == VOTE_BALLOT ? CLASS_ROW : CLASS_PREDICATE, true) &&
                   decode_operand(d, i, 1, &from, CLASS_PREDICATE, false)
               ? DECODED
               : DECODE_FAILED;
}

static decoded decode_redux(decoder *d, const statement *s)
{
    static const char *const modes[] = {"add", "min", "max", "min", "max", "and", "or", "xor"};
    int mode = word_of(s->op, modes, 8);
    if (mode < 0 || s->n != 3)
        return NOT_MINE;
    if ((mode == REDUX_MIN_S || mode == REDUX_MAX_S) && op_has(s->op, "u32"))
        mode += REDUX_MIN_U - REDUX_MIN_S;
    instr *i = add_together(d, s, redux, &s->operands[2]);
    if (!i)
        return DECODE_FAILED;
    i->mode = (uint8_t)mode;
    return decode_operand(d, i, 0, &s->operands[0], CLASS_ROW, true) &&
                   decode_operand(d, i, 1, &s->operands[1], CLASS_ROW, false)
               ? DECODED
               : DECODE_FAILED;
}

static decoded decode_match(decoder *d, const statement *s)
{
    if (strcmp(s->op, "match.any.sync.b32") != 0 || s->n != 3)
        return NOT_MINE;
    instr *i = add_together(d, s, match_any, &s->operands[2]);
    return i && decode_operand(d, i, 0, &s->operands[0], CLASS_ROW, true) &&
                   decode_operand(d, i, 1, &s->operands[1], CLASS_ROW, false)
               ? DECODED
               : DECODE_FAILED;
}

static decoded decode_elect(decoder *d, const statement *s)
{
    if (s->n != 3)
        return NOT_MINE;
    instr *i = add_together(d, s, elect, &s->operands[2]);
    return i && decode_operand(d, i, 0, &s->operands[0], CLASS_ROW, true) &&
                   decode_operand(d, i, 1, &s->operands[1], CLASS_PREDICATE, true)
               ? DECODED
               : DECODE_FAILED;
}

/* bar.sync a (, threads), bar.arrive a, threads; op[0] the barrier, op[1] the threads. i->mode: 1 goes
 * on; i->is_wide: op[1] is there. */
static decoded decode_barrier(decoder *d, const statement *s)
{
    if (op_has(s->op, "warp")) {
        instr *i = s->n == 1 ? decode_add(d, s, KIND_WARP_SYNC, nothing) : NULL;
        return i && decode_operand(d, i, 4, &s->operands[0], CLASS_ROW, false) ? DECODED
                                                                               : DECODE_FAILED;
    }
    if (op_has(s->op, "red") || s->n < 1 || s->n > 2)
        return NOT_MINE;
    instr *i = decode_add(d, s, KIND_BARRIER, nothing);
    if (!i)
        return DECODE_FAILED;
    i->mode = op_has(s->op, "arrive");
    i->is_wide = s->n == 2;
    return decode_operand(d, i, 0, &s->operands[0], CLASS_ROW, false) &&
                   (s->n == 1 || decode_operand(d, i, 1, &s->operands[1], CLASS_ROW, false))
               ? DECODED
               : DECODE_FAILED;
}

decoded decode_warp(decoder *d, const statement *s)
{
    if (op_begins(s->op, "mov"))
        return decode_mov(d, s);
    if (op_begins(s->op, "shfl.sync"))
        return decode_shuffle(d, s);
    if (op_begins(s->op, "vote.sync"))
        return decode_vote(d, s);
    if (op_begins(s->op, "redux.sync"))
        return decode_redux(d, s);
    if (op_begins(s->op, "match"))
        return decode_match(d, s);
    if (op_begins(s->op, "elect.sync"))
        return decode_elect(d, s);
    if (op_begins(s->op, "barrier.cluster")) {
        bool waits = op_has(s->op, "wait");
        instr *i = decode_add(d, s, KIND_CLUSTER_WAIT, nothing);
        if (i)
            i->mode = waits;
        return i ? DECODED : DECODE_FAILED;
    }
    if (op_begins(s->op, "bar") || op_begins(s->op, "barrier"))
        return decode_barrier(d, s);
    if (strcmp(s->op, "activemask.b32") == 0 && s->n == 1) {
        instr *i = decode_add(d, s, KIND_PLAIN, active_mask);
        return i && decode_operand(d, i, 0, &s->operands[0], CLASS_ROW, true) ? DECODED
                                                                              : DECODE_FAILED;
    }
    if (op_begins(s->op, "nanosleep"))
        return decode_add(d, s, KIND_POLL, nothing) ? DECODED : DECODE_FAILED;
    if (op_begins(s->op, "griddepcontrol.wait"))
        return decode_add(d, s, KIND_LAUNCH_WAIT, nothing) ? DECODED : DECODE_FAILED;
    if (op_begins(s->op, "griddepcontrol.launch_dependents")) {
        decode_lets_next(d);
        return decode_add(d, s, KIND_PLAIN, nothing) ? DECODED : DECODE_FAILED;
    }
    if (op_begins(s->op, "setmaxnreg")) {
        instr *i = decode_add(d, s, KIND_PLAIN, set_registers);
        if (!i || s->n != 1 || s->operands[0].kind != OPERAND_CONSTANT)
            return DECODE_FAILED;
        i->offset = (int64_t)s->operands[0].value;
        return DECODED;
    }
    return NOT_MINE;
}
