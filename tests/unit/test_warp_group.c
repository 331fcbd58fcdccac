/*
 * wgmma on the CPU (tests/card/warp_matrix.h) against plain products, with matrices in registers and
 * in shared memory of every layout. Where a value lies is written down here once more: units of eight
 * rows, in which chunk n of row i is in place n ^ i.
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

enum { M = 64, MOST_N = 256, MOST_K = 64, SHARED = 128 * 1024, WARPS = 4, BASE = 1024 };

static random_state dice;

static int roll(int n)
{
    return (int)(random_bits(&dice) >> 33) % n;
}

/* ---- Shared memory --------------------------------------------------------------------------- */

/* How a matrix of rows x K lies: width 16 is no swizzle. Strides in bytes. */
typedef struct layout {
    int width;
    bool is_turned;
    uint32_t start, stride, leading;
} layout;

static uint64_t describe(const layout *l, int step_bytes)
{
    const uint64_t mode = l->width == 128 ? 1 : l->width == 64 ? 2 : l->width == 32 ? 3 : 0;
    return (uint64_t)(l->start + (uint32_t)step_bytes) >> 4 | (uint64_t)(l->leading >> 4) << 16 |
           (uint64_t)(l->stride >> 4) << 32 | mode << 62;
}

/* Which place in its row a chunk takes. */
static int swizzled(const layout *l, int row, int chunk)
{
    switch (l->width) {
    case 128:
        return chunk ^ row % 8;
    case 64:
        return chunk ^ row % 8 / 2;
    case 32:
        return chunk ^ row % 8 / 4;
    default:
        return chunk;
    }
}

/* The offset of byte `at` of K of a row; turned, of value `row` of line `at`, which have two bytes. */
static uint32_t place_of(const layout *l, int row, int at)
{
    if (l->is_turned) {
        const int chunk = row / 8, in_chunk = row % 8 * 2, line = at;
        if (l->width == 16)
            return l->start + (uint32_t)(line / 8) * l->leading + (uint32_t)chunk * l->stride +
                   (uint32_t)(line % 8 * 16 + in_chunk);
        const int chunks = l->width / 16;
        return l->start + (uint32_t)(line / 8) * l->stride +
               (uint32_t)(chunk / chunks) * l->leading +
               (uint32_t)(line % 8 * l->width + swizzled(l, line, chunk % chunks) * 16 + in_chunk);
    }
    const int chunk = at / 16;
    if (l->width == 16)
        return l->start + (uint32_t)(row / 8) * l->stride + (uint32_t)chunk * l->leading +
               (uint32_t)(row % 8 * 16 + at % 16);
    return l->start + (uint32_t)(row / 8) * l->stride +
           (uint32_t)(row % 8 * l->width + swizzled(l, row, chunk) * 16 + at % 16);
}

/* A layout for so many rows and bytes of K (turned: lines), from `start` on. */
static layout lay_out(int width, bool is_turned, uint32_t start, int n_rows, int deep)
{
    layout l = {.width = width, .is_turned = is_turned, .start = start};
    const uint32_t unit = 8 * (uint32_t)width;
    if (!is_turned && width == 16) { /* chunks of K beside each other, then rows */
        l.leading = unit;
        l.stride = unit * (uint32_t)(deep / 16);
    } else if (!is_turned) {
        l.leading = 16; /* not used */
        l.stride = unit;
    } else if (width == 16) {
        l.stride = unit;
        l.leading = unit * (uint32_t)(n_rows / 8);
    } else { /* as attention has values: lines, then further rows */
        l.stride = unit;
        l.leading = unit * (uint32_t)(deep / 8);
    }
    return l;
}

/* ---- Matrices -------------------------------------------------------------------------------- */

typedef struct wide_case {
    uint8_t shared[SHARED];
    matrix_type a_type, b_type;
    int n, k;                                             /* k: of all steps */
    uint32_t a_raw[M][MOST_K], b_raw[MOST_N][MOST_K];     /* both with K along rows */
    double a[M][MOST_K], b[MOST_N][MOST_K], d[M][MOST_N]; /* d: what was there */
    uint32_t sums[WARPS][128][WARP_LANES], factor[WARPS][4][WARP_LANES];
    uint32_t *sums_at[WARPS][128], *factor_at[WARPS][4];
    wgmma_state *state[WARPS];
} wide_case;

static double worth(matrix_type t, uint32_t raw)
{
    if (matrix_is_bytes(t))
        return t == MATRIX_S8 ? (int8_t)raw : (uint8_t)raw;
    const int bits = t == MATRIX_F16 ? 10 : 7, bias = t == MATRIX_F16 ? 15 : 127;
    const int power = (int)(raw & 0x7fff) >> bits, rest = (int)raw & ((1 << bits) - 1);
    const double size = power ? ldexp(rest + (1 << bits), power - bias - bits) : 0;
    return raw & 0x8000 ? -size : size;
}

