/*
 * Matrix instructions of warps on the CPU (tests/card/warp_matrix.h) against plain products: where the
 * PTX ISA says that element number i of a lane lies is written down here once more, element by
 * element.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "card/matrix_sums.h"
#include "card/warp_matrix.h"
#include "tap.h"

enum { M = 16, N = 8, MOST_K = 64, N_TRIES = 50 };

static random_state dice;

/* 0 to n - 1 */
static int roll(int n)
{
    return (int)(random_bits(&dice) >> 33) % n;
}

/* Sums of 64 products of such numbers are exact in double. */
static uint16_t random_half(matrix_type t)
{
    const int sign = roll(2) << 15;
    if (roll(8) == 0)
        return (uint16_t)sign;
    if (t == MATRIX_F16) /* 2^-4 to 4 */
        return (uint16_t)(sign | (11 + roll(6)) << 10 | roll(1024));
    return (uint16_t)(sign | (123 + roll(6)) << 7 | roll(128));
}

static double value_of_half(matrix_type t, uint16_t h)
{
    const int bits = t == MATRIX_F16 ? 10 : 7, bias = t == MATRIX_F16 ? 15 : 127;
    const int power = (h & 0x7fff) >> bits, rest = h & ((1 << bits) - 1);
    const double size = power == 2 * bias + 1 ? (rest ? NAN : INFINITY)
                        : power               ? ldexp(rest + (1 << bits), power - bias - bits)
                                              : ldexp(rest, 1 - bias - bits);
    return h & 0x8000 ? -size : size;
}

/* ---- Registers ------------------------------------------------------------------------------- */

typedef struct registers {
    uint32_t words[128][WARP_LANES];
    uint32_t *at[128];
} registers;

static void clear(registers *r)
{
    memset(r->words, 0, sizeof r->words);
    for (int i = 0; i < 128; i++)
        r->at[i] = r->words[i];
}

/* Element number i of a lane, of `bits`, in registers one after the other. */
static void put(registers *r, int bits, int lane, int i, uint32_t value)
{
    const int each = 32 / bits;
    r->words[i / each][lane] |= (value & (bits == 8 ? 0xffu : 0xffffu)) << bits * (i % each);
}

/* Raw numbers, and what they are worth. */
typedef struct matrix {
    uint32_t raw[64][64];
    double worth[64][64];
} matrix;

static void fill(matrix *x, matrix_type t, int n_rows, int n_cols)
{
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j < n_cols; j++) {
            if (matrix_is_bytes(t)) {
                const int v = roll(256);
                x->raw[i][j] = (uint32_t)v;
                x->worth[i][j] = t == MATRIX_U8 || v < 128 ? v : v - 256;
            } else {
                x->raw[i][j] = random_half(t);
                x->worth[i][j] = value_of_half(t, (uint16_t)x->raw[i][j]);
            }
        }
}

/* ---- mma ------------------------------------------------------------------------------------- */

/* a, b and c of the same d, as the ISA's "matrix fragments" have them. */
typedef struct mma_case {
    matrix a, b; /* [M][k], [k][N] */
    registers ra, rb, rc, rd;
    double c[M][N];
} mma_case;

static void put_half_factors(mma_case *m, int k)
{
    for (int lane = 0; lane < 32; lane++) {
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < (k == 16 ? 8 : 4); i++) {
            int row, col;
            if (k == 16) {
                row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
                col = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
            } else {
                row = i < 2 ? group : group + 8;
                col = in_group * 2 + (i & 1);
            }
            put(&m->ra, 16, lane, i, m->a.raw[row][col]);
        }
        for (int i = 0; i < (k == 16 ? 4 : 2); i++) {
            const int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);
            put(&m->rb, 16, lane, i, m->b.raw[row][group]);
        }
    }
}

