/*
 * mma, mma.sp, ldmatrix and stmatrix of a warp. In all of them lane 4 r + c has what is of row r, and
 * of row r + 8, of a factor or of sums; a register has E values, 2 of 16 bits or 4 of 8:
 *
 *     a[i]: row r + 8 (i % 2), columns 4 E (i / 2) + E c to + E - 1
 *     b[i]: the same columns of the other factor's row r, which is a column of the product
 *     d[i]: row r + 8 (i / 2), column 2 c + i % 2
 */
#include "warp_matrix.h"

#include <stddef.h>
#include <string.h>

#include "matrix_sums.h"

/* A factor, [16][k] or [k][8]. One of the two has the numbers. */
typedef struct numbers {
    double floats[MATRIX_ROWS * MATRIX_MOST_DEEP];
    uint32_t wholes[MATRIX_ROWS * MATRIX_MOST_DEEP];
} numbers;

/* `a` or b, as rows of `deep` columns. n_high: registers that have the same columns, of rows 8 apart. A
 * register has 4 E values of each of 8 rows, one row after the other. */
static void gather(matrix_type t, int deep, int n_high, uint32_t *const *from, numbers *out)
{
    const bool is_bytes = matrix_is_bytes(t);
    const int each = is_bytes ? 16 : 8, n = n_high * deep / each;
    for (int i = 0; i < n; i++) {
        const int to = 8 * (i % n_high) * deep + i / n_high * each;
        double floats[2 * WARP_LANES];
        uint32_t wholes[4 * WARP_LANES];
        if (is_bytes)
            matrix_wholes(t, 4 * WARP_LANES, (const uint8_t *)from[i], wholes);
        else
            matrix_floats(t, 2 * WARP_LANES, (const uint16_t *)from[i], floats);
        for (int row = 0; row < 8; row++)
            if (is_bytes)
                memcpy(out->wholes + to + row * deep, wholes + 16 * row, 16 * sizeof *wholes);
            else
                memcpy(out->floats + to + row * deep, floats + 8 * row, 8 * sizeof *floats);
    }
}

static void gather_turned(matrix_type t, int deep, uint32_t *const *from, numbers *out)
{
    numbers rows;
    gather(t, deep, 1, from, &rows);
    if (matrix_is_bytes(t))
        matrix_turn_wholes(deep, rows.wholes, out->wholes);
    else
        matrix_turn_floats(deep, rows.floats, out->floats);
}

const char *warp_mma(int k, matrix_type a_type, matrix_type b_type, uint32_t *const *d,
                     uint32_t *const *a, uint32_t *const *b, uint32_t *const *c)
{
    const bool is_bytes = matrix_is_bytes(a_type);
    if (is_bytes != matrix_is_bytes(b_type) || (!is_bytes && a_type != b_type))
        return "mma of two types that have no product";
    if (is_bytes ? k != 16 && k != 32 : k != 8 && k != 16)
        return "mma of a depth that there is not";
    numbers x, y;
    gather(a_type, k, 2, a, &x);
    gather_turned(b_type, k, b, &y);
    if (is_bytes)
        matrix_tile_wholes(k, x.wholes, y.wholes, c, d);
    else
        matrix_tile_floats(k, x.floats, y.floats, c, d);
    return NULL;
}

/* ---- With zeros ------------------------------------------------------------------------------ */

/*
 * The two places in four columns: number `four` of 16 of a row. Lane 4 r + c has those of row
 * r + 8 (c % 2), columns 32 (c / 2) to + 31, 4 bits for each four columns.
 */
static int places_of(const uint32_t *places, int row, int four)
{
    const int lane = 4 * (row % 8) + row / 8 + 2 * (four / 8);
    return places[lane] >> 4 * (four % 8) & 15;
}

const char *warp_mma_sparse(matrix_type a_type, matrix_type b_type, uint32_t *const *d,
                            uint32_t *const *a, uint32_t *const *b, uint32_t *const *c,
                            const uint32_t *places, int selector)
{
    enum { DEEP = 64, HELD = DEEP / 2 };
    if (!matrix_is_bytes(a_type) || !matrix_is_bytes(b_type))
        return "mma.sp of a type that is not supported: bytes are";
    if (selector != 0)
        return "mma.sp.m16n8k64 with a selector other than 0";
    numbers held, x, y;
    gather(a_type, HELD, 2, a, &held);
    gather_turned(b_type, DEEP, b, &y);
    memset(x.wholes, 0, sizeof x.wholes);
    for (int row = 0; row < MATRIX_ROWS; row++)
        for (int four = 0; four < DEEP / 4; four++) {
            const int both = places_of(places, row, four), first = both & 3, second = both >> 2;
            if (first >= second)
                return "mma.sp whose places of two values are not in order";
            x.wholes[row * DEEP + 4 * four + first] = held.wholes[row * HELD + 2 * four];
            x.wholes[row * DEEP + 4 * four + second] = held.wholes[row * HELD + 2 * four + 1];
        }
    matrix_tile_wholes(DEEP, x.wholes, y.wholes, c, d);
    return NULL;
}

/* ---- Matrices of 8 by 8 ---------------------------------------------------------------------- */

/* Where the two values of a lane are, and which of the 8 rows they are in. */
static void place_of_two(int lane, bool is_turned, int e, int *row, int *col)
{
    const int mine = lane / 4, other = 2 * (lane % 4) + e;
    *row = is_turned ? other : mine;
    *col = is_turned ? mine : other;
}

void warp_load_matrices(uint32_t *const *d, int n, bool is_turned, const void *const *rows)
{
    uint32_t out[4][WARP_LANES]; /* addresses may be in registers that are written */
    for (int i = 0; i < n; i++) {
        uint16_t m[8][8];
        for (int r = 0; r < 8; r++)
            memcpy(m[r], rows[8 * i + r], sizeof m[r]);
        for (int lane = 0; lane < WARP_LANES; lane++) {
            out[i][lane] = 0;
            for (int e = 0; e < 2; e++) {
                int row, col;
                place_of_two(lane, is_turned, e, &row, &col);
                out[i][lane] |= (uint32_t)m[row][col] << 16 * e;
            }
        }
    }
    for (int i = 0; i < n; i++)
        memcpy(d[i], out[i], sizeof out[i]);
}

void warp_store_matrices(uint32_t *const *from, int n, bool is_turned, void *const *rows)
{
    for (int i = 0; i < n; i++) {
        uint16_t m[8][8];
        for (int lane = 0; lane < WARP_LANES; lane++)
            for (int e = 0; e < 2; e++) {
                int row, col;
                place_of_two(lane, is_turned, e, &row, &col);
                m[row][col] = (uint16_t)(from[i][lane] >> 16 * e);
            }
        for (int r = 0; r < 8; r++)
            memcpy(rows[8 * i + r], m[r], sizeof m[r]);
    }
}
