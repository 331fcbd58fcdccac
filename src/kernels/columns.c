/* Matrices in columns: their size, how they are packed, and the plain products. */
#include "kernels/columns.h"

#include <string.h>

#include "base/bytes.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

enum { LINE = 64 };

static int bits_of(dtype type)
{
    return type == DTYPE_F16 ? 16 : type == DTYPE_Q8_0 ? 8 : type == DTYPE_Q4_0 ? 4 : 0;
}

bool columns_has(dtype type, int64_t n_cols)
{
    return bits_of(type) > 0 && n_cols % COLUMNS_GROUP == 0;
}

static int64_t rounded_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

columns_shape columns_shape_of(dtype type, int64_t n_rows, int64_t n_cols)
{
    int64_t bits = bits_of(type), most_rows = COLUMNS_RUN * 8 / bits;
    columns_shape s = {.n_groups = n_cols / COLUMNS_GROUP};
    s.n_strips = (n_rows + most_rows - 1) / most_rows;
    s.strip_rows = rounded_up((n_rows + s.n_strips - 1) / s.n_strips, COLUMNS_ROWS);
    s.n_parts = s.n_groups < COLUMNS_PARTS ? s.n_groups : COLUMNS_PARTS;
    s.scale_bytes = type == DTYPE_F16 ? 0 : 2 * (uint64_t)s.strip_rows;
    s.column_bytes = (uint64_t)(s.strip_rows * bits / 8);
    s.group_bytes = s.scale_bytes + COLUMNS_GROUP * s.column_bytes;
    s.strip_bytes = (uint64_t)s.n_groups * s.group_bytes;
    return s;
}

uint64_t columns_bytes(dtype type, int64_t n_rows, int64_t n_cols)
{
    columns_shape s = columns_shape_of(type, n_rows, n_cols);
    return (uint64_t)s.n_strips * s.strip_bytes;
}

/* Which of 64 bytes holds a row of 64; see columns.h. */
static inline int place(int row)
{
    return 16 * (row / 4 % 4) + 4 * (row / 16) + row % 4;
}

/* ---- Packing --------------------------------------------------------------------------------- */

/* The 32 values of a block as they lie in a column: 2 bytes, a byte, or a nibble each. */
static void read_block(dtype type, const uint8_t *block, uint16_t *scale, uint16_t out[32])
{
    const uint8_t *q = block + 2;
    for (int i = 0; i < COLUMNS_GROUP; i++)
        out[i] = type == DTYPE_F16    ? load_u16(block + 2 * i)
                 : type == DTYPE_Q8_0 ? (uint8_t)(q[i] ^ 0x80)
                                      : (uint8_t)(i < 16 ? q[i] & 15 : q[i - 16] >> 4);
    *scale = load_u16(block);
}

/* A group of COLUMNS_ROWS rows from `row` on: of `n` there is something in the file. */
static void pack_rows(dtype type, const uint8_t *blocks, uint64_t stride, int64_t n,
                      const columns_shape *s, int64_t row, uint8_t *group)
{
    uint16_t values[COLUMNS_ROWS][COLUMNS_GROUP], scales[COLUMNS_ROWS] = {0};
    uint16_t zero = type == DTYPE_Q8_0 ? 128 : type == DTYPE_Q4_0 ? 8 : 0;
    for (int r = 0; r < COLUMNS_ROWS; r++)
        for (int i = 0; i < COLUMNS_GROUP; i++)
            values[r][i] = zero;
    for (int64_t r = 0; r < n; r++)
        read_block(type, blocks + (uint64_t)r * stride, &scales[r], values[r]);
    if (s->scale_bytes)
        memcpy(group + 2 * row, scales, sizeof scales);
    for (int i = 0; i < COLUMNS_GROUP; i++) {
        uint8_t *column = group + s->scale_bytes + (uint64_t)i * s->column_bytes;
        uint8_t lines[2 * LINE];
        for (int r = 0; r < COLUMNS_ROWS; r++)
            if (type == DTYPE_F16)
                memcpy(column + 2 * (row + r), &values[r][i], 2);
            else if (type == DTYPE_Q8_0)
                lines[r / LINE * LINE + place(r % LINE)] = (uint8_t)values[r][i];
            else if (r < LINE)
                lines[place(r)] = (uint8_t)(values[r][i] | values[r + LINE][i] << 4);
        if (type == DTYPE_Q8_0)
            memcpy(column + row, lines, 2 * LINE);
        else if (type == DTYPE_Q4_0)
            memcpy(column + row / 2, lines, LINE);
    }
}

