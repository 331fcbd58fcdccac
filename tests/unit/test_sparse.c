/* Sparse matrices in files: what is written comes back, and nothing else is believed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "compress/sparse_encode.h"
#include "tensor/codec/unpack.h"
#include "random_blocks.h"
#include "tap.h"
#include "tensor/half.h"
#include "tensor/sparse.h"

enum { ROWS = 37, COLS = 288, GROUPS = 3 }; /* the last panel and the last group are not full */

typedef struct matrix {
    sparse_source source;
    uint8_t keeps[ROWS * COLS], codes[ROWS * COLS], scales[ROWS * GROUPS];
    float values[ROWS * COLS]; /* what should come back */
} matrix;

static matrix m;

static uint32_t next_random(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* `density` of 256 weights are kept; for N24 two of four. */
static void fill(sparse_kind kind, uint32_t density)
{
    for (int r = 0; r < ROWS; r++) {
        for (int g = 0; g < GROUPS; g++)
            m.scales[r * GROUPS + g] = (uint8_t)(100 + next_random() % 120);
        for (int c = 0; c < COLS; c++) {
            int i = r * COLS + c;
            m.codes[i] = (uint8_t)(next_random() & (kind == SPARSE_M8 ? 255 : 15));
            m.keeps[i] = kind == SPARSE_N24 ? (c + r) % 4 < 2 : (next_random() & 255) < density;
            float scale = sparse_scale(m.scales[r * GROUPS + c / SPARSE_GROUP]);
            int level = kind == SPARSE_M8 ? (int8_t)m.codes[i] : SPARSE_LEVELS[m.codes[i] & 15];
            m.values[i] = m.keeps[i] ? (float)level * scale : 0;
            if (kind == SPARSE_CSR)
                m.values[i] = f16_to_f32(f16_from_f32(m.values[i]));
        }
    }
    m.source = (sparse_source){ROWS, COLS, m.keeps, m.codes, m.scales, m.values};
}

static bool write_blob(sparse_kind kind, uint32_t density, buf *out)
{
    fill(kind, density);
    buf_init(out, 1 << 20);
    return CHECK(sparse_write(kind, &m.source, out, NULL) == LACE_OK);
}

static span bytes_of(const buf *b)
{
    return (span){(const uint8_t *)b->data, b->size};
}

static void every_kind_comes_back_at_every_density(void)
{
    static const uint32_t densities[] = {0, 1, 26, 128, 230, 256};
    for (int kind = SPARSE_M4; kind <= SPARSE_CSR; kind++)
        for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
            buf b;
            sparse s;
            lace_error err = {0};
            if (!write_blob((sparse_kind)kind, densities[d], &b))
                return;
            if (!CHECK(sparse_parse(bytes_of(&b), &s, &err) == LACE_OK)) {
                tap_note("kind %d, %u: %s", kind, densities[d], err.text);
                return;
            }
            CHECK(s.n_rows == ROWS && s.n_cols == COLS && s.n_panels == 3);
            int64_t n = 0;
            float row[COLS];
            for (int r = 0; r < ROWS; r++) {
                sparse_unpack_row(s.kind, sparse_panel(s.where, r / 16), COLS, r % 16, row);
                CHECK(memcmp(row, m.values + r * COLS, sizeof row) == 0);
                for (int c = 0; c < COLS; c++)
                    n += kind == SPARSE_CSR ? row[c] != 0 : m.keeps[r * COLS + c];
            }
            CHECK((int64_t)s.n_nonzeros == n);
            buf_deinit(&b);
        }
}

/* M4R holds what S4 holds. */
static void an_s4_matrix_is_stored_code_for_code(void)
{
    enum { N = 256 };
    static uint8_t blocks[ROWS * N / 128 * 65];
    random_blocks(DTYPE_S4, 5, ROWS * N / 128, blocks);
    buf b;
    sparse s;
    buf_init(&b, 1 << 20);
    CHECK(sparse_encode_s4(blocks, ROWS, N, &b, NULL) == LACE_OK);
    CHECK(sparse_parse(bytes_of(&b), &s, NULL) == LACE_OK && s.kind == SPARSE_M4R);
    for (int r = 0; r < ROWS; r++) {
        float row[N], expected[N];
        sparse_unpack_row(s.kind, sparse_panel(s.where, r / 16), N, r % 16, row);
        unpack_row(DTYPE_S4, blocks + r * 130, N, expected);
        CHECK(memcmp(row, expected, sizeof row) == 0);
    }
    b.data[16] = 32; /* columns: half a rotation would be left */
    CHECK(sparse_parse(bytes_of(&b), &s, NULL) == LACE_E_DIMS);
    buf_deinit(&b);
}

