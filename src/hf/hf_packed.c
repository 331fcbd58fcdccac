/* Reading matrices that others have quantized: codes, zeros, scales and masks, value by value. */
#include "hf/hf_packed.h"

#include <assert.h>
#include <string.h>

#include "tensor/codec/unpack.h"
#include "tensor/half.h"

const hf_packed *hf_packed_of(const tensor *t)
{
    /* The tensor is the first member of the matrix. */
    return t && !t->data ? (const hf_packed *)t : NULL;
}

/* ---- Codes ----------------------------------------------------------------------------------- */

static uint32_t word_at(const tensor *t, int64_t i)
{
    return load_u32(t->data + 4 * i);
}

/* Code i of a stream of codes that lie in words `step` apart. */
static int stream_code(const tensor *t, int64_t first, int64_t step, int64_t i, int bits)
{
    int64_t bit = i * bits;
    uint64_t word = word_at(t, first + bit / 32 * step);
    if (bit % 32 + bits > 32)
        word |= (uint64_t)word_at(t, first + (bit / 32 + 1) * step) << 32;
    return (int)(word >> bit % 32 & ((1u << bits) - 1));
}

/* Nibble i of a word of awq is row 0, 2, 4, 6, 1, 3, 5, 7 of the eight. */
static int awq_code(const tensor *t, int64_t line, int64_t row, int64_t rows)
{
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return (int)(word_at(t, (line * rows + row) / 8) >> 4 * place[row % 8] & 15);
}

static int64_t group_of(const hf_packed *p, int64_t col)
{
    if (!p->order)
        return col / p->group_cols;
    /* Checked again: the file may have changed since it was opened. */
    uint32_t group = word_at(p->order, col);
    return group < p->n_groups ? (int64_t)group : 0;
}

static int64_t n_col_groups(const hf_packed *p)
{
    return p->kind == PACKED_WORDS && p->zeros ? p->zeros->shape.dims[0] : 0;
}

static int zero_at(const hf_packed *p, int64_t row, int64_t group)
{
    if (!p->zeros)
        return p->zero;
    int mask = (1 << p->bits) - 1;
    switch (p->kind) {
    case PACKED_GPTQ: {
        /* What is stored is one less, in as many bits: the largest code stands for 0. */
        int64_t line = group * p->zeros->shape.dims[0];
        return (stream_code(p->zeros, line, 1, row, p->bits) + p->zero) & mask;
    }
    case PACKED_AWQ:
        return awq_code(p->zeros, group, row, p->rows);
    case PACKED_WORDS: {
        int per_word = 32 / p->bits;
        uint32_t word = word_at(p->zeros, row / per_word * n_col_groups(p) + group);
        return (int)(word >> p->bits * (row % per_word)) & mask;
    }
    default:
        return (int8_t)p->zeros->data[row * p->step_row + group * p->step_col];
    }
}

/* A code of the matrix, without its zero. */
static int code_at(const hf_packed *p, int64_t row, int64_t col)
{
    switch (p->kind) {
    case PACKED_GPTQ:
        return stream_code(p->codes, row, p->rows, col, p->bits);
    case PACKED_AWQ:
        return awq_code(p->codes, col, row, p->rows);
    case PACKED_WORDS: {
        int per_word = 32 / p->bits;
        int64_t words = p->codes->shape.dims[0];
        uint32_t word = word_at(p->codes, row * words + col / per_word);
        return (int)(word >> p->bits * (col % per_word) & ((1u << p->bits) - 1));
    }
    default:
        return (int8_t)p->codes->data[row * p->cols + col];
    }
}

static float scale_at(const hf_packed *p, int64_t row, int64_t group)
{
    if (!p->scales)
        return 1;
    int64_t i = row / p->group_rows * p->step_row + group * p->step_col;
    float value;
    unpack_row(p->scales->type, p->scales->data + row_bytes(p->scales->type, i), 1, &value);
    return value;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static void read_plain(const tensor *t, int64_t first, int64_t n, float *out)
{
    if (t->type != DTYPE_I8) {
        unpack_row(t->type, t->data + row_bytes(t->type, first), n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = (int8_t)t->data[first + i];
}

static int64_t count_bits(const uint8_t *mask, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n / 8; i++)
        count += __builtin_popcount(mask[i]);
    return n % 8 ? count + __builtin_popcount(mask[n / 8] & ((1u << n % 8) - 1)) : count;
}

static void read_masked(const hf_packed *p, int64_t row, int64_t col, int64_t n, float *out)
{
    const uint8_t *mask = p->mask->data + row * p->mask->shape.dims[0];
    int64_t at = p->offsets ? (int64_t)load_u64(p->offsets->data + 8 * row) : row * (p->cols / 2);
    at += count_bits(mask, col);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = col + i;
        out[i] = 0;
        if (mask[c / 8] >> c % 8 & 1)
            read_plain(p->codes, at++, 1, &out[i]);
    }
}

static void read_floats(const hf_packed *p, int64_t row, int64_t col, int64_t n, float *out)
{
    if (p->kind == PACKED_FLOAT)
        read_plain(p->codes, row * p->cols + col, n, out);
    else if (p->kind == PACKED_MASK)
        read_masked(p, row, col, n, out);
    int64_t group = -1;
    int zero = 0;
    float scale = 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t g = group_of(p, col + i);
        if (g != group) {
            group = g;
            scale = scale_at(p, row, g);
            zero = p->kind < PACKED_FLOAT ? zero_at(p, row, g) : 0;
        }
        if (p->kind < PACKED_FLOAT)
            out[i] = (float)(code_at(p, row, col + i) - zero);
        out[i] *= scale;
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void make_block(const hf_packed *p, int64_t row, int64_t col, uint8_t *out)
{
    int64_t group = group_of(p, col);
    int zero = zero_at(p, row, group);
    uint16_t scale = f16_from_f32(scale_at(p, row, group));
    memcpy(out, &scale, 2);
    for (int i = 0; i < 32; i++) {
        int code = code_at(p, row, col + i) - zero;
        if (p->shown.type == DTYPE_Q8_0)
            out[2 + i] = (uint8_t)code;
        else if (i < 16)
            out[2 + i] = (uint8_t)(code + 8);
        else
            out[2 + i - 16] |= (uint8_t)((code + 8) << 4);
    }
}

void hf_packed_make(const hf_packed *p, int64_t row, int64_t col, int64_t n, void *out)
{
    enum { N = 256 };
    dtype type = p->shown.type;
    uint8_t *at = out;
    if (type == DTYPE_Q4_0 || type == DTYPE_Q8_0) {
        size_t size = (size_t)dtype_describe(type)->block_bytes;
        for (int64_t i = 0; i < n; i += 32, at += size)
            make_block(p, row, col + i, at);
        return;
    }
    float values[N];
    for (int64_t i = 0; i < n; i += N) {
        int64_t count = n - i < N ? n - i : N;
        read_floats(p, row, col + i, count, values);
        for (int64_t k = 0; k < count; k++) {
            uint16_t half = type == DTYPE_BF16 ? bf16_from_f32(values[k]) : f16_from_f32(values[k]);
            if (type == DTYPE_F32)
                memcpy(at + 4 * k, &values[k], 4);
            else
                memcpy(at + 2 * k, &half, 2);
        }
        at += row_bytes(type, count);
    }
}
