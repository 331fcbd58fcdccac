/*
 * Packing: from the file's blocks to the tiles that tiles.h draws. Compiled once per CPU level
 * (level.h). Where a model is used in place, it is done again for every product
 * (matmul_in_place.c), so it must be about as fast as memory.
 */
#include "backend/cpu/level.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/tiles.h"
#include "tensor/blocks.h"

/*
 * A field of a block: where it is, its length, and the unit in which 16 rows are interleaved. Words
 * may be woven: `weave` parts of the field, or of what is behind it, take turns, a word of each.
 */
typedef struct field {
    uint16_t offset, n_bytes;
    uint8_t unit; /* bytes; 0 ends the list */
    uint8_t how;  /* of words only */
    uint8_t weave;
    uint16_t parts[5]; /* where the woven parts are, each n_bytes / weave long */
} field;

enum { COPY, ADD_128, GATHER_BITS, MOST_FIELDS = 7 };

enum { AHEAD_OF_PANEL = 1024 }; /* bytes beyond the next panel's place: 5 % for Q4_0, Q4_K */

#define FIELD(type, name, unit_bytes)                                                              \
    {                                                                                              \
        .offset = offsetof(type, name), .n_bytes = sizeof((type *)0)->name, .unit = unit_bytes     \
    }
#define FIELD_AS(type, name, kind)                                                                 \
    {                                                                                              \
        .offset = offsetof(type, name), .n_bytes = sizeof((type *)0)->name, .unit = 4, .how = kind \
    }
