/*
 * The kernels that are written once, in the templates X_tmpl.c that are not for matrices, and compiled
 * for each CPU level: how they come into the table, and the plain functions that they fall back to for
 * odd shapes.
 */
#ifndef LACE_BACKEND_CPU_OPS_H
#define LACE_BACKEND_CPU_OPS_H

#include "backend/ref/ref.h"

/*
 * Attention works on this many queries and positions at once, in scratch of this size: floats, and
 * queries as words, with 5 rows more (attend_words.h).
 */
enum { ATTEND_ROWS = 96, ATTEND_BLOCK = 64 };
static inline uint64_t attend_scratch_bytes(int32_t head_dim)
{
    uint64_t dim = (uint64_t)head_dim, words_row = (2 * dim + dim / 8 + 63) / 64 * 64;
    return 4 * (ATTEND_BLOCK * (ATTEND_ROWS + 2 * dim) + 2 * ATTEND_ROWS * dim) +
           (ATTEND_ROWS + 5) * words_row;
}

/* Tokens of a batch in which the result of one does not depend on the others. */
enum { ATTEND_SAME = 32 };

/*
 * Few queries: positions are summed in parts, which different workers may do, and then joined.
 * Where a part begins depends on nothing but its number, so results depend neither on the number of
 * workers nor on the other tokens of a batch. There are 16 parts of 256 positions, then 16 of twice
 * as many, and so on: long contexts have many parts, but not too many to keep.
 */
enum { ATTEND_PART = 256, ATTEND_PARTS = 16 };
static inline int64_t attend_part_begin(int32_t part)
{
    int level = part / ATTEND_PARTS;
    return ((int64_t)ATTEND_PARTS * ATTEND_PART * ((1LL << level) - 1)) +
           ((int64_t)(part % ATTEND_PARTS) * ATTEND_PART << level);
}
static inline int32_t attend_part_of(int64_t position)
{
    int level = 0;
    while (position >= attend_part_begin((level + 1) * ATTEND_PARTS))
        level++;
    int64_t within = position - attend_part_begin(level * ATTEND_PARTS);
    return level * ATTEND_PARTS + (int32_t)((within / ATTEND_PART) >> level);
}

/*
 * Batches of up to ATTEND_SPLIT tokens hand parts to different workers. Between them they keep, in
 * shared memory, a counter for each (token, head), and for each (part, token, head) the result and
 * two floats.
 */
enum { ATTEND_SPLIT = 4 };
static inline uint64_t attend_counter_bytes(int32_t n_heads)
{
    return (4 * ATTEND_SPLIT * (uint64_t)n_heads + 63) & ~(uint64_t)63;
}
static inline int64_t attend_part_floats(int32_t head_dim)
{
    return head_dim + 16;
}

/*
 * A scan works on this many tokens of a sequence at once. Its scratch: b and c of a group, and what
 * goes into a head and comes out of it.
 */
enum { SCAN_TOKENS = 32, SCAN_ROWS = 4 };
static inline int64_t scan_pair_floats(int32_t n_state)
{
    return ((int64_t)n_state + SCAN_ROWS - 1) / SCAN_ROWS * SCAN_ROWS * 2 * SCAN_TOKENS;
}
static inline uint64_t scan_scratch_bytes(int32_t head_dim, int32_t n_state)
{
    return 4 * ((uint64_t)scan_pair_floats(n_state) + SCAN_TOKENS * (2 * (uint64_t)head_dim + 2));
}

/* Convolutions of more taps than this are left to the plain kernel. */
enum { CONV_MAX_TAPS = 16 };

/* The delta rule takes this many tokens of a sequence at once, with rows of whole vectors. */
enum { DELTA_CHUNK = 32, DELTA_FEW = 8 }; /* fewer tokens than these are taken one by one */
static inline int64_t delta_padded(int64_t n)
{
    return (n + 15) & ~(int64_t)15;
}
static inline uint64_t delta_scratch_bytes(int64_t k_dim, int64_t v_dim)
{
    int64_t row = 3 * delta_padded(k_dim) + delta_padded(v_dim) + 2 * DELTA_CHUNK + 1;
    return sizeof(float) * (uint64_t)(DELTA_CHUNK * row);
}

/* A template enters its own kernels into the table, so a new one is named in its template alone. */
#define OPS_DECLARE(level)                                                                         \
    void rows_use_##level(kernel_table *table);                                                    \
    void rope_use_##level(kernel_table *table);                                                    \
    void scan_use_##level(kernel_table *table);                                                    \
    void conv_use_##level(kernel_table *table);                                                    \
    void delta_use_##level(kernel_table *table);                                                   \
    void lora_use_##level(kernel_table *table);                                                    \
    void attend_##level(const step *s, const batch *b, const worker *w)

#define OPS_USE(table, level)                                                                      \
    do {                                                                                           \
        rows_use_##level(table);                                                                   \
        rope_use_##level(table);                                                                   \
        scan_use_##level(table);                                                                   \
        conv_use_##level(table);                                                                   \
        delta_use_##level(table);                                                                  \
        lora_use_##level(table);                                                                   \
        (table)->ops[OP_ATTEND] = (table)->exact_attend = attend_##level;                          \
    } while (0)

OPS_DECLARE(avx2);
OPS_DECLARE(avx512);
OPS_DECLARE(neon);
void attend_avx512vnni(const step *s, const batch *b, const worker *w);

#endif
