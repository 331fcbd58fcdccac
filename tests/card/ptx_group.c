/* wgmma: the instructions' operands for warp_matrix.h. */
#include <stdlib.h>
#include <string.h>

#include "ptx_hopper.h"
#include "warp_matrix.h"

/* Rows of a list of registers, from number `first` of the instruction's. */
static void rows_of_list(const warp *w, const instr *i, uint32_t first, uint32_t n, uint32_t **out)
{
    const uint32_t *lists = w->kernel->lists + i->first + first;
    for (uint32_t k = 0; k < n; k++)
        out[k] = (uint32_t *)row_of(w, lists[k]);
}

static bool is_whole(warp *w, const instr *i, uint32_t mask)
{
    if (mask == FULL_MASK)
        return true;
    warp_fault(w, i, __builtin_ctz(mask), "only the lanes 0x%x of the warp are here", mask);
    return false;
}

static void say(warp *w, const instr *i, const char *wrong)
{
    if (wrong)
        warp_fault(w, i, 0, "%s", wrong);
}

static wgmma_state *state_of(warp *w, const instr *i)
{
    if (!w->matrix)
        w->matrix = wgmma_create();
    if (!w->matrix)
        warp_fault(w, i, 0, "the machine has no memory left");
    return w->matrix;
}

/* i->offset: bits for what has no register. */
enum { A_IN_REGISTERS = 1, A_TURNED = 2, B_TURNED = 4, A_LESS = 8, B_LESS = 16 };

/* Lists: d to read, d to write, and a; op: a's descriptor, b's descriptor, the predicate. */
static void run_wgmma(warp *w, const instr *i, uint32_t mask)
{
    wgmma_state *s = state_of(w, i);
    if (!s || !is_whole(w, i, mask))
        return;
    uint32_t *d[128], *a[4];
    const uint32_t n = i->n_bytes;
    rows_of_list(w, i, n, n, d);
    wgmma_product p = {.n = 2 * (int)n,
                       .a_type = (matrix_type)(i->mode & 3),
                       .b_type = (matrix_type)(i->mode >> 2 & 3),
                       .warp = (int)(w->index % 4),
                       .d = d,
                       .b_place = rows_of(w, i->op[1])[0],
                       .adds = w->predicates[i->op[2]] & 1,
                       .a_sign = i->offset & A_LESS ? -1 : 1,
                       .b_sign = i->offset & B_LESS ? -1 : 1,
                       .a_turned = i->offset & A_TURNED,
                       .b_turned = i->offset & B_TURNED};
    if (i->offset & A_IN_REGISTERS) {
        rows_of_list(w, i, 2 * n, 4, a);
        p.a = a;
    } else {
        p.a_place = rows_of(w, i->op[0])[0];
    }
    const shared_view memory = {w->block->shared, 0, w->block->team->launch->all_shared};
    say(w, i, wgmma_issue(s, &p, &memory));
}

static void run_wgmma_fence(warp *w, const instr *i, uint32_t mask)
{
    wgmma_state *s = state_of(w, i);
    if (s && is_whole(w, i, mask))
        wgmma_fence(s);
}

static void run_wgmma_commit(warp *w, const instr *i, uint32_t mask)
{
    wgmma_state *s = state_of(w, i);
    if (s && is_whole(w, i, mask))
        wgmma_commit(s);
}

static void run_wgmma_wait(warp *w, const instr *i, uint32_t mask)
{
    wgmma_state *s = state_of(w, i);
    if (s && is_whole(w, i, mask))
        say(w, i, wgmma_wait(s, (int)i->offset));
}

const char *group_end(warp *w)
{
    return w->matrix ? wgmma_end(w->matrix) : NULL;
}

