/* Matrices in columns: their size, how they are packed, and the plain products. */
#include "backend/cpu/columns.h"

#include <stddef.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

enum { LINE = 64 };

/* How weights of a type lie in a column. */
typedef struct kind {
    int bits;    /* 0: there is no such layout */
    int offset;  /* what their numbers have too much */
    int n_units; /* for 256 columns of a row */
    bool has_halves, has_mins;
} kind;

static const kind kinds[DTYPE_COUNT] = {
    [DTYPE_F16] = {.bits = 16},
    [DTYPE_Q8_0] = {.bits = 8, .offset = 128},
    [DTYPE_Q4_0] = {.bits = 4, .offset = 8},
    [DTYPE_Q4_K] = {.bits = 4, .n_units = 2, .has_mins = true},
    [DTYPE_Q6_K] = {.bits = 8, .offset = 32, .n_units = 1, .has_halves = true},
};

bool columns_has(dtype type, int64_t n_cols)
{
    int whole = kinds[type].n_units ? COLUMNS_GROUP * COLUMNS_GROUPS : COLUMNS_GROUP;
    return kinds[type].bits > 0 && n_cols % whole == 0;
}

static int64_t rounded_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

columns_shape columns_shape_of(dtype type, int64_t n_rows, int64_t n_cols)
{
    int64_t bits = kinds[type].bits, most_rows = COLUMNS_RUN * 8 / bits;
    columns_shape s = {.n_groups = n_cols / COLUMNS_GROUP};
    s.n_strips = (n_rows + most_rows - 1) / most_rows;
    s.strip_rows = rounded_up((n_rows + s.n_strips - 1) / s.n_strips, COLUMNS_ROWS);
    s.n_parts = s.n_groups < COLUMNS_PARTS ? s.n_groups : COLUMNS_PARTS;
    s.unit_bytes = 2 * (uint64_t)(kinds[type].n_units * s.strip_rows);
    s.groups_at = (uint64_t)(s.n_groups / COLUMNS_GROUPS) * s.unit_bytes;
    s.scale_bytes = type == DTYPE_F16 ? 0 : 2 * (uint64_t)s.strip_rows;
    s.column_bytes = (uint64_t)(s.strip_rows * bits / 8);
    s.group_bytes = s.scale_bytes + COLUMNS_GROUP * s.column_bytes;
    s.strip_bytes = s.groups_at + (uint64_t)s.n_groups * s.group_bytes;
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

/* What a group takes from one row. Scales are two bytes: an f16, or one of each. */
typedef struct row_part {
    uint16_t units[2];
    uint8_t scales[2];
    uint16_t values[COLUMNS_GROUP]; /* as they lie: 2 bytes, a byte, or a nibble each */
} row_part;

static void read_q4_k(const uint8_t *block, int j, row_part *out)
{
    const uint8_t *s = block + offsetof(block_q4_k, scales);
    const uint8_t *q = block + offsetof(block_q4_k, quants) + j / 2 * 32;
    out->units[0] = load_u16(block + offsetof(block_q4_k, scale));
    out->units[1] = load_u16(block + offsetof(block_q4_k, min));
    out->scales[0] = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    out->scales[1] = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
    for (int i = 0; i < COLUMNS_GROUP; i++)
        out->values[i] = q[i] >> 4 * (j % 2) & 15;
}

static void read_q6_k(const uint8_t *block, int j, row_part *out)
{
    const uint8_t *low = block + offsetof(block_q6_k, low) + j / 4 * 64 + j % 2 * 32;
    const uint8_t *high = block + offsetof(block_q6_k, high) + j / 4 * 32;
    out->units[0] = load_u16(block + offsetof(block_q6_k, scale));
    memcpy(out->scales, block + offsetof(block_q6_k, scales) + 2 * j, 2);
    for (int i = 0; i < COLUMNS_GROUP; i++)
        out->values[i] =
            (uint16_t)((low[i] >> 4 * (j % 4 / 2) & 15) | (high[i] >> 2 * (j % 4) & 3) << 4);
}

/* Group g of a row. */
static void read_row(dtype type, const uint8_t *row, int64_t g, row_part *out)
{
    int64_t in_block = kinds[type].n_units ? COLUMNS_GROUPS : 1;
    const uint8_t *block = row + g / in_block * (int64_t)row_bytes(type, in_block * COLUMNS_GROUP);
    if (type == DTYPE_Q4_K) {
        read_q4_k(block, (int)(g % COLUMNS_GROUPS), out);
    } else if (type == DTYPE_Q6_K) {
        read_q6_k(block, (int)(g % COLUMNS_GROUPS), out);
    } else {
        const uint8_t *q = block + 2;
        memcpy(out->scales, block, 2);
        for (int i = 0; i < COLUMNS_GROUP; i++)
            out->values[i] = type == DTYPE_F16    ? load_u16(block + 2 * i)
                             : type == DTYPE_Q8_0 ? (uint8_t)(q[i] ^ 0x80)
                                                  : (uint8_t)(i < 16 ? q[i] & 15 : q[i - 16] >> 4);
    }
}

/* Scales of COLUMNS_ROWS rows from `row` on, and where a unit begins its numbers, too. */
static void put_scales(dtype type, const columns_shape *s, int64_t row, const row_part *parts,
                       uint8_t *units, uint8_t *group)
{
    for (int r = 0; r < COLUMNS_ROWS && s->scale_bytes; r++) {
        if (!kinds[type].n_units) {
            memcpy(group + 2 * (row + r), parts[r].scales, 2);
            continue;
        }
        group[row + r] = parts[r].scales[0];
        group[s->strip_rows + row + r] = parts[r].scales[1];
        for (int i = 0; i < kinds[type].n_units && units; i++)
            memcpy(units + 2 * (i * s->strip_rows + row + r), &parts[r].units[i], 2);
    }
}

static void put_columns(dtype type, const columns_shape *s, int64_t row, const row_part *parts,
                        uint8_t *group)
{
    int bits = kinds[type].bits;
    for (int i = 0; i < COLUMNS_GROUP; i++) {
        uint8_t *column = group + s->scale_bytes + (uint64_t)i * s->column_bytes;
        uint8_t lines[2 * LINE];
        for (int r = 0; r < COLUMNS_ROWS; r++)
            if (bits == 16)
                memcpy(column + 2 * (row + r), &parts[r].values[i], 2);
            else if (bits == 8)
                lines[r / LINE * LINE + place(r % LINE)] = (uint8_t)parts[r].values[i];
            else if (r < LINE)
                lines[place(r)] = (uint8_t)(parts[r].values[i] | parts[r + LINE].values[i] << 4);
        if (bits == 8)
            memcpy(column + row, lines, 2 * LINE);
        else if (bits == 4)
            memcpy(column + row / 2, lines, LINE);
    }
}

void columns_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                  int64_t group_begin, int64_t group_end, uint8_t *out)
{
    columns_shape s = columns_shape_of(type, n_rows, n_cols);
    uint64_t stride = row_bytes(type, n_cols);
    for (int64_t strip = 0; strip < s.n_strips; strip++)
        for (int64_t g = group_begin; g < group_end; g++)
            for (int64_t row = 0; row < s.strip_rows; row += COLUMNS_ROWS) {
                row_part parts[COLUMNS_ROWS];
                for (int r = 0; r < COLUMNS_ROWS; r++) {
                    int64_t at = strip * s.strip_rows + row + r;
                    parts[r] = (row_part){.scales = {0}};
                    for (int i = 0; i < COLUMNS_GROUP; i++)
                        parts[r].values[i] = (uint16_t)kinds[type].offset;
                    if (at < n_rows)
                        read_row(type, blocks + (uint64_t)at * stride, g, &parts[r]);
                }
                uint8_t *to = out + (uint64_t)strip * s.strip_bytes;
                uint8_t *units = to + (uint64_t)(g / COLUMNS_GROUPS) * s.unit_bytes;
                uint8_t *group = to + s.groups_at + (uint64_t)g * s.group_bytes;
                put_scales(type, &s, row, parts, g % COLUMNS_GROUPS == 0 ? units : NULL, group);
                put_columns(type, &s, row, parts, group);
            }
}