static uint32_t random_raw(matrix_type t)
{
    if (matrix_is_bytes(t))
        return (uint32_t)roll(256);
    const uint32_t sign = (uint32_t)roll(2) << 15;
    if (roll(8) == 0)
        return sign;
    return t == MATRIX_F16 ? sign | (uint32_t)((11 + roll(6)) << 10 | roll(1024))
                           : sign | (uint32_t)((123 + roll(6)) << 7 | roll(128));
}

static int sum_row(int warp, int i, int lane)
{
    return 16 * warp + lane / 4 + (i % 4 < 2 ? 0 : 8);
}

static int sum_col(int i, int lane)
{
    return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

static wide_case *case_create(matrix_type a, matrix_type b, int n, int k)
{
    wide_case *c = calloc(1, sizeof *c);
    if (!CHECK(c != NULL))
        abort();
    c->a_type = a, c->b_type = b, c->n = n, c->k = k;
    memset(c->shared, 0xff, sizeof c->shared);
    for (int j = 0; j < k; j++) {
        for (int i = 0; i < M; i++)
            c->a[i][j] = worth(a, c->a_raw[i][j] = random_raw(a));
        for (int i = 0; i < n; i++)
            c->b[i][j] = worth(b, c->b_raw[i][j] = random_raw(b));
    }
    for (int w = 0; w < WARPS; w++) {
        c->state[w] = wgmma_create();
        for (int i = 0; i < 4; i++)
            c->factor_at[w][i] = c->factor[w][i];
        for (int i = 0; i < 128; i++) {
            c->sums_at[w][i] = c->sums[w][i];
            for (int lane = 0; i < n / 2 && lane < 32; lane++) {
                const int x = roll(200001) - 100000;
                c->d[sum_row(w, i, lane)][sum_col(i, lane)] = matrix_is_bytes(a) ? x : x / 256.0;
                c->sums[w][i][lane] =
                    matrix_is_bytes(a) ? (uint32_t)x : bits_of_float((float)(x / 256.0));
            }
        }
    }
    return c;
}

static void case_free(wide_case *c)
{
    for (int w = 0; w < WARPS; w++)
        wgmma_free(c->state[w]);
    free(c);
}

/* Rows of raw numbers to shared memory. */
static void store(wide_case *c, const layout *l, matrix_type t, int n_rows, uint32_t (*raw)[MOST_K])
{
    const int each = matrix_is_bytes(t) ? 1 : 2;
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j < c->k; j++)
            memcpy(c->shared + place_of(l, i, l->is_turned ? j : each * j) - BASE, &raw[i][j],
                   (size_t)each);
}

/* Registers of a warp with 16 rows and the columns of a step. */
static void take_factor(wide_case *c, int warp, int step)
{
    const bool is_bytes = matrix_is_bytes(c->a_type);
    const int each = is_bytes ? 4 : 2, deep = 8 * each;
    memset(c->factor[warp], 0, sizeof c->factor[warp]);
    for (int row = 0; row < 16; row++)
        for (int col = 0; col < deep; col++) {
            const int lane = row % 8 * 4 + col % (deep / 2) / each;
            const int reg = row / 8 + 2 * (col / (deep / 2));
            c->factor[warp][reg][lane] |= c->a_raw[16 * warp + row][step * deep + col]
                                          << 32 / each * (col % each);
        }
}

static bool sums_are_right(const wide_case *c, bool adds, int sign)
{
    int n_wrong = 0;
    for (int w = 0; w < WARPS; w++)
        for (int i = 0; i < c->n / 2; i++)
            for (int lane = 0; lane < 32; lane++) {
                const int row = sum_row(w, i, lane), col = sum_col(i, lane);
                double sum = adds ? c->d[row][col] : 0;
                const int deep = matrix_is_bytes(c->a_type) ? 32 : 16;
                for (int j = 0; j < c->k; j++) {
                    sum += sign * c->a[row][j] * c->b[col][j];
                    if (j % deep == deep - 1 && !matrix_is_bytes(c->a_type))
                        sum = (float)sum; /* after each instruction */
                }
                const uint32_t is = c->sums[w][i][lane];
                n_wrong += matrix_is_bytes(c->a_type) ? (int32_t)is != (int32_t)sum
                                                      : float_of_bits(is) != (float)sum;
            }
    return n_wrong == 0;
}

static wgmma_product product_of(wide_case *c, int warp)
{
    return (wgmma_product){.n = c->n,
                           .a_type = c->a_type,
                           .b_type = c->b_type,
                           .warp = warp,
                           .d = c->sums_at[warp],
                           .adds = true,
                           .a_sign = 1,
                           .b_sign = 1};
}

