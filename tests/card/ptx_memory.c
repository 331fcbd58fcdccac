/* Loads, stores, atomic operations, and what makes addresses of one space those of another. */
#include <string.h>

#include "ptx_address.h"
#include "ptx_decode.h"
#include "ptx_races.h"

/* ---- Loads ----------------------------------------------------------------------------------- */

#define LOAD_LANES(T, R)                                                                           \
    do {                                                                                           \
        R *d = (R *)row_to(w, lists[e]), r[N_LANES];                                               \
        for (int l = 0; l < N_LANES; l++) {                                                        \
            T x;                                                                                   \
            memcpy(&x, at[l] + e * sizeof x, sizeof x);                                            \
            r[l] = (R)x;                                                                           \
        }                                                                                          \
        FOR_LANES(mask, d[l] = r[l];);                                                             \
    } while (0)

/* Whether these are 32 elements of 4 bytes that follow each other. */
static bool is_row(uint8_t *const at[N_LANES])
{
    uint64_t differs = 0;
    for (int l = 0; l < N_LANES; l++)
        differs |= (uint64_t)(uintptr_t)at[l] ^ ((uint64_t)(uintptr_t)at[0] + 4 * (uint64_t)l);
    return differs == 0;
}

static void load(warp *w, const instr *i, uint32_t mask)
{
    uint8_t *at[N_LANES];
    uint32_t all = (uint32_t)i->n_bytes * i->n_elements;
    if (!lane_pointers(w, i, 1, i->offset, (space_kind)i->space, all, all, mask, at))
        return;
    if (w->block->uses)
        races_note(w, i, mask, at, all, false);
    const uint32_t *lists = w->kernel->lists + i->first;
    const int kind = i->n_bytes * 4 + i->is_signed * 2 + i->is_wide;
    if (all == 4 && !i->is_wide && mask == FULL_MASK && lists[0] != SINK && is_row(at)) {
        memcpy(row_to(w, lists[0]), at[0], N_LANES * 4);
        return;
    }
    for (uint32_t e = 0; e < i->n_elements; e++) {
        if (lists[e] == SINK)
            continue;
        switch (kind) {
        case 4:
            LOAD_LANES(uint8_t, uint32_t);
            break;
        case 5:
            LOAD_LANES(uint8_t, uint64_t);
            break;
        case 6:
            /* 16-bit registers keep their upper half 0: is_wide says 64 bits, mode 16. */
            if (i->mode)
                for (int l = 0; l < N_LANES; l++) {
                    if (mask >> l & 1)
                        row_to(w, lists[e])[l] = (uint16_t)(int8_t)at[l][e];
                }
            else
                LOAD_LANES(int8_t, int32_t);
            break;
        case 7:
            LOAD_LANES(int8_t, int64_t);
            break;
        case 8:
            LOAD_LANES(uint16_t, uint32_t);
            break;
        case 9:
            LOAD_LANES(uint16_t, uint64_t);
            break;
        case 10:
            if (i->mode)
                LOAD_LANES(uint16_t, uint32_t);
            else
                LOAD_LANES(int16_t, int32_t);
            break;
        case 11:
            LOAD_LANES(int16_t, int64_t);
            break;
        case 16:
        case 18:
            LOAD_LANES(uint32_t, uint32_t);
            break;
        case 17:
            LOAD_LANES(uint32_t, uint64_t);
            break;
        case 19:
            LOAD_LANES(int32_t, int64_t);
            break;
        default:
            LOAD_LANES(uint64_t, uint64_t);
            break;
        }
    }
}

static void load_ordered(warp *w, const instr *i, uint32_t mask)
{
    load(w, i, mask);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* ---- Stores ---------------------------------------------------------------------------------- */

#define STORE_LANES(T, R)                                                                          \
    do {                                                                                           \
        const R *a = (const R *)row_of(w, lists[e]);                                               \
        for (int l = 0; l < N_LANES; l++) {                                                        \
            T x = (T)a[l];                                                                         \
            if (mask >> l & 1)                                                                     \
                memcpy(at[l] + e * sizeof x, &x, sizeof x);                                        \
        }                                                                                          \
    } while (0)

static void store(warp *w, const instr *i, uint32_t mask)
{
    uint8_t *at[N_LANES];
    uint32_t all = (uint32_t)i->n_bytes * i->n_elements;
    if (!lane_pointers(w, i, 0, i->offset, (space_kind)i->space, all, all, mask, at))
        return;
    if (w->block->uses)
        races_note(w, i, mask, at, all, true);
    const uint32_t *lists = w->kernel->lists + i->first;
    for (uint32_t e = 0; e < i->n_elements; e++) {
        switch (i->n_bytes * 2 + i->is_wide) {
        case 2:
            STORE_LANES(uint8_t, uint32_t);
            break;
        case 3:
            STORE_LANES(uint8_t, uint64_t);
            break;
        case 4:
            STORE_LANES(uint16_t, uint32_t);
            break;
        case 5:
            STORE_LANES(uint16_t, uint64_t);
            break;
        case 8:
            STORE_LANES(uint32_t, uint32_t);
            break;
        case 9:
            STORE_LANES(uint32_t, uint64_t);
            break;
        default:
            STORE_LANES(uint64_t, uint64_t);
            break;
        }
    }
}

static void store_ordered(warp *w, const instr *i, uint32_t mask)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    store(w, i, mask);
}