static void put_byte_factors(mma_case *m, int k)
{
    for (int lane = 0; lane < 32; lane++) {
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < (k == 32 ? 16 : 8); i++) {
            int row, col;
            if (k == 32) {
                row = i < 4 || (8 <= i && i < 12) ? group : group + 8;
                col = in_group * 4 + (i & 3) + (i < 8 ? 0 : 16);
            } else {
                row = i < 4 ? group : group + 8;
                col = in_group * 4 + (i & 3);
            }
            put(&m->ra, 8, lane, i, m->a.raw[row][col]);
        }
        for (int i = 0; i < (k == 32 ? 8 : 4); i++) {
            const int row = in_group * 4 + (i & 3) + (i < 4 ? 0 : 16);
            put(&m->rb, 8, lane, i, m->b.raw[row][group]);
        }
    }
}

/* What is added to, in registers: floats or whole numbers. */
static void put_sums(mma_case *m, bool is_bytes)
{
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = (lane >> 2) + (i < 2 ? 0 : 8), col = lane % 4 * 2 + (i & 1);
            const int x = roll(2000001) - 1000000;
            m->c[row][col] = is_bytes ? x : x / 1024.0;
            m->rc.words[i][lane] = is_bytes ? (uint32_t)x : bits_of_float((float)m->c[row][col]);
        }
}

static bool sums_are_right(const mma_case *m, bool is_bytes, int k)
{
    int n_wrong = 0;
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = (lane >> 2) + (i < 2 ? 0 : 8), col = lane % 4 * 2 + (i & 1);
            double sum = m->c[row][col];
            for (int d = 0; d < k; d++)
                sum += m->a.worth[row][d] * m->b.worth[d][col];
            const uint32_t is = m->rd.words[i][lane];
            n_wrong += is_bytes ? (int32_t)is != (int32_t)sum : float_of_bits(is) != (float)sum;
        }
    return n_wrong == 0;
}

static void begin(mma_case *m)
{
    clear(&m->ra);
    clear(&m->rb);
    clear(&m->rc);
    clear(&m->rd);
}

static void check_mma(int k, matrix_type a, matrix_type b)
{
    mma_case *m = malloc(sizeof *m);
    bool is_right = m != NULL;
    for (int n = 0; is_right && n < N_TRIES; n++) {
        begin(m);
        fill(&m->a, a, M, k);
        fill(&m->b, b, k, N);
        (matrix_is_bytes(a) ? put_byte_factors : put_half_factors)(m, k);
        put_sums(m, matrix_is_bytes(a));
        is_right = warp_mma(k, a, b, m->rd.at, m->ra.at, m->rb.at, m->rc.at) == NULL &&
                   sums_are_right(m, matrix_is_bytes(a), k);
        /* In place, as kernels do it. */
        warp_mma(k, a, b, m->rc.at, m->ra.at, m->rb.at, m->rc.at);
        is_right = is_right && !memcmp(m->rc.words, m->rd.words, 4 * sizeof m->rc.words[0]);
    }
    CHECK(is_right);
    free(m);
}

static void products_of_floats_are_those_of_the_matrices(void)
{
    check_mma(16, MATRIX_F16, MATRIX_F16);
    check_mma(8, MATRIX_F16, MATRIX_F16);
    check_mma(16, MATRIX_BF16, MATRIX_BF16);
    check_mma(8, MATRIX_BF16, MATRIX_BF16);
}

static void products_of_bytes_are_those_of_the_matrices(void)
{
    const matrix_type both[2] = {MATRIX_S8, MATRIX_U8};
    for (int i = 0; i < 4; i++) {
        check_mma(32, both[i / 2], both[i % 2]);
        check_mma(16, both[i / 2], both[i % 2]);
    }
}

static void sums_of_bytes_wrap_around(void)
{
    registers a, b, c;
    clear(&a);
    clear(&b);
    clear(&c);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            a.words[i][lane] = 0x01010101;
            if (i < 2)
                b.words[i][lane] = 0x01010101;
            c.words[i][lane] = 0x7fffffff;
        }
    CHECK(warp_mma(32, MATRIX_S8, MATRIX_S8, c.at, a.at, b.at, c.at) == NULL);
    CHECK(c.words[3][31] == 0x7fffffffu + 32);
}

