/* Moves, logic, shifts, fields of bits and choices of the software card. */
#include "ptx_op.h"

static inline uint32_t logic_3(uint32_t x, uint32_t y, uint32_t z, uint32_t table)
{
    uint32_t r = 0;
    for (uint32_t n = 0; n < 8; n++) {
        uint32_t at = (n & 4 ? x : ~x) & (n & 2 ? y : ~y) & (n & 1 ? z : ~z);
        r |= at & (0u - (table >> n & 1));
    }
    return r;
}

/* Four bytes of the eight of (y, x), chosen by four bits each; the highest bit: only the sign. */
static inline uint32_t permute(uint32_t x, uint32_t y, uint32_t choice)
{
    uint64_t all = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (uint32_t n = 0; n < 4; n++) {
        uint32_t c = choice >> 4 * n & 15, byte = (uint32_t)(all >> 8 * (c & 7)) & 255;
        uint32_t sign = byte & 0x80 ? 0xFF : 0;
        r |= (c & 8 ? sign : byte) << 8 * n;
    }
    return r;
}

static inline uint32_t field_mask(uint32_t n)
{
    return n > 31 ? ~0u : (1u << n) - 1;
}

static inline uint32_t insert_32(uint32_t x, uint32_t y, uint32_t at, uint32_t n)
{
    at &= 255, n &= 255;
    uint32_t where = at > 31 ? 0 : field_mask(n) << at;
    return (y & ~where) | ((at > 31 ? 0 : x << at) & where);
}

static inline uint64_t insert_64(uint64_t x, uint64_t y, uint32_t at, uint32_t n)
{
    at &= 255, n &= 255;
    uint64_t field = n > 63 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
    uint64_t where = at > 63 ? 0 : field << at;
    return (y & ~where) | ((at > 63 ? 0 : x << at) & where);
}

static inline uint32_t extract_u32(uint32_t x, uint32_t at, uint32_t n)
{
    at &= 255, n &= 255;
    return at > 31 ? 0 : x >> at & field_mask(n);
}

static inline uint32_t extract_s32(uint32_t x, uint32_t at, uint32_t n)
{
    at &= 255, n &= 255;
    if (n == 0)
        return 0;
    uint32_t last = at + n - 1 > 31 ? 31 : at + n - 1;
    uint32_t sign = x >> last & 1 ? ~0u : 0, field = field_mask(n);
    return (extract_u32(x, at, n) & field_mask(last + 1 > at ? last + 1 - at : 0) & field) |
           (sign & ~field_mask(last + 1 > at ? last + 1 - at : 0));
}

static inline uint32_t reverse(uint32_t x)
{
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0F0F0F0F) | (x & 0x0F0F0F0F) << 4;
    return __builtin_bswap32(x);
}