static void fence(warp *w, const instr *i, uint32_t mask)
{
    (void)w;
    (void)i;
    (void)mask;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void nothing(warp *w, const instr *i, uint32_t mask)
{
    (void)w;
    (void)i;
    (void)mask;
}

/* ---- Atomic operations ----------------------------------------------------------------------- */

typedef enum atomic_op {
    ATOMIC_ADD,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_EXCH,
    ATOMIC_CAS,
    ATOMIC_INC,
    ATOMIC_DEC,
    N_ATOMIC_OPS,
} atomic_op;

static const char *const atomic_names[N_ATOMIC_OPS] = {
    "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec",
};

typedef enum atomic_type { TYPE_U32, TYPE_S32, TYPE_F32, TYPE_U64, TYPE_S64 } atomic_type;

static uint64_t combined(atomic_op op, atomic_type type, uint64_t old, uint64_t x, uint64_t y)
{
    float a, b;
    uint32_t bits;
    switch (op) {
    case ATOMIC_ADD:
        if (type != TYPE_F32)
            return old + x;
        memcpy(&a, &(uint32_t){(uint32_t)old}, 4);
        memcpy(&b, &(uint32_t){(uint32_t)x}, 4);
        a += b;
        memcpy(&bits, &a, 4);
        return bits;
    case ATOMIC_MIN:
    case ATOMIC_MAX: {
        bool is_less = type == TYPE_S32   ? (int32_t)old < (int32_t)x
                       : type == TYPE_S64 ? (int64_t)old < (int64_t)x
                                          : old < x;
        return is_less == (op == ATOMIC_MIN) ? old : x;
    }
    case ATOMIC_AND:
        return old & x;
    case ATOMIC_OR:
        return old | x;
    case ATOMIC_XOR:
        return old ^ x;
    case ATOMIC_EXCH:
        return x;
    case ATOMIC_CAS:
        return old == x ? y : old;
    case ATOMIC_INC:
        return old >= x ? 0 : old + 1;
    case ATOMIC_DEC:
        return old == 0 || old > x ? x : old - 1;
    default:
        return old;
    }
}

/* i->mode: the operation * 8 + the type; op[0]: the result, or SINK; op[1] the address. */
static void atomic_lanes(warp *w, const instr *i, uint32_t mask)
{
    uint8_t *at[N_LANES];
    const atomic_op op = (atomic_op)(i->mode / 8);
    const atomic_type type = (atomic_type)(i->mode % 8);
    if (!lane_pointers(w, i, 1, i->offset, (space_kind)i->space, i->n_bytes, i->n_bytes, mask, at))
        return;
    for (int l = 0; l < N_LANES; l++) {
        if (!(mask >> l & 1))
            continue;
        uint64_t old;
        if (i->n_bytes == 4) {
            uint32_t *p = (uint32_t *)at[l], seen = __atomic_load_n(p, __ATOMIC_SEQ_CST), next;
            uint32_t x = row_of(w, i->op[2])[l], y = row_of(w, i->op[3])[l];
            do
                next = (uint32_t)combined(op, type, seen, x, y);
            while (!__atomic_compare_exchange_n(p, &seen, next, false, __ATOMIC_SEQ_CST,
                                                __ATOMIC_SEQ_CST));
            old = seen;
            if (i->op[0] != SINK)
                row_to(w, i->op[0])[l] = (uint32_t)old;
        } else {
            uint64_t *p = (uint64_t *)at[l], seen = __atomic_load_n(p, __ATOMIC_SEQ_CST), next;
            uint64_t x = rows_of(w, i->op[2])[l], y = rows_of(w, i->op[3])[l];
            do
                next = combined(op, type, seen, x, y);
            while (!__atomic_compare_exchange_n(p, &seen, next, false, __ATOMIC_SEQ_CST,
                                                __ATOMIC_SEQ_CST));
            if (i->op[0] != SINK)
                ((uint64_t *)row_to(w, i->op[0]))[l] = seen;
        }
    }
}

/* ---- Addresses ------------------------------------------------------------------------------- */

/* i->mode: the window. An address that has one already keeps it. */
static void into_window(warp *w, const instr *i, uint32_t mask)
{
    const uint64_t *a = rows_of(w, i->op[1]), base = WINDOW_BASE(i->mode);
    uint64_t *d = (uint64_t *)row_to(w, i->op[0]);
    FOR_LANES(mask, d[l] = WINDOW(a[l]) ? a[l] : a[l] | base;);
}

static void out_of_window(warp *w, const instr *i, uint32_t mask)
{
    const uint64_t *a = rows_of(w, i->op[1]);
    uint64_t *d = (uint64_t *)row_to(w, i->op[0]);
    FOR_LANES(mask, d[l] = a[l] & 0x00FFFFFFFFFFFFFF;);
}

static void same_address(warp *w, const instr *i, uint32_t mask)
{
    const uint64_t *a = rows_of(w, i->op[1]);
    uint64_t *d = (uint64_t *)row_to(w, i->op[0]);
    FOR_LANES(mask, d[l] = a[l];);
}

/* mapa: the address of the same place in another block of the cluster. */
static void map_address(warp *w, const instr *i, uint32_t mask)
{
    const uint32_t *rank = row_of(w, i->op[2]), n = w->block->team->n_blocks;
    for (int l = 0; l < N_LANES; l++) {
        if (!(mask >> l & 1))
            continue;
        if (rank[l] >= n) {
            warp_fault(w, i, l, "block %u of a cluster of %u", rank[l], n);
            return;
        }
        if (i->is_wide) {
            uint64_t a = rows_of(w, i->op[1])[l];
            ((uint64_t *)row_to(w, i->op[0]))[l] =
                (a & ~(uint64_t)0xFF000000) | (uint64_t)(rank[l] + 1) << 24;
        } else {
            uint32_t a = row_of(w, i->op[1])[l];
            row_to(w, i->op[0])[l] = (a & 0xFFFFFF) | (rank[l] + 1) << 24;
        }
    }
}

/* ---- Decoding -------------------------------------------------------------------------------- */

/* Bytes and sign of a type, the last word of an operation. */
static bool type_of(const char *op, uint8_t *n_bytes, bool *is_signed)
{
    const char *t = strrchr(op, '.');
    static const struct {
        const char *name;
        uint8_t n_bytes;
    } sizes[] = {{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}};
    if (!t || !strchr("busf", t[1]))
        return false;
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        if (strcmp(t + 2, sizes[n].name) == 0) {
            *n_bytes = sizes[n].n_bytes;
            *is_signed = t[1] == 's';
            return true;
        }
    return false;
}

static space_kind space_of(const char *op)
{
    return op_has(op, "global") || op_has(op, "const") ? SPACE_GLOBAL
           : op_has(op, "shared") || op_has(op, "shared::cta") || op_has(op, "shared::cluster")
               ? SPACE_SHARED
           : op_has(op, "local") ? SPACE_LOCAL
           : op_has(op, "param") ? SPACE_PARAM
                                 : SPACE_GENERIC;
}

static decoded decode_access(decoder *d, const statement *s, bool is_load)
{
    if (s->n < 2)
        return DECODE_FAILED;
    const operand *data = &s->operands[is_load ? 0 : 1], *memory = &s->operands[is_load ? 1 : 0];
    uint8_t n_bytes;
    bool is_signed;
    if (!type_of(s->op, &n_bytes, &is_signed) || memory->kind != OPERAND_MEMORY ||
        op_has(s->op, "async"))
        return NOT_MINE;
    bool polls = op_has(s->op, "volatile") || op_has(s->op, "acquire") || op_has(s->op, "relaxed");
    bool orders = op_has(s->op, "acquire") || op_has(s->op, "release");
    instr *i =
        decode_add(d, s, is_load && polls ? KIND_POLL : KIND_PLAIN,
                   is_load ? (orders ? load_ordered : load) : (orders ? store_ordered : store));
    if (!i)
        return DECODE_FAILED;
    space_kind place = space_of(s->op);
    i->space = (uint8_t)(memory->has_space ? memory->space : place);
    i->n_bytes = n_bytes;
    i->is_signed = is_signed;
    i->n_elements = (uint8_t)(data->kind == OPERAND_LIST ? data->n : 1);
    const operand *one = data->kind == OPERAND_LIST ? decode_element(d, data, 0) : data;
    for (uint32_t e = 0; data->kind == OPERAND_LIST && one->kind != OPERAND_REGISTER && e < data->n;
         e++)
        one = decode_element(d, data, e);
    i->mode = one->is_short;
    i->is_wide = one->kind == OPERAND_REGISTER ? one->class == CLASS_ROWS : n_bytes == 8;
    if (!decode_list(d, i, data, i->is_wide ? CLASS_ROWS : CLASS_ROW, is_load))
        return DECODE_FAILED;
    return decode_address(d, i, is_load ? 1 : 0, memory) ? DECODED : DECODE_FAILED;
}

/* atom: d, [a], x (, y); red: [a], x. */
static decoded decode_atomic(decoder *d, const statement *s)
{
    const uint32_t first = op_begins(s->op, "atom") ? 1 : 0;
    uint8_t n_bytes;
    bool is_signed;
    if (s->n < first + 2 || !type_of(s->op, &n_bytes, &is_signed) || n_bytes < 4 ||
        op_has(s->op, "async"))
        return NOT_MINE;
    int op = 0;
    while (op < N_ATOMIC_OPS && !op_has(s->op, atomic_names[op]))
        op++;
    if (op == N_ATOMIC_OPS || (op_has(s->op, "f64")) || op_has(s->op, "noftz"))
        return NOT_MINE;
    register_class class = n_bytes == 8 ? CLASS_ROWS : CLASS_ROW;
    instr *i = decode_add(d, s, KIND_PLAIN, atomic_lanes);
    if (!i)
        return DECODE_FAILED;
    atomic_type type = op_has(s->op, "f32") ? TYPE_F32
                       : n_bytes == 8       ? (is_signed ? TYPE_S64 : TYPE_U64)
                       : is_signed          ? TYPE_S32
                                            : TYPE_U32;
    i->mode = (uint8_t)(op * 8 + (int)type);
    i->n_bytes = n_bytes;
    const operand *memory = &s->operands[first];
    i->space = (uint8_t)(memory->has_space ? memory->space : space_of(s->op));
    i->op[0] = SINK;
    if (first && !decode_operand(d, i, 0, &s->operands[0], class, true))
        return DECODE_FAILED;
    if (!decode_address(d, i, 1, memory) ||
        !decode_operand(d, i, 2, &s->operands[first + 1], class, false))
        return DECODE_FAILED;
    if (op == ATOMIC_CAS &&
        (s->n < first + 3 || !decode_operand(d, i, 3, &s->operands[first + 2], class, false)))
        return DECODE_FAILED;
    return DECODED;
}

static decoded decode_cvta(decoder *d, const statement *s)
{
    if (s->n != 2)
        return NOT_MINE;
    op_run *run = into_window;
    uint8_t window = 0;
    if (op_has(s->op, "to"))
        run = op_has(s->op, "global") || op_has(s->op, "const") ? same_address : out_of_window;
    else if (op_has(s->op, "shared"))
        window = WINDOW_SHARED;
    else if (op_has(s->op, "local"))
        window = WINDOW_LOCAL;
    else if (op_has(s->op, "param"))
        window = WINDOW_PARAM;
    else
        run = same_address;
    instr *i = decode_add(d, s, KIND_PLAIN, run);
    if (!i)
        return DECODE_FAILED;
    i->mode = window;
    return decode_operand(d, i, 0, &s->operands[0], CLASS_ROWS, true) &&
                   decode_operand(d, i, 1, &s->operands[1], CLASS_ROWS, false)
               ? DECODED
               : DECODE_FAILED;
}

static decoded decode_mapa(decoder *d, const statement *s)
{
    if (s->n != 3)
        return NOT_MINE;
    instr *i = decode_add(d, s, KIND_PLAIN, map_address);
    if (!i)
        return DECODE_FAILED;
    i->is_wide = op_has(s->op, "u64");
    register_class class = i->is_wide ? CLASS_ROWS : CLASS_ROW;
    return decode_operand(d, i, 0, &s->operands[0], class, true) &&
                   decode_operand(d, i, 1, &s->operands[1], class, false) &&
                   decode_operand(d, i, 2, &s->operands[2], CLASS_ROW, false)
               ? DECODED
               : DECODE_FAILED;
}

decoded decode_memory(decoder *d, const statement *s)
{
    if (op_begins(s->op, "ld"))
        return decode_access(d, s, true);
    if (op_begins(s->op, "st"))
        return decode_access(d, s, false);
    if (op_begins(s->op, "atom") || op_begins(s->op, "red"))
        return decode_atomic(d, s);
    if (op_begins(s->op, "cvta"))
        return decode_cvta(d, s);
    if (op_begins(s->op, "mapa"))
        return decode_mapa(d, s);
    if (op_begins(s->op, "membar") || op_begins(s->op, "fence"))
        return decode_add(d, s, KIND_PLAIN, fence) ? DECODED : DECODE_FAILED;
    if (op_begins(s->op, "prefetch"))
        return decode_add(d, s, KIND_PLAIN, nothing) ? DECODED : DECODE_FAILED;
    if (op_begins(s->op, "createpolicy")) {
        instr *i = decode_add(d, s, KIND_PLAIN, nothing);
        return i && decode_operand(d, i, 0, &s->operands[0], CLASS_ROWS, true) ? DECODED
                                                                               : DECODE_FAILED;
    }
    return NOT_MINE;
}