#define WOVEN(n_bytes, n_parts, ...)                                                               \
    {                                                                                              \
        0, n_bytes, 4, COPY, n_parts,                                                              \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* The fields of each tile, in the order of tiles.h. */
static const field layouts[DTYPE_COUNT][MOST_FIELDS] = {
    [DTYPE_F32] = {{.n_bytes = 4, .unit = 4}},
    [DTYPE_F16] = {{.n_bytes = 2, .unit = 2}},
    [DTYPE_BF16] = {{.n_bytes = 2, .unit = 2}},
    [DTYPE_Q4_0] = {FIELD(block_q4_0, scale, 2), FIELD(block_q4_0, quants, 4)},
    [DTYPE_IQ4_NL] = {FIELD(block_iq4_nl, scale, 2), FIELD(block_iq4_nl, quants, 4)},
    [DTYPE_Q4_1] = {FIELD(block_q4_1, scale, 2), FIELD(block_q4_1, min, 2),
                    FIELD(block_q4_1, quants, 4)},
    [DTYPE_Q5_0] = {FIELD(block_q5_0, scale, 2), FIELD_AS(block_q5_0, high, GATHER_BITS),
                    FIELD(block_q5_0, low, 4)},
    [DTYPE_Q5_1] = {FIELD(block_q5_1, scale, 2), FIELD(block_q5_1, min, 2),
                    FIELD_AS(block_q5_1, high, GATHER_BITS), FIELD(block_q5_1, low, 4)},
    [DTYPE_Q8_0] = {FIELD(block_q8_0, scale, 2), FIELD_AS(block_q8_0, quants, ADD_128)},
    [DTYPE_MXFP4] = {FIELD(block_mxfp4, exponent, 1), FIELD(block_mxfp4, quants, 4)},
    [DTYPE_Q2_K] = {FIELD(block_q2_k, scales, 1), FIELD(block_q2_k, scale, 2),
                    FIELD(block_q2_k, min, 2), FIELD(block_q2_k, quants, 4)},
    [DTYPE_Q3_K] = {FIELD(block_q3_k, scales, 1), FIELD(block_q3_k, scale, 2),
                    WOVEN(96, 3, offsetof(block_q3_k, high), offsetof(block_q3_k, low),
                          offsetof(block_q3_k, low) + 32)},
    [DTYPE_Q4_K] = {FIELD(block_q4_k, scales, 1), FIELD(block_q4_k, scale, 2),
                    FIELD(block_q4_k, min, 2), FIELD(block_q4_k, quants, 4)},
    [DTYPE_Q5_K] = {FIELD(block_q5_k, scales, 1), FIELD(block_q5_k, scale, 2),
                    FIELD(block_q5_k, min, 2),
                    WOVEN(160, 5, offsetof(block_q5_k, high), offsetof(block_q5_k, low),
                          offsetof(block_q5_k, low) + 32, offsetof(block_q5_k, low) + 64,
                          offsetof(block_q5_k, low) + 96)},
    [DTYPE_Q6_K] = {FIELD(block_q6_k, scales, 1), FIELD(block_q6_k, scale, 2),
                    WOVEN(96, 3, offsetof(block_q6_k, high), offsetof(block_q6_k, low),
                          offsetof(block_q6_k, low) + 32),
                    WOVEN(96, 3, offsetof(block_q6_k, high) + 32, offsetof(block_q6_k, low) + 64,
                          offsetof(block_q6_k, low) + 96)},
    [DTYPE_IQ4_XS] = {FIELD(block_iq4_xs, scales_low, 1), FIELD(block_iq4_xs, scales_high, 2),
                      FIELD(block_iq4_xs, scale, 2), FIELD(block_iq4_xs, quants, 4)},
    [DTYPE_S2] = {FIELD(block_s2, scale, 1), FIELD(block_s2, codes, 4)},
    [DTYPE_S3] = {FIELD(block_s3, scale, 1), FIELD(block_s3, codes, 4)},
    [DTYPE_S4] = {FIELD(block_s4, scale, 1), FIELD(block_s4, codes, 4)},
    [DTYPE_S5] = {FIELD(block_s5, scale, 1), FIELD(block_s5, codes, 4)},
    [DTYPE_S6] = {FIELD(block_s6, scale, 1), FIELD(block_s6, codes, 4)},
    [DTYPE_T2] = {FIELD(block_t2, scale, 1), FIELD(block_t2, stream, 4)},
    [DTYPE_T3] = {FIELD(block_t3, scale, 1), FIELD(block_t3, stream, 4)},
    [DTYPE_T4] = {FIELD(block_t4, scale, 1), FIELD(block_t4, stream, 4)},
    [DTYPE_T5] = {FIELD(block_t5, scale, 1), FIELD(block_t5, stream, 4)},
    [DTYPE_S8] = {FIELD(block_s8, scale, 1), FIELD_AS(block_s8, values, ADD_128)},
};

/* The bits 4g + i of x, as bit g of byte i. */
static uint32_t gather_bits(uint32_t x)
{
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t y = x >> i & 0x11111111;
        y = (y | y >> 3) & 0x03030303;
        y = (y | y >> 6) & 0x000f000f;
        y = (y | y >> 12) & 0xff;
        out |= y << 8 * i;
    }
    return out;
}

/* ---- Transpositions -------------------------------------------------------------------------- */

/*
 * weave_words: 16 bytes of each row, at `offset`, become 4 vectors of words, `apart` bytes from
 * each other. What bounds packing are stores: 4 of 64 bytes where the level can, else 16 of 16.
 */
#if LEVEL_BYTES == 64

/* Rows i, i + 4, i + 8 and i + 12 of 16, a lane each. */
ALWAYS_INLINE __m512i load_lanes(const uint8_t *const rows[TILE_ROWS], int i, int offset)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(rows[i] + offset)));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(rows[i + 4] + offset)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(rows[i + 8] + offset)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(rows[i + 12] + offset)), 3);
}