/* What a step further is in bytes, from where the matrix begins. */
static int step_bytes(const layout *l, int n_rows)
{
    if (!l->is_turned)
        return l->width == 16 ? 2 * (int)l->leading : 32;
    return l->width == 16 ? 2 * (int)l->leading : 2 * (int)l->stride;
}

/* A product of all steps, a from registers (a_width 0) or from shared memory. */
static void multiply(matrix_type a, matrix_type b, int n, int a_width, bool a_turned, int b_width,
                     bool b_turned)
{
    const bool is_bytes = matrix_is_bytes(a);
    /* As deep as a swizzled row, or deeper where that costs nothing. */
    const int deep = is_bytes ? 32 : 16, row = b_turned || b_width == 16 ? 128 : b_width;
    int k = row / (is_bytes ? 1 : 2);
    if (a_width && !a_turned && a_width != 16 && a_width < row)
        k = a_width / (is_bytes ? 1 : 2);
    k = k > MOST_K ? MOST_K : k;
    wide_case *c = case_create(a, b, n, k);
    const int bytes = k * (is_bytes ? 1 : 2);
    const layout at_b = lay_out(b_width, b_turned, BASE, n, b_turned ? k : bytes);
    const layout at_a =
        lay_out(a_width ? a_width : 16, a_turned, BASE + 64 * 1024, M, a_turned ? k : bytes);
    const bool adds = roll(2);
    const int a_sign = is_bytes || roll(2) ? 1 : -1, b_sign = is_bytes || roll(2) ? 1 : -1;
    store(c, &at_b, b, n, c->b_raw);
    if (a_width)
        store(c, &at_a, a, M, c->a_raw);
    const shared_view memory = {c->shared, BASE, SHARED};
    const char *wrong = NULL;
    bool is_hidden = true;
    for (int w = 0; w < WARPS; w++) {
        for (int step = 0; step < k / deep; step++) {
            wgmma_product p = product_of(c, w);
            p.adds = step > 0 || adds;
            p.a_sign = a_sign, p.b_sign = b_sign;
            p.b_turned = b_turned, p.a_turned = a_turned;
            p.b_place = describe(&at_b, step * step_bytes(&at_b, n));
            if (a_width) {
                p.a_place = describe(&at_a, step * step_bytes(&at_a, M));
            } else {
                take_factor(c, w, step);
                p.a = c->factor_at[w];
            }
            wgmma_fence(c->state[w]);
            const char *now = wgmma_issue(c->state[w], &p, &memory);
            wrong = wrong ? wrong : now;
        }
        wgmma_commit(c->state[w]);
        is_hidden = is_hidden && c->sums[w][0][0] == WGMMA_POISON;
        const char *now = wgmma_wait(c->state[w], 0);
        wrong = wrong ? wrong : now;
        wrong = wrong ? wrong : wgmma_end(c->state[w]);
    }
    if (wrong)
        tap_note("%s", wrong);
    if (!CHECK(!wrong && is_hidden && sums_are_right(c, adds, a_sign * b_sign)))
        tap_note("types %d %d, n %d, a: width %d turned %d, b: width %d turned %d", a, b, n,
                 a_width, a_turned, b_width, b_turned);
    case_free(c);
}

/* ---- The cases ------------------------------------------------------------------------------- */

static const int widths[4] = {16, 32, 64, 128};

static void rows_in_registers_times_shared_memory(void)
{
    static const int ns[] = {8, 16, 24, 64, 128, 256};
    for (int i = 0; i < 6; i++)
        for (int w = 0; w < 4; w++) {
            multiply(MATRIX_F16, MATRIX_F16, ns[i], 0, false, widths[w], false);
            multiply(MATRIX_BF16, MATRIX_BF16, ns[i], 0, false, widths[w], false);
            multiply(MATRIX_U8, MATRIX_S8, ns[i], 0, false, widths[w], false);
            multiply(MATRIX_S8, MATRIX_S8, ns[i], 0, false, widths[w], false);
            multiply(MATRIX_S8, MATRIX_U8, ns[i], 0, false, widths[w], false);
        }
}

static void both_in_shared_memory(void)
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            multiply(MATRIX_F16, MATRIX_F16, 128, widths[i], false, widths[j], false);
            multiply(MATRIX_U8, MATRIX_S8, 32, widths[i], false, widths[j], false);
        }
}

static void matrices_with_k_far_apart(void)
{
    for (int i = 0; i < 4; i++) {
        const int n = widths[i] * 2; /* whole rows of a swizzle */
        multiply(MATRIX_F16, MATRIX_F16, n, 0, false, widths[i], true);
        multiply(MATRIX_F16, MATRIX_F16, 128, 128, false, widths[i], true);
        multiply(MATRIX_F16, MATRIX_F16, 64, widths[i], true, 128, false);
        multiply(MATRIX_BF16, MATRIX_BF16, 64, widths[i], true, widths[i], true);
    }
}