static void a_sum_of_floats_is_rounded_once(void)
{
    registers a, b, c;
    clear(&a);
    clear(&b);
    clear(&c);
    /* 2^24 + 1 - 1/2 + ...: one after the other, each 1 would be lost. */
    for (int lane = 0; lane < 32; lane++) {
        a.words[0][lane] = 0x3c003c00; /* 1, 1 */
        b.words[0][lane] = 0x3c003c00;
        c.words[0][lane] = bits_of_float(16777216);
    }
    CHECK(warp_mma(16, MATRIX_F16, MATRIX_F16, c.at, a.at, b.at, c.at) == NULL);
    CHECK(float_of_bits(c.words[0][0]) == 16777224);
}

static void every_f16_has_its_value(void)
{
    int n_wrong = 0;
    for (int h = 0; h < 65536; h++) {
        const uint16_t raw = (uint16_t)h;
        for (int t = 0; t < 2; t++) {
            const matrix_type type = t ? MATRIX_BF16 : MATRIX_F16;
            double is[1], should = value_of_half(type, raw);
            matrix_floats(type, 1, &raw, is);
            n_wrong += isnan(should) ? !isnan(is[0]) : memcmp(is, &should, sizeof should) != 0;
        }
    }
    CHECK(n_wrong == 0);
}

static void what_is_no_product_is_said(void)
{
    registers r;
    clear(&r);
    CHECK(warp_mma(16, MATRIX_F16, MATRIX_BF16, r.at, r.at, r.at, r.at) != NULL);
    CHECK(warp_mma(16, MATRIX_F16, MATRIX_S8, r.at, r.at, r.at, r.at) != NULL);
    CHECK(warp_mma(32, MATRIX_F16, MATRIX_F16, r.at, r.at, r.at, r.at) != NULL);
    CHECK(warp_mma(8, MATRIX_S8, MATRIX_S8, r.at, r.at, r.at, r.at) != NULL);
    CHECK(warp_mma_sparse(MATRIX_S8, MATRIX_S8, r.at, r.at, r.at, r.at, r.words[0], 0) != NULL);
    memset(r.words, 0x44, sizeof r.words);
    CHECK(warp_mma_sparse(MATRIX_S8, MATRIX_S8, r.at, r.at, r.at, r.at, r.words[0], 1) != NULL);
    CHECK(warp_mma_sparse(MATRIX_S8, MATRIX_S8, r.at, r.at, r.at, r.at, r.words[0], 0) == NULL);
}

/* ---- mma.sp ---------------------------------------------------------------------------------- */

/*
 * a[M][64] with two values of each four columns. Registers 0 and 1 have columns 8 c to 8 c + 7 of rows
 * r and r + 8, registers 2 and 3 those 32 further on; lanes c = 0 and 1 say where the values of the
 * first 32 columns of these rows are, lanes 2 and 3 those of the others.
 */
static void put_sparse_factor(mma_case *m, uint32_t *places, matrix_type t)
{
    memset(places, 0, 32 * sizeof *places);
    memset(&m->a, 0, sizeof m->a);
    for (int row = 0; row < M; row++)
        for (int four = 0; four < 16; four++) {
            static const int pairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
            const int *pair = pairs[roll(6)];
            for (int n = 0; n < 2; n++) {
                const int v = roll(256), col = 4 * four + pair[n];
                m->a.worth[row][col] = t == MATRIX_U8 || v < 128 ? v : v - 256;
                const int lane = row % 8 * 4 + four % 8 / 2; /* 8 columns to a lane */
                const int reg = row / 8 + four / 8 * 2;
                put(&m->ra, 8, lane, 4 * reg + 2 * (four % 2) + n, (uint32_t)v);
                places[row % 8 * 4 + row / 8 + four / 8 * 2] |= (uint32_t)pair[n]
                                                                << (4 * (four % 8) + 2 * n);
            }
        }
}