ALWAYS_INLINE void weave_words(const uint8_t *const rows[TILE_ROWS], int offset, uint32_t flips,
                               uint8_t *out, int64_t apart)
{
    const __m512i flip = _mm512_set1_epi32((int)flips);
    __m512i a = load_lanes(rows, 0, offset), b = load_lanes(rows, 1, offset);
    __m512i c = load_lanes(rows, 2, offset), d = load_lanes(rows, 3, offset);
    __m512i ac = _mm512_unpacklo_epi32(a, c), bd = _mm512_unpacklo_epi32(b, d);
    __m512i AC = _mm512_unpackhi_epi32(a, c), BD = _mm512_unpackhi_epi32(b, d);
    const __m512i x[4] = {_mm512_unpacklo_epi32(ac, bd), _mm512_unpackhi_epi32(ac, bd),
                          _mm512_unpacklo_epi32(AC, BD), _mm512_unpackhi_epi32(AC, BD)};
    UNROLL
    for (int k = 0; k < 4; k++)
        _mm512_storeu_si512(out + k * apart, _mm512_xor_si512(x[k], flip));
}

#else

typedef uint32_t words4 __attribute__((vector_size(16)));

#define LOW_OF(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_OF(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)

static words4 load_16(const uint8_t *at)
{
    words4 x;
    memcpy(&x, at, 16);
    return x;
}

ALWAYS_INLINE void weave_words(const uint8_t *const rows[TILE_ROWS], int offset, uint32_t flips,
                               uint8_t *out, int64_t apart)
{
    const words4 flip = {flips, flips, flips, flips};
    UNROLL
    for (int r = 0; r < TILE_ROWS; r += 4, out += 16) {
        words4 a = load_16(rows[r] + offset) ^ flip, b = load_16(rows[r + 1] + offset) ^ flip;
        words4 c = load_16(rows[r + 2] + offset) ^ flip, d = load_16(rows[r + 3] + offset) ^ flip;
        words4 ac = LOW_OF(a, c), bd = LOW_OF(b, d), AC = HIGH_OF(a, c), BD = HIGH_OF(b, d);
        words4 x[4] = {LOW_OF(ac, bd), HIGH_OF(ac, bd), LOW_OF(AC, BD), HIGH_OF(AC, BD)};
        for (int k = 0; k < 4; k++)
            memcpy(out + k * apart, &x[k], 16);
    }
}

#endif

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t halves8 __attribute__((vector_size(16)));