/* One product of f16 by warp 0, and what it needs. */
static wide_case *begin_one(layout *at, shared_view *memory)
{
    wide_case *c = case_create(MATRIX_F16, MATRIX_F16, 8, 16);
    *at = lay_out(32, false, BASE, 8, 32);
    store(c, at, MATRIX_F16, 8, c->b_raw);
    take_factor(c, 0, 0);
    *memory = (shared_view){c->shared, BASE, SHARED};
    return c;
}

static const char *issue_one(wide_case *c, const layout *at, const shared_view *memory)
{
    wgmma_product p = product_of(c, 0);
    p.a = c->factor_at[0];
    p.b_place = describe(at, 0);
    return wgmma_issue(c->state[0], &p, memory);
}

static void groups_end_in_their_order(void)
{
    layout at;
    shared_view memory;
    wide_case *c = begin_one(&at, &memory);
    uint32_t others[4][WARP_LANES] = {{0}}, *others_at[4];
    for (int i = 0; i < 4; i++)
        others_at[i] = others[i];
    wgmma_fence(c->state[0]);
    CHECK(!issue_one(c, &at, &memory));
    wgmma_commit(c->state[0]);
    wgmma_product p = product_of(c, 0);
    p.d = others_at;
    p.a = c->factor_at[0];
    p.b_place = describe(&at, 0);
    wgmma_fence(c->state[0]);
    CHECK(!wgmma_issue(c->state[0], &p, &memory));
    wgmma_commit(c->state[0]);
    CHECK(c->sums[0][0][0] == WGMMA_POISON && others[0][0] == WGMMA_POISON);
    CHECK(!wgmma_wait(c->state[0], 1));
    CHECK(c->sums[0][0][0] != WGMMA_POISON && others[0][0] == WGMMA_POISON);
    CHECK(wgmma_end(c->state[0]) != NULL);
    CHECK(!wgmma_wait(c->state[0], 0));
    CHECK(others[0][0] != WGMMA_POISON && !wgmma_end(c->state[0]));
    case_free(c);
}

/* Sums that a later group adds to are not there before that one. */
static void sums_wait_for_the_last_group_that_adds(void)
{
    layout at;
    shared_view memory;
    wide_case *c = begin_one(&at, &memory);
    for (int i = 0; i < 2; i++) {
        wgmma_fence(c->state[0]);
        CHECK(!issue_one(c, &at, &memory));
        wgmma_commit(c->state[0]);
    }
    CHECK(!wgmma_wait(c->state[0], 1) && c->sums[0][0][0] == WGMMA_POISON);
    CHECK(!wgmma_wait(c->state[0], 0));
    double sum = c->d[0][0];
    for (int n = 0; n < 2; n++) {
        for (int j = 0; j < 16; j++)
            sum += c->a[0][j] * c->b[0][j];
        sum = (float)sum;
    }
    CHECK(float_of_bits(c->sums[0][0][0]) == (float)sum);
    case_free(c);
}

static void what_kernels_do_wrong_is_said(void)
{
    layout at;
    shared_view memory;
    wide_case *c = begin_one(&at, &memory);
    CHECK(issue_one(c, &at, &memory) != NULL); /* without a fence */
    wgmma_fence(c->state[0]);
    CHECK(!issue_one(c, &at, &memory));
    CHECK(wgmma_end(c->state[0]) != NULL); /* without a commit */
    wgmma_commit(c->state[0]);
    CHECK(wgmma_end(c->state[0]) != NULL); /* without a wait */
    c->shared[place_of(&at, 3, 5) - BASE] ^= 1;
    CHECK(wgmma_wait(c->state[0], 0) != NULL); /* what it reads was written */
    CHECK(!wgmma_end(c->state[0]));

    wgmma_fence(c->state[0]);
    CHECK(!issue_one(c, &at, &memory));
    wgmma_commit(c->state[0]);
    c->sums[0][1][7] = 0;
    CHECK(wgmma_wait(c->state[0], 0) != NULL); /* sums were written */

    wgmma_fence(c->state[0]);
    memory.n_bytes = 100;
    CHECK(issue_one(c, &at, &memory) != NULL); /* beyond what there is */
    case_free(c);
}

int main(int argc, char **argv)
{
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    random_init(&dice, seed);
    tap_note("seed %llu: repeat with %s %llu", (unsigned long long)seed, argv[0],
             (unsigned long long)seed);
    CASE(rows_in_registers_times_shared_memory);
    CASE(both_in_shared_memory);
    CASE(matrices_with_k_far_apart);
    CASE(groups_end_in_their_order);
    CASE(sums_wait_for_the_last_group_that_adds);
    CASE(what_kernels_do_wrong_is_said);
    return tap_end();
}