#define BITS_LIST(X)                                                                               \
    X("mov.b16", mov_b16, "rr", u32, u32, u32, u32, x & 0xFFFF)                                    \
    X("mov.u16", mov_u16, "rr", u32, u32, u32, u32, x & 0xFFFF)                                    \
    X("mov.s16", mov_s16, "rr", u32, u32, u32, u32, x & 0xFFFF)                                    \
    X("mov.b32", mov_b32, "rr", u32, u32, u32, u32, x)                                             \
    X("mov.u32", mov_u32, "rr", u32, u32, u32, u32, x)                                             \
    X("mov.s32", mov_s32, "rr", u32, u32, u32, u32, x)                                             \
    X("mov.f32", mov_f32, "rr", u32, u32, u32, u32, x)                                             \
    X("mov.b64", mov_b64, "ll", u64, u64, u64, u64, x)                                             \
    X("mov.u64", mov_u64, "ll", u64, u64, u64, u64, x)                                             \
    X("mov.s64", mov_s64, "ll", u64, u64, u64, u64, x)                                             \
    X("mov.f64", mov_f64, "ll", u64, u64, u64, u64, x)                                             \
    X("and.b16", and_b16, "rrr", u32, u32, u32, u32, x &y)                                         \
    X("and.b32", and_b32, "rrr", u32, u32, u32, u32, x &y)                                         \
    X("and.b64", and_b64, "lll", u64, u64, u64, u64, x &y)                                         \
    X("or.b16", or_b16, "rrr", u32, u32, u32, u32, x | y)                                          \
    X("or.b32", or_b32, "rrr", u32, u32, u32, u32, x | y)                                          \
    X("or.b64", or_b64, "lll", u64, u64, u64, u64, x | y)                                          \
    X("xor.b16", xor_b16, "rrr", u32, u32, u32, u32, x ^ y)                                        \
    X("xor.b32", xor_b32, "rrr", u32, u32, u32, u32, x ^ y)                                        \
    X("xor.b64", xor_b64, "lll", u64, u64, u64, u64, x ^ y)                                        \
    X("not.b16", not_b16, "rr", u32, u32, u32, u32, ~x & 0xFFFF)                                   \
    X("not.b32", not_b32, "rr", u32, u32, u32, u32, ~x)                                            \
    X("not.b64", not_b64, "ll", u64, u64, u64, u64, ~x)                                            \
    X("shl.b16", shl_b16, "rrr", u32, u32, u32, u32, y > 15 ? 0 : x << y & 0xFFFF)                 \
    X("shl.b32", shl_b32, "rrr", u32, u32, u32, u32, y > 31 ? 0 : x << y)                          \
    X("shl.b64", shl_b64, "llr", u64, u64, u32, u32, y > 63 ? 0 : x << y)                          \
    X("shr.u16", shr_u16, "rrr", u32, u32, u32, u32, y > 15 ? 0 : x >> y)                          \
    X("shr.b16", shr_b16, "rrr", u32, u32, u32, u32, y > 15 ? 0 : x >> y)                          \
    X("shr.s16", shr_s16, "rrr", u32, u32, u32, u32, (uint16_t)((int16_t)x >> (y > 15 ? 15 : y)))  \
    X("shr.u32", shr_u32, "rrr", u32, u32, u32, u32, y > 31 ? 0 : x >> y)                          \
    X("shr.b32", shr_b32, "rrr", u32, u32, u32, u32, y > 31 ? 0 : x >> y)                          \
    X("shr.s32", shr_s32, "rrr", s32, s32, u32, u32, x >> (y > 31 ? 31 : y))                       \
    X("shr.u64", shr_u64, "llr", u64, u64, u32, u32, y > 63 ? 0 : x >> y)                          \
    X("shr.b64", shr_b64, "llr", u64, u64, u32, u32, y > 63 ? 0 : x >> y)                          \
    X("shr.s64", shr_s64, "llr", s64, s64, u32, u32, x >> (y > 63 ? 63 : y))                       \
    X("shf.r.wrap.b32", shf_r_wrap, "rrrr", u32, u32, u32, u32,                                    \
      (u32)(((u64)y << 32 | x) >> (z & 31)))                                                       \
    X("shf.l.wrap.b32", shf_l_wrap, "rrrr", u32, u32, u32, u32,                                    \
      (u32)(((u64)y << 32 | x) << (z & 31) >> 32))                                                 \
    X("lop3.b32", lop3, "rrrr.", u32, u32, u32, u32, logic_3(x, y, z, (u32)i->offset))             \
    X("prmt.b32", prmt, "rrrr", u32, u32, u32, u32, permute(x, y, z))                              \
    X("bfi.b32", bfi_b32, "rrrrr", u32, u32, u32, u32, insert_32(x, y, z, row_of(w, i->op[4])[l])) \
    X("bfi.b64", bfi_b64, "lllrr", u64, u64, u64, u32, insert_64(x, y, z, row_of(w, i->op[4])[l])) \
    X("bfe.u32", bfe_u32, "rrrr", u32, u32, u32, u32, extract_u32(x, y, z))                        \
    X("bfe.s32", bfe_s32, "rrrr", u32, u32, u32, u32, extract_s32(x, y, z))                        \
    X("bfind.u32", bfind_u32, "rr", u32, u32, u32, u32, x ? 31u - (u32)__builtin_clz(x) : ~0u)     \
    X("bfind.shiftamt.u32", bfind_shiftamt, "rr", u32, u32, u32, u32,                              \
      x ? (u32)__builtin_clz(x) : ~0u)                                                             \
    X("brev.b32", brev, "rr", u32, u32, u32, u32, reverse(x))                                      \
    X("clz.b32", clz, "rr", u32, u32, u32, u32, x ? (u32)__builtin_clz(x) : 32)                    \
    X("popc.b32", popc, "rr", u32, u32, u32, u32, (u32)__builtin_popcount(x))                      \
    X("popc.b64", popc_b64, "rl", u32, u64, u32, u32, (u32)__builtin_popcountll(x))

DEFINE_OPERATIONS(BITS_LIST)

/* ---- Choices --------------------------------------------------------------------------------- */

static void select_row(warp *w, const instr *i, uint32_t mask)
{
    const uint32_t p = w->predicates[i->op[3]];
    const uint32_t *a = row_of(w, i->op[1]), *b = row_of(w, i->op[2]);
    uint32_t *d = row_to(w, i->op[0]);
    FOR_LANES(mask, d[l] = p >> l & 1 ? a[l] : b[l];);
}

static void select_rows(warp *w, const instr *i, uint32_t mask)
{
    const uint32_t p = w->predicates[i->op[3]];
    const uint64_t *a = rows_of(w, i->op[1]), *b = rows_of(w, i->op[2]);
    uint64_t *d = (uint64_t *)row_to(w, i->op[0]);
    FOR_LANES(mask, d[l] = p >> l & 1 ? a[l] : b[l];);
}

/* ---- Predicates ------------------------------------------------------------------------------ */

#define PREDICATE_FUNCTION(name, expression)                                                       \
    static void name(warp *w, const instr *i, uint32_t mask)                                       \
    {                                                                                              \
        const uint32_t x = w->predicates[i->op[1]], y = w->predicates[i->op[2]];                   \
        (void)y;                                                                                   \
        uint32_t *d = &w->predicates[i->op[0]];                                                    \
        *d = (*d & ~mask) | ((expression)&mask);                                                   \
    }
PREDICATE_FUNCTION(predicate_mov, x)
PREDICATE_FUNCTION(predicate_not, ~x)
PREDICATE_FUNCTION(predicate_and, x &y)
PREDICATE_FUNCTION(predicate_or, x | y)
PREDICATE_FUNCTION(predicate_xor, x ^ y)

const op_entry bit_ops[] = {
    BITS_LIST(OP_ENTRY){"selp.b32", "rrrp", select_row},
    {"selp.u32", "rrrp", select_row},
    {"selp.s32", "rrrp", select_row},
    {"selp.f32", "rrrp", select_row},
    {"selp.b16", "rrrp", select_row},
    {"selp.u16", "rrrp", select_row},
    {"selp.s16", "rrrp", select_row},
    {"selp.b64", "lllp", select_rows},
    {"selp.u64", "lllp", select_rows},
    {"selp.s64", "lllp", select_rows},
    {"selp.f64", "lllp", select_rows},
    {"mov.pred", "pp", predicate_mov},
    {"not.pred", "pp", predicate_not},
    {"and.pred", "ppp", predicate_and},
    {"or.pred", "ppp", predicate_or},
    {"xor.pred", "ppp", predicate_xor},
    {NULL, NULL, NULL},
};