/* ---- Plain products -------------------------------------------------------------------------- */

static void add_f16(const columns_part *p)
{
    const columns_shape *s = p->shape;
    for (int64_t g = p->group_begin; g < p->group_end; g++)
        for (int i = 0; i < COLUMNS_GROUP; i++) {
            float x = ((const float *)p->x)[COLUMNS_GROUP * g + i];
            const uint8_t *column = columns_group(s, p->strip, g) + (uint64_t)i * s->column_bytes;
            for (int64_t r = 0; r < s->strip_rows && x != 0; r++)
                p->sums[r] += x * f16_to_f32(load_u16(column + 2 * r));
        }
}

/* Row r of a column, offset included. */
static inline int32_t weight_at(const uint8_t *column, int64_t r, int bits)
{
    if (bits == 8)
        return column[r / LINE * LINE + place((int)(r % LINE))];
    uint8_t both = column[r / COLUMNS_ROWS * LINE + place((int)(r % LINE))];
    return r % COLUMNS_ROWS < LINE ? both & 15 : both >> 4;
}

/* The scale of row r in column i of a group; min: what is taken from each of its weights. */
static float scale_at(dtype type, const columns_shape *s, const uint8_t *group,
                      const uint8_t *units, int64_t r, int i, float *min)
{
    const kind *k = &kinds[type];
    *min = 0;
    if (!k->n_units)
        return f16_to_f32(load_u16(group + 2 * r));
    if (k->has_mins)
        *min = f16_to_f32(load_u16(units + 2 * (s->strip_rows + r))) *
               (float)(int8_t)group[s->strip_rows + r];
    int64_t half = k->has_halves && i >= 16 ? s->strip_rows : 0;
    return f16_to_f32(load_u16(units + 2 * r)) * (float)(int8_t)group[half + r];
}

