/*
 * Sums and products that are not rounded to the nearest. The file is compiled with -frounding-math;
 * functions that are called keep what is computed between the changes of the mode.
 */
#include <fenv.h>

#include "ptx_op.h"

static __attribute__((noinline)) void fma_lanes(float *d, const float *a, const float *b,
                                                const float *c)
{
    for (int l = 0; l < N_LANES; l++)
        d[l] = __builtin_fmaf(a[l], b[l], c[l]);
}

static __attribute__((noinline)) void add_lanes(float *d, const float *a, const float *b)
{
    for (int l = 0; l < N_LANES; l++)
        d[l] = a[l] + b[l];
}

static __attribute__((noinline)) void mul_lanes(float *d, const float *a, const float *b)
{
    for (int l = 0; l < N_LANES; l++)
        d[l] = a[l] * b[l];
}

typedef enum what { WHAT_FMA, WHAT_ADD, WHAT_MUL } what;

static void rounded(warp *w, const instr *i, uint32_t mask, int mode, what op)
{
    const float *a = (const float *)row_of(w, i->op[1]), *b = (const float *)row_of(w, i->op[2]);
    const float *c = (const float *)row_of(w, i->op[3]);
    float *d = (float *)row_to(w, i->op[0]), r[N_LANES];
    fesetround(mode);
    if (op == WHAT_FMA)
        fma_lanes(r, a, b, c);
    else if (op == WHAT_ADD)
        add_lanes(r, a, b);
    else
        mul_lanes(r, a, b);
    fesetround(FE_TONEAREST);
    FOR_LANES(mask, d[l] = r[l];);
}

#define ROUNDED_LIST(X)                                                                            \
    X("fma.rm.f32", fma_rm, "rrrr", FE_DOWNWARD, WHAT_FMA)                                         \
    X("fma.rp.f32", fma_rp, "rrrr", FE_UPWARD, WHAT_FMA)                                           \
    X("fma.rz.f32", fma_rz, "rrrr", FE_TOWARDZERO, WHAT_FMA)                                       \
    X("add.rm.f32", add_rm, "rrr", FE_DOWNWARD, WHAT_ADD)                                          \
    X("add.rp.f32", add_rp, "rrr", FE_UPWARD, WHAT_ADD)                                            \
    X("add.rz.f32", add_rz, "rrr", FE_TOWARDZERO, WHAT_ADD)                                        \
    X("mul.rm.f32", mul_rm, "rrr", FE_DOWNWARD, WHAT_MUL)                                          \
    X("mul.rp.f32", mul_rp, "rrr", FE_UPWARD, WHAT_MUL)                                            \
    X("mul.rz.f32", mul_rz, "rrr", FE_TOWARDZERO, WHAT_MUL)

#define ROUNDED_FUNCTION(name, function, signature, mode, op)                                      \
    static void function(warp *w, const instr *i, uint32_t mask)                                   \
    {                                                                                              \
        rounded(w, i, mask, mode, op);                                                             \
    }

ROUNDED_LIST(ROUNDED_FUNCTION)
const op_entry rounding_ops[] = {ROUNDED_LIST(OP_ENTRY){NULL, NULL, NULL}};
