/* Instructions of the tensor cores: what they are called, and which registers they have. */
#include <string.h>

#include "ptx_address.h"
#include "ptx_decode.h"
#include "ptx_races.h"
#include "warp_matrix.h"

enum { MOST_REGISTERS = 16 };

/* Tiles of a whole warp need all of it. */
static bool is_whole(warp *w, const instr *i, uint32_t mask)
{
    if (mask == FULL_MASK)
        return true;
    warp_fault(w, i, __builtin_ctz(~mask), "this lane is not there");
    return false;
}

static void rows_at(const warp *w, const uint32_t *list, uint32_t n, uint32_t *out[])
{
    for (uint32_t k = 0; k < n; k++)
        out[k] = (uint32_t *)row_of(w, list[k]);
}

/* i->mode: the types of a * 4 + of b; i->n_bytes: k; op[0], op[1]: registers of a and of b. */
static void multiply(warp *w, const instr *i, uint32_t mask)
{
    uint32_t *r[MOST_REGISTERS];
    if (!is_whole(w, i, mask))
        return;
    rows_at(w, w->kernel->lists + i->first, i->n_list, r);
    const matrix_type a = (matrix_type)(i->mode / 4), b = (matrix_type)(i->mode % 4);
    const uint32_t n_a = i->n_elements, n_b = i->target;
    const char *wrong = i->is_wide
                            ? warp_mma_sparse(a, b, r, r + 4, r + 4 + n_a, r + 4 + n_a + n_b,
                                              row_of(w, i->op[0]), (int)i->offset)
                            : warp_mma(i->n_bytes, a, b, r, r + 4, r + 4 + n_a, r + 4 + n_a + n_b);
    if (wrong)
        warp_fault(w, i, 0, "%s", wrong);
}

/* Those whose addresses count: eight for each matrix. */
static uint32_t matrix_lanes(const instr *i)
{
    return i->n_list == 4 ? FULL_MASK : (1u << 8 * i->n_list) - 1;
}

static void load_matrices(warp *w, const instr *i, uint32_t mask)
{
    uint32_t *r[4];
    uint8_t *at[N_LANES];
    if (!is_whole(w, i, mask) ||
        !lane_pointers(w, i, 0, i->offset, SPACE_SHARED, 16, 16, matrix_lanes(i), at))
        return;
    if (w->block->uses)
        races_note(w, i, matrix_lanes(i), at, 16, false);
    rows_at(w, w->kernel->lists + i->first, i->n_list, r);
    warp_load_matrices(r, (int)i->n_list, i->mode, (const void *const *)at);
}

static void store_matrices(warp *w, const instr *i, uint32_t mask)
{
    uint32_t *r[4];
    uint8_t *at[N_LANES];
    if (!is_whole(w, i, mask) ||
        !lane_pointers(w, i, 0, i->offset, SPACE_SHARED, 16, 16, matrix_lanes(i), at))
        return;
    if (w->block->uses)
        races_note(w, i, matrix_lanes(i), at, 16, true);
    rows_at(w, w->kernel->lists + i->first, i->n_list, r);
    warp_store_matrices(r, (int)i->n_list, i->mode, (void *const *)at);
}

/* ---- Decoding -------------------------------------------------------------------------------- */

static bool matrix_types(const char *op, matrix_type *a, matrix_type *b)
{
    static const struct {
        const char *words;
        matrix_type a, b;
    } all[] = {
        {".f32.f16.f16.f32", MATRIX_F16, MATRIX_F16},
        {".f32.bf16.bf16.f32", MATRIX_BF16, MATRIX_BF16},
        {".s32.s8.s8.s32", MATRIX_S8, MATRIX_S8},
        {".s32.u8.s8.s32", MATRIX_U8, MATRIX_S8},
        {".s32.s8.u8.s32", MATRIX_S8, MATRIX_U8},
        {".s32.u8.u8.s32", MATRIX_U8, MATRIX_U8},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (strstr(op, all[n].words)) {
            *a = all[n].a;
            *b = all[n].b;
            return true;
        }
    return false;
}

/* mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 d, a, b, c; mma.sp has places and a selector. */
static decoded decode_mma(decoder *d, const statement *s)
{
    static const struct {
        const char *shape;
        uint8_t k;
    } shapes[] = {{"m16n8k8", 8}, {"m16n8k16", 16}, {"m16n8k32", 32}, {"m16n8k64", 64}};
    matrix_type a, b;
    uint8_t k = 0;
    const bool is_sparse = op_begins(s->op, "mma.sp::ordered_metadata");
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        if (op_has(s->op, shapes[n].shape))
            k = shapes[n].k;
    if (!k || (is_sparse ? k != 64 : k == 64) || s->n != (is_sparse ? 6 : 4) ||
        !op_has(s->op, "row") || !op_has(s->op, "col") || !matrix_types(s->op, &a, &b))
        return NOT_MINE;
    uint32_t n[4], all = 0;
    for (int each = 0; each < 4; each++) {
        n[each] = s->operands[each].kind == OPERAND_LIST ? s->operands[each].n : 1;
        all += n[each];
    }
    if (n[0] != 4 || n[3] != 4 || all > MOST_REGISTERS)
        return NOT_MINE;
    instr *i = decode_add(d, s, KIND_PLAIN, multiply);
    if (!i)
        return DECODE_FAILED;
    i->mode = (uint8_t)(a * 4 + b);
    i->n_bytes = k;
    i->n_elements = (uint8_t)n[1];
    i->target = n[2];
    i->is_wide = is_sparse;
    for (int each = 0; each < 4; each++)
        if (!decode_list(d, i, &s->operands[each], CLASS_ROW, each == 0))
            return DECODE_FAILED;
    if (is_sparse) {
        i->offset = (int64_t)s->operands[5].value;
        if (!decode_operand(d, i, 0, &s->operands[4], CLASS_ROW, false))
            return DECODE_FAILED;
    }
    return DECODED;
}

static decoded decode_moves(decoder *d, const statement *s, bool is_load)
{
    if (s->n != 2 || !op_has(s->op, "m8n8") || !op_has(s->op, "b16"))
        return NOT_MINE;
    const operand *list = &s->operands[is_load ? 0 : 1], *memory = &s->operands[is_load ? 1 : 0];
    instr *i = decode_add(d, s, KIND_PLAIN, is_load ? load_matrices : store_matrices);
    if (!i)
        return DECODE_FAILED;
    i->mode = op_has(s->op, "trans");
    return decode_list(d, i, list, CLASS_ROW, is_load) && i->n_list <= 4 &&
                   decode_address(d, i, 0, memory)
               ? DECODED
               : DECODE_FAILED;
}

decoded decode_matrix(decoder *d, const statement *s)
{
    if (op_begins(s->op, "mma"))
        return decode_mma(d, s);
    if (op_begins(s->op, "ldmatrix"))
        return decode_moves(d, s, true);
    if (op_begins(s->op, "stmatrix"))
        return decode_moves(d, s, false);
    return NOT_MINE;
}