static void add_quants(const columns_part *p, dtype type)
{
    const columns_shape *s = p->shape;
    const float *d = act_q8_scales(p->x, p->n_cols);
    for (int64_t g = p->group_begin; g < p->group_end; g++) {
        const uint8_t *group = columns_group(s, p->strip, g);
        const uint8_t *units = columns_units(s, p->strip, g);
        columns_live live;
        columns_find_q8((const int8_t *)p->x + COLUMNS_GROUP * g, &live);
        for (int64_t r = 0; r < s->strip_rows && live.n; r++) {
            double sum = 0;
            for (int i = 0; i < live.n; i++) {
                const uint8_t *column =
                    group + s->scale_bytes + (uint64_t)live.at[i] * s->column_bytes;
                float min, scale = scale_at(type, s, group, units, r, live.at[i], &min);
                int32_t w = weight_at(column, r, kinds[type].bits) - kinds[type].offset;
                sum += live.q[i] * ((double)scale * w - (double)min);
            }
            p->sums[r] += (float)(d[g] * sum);
        }
    }
}

#define QUANTS(id, type)                                                                           \
    static void add_##type(const columns_part *p)                                                  \
    {                                                                                              \
        add_quants(p, DTYPE_##id);                                                                 \
    }                                                                                              \
    const columns_impl columns_##type##_ref = {#type " columns", ACT_Q8, add_##type};
QUANTS(Q8_0, q8_0)
QUANTS(Q4_0, q4_0)
QUANTS(Q4_K, q4_k)
QUANTS(Q6_K, q6_k)

const columns_impl columns_f16_ref = {"f16 columns", ACT_F32, add_f16};