static void packed_parts_are_the_same_panels(void)
{
    buf b;
    sparse s;
    if (!write_blob(SPARSE_M4, 128, &b) || !CHECK(sparse_parse(bytes_of(&b), &s, NULL) == LACE_OK))
        return;
    /* Panels 1 and 2 of the three, packed in two calls. */
    const uint8_t *where = s.where + 8;
    uint64_t n_bytes = sparse_packed_bytes(where, 2);
    uint8_t *out = mem_alloc(n_bytes);
    memset(out, 0xee, n_bytes);
    sparse_pack(where, 2, 1, 2, out);
    sparse_pack(where, 2, 0, 1, out);
    float row[COLS];
    for (int r = 16; r < ROWS; r++) {
        sparse_unpack_row(s.kind, sparse_panel(out, r / 16 - 1), COLS, r % 16, row);
        CHECK(memcmp(row, m.values + r * COLS, sizeof row) == 0);
    }
    CHECK(sparse_panel(out, 2) == out + n_bytes - SPARSE_SLACK);
    mem_free(out);
    buf_deinit(&b);
}

static void two_of_four_take_less_than_three_and_a_quarter_bits(void)
{
    buf b;
    if (!write_blob(SPARSE_N24, 0, &b))
        return;
    /* 48 rows are stored; 1 bit of mask, 2 of values, 1/16 of scale, the table. */
    double bits = 8.0 * (double)b.size / (48 * COLS);
    if (!CHECK(bits < 3.25))
        tap_note("%g bits", bits);
    buf_deinit(&b);
}

/* Cut short at every byte, every bit changed: refused, or exactly as long and as
 * full as it says. */
static void no_damaged_blob_is_believed(void)
{
    for (int kind = SPARSE_M4; kind <= SPARSE_CSR; kind++) {
        buf b;
        if (!write_blob((sparse_kind)kind, 60, &b))
            return;
        sparse s;
        for (size_t n = 0; n < b.size; n += n < 600 ? 1 : 97) {
            uint8_t *copy = malloc(n ? n : 1); /* of that size, for the sanitizer */
            memcpy(copy, b.data, n);
            lace_error err = {0};
            CHECK(sparse_parse((span){copy, n}, &s, &err) != LACE_OK && err.text[0]);
            free(copy);
        }
        int n_passed = 0;
        for (size_t at = 0; at < b.size; at += at < 1200 ? 1 : 31)
            for (int bit = 0; bit < 8; bit++) {
                b.data[at] = (char)(b.data[at] ^ 1 << bit);
                if (sparse_parse(bytes_of(&b), &s, NULL) == LACE_OK) {
                    /* CSR with more columns than are used is a matrix too. */
                    static float row[SPARSE_CSR_COLS];
                    int64_t most = kind == SPARSE_CSR ? SPARSE_CSR_COLS : COLS;
                    if (CHECK(s.n_rows > 32 && s.n_rows <= 48 && s.n_cols <= most))
                        for (int r = 0; r < 48; r++)
                            sparse_unpack_row(s.kind, sparse_panel(s.where, r / 16), s.n_cols,
                                              r % 16, row);
                    n_passed++;
                }
                b.data[at] = (char)(b.data[at] ^ 1 << bit);
            }
        CHECK(n_passed > 0); /* values may be changed */
        buf_deinit(&b);
    }
}

int main(void)
{
    CASE(every_kind_comes_back_at_every_density);
    CASE(an_s4_matrix_is_stored_code_for_code);
    CASE(packed_parts_are_the_same_panels);
    CASE(two_of_four_take_less_than_three_and_a_quarter_bits);
    CASE(no_damaged_blob_is_believed);
    return tap_end();
}