void columns_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                  int64_t group_begin, int64_t group_end, uint8_t *out)
{
    columns_shape s = columns_shape_of(type, n_rows, n_cols);
    uint64_t stride = row_bytes(type, n_cols), block = row_bytes(type, COLUMNS_GROUP);
    for (int64_t strip = 0; strip < s.n_strips; strip++)
        for (int64_t g = group_begin; g < group_end; g++)
            for (int64_t row = 0; row < s.strip_rows; row += COLUMNS_ROWS) {
                int64_t first = strip * s.strip_rows + row;
                int64_t n = n_rows - first;
                n = n < 0 ? 0 : n > COLUMNS_ROWS ? COLUMNS_ROWS : n;
                pack_rows(type,
                          n ? blocks + (uint64_t)first * stride + (uint64_t)g * block : blocks,
                          stride, n, &s, row,
                          out + (uint64_t)strip * s.strip_bytes + (uint64_t)g * s.group_bytes);
            }
}

/* ---- Plain products -------------------------------------------------------------------------- */

static void add_f16(const columns_part *p)
{
    const columns_shape *s = p->shape;
    for (int64_t g = p->group_begin; g < p->group_end; g++)
        for (int i = 0; i < COLUMNS_GROUP; i++) {
            float x = ((const float *)p->x)[COLUMNS_GROUP * g + i];
            const uint8_t *column =
                p->strip + (uint64_t)g * s->group_bytes + (uint64_t)i * s->column_bytes;
            for (int64_t r = 0; r < s->strip_rows && x != 0; r++)
                p->sums[r] += x * f16_to_f32(load_u16(column + 2 * r));
        }
}

/* Row r of a column without the offset. */
static inline int32_t weight_at(const uint8_t *column, int64_t r, bool is_nibble)
{
    if (!is_nibble)
        return column[r / LINE * LINE + place((int)(r % LINE))] - 128;
    uint8_t both = column[r / COLUMNS_ROWS * LINE + place((int)(r % LINE))];
    return (r % COLUMNS_ROWS < LINE ? both & 15 : both >> 4) - 8;
}

static void add_quants(const columns_part *p, bool is_nibble)
{
    const columns_shape *s = p->shape;
    const float *d = act_q8_scales(p->x, p->n_cols);
    for (int64_t g = p->group_begin; g < p->group_end; g++) {
        const uint8_t *group = p->strip + (uint64_t)g * s->group_bytes;
        columns_live live;
        columns_find_q8((const int8_t *)p->x + COLUMNS_GROUP * g, &live);
        for (int64_t r = 0; r < s->strip_rows && live.n; r++) {
            int32_t sum = 0;
            for (int i = 0; i < live.n; i++)
                sum += live.q[i] *
                       weight_at(group + s->scale_bytes + (uint64_t)live.at[i] * s->column_bytes, r,
                                 is_nibble);
            p->sums[r] += d[g] * f16_to_f32(load_u16(group + 2 * r)) * (float)sum;
        }
    }
}

static void add_q8_0(const columns_part *p)
{
    add_quants(p, false);
}

static void add_q4_0(const columns_part *p)
{
    add_quants(p, true);
}

const columns_impl columns_f16_ref = {"f16 columns", ACT_F32, add_f16};
const columns_impl columns_q8_0_ref = {"q8_0 columns", ACT_Q8, add_q8_0};
const columns_impl columns_q4_0_ref = {"q4_0 columns", ACT_Q8, add_q4_0};