static void products_with_zeros_are_those_of_the_matrices(void)
{
    mma_case *m = malloc(sizeof *m);
    bool is_right = m != NULL;
    for (int n = 0; is_right && n < 4 * N_TRIES; n++) {
        const matrix_type a = n & 1 ? MATRIX_U8 : MATRIX_S8, b = n & 2 ? MATRIX_U8 : MATRIX_S8;
        uint32_t places[32];
        begin(m);
        put_sparse_factor(m, places, a);
        fill(&m->b, b, 64, N);
        for (int lane = 0; lane < 32; lane++) /* 16 rows of b to a register */
            for (int i = 0; i < 16; i++)
                put(&m->rb, 8, lane, i, m->b.raw[i / 4 * 16 + lane % 4 * 4 + i % 4][lane / 4]);
        put_sums(m, true);
        is_right =
            warp_mma_sparse(a, b, m->rd.at, m->ra.at, m->rb.at, m->rc.at, places, 0) == NULL &&
            sums_are_right(m, true, 64);
    }
    CHECK(is_right);
    free(m);
}

/* ---- ldmatrix, stmatrix ---------------------------------------------------------------------- */

static void matrices_of_8_by_8_come_and_go(void)
{
    for (int n = 1; n <= 4; n *= 2)
        for (int is_turned = 0; is_turned < 2; is_turned++) {
            static uint16_t memory[32][8], back[32][8];
            const void *rows[32];
            void *places[32];
            int order[32], n_wrong = 0;
            for (int i = 0; i < 32; i++)
                order[i] = i;
            for (int i = 31; i > 0; i--) { /* rows lie anywhere */
                const int other = roll(i + 1), kept = order[i];
                order[i] = order[other];
                order[other] = kept;
            }
            for (int i = 0; i < 32; i++) {
                rows[i] = memory[order[i]];
                places[i] = back[order[i]];
                for (int j = 0; j < 8; j++)
                    memory[i][j] = (uint16_t)roll(65536);
            }
            registers r;
            clear(&r);
            warp_load_matrices(r.at, n, is_turned, rows);
            /* Lane 4 r + c: row r, columns 2 c and 2 c + 1. */
            for (int i = 0; i < n; i++)
                for (int row = 0; row < 8; row++)
                    for (int col = 0; col < 8; col++) {
                        const uint16_t is =
                            (uint16_t)(r.words[i][4 * row + col / 2] >> 16 * (col % 2));
                        const uint16_t should = is_turned ? memory[order[8 * i + col]][row]
                                                          : memory[order[8 * i + row]][col];
                        n_wrong += is != should;
                    }
            CHECK(n_wrong == 0);
            memset(back, 0, sizeof back);
            warp_store_matrices(r.at, n, is_turned, places);
            n_wrong = 0;
            for (int i = 0; i < 8 * n; i++)
                n_wrong += memcmp(back[order[i]], memory[order[i]], sizeof back[0]) != 0;
            CHECK(n_wrong == 0);
        }
}

int main(int argc, char **argv)
{
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    random_init(&dice, seed);
    tap_note("seed %llu: repeat with %s %llu", (unsigned long long)seed, argv[0],
             (unsigned long long)seed);
    CASE(products_of_floats_are_those_of_the_matrices);
    CASE(products_of_bytes_are_those_of_the_matrices);
    CASE(sums_of_bytes_wrap_around);
    CASE(a_sum_of_floats_is_rounded_once);
    CASE(every_f16_has_its_value);
    CASE(what_is_no_product_is_said);
    CASE(products_with_zeros_are_those_of_the_matrices);
    CASE(matrices_of_8_by_8_come_and_go);
    return tap_end();
}