void group_free(warp *w)
{
    wgmma_free(w->matrix);
    w->matrix = NULL;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

/* An instruction that the whole warp must reach. */
static instr *add_whole(decoder *d, const statement *s, op_run *run)
{
    const operand everyone = {.kind = OPERAND_CONSTANT, .value = FULL_MASK};
    instr *i = decode_add(d, s, KIND_TOGETHER, run);
    return i && decode_operand(d, i, 4, &everyone, CLASS_ROW, false) ? i : NULL;
}

/* The types of both factors: the two words at the end of a name. */
static bool types_of(const char *op, matrix_type *a, matrix_type *b)
{
    static const struct {
        const char *words;
        matrix_type a, b;
    } all[] = {
        {".f32.f16.f16", MATRIX_F16, MATRIX_F16}, {".f32.bf16.bf16", MATRIX_BF16, MATRIX_BF16},
        {".s32.s8.s8", MATRIX_S8, MATRIX_S8},     {".s32.u8.s8", MATRIX_U8, MATRIX_S8},
        {".s32.s8.u8", MATRIX_S8, MATRIX_U8},     {".s32.u8.u8", MATRIX_U8, MATRIX_U8},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const char *at = strstr(op, all[n].words);
        if (at && strlen(at) == strlen(all[n].words)) {
            *a = all[n].a;
            *b = all[n].b;
            return true;
        }
    }
    return false;
}

static decoded decode_wgmma_product(decoder *d, const statement *s)
{
    matrix_type a, b;
    if (!types_of(s->op, &a, &b) || s->n < 4 || s->operands[0].kind != OPERAND_LIST)
        return NOT_MINE;
    const bool is_bytes = a == MATRIX_S8 || a == MATRIX_U8;
    const bool has_list = s->operands[1].kind == OPERAND_LIST;
    const char *shape = strstr(s->op, ".m64n");
    const uint32_t n = shape ? (uint32_t)strtoul(shape + 5, NULL, 10) : 0;
    if (n != 2 * s->operands[0].n || s->n != (is_bytes ? 4u : has_list ? 7u : 8u))
        return NOT_MINE;
    instr *i = add_whole(d, s, run_wgmma);
    if (!i)
        return DECODE_FAILED;
    i->mode = (uint8_t)(a | b << 2);
    i->n_bytes = (uint8_t)(n / 2);
    i->offset = has_list ? A_IN_REGISTERS : 0;
    if (!is_bytes) {
        i->offset |= (int64_t)s->operands[4].value < 0 ? A_LESS : 0;
        i->offset |= (int64_t)s->operands[5].value < 0 ? B_LESS : 0;
        i->offset |= !has_list && s->operands[6].value ? A_TURNED : 0;
        i->offset |= s->operands[has_list ? 6 : 7].value ? B_TURNED : 0;
    }
    if (!decode_list(d, i, &s->operands[0], CLASS_ROW, false) ||
        !decode_list(d, i, &s->operands[0], CLASS_ROW, true))
        return DECODE_FAILED;
    if (has_list ? s->operands[1].n != 4 || !decode_list(d, i, &s->operands[1], CLASS_ROW, false)
                 : !decode_operand(d, i, 0, &s->operands[1], CLASS_ROWS, false))
        return DECODE_FAILED;
    return decode_operand(d, i, 1, &s->operands[2], CLASS_ROWS, false) &&
                   decode_operand(d, i, 2, &s->operands[3], CLASS_PREDICATE, false)
               ? DECODED
               : DECODE_FAILED;
}

decoded decode_wgmma(decoder *d, const statement *s)
{
    if (op_begins(s->op, "wgmma.mma_async.sync.aligned"))
        return decode_wgmma_product(d, s);
    if (op_begins(s->op, "wgmma.fence.sync.aligned"))
        return add_whole(d, s, run_wgmma_fence) ? DECODED : DECODE_FAILED;
    if (op_begins(s->op, "wgmma.commit_group.sync.aligned"))
        return add_whole(d, s, run_wgmma_commit) ? DECODED : DECODE_FAILED;
    if (!op_begins(s->op, "wgmma.wait_group.sync.aligned") || s->n != 1)
        return NOT_MINE;
    instr *i = add_whole(d, s, run_wgmma_wait);
    if (i)
        i->offset = (int64_t)s->operands[0].value;
    return i ? DECODED : DECODE_FAILED;
}