/* 8 values of 2 bytes of 8 rows; value k of all rows goes to out + 32 k. */
ALWAYS_INLINE void weave_halves(const uint8_t *const rows[8], int64_t offset, uint8_t *out)
{
    halves8 x[8], y[8];
    for (int r = 0; r < 8; r++)
        memcpy(&x[r], rows[r] + offset, 16);
    for (int i = 0; i < 4; i++) { /* rows i and i + 4 take turns; three times, and all do */
        y[2 * i] = __builtin_shufflevector(x[i], x[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 4; i++) {
        x[2 * i] = __builtin_shufflevector(y[i], y[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        x[2 * i + 1] = __builtin_shufflevector(y[i], y[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 4; i++) {
        y[2 * i] = __builtin_shufflevector(x[i], x[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int k = 0; k < 8; k++)
        memcpy(out + 32 * k, &y[k], 16);
}

/* n <= 16 bytes of each row become n vectors of 16 bytes. */
ALWAYS_INLINE void weave_bytes(const uint8_t *const rows[TILE_ROWS], int offset, int n,
                               uint8_t *out)
{
    bytes16 x[16] = {{0}}, y[16];
    for (int r = 0; r < 16; r++)
        memcpy(&x[r], rows[r] + offset, (size_t)n);
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < 8; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                               21, 6, 22, 7, 23);
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                   28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(x, y, sizeof x);
    }
    memcpy(out, x, (size_t)n * 16);
}

/* ---- Fields and blocks ----------------------------------------------------------------------- */

/*
 * Ask for as many bytes behind *after as are packed, to L2: 14 GB/s where to L1 brought 8 (Zen 4).
 * A few lines at a time: a core has 24 on their way at most.
 */
ALWAYS_INLINE void fetch_after(const uint8_t **after, int n_bytes)
{
    for (int i = 0; i < n_bytes; i += 64)
        __builtin_prefetch(*after + i, 0, 2);
    *after += n_bytes;
}

ALWAYS_INLINE void pack_words(const field *f, const uint8_t *const rows[TILE_ROWS], uint8_t *out,
                              const uint8_t **after)
{
    uint32_t flips = f->how == ADD_128 ? 0x80808080 : 0;
    if (f->how != GATHER_BITS) {
        UNROLL
        for (int u = 0; u < f->n_bytes; u += 16) {
            weave_words(rows, f->offset + u, flips, out + u * TILE_ROWS, 4 * TILE_ROWS);
            fetch_after(after, 16 * TILE_ROWS);
        }
        return;
    }
    fetch_after(after, 4 * TILE_ROWS);
    for (int r = 0; r < TILE_ROWS; r++) {
        uint32_t word;
        memcpy(&word, rows[r] + f->offset, 4);
        word = gather_bits(word);
        memcpy(out + 4 * r, &word, 4);
    }
}

ALWAYS_INLINE void pack_woven(const field *f, const uint8_t *const rows[TILE_ROWS], uint8_t *out,
                              const uint8_t **after)
{
    for (int u = 0; u < f->n_bytes / f->weave; u += 16)
        for (int i = 0; i < f->weave; i++) {
            weave_words(rows, f->parts[i] + u, 0, out + (u / 4 * f->weave + i) * 4 * TILE_ROWS,
                        4 * TILE_ROWS * f->weave);
            fetch_after(after, 16 * TILE_ROWS);
        }
}

ALWAYS_INLINE void pack_field(const field *f, const uint8_t *const rows[TILE_ROWS], uint8_t *out,
                              const uint8_t **after)
{
    if (f->unit < 4)
        fetch_after(after, f->n_bytes * TILE_ROWS);
    switch (f->unit) {
    case 4:
        if (f->weave)
            pack_woven(f, rows, out, after);
        else
            pack_words(f, rows, out, after);
        break;
    case 2:
        UNROLL
        for (int r = 0; r < TILE_ROWS; r += 4) { /* four at a time: stores are what is scarce */
            uint64_t four = 0;
            UNROLL
            for (int i = 0; i < 4; i++) {
                uint16_t one;
                memcpy(&one, rows[r + i] + f->offset, 2);
                four |= (uint64_t)one << 16 * i;
            }
            memcpy(out + 2 * r, &four, 8);
        }
        break;
    default:
        if (f->n_bytes > 4) {
            weave_bytes(rows, f->offset, f->n_bytes, out);
            break;
        }
        for (int r = 0; r < TILE_ROWS; r++)
            for (int u = 0; u < f->n_bytes; u++)
                out[u * TILE_ROWS + r] = rows[r][f->offset + u];
    }
}

ALWAYS_INLINE void pack_blocks(const dtype type, const int block_bytes,
                               const uint8_t *const first[TILE_ROWS], int64_t n_blocks,
                               uint8_t *out)
{
    const uint8_t *rows[TILE_ROWS];
    memcpy(rows, first, sizeof rows);
    const uint8_t *after = first[TILE_ROWS - 1] + n_blocks * block_bytes + AHEAD_OF_PANEL;
    for (int64_t b = 0; b < n_blocks; b++) {
        UNROLL
        for (int i = 0; i < MOST_FIELDS; i++) {
            const field *f = &layouts[type][i];
            if (!f->unit)
                break;
            pack_field(f, rows, out, &after);
            out += f->n_bytes * TILE_ROWS;
        }
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++)
            rows[r] += block_bytes;
    }
}

/* Each type by a function of its own, in which all its sizes are known. */
#define TYPES                                                                                      \
    X(Q4_0)                                                                                        \
    X(Q4_1)                                                                                        \
    X(Q5_0)                                                                                        \
    X(Q5_1)                                                                                        \
    X(Q8_0)                                                                                        \
    X(IQ4_NL)                                                                                      \
    X(MXFP4)                                                                                       \
    X(Q2_K)                                                                                        \
    X(Q3_K)                                                                                        \
    X(Q4_K)                                                                                        \
    X(Q5_K)                                                                                        \
    X(Q6_K)                                                                                        \
    X(IQ4_XS)                                                                                      \
    X(S2)                                                                                          \
    X(S3) X(S4) X(S5) X(S6) X(S8) X(T2) X(T3) X(T4) X(T5)

#define X(type)                                                                                    \
    static void pack_blocks_##type(const uint8_t *const first[TILE_ROWS], int64_t n_blocks,        \
                                   uint8_t *out)                                                   \
    {                                                                                              \
        pack_blocks(DTYPE_##type, BLOCK_BYTES_##type, first, n_blocks, out);                       \
    }
TYPES
#undef X

typedef void (*pack_fn)(const uint8_t *const first[TILE_ROWS], int64_t n_blocks, uint8_t *out);
static const pack_fn pack_blocks_of[DTYPE_COUNT] = {
#define X(type) [DTYPE_##type] = pack_blocks_##type,
    TYPES
#undef X
};

/* Zeros in all fields of row r of a panel. */
static void wipe_row(dtype type, int r, int64_t n_tiles, uint8_t *panel)
{
    for (int64_t i = 0; i < n_tiles; i++) {
        for (const field *f = layouts[type]; f->unit; f++) {
            for (int u = 0; u < f->n_bytes / f->unit; u++)
                memset(panel + (u * TILE_ROWS + r) * f->unit, 0, f->unit);
            panel += f->n_bytes * TILE_ROWS;
        }
    }
}

/* Rows of one-value blocks: a transposition, 32 columns at a time for the sake of the cache. */
static void pack_floats(const uint8_t *const rows[TILE_ROWS], int64_t n_cols, int n_bytes,
                        uint8_t *out)
{
    const int at_once = 16 / n_bytes;
    const uint8_t *after = rows[TILE_ROWS - 1] + n_cols * n_bytes; /* the next panel */
    int64_t k = 0;
    for (int64_t end; k + at_once <= n_cols; k = end) {
        end = (k + 32 < n_cols ? k + 32 : n_cols) / at_once * at_once;
        for (int i = 0; i < 32 * TILE_ROWS * n_bytes; i += 64, after += 64)
            __builtin_prefetch(after, 0, 2);
        if (n_bytes == 2) {
            for (int r = 0; r < TILE_ROWS; r += 8)
                for (int64_t i = k; i < end; i += 8)
                    weave_halves(rows + r, 2 * i, out + 2 * (i * TILE_ROWS + r));
        } else {
            for (int64_t i = k; i < end; i += 4)
                weave_words(rows, (int)(4 * i), 0, out + 4 * i * TILE_ROWS, 4 * TILE_ROWS);
        }
    }
    for (; k < n_cols; k++)
        for (int r = 0; r < TILE_ROWS; r++)
            memcpy(out + n_bytes * (k * TILE_ROWS + r), rows[r] + n_bytes * k, (size_t)n_bytes);
}

void FN(tiles_pack)(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                    int64_t row_begin, int64_t row_end, uint8_t *out)
{
    const dtype_info *info = dtype_describe(type);
    int64_t stride = (int64_t)row_bytes(type, n_cols);
    assert(row_begin % TILE_ROWS == 0 && row_end <= n_rows);

    for (int64_t row = row_begin; row < row_end; row += TILE_ROWS) {
        /* Below the matrix there are zeros: a row is packed again, and its part wiped. */
        const uint8_t *rows[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++)
            rows[r] = blocks + (row + r < row_end ? row + r : row) * stride;
        uint8_t *panel = out + row * stride;
        if (info->block_values == 1)
            pack_floats(rows, n_cols, info->block_bytes, panel);
        else
            pack_blocks_of[type](rows, n_cols / info->block_values, panel);
        for (int64_t r = row_end - row; r < TILE_ROWS; r++)
            wipe_row(type, (int)r, n_cols / info->block_values, panel);
    }
}
