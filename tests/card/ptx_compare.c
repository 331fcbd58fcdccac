/* Comparisons of the software card: a bit for each lane. */
#include "ptx_op.h"

/* The bits of lanes, as constants that vector code can mask with. */
static const uint32_t lane_bit[N_LANES] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
};

/* All lanes are compared, those outside of the mask in vain. */
#define COMPARE_FUNCTION(name, function, signature, T, ...)                                        \
    static void function(warp *w, const instr *i, uint32_t mask)                                   \
    {                                                                                              \
        const T *a = (const T *)row_of(w, i->op[1]), *b = (const T *)row_of(w, i->op[2]);          \
        uint32_t *d = &w->predicates[i->op[0]], r = 0;                                             \
        for (int l = 0; l < N_LANES; l++) {                                                        \
            const T x = a[l], y = b[l];                                                            \
            r |= (__VA_ARGS__) ? lane_bit[l] : 0;                                                  \
        }                                                                                          \
        *d = (*d & ~mask) | (r & mask);                                                            \
    }

#define ORDERED(X, type, T, signature)                                                             \
    X("setp.eq." #type, setp_eq_##type, signature, T, x == y)                                      \
    X("setp.ne." #type, setp_ne_##type, signature, T, x != y)                                      \
    X("setp.lt." #type, setp_lt_##type, signature, T, x < y)                                       \
    X("setp.le." #type, setp_le_##type, signature, T, x <= y)                                      \
    X("setp.gt." #type, setp_gt_##type, signature, T, x > y)                                       \
    X("setp.ge." #type, setp_ge_##type, signature, T, x >= y)

/* Of numbers of 16 bits only the lower halves of rows count. */
#define SHORT(X, type, T)                                                                          \
    X("setp.eq." #type, setp_eq_##type, "prr", u32, (T)x == (T)y)                                  \
    X("setp.ne." #type, setp_ne_##type, "prr", u32, (T)x != (T)y)                                  \
    X("setp.lt." #type, setp_lt_##type, "prr", u32, (T)x < (T)y)                                   \
    X("setp.le." #type, setp_le_##type, "prr", u32, (T)x <= (T)y)                                  \
    X("setp.gt." #type, setp_gt_##type, "prr", u32, (T)x > (T)y)                                   \
    X("setp.ge." #type, setp_ge_##type, "prr", u32, (T)x >= (T)y)

/* Floats: `ne` is false where one is not a number; the last letter u makes that true. */
#define FLOATS(X, type, T, signature)                                                              \
    X("setp.eq." #type, setp_eq_##type, signature, T, x == y)                                      \
    X("setp.ne." #type, setp_ne_##type, signature, T, x<y || x> y)                                 \
    X("setp.lt." #type, setp_lt_##type, signature, T, x < y)                                       \
    X("setp.le." #type, setp_le_##type, signature, T, x <= y)                                      \
    X("setp.gt." #type, setp_gt_##type, signature, T, x > y)                                       \
    X("setp.ge." #type, setp_ge_##type, signature, T, x >= y)                                      \
    X("setp.equ." #type, setp_equ_##type, signature, T, !(x < y || x > y))                         \
    X("setp.neu." #type, setp_neu_##type, signature, T, !(x == y))                                 \
    X("setp.ltu." #type, setp_ltu_##type, signature, T, !(x >= y))                                 \
    X("setp.leu." #type, setp_leu_##type, signature, T, !(x > y))                                  \
    X("setp.gtu." #type, setp_gtu_##type, signature, T, !(x <= y))                                 \
    X("setp.geu." #type, setp_geu_##type, signature, T, !(x < y))                                  \
    X("setp.num." #type, setp_num_##type, signature, T, x == x && y == y)                          \
    X("setp.nan." #type, setp_nan_##type, signature, T, x != x || y != y)

#define COMPARE_LIST(X)                                                                            \
    ORDERED(X, s32, s32, "prr")                                                                    \
    ORDERED(X, u32, u32, "prr")                                                                    \
    ORDERED(X, b32, u32, "prr")                                                                    \
    ORDERED(X, s64, s64, "pll")                                                                    \
    ORDERED(X, u64, u64, "pll")                                                                    \
    ORDERED(X, b64, u64, "pll")                                                                    \
    SHORT(X, s16, int16_t)                                                                         \
    SHORT(X, u16, uint16_t)                                                                        \
    SHORT(X, b16, uint16_t)                                                                        \
    FLOATS(X, f32, f32, "prr")                                                                     \
    FLOATS(X, f64, f64, "pll")

COMPARE_LIST(COMPARE_FUNCTION)
const op_entry compare_ops[] = {COMPARE_LIST(OP_ENTRY){NULL, NULL, NULL}};
