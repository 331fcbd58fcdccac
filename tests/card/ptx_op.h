/*
 * How operations on lanes are written: a list of lines X(name, function, signature, types of the
 * result and of up to three inputs, the result of the inputs x, y, z of a lane), of which functions
 * and a table are made.
 */
#ifndef TESTS_CARD_PTX_OP_H
#define TESTS_CARD_PTX_OP_H

#include "ptx_run.h"

typedef float f32;
typedef double f64;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;

#define OP_FUNCTION(name, function, signature, D, A, B, C, ...)                                    \
    static void function(warp *w, const instr *i, uint32_t mask)                                   \
    {                                                                                              \
        D *d = (D *)row_to(w, i->op[0]);                                                           \
        const A *a = (const A *)row_of(w, i->op[1]);                                               \
        const B *b = (const B *)row_of(w, i->op[2]);                                               \
        const C *c = (const C *)row_of(w, i->op[3]);                                               \
        (void)b;                                                                                   \
        (void)c;                                                                                   \
        if (mask == FULL_MASK) {                                                                   \
            EACH_LANE                                                                              \
            {                                                                                      \
                OP_INPUTS(A, B, C)                                                                 \
                d[l] = (D)(__VA_ARGS__);                                                           \
            }                                                                                      \
        } else {                                                                                   \
            EACH_LANE                                                                              \
            if (mask >> l & 1) {                                                                   \
                OP_INPUTS(A, B, C)                                                                 \
                d[l] = (D)(__VA_ARGS__);                                                           \
            }                                                                                      \
        }                                                                                          \
    }

/* Those that an operation does not read cost nothing. */
#define OP_INPUTS(A, B, C)                                                                         \
    const A x = a[l];                                                                              \
    const B y = b[l];                                                                              \
    const C z = c[l];                                                                              \
    (void)x;                                                                                       \
    (void)y;                                                                                       \
    (void)z;

#define OP_ENTRY(name, function, signature, ...) {name, signature, function},

#define DEFINE_OPERATIONS(LIST) LIST(OP_FUNCTION)

#endif
