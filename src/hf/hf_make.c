/* Making the tensors of a GGUF file from those of a Hugging Face directory, piece by piece. */
#include <assert.h>
#include <string.h>

#include "tensor/codec/pack.h"
#include "tensor/codec/unpack.h"
#include "hf/hf_recipes.h"

/* A piece of a tensor to be made: values [first, first + n). */
typedef struct piece {
    const model_config *config;
    const tensor *t;
    const recipe *r;
    uint64_t first, n;
    uint8_t *out;
} piece;

static uint64_t bytes_of(dtype type, uint64_t n_values)
{
    return row_bytes(type, (int64_t)n_values);
}

/* ---- Rows that only move --------------------------------------------------------------------- */

/* Of a vector whose rows move, every value is a row. */
static int64_t row_length(const piece *p)
{
    return p->t->shape.n_dims == 1 ? 1 : p->t->shape.dims[0];
}

/*
 * A head's rows in the file: first those of all pairs' first halves, then the second ones. In GGUF
 * each pair is side by side: row 2 i + k of a head is row k (head_dim / 2) + i.
 */
static uint64_t permuted_row(const piece *p, uint64_t row)
{
    uint64_t n_rows = p->t->n_values / (uint64_t)row_length(p);
    uint64_t head_dim = n_rows / (uint64_t)p->r->n_heads;
    uint64_t in_head = row % head_dim;
    return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
}

/* The tensor of the files that a row comes from, and which of its rows it is. */
static const tensor *source_row(const piece *p, uint64_t row, uint64_t *out_row)
{
    const recipe *r = p->r;
    uint64_t n_rows = (uint64_t)p->t->shape.dims[1]; /* of an expert */
    switch (r->kind) {
    case RECIPE_STACK:
        if (p->t->shape.n_dims == 2) { /* of vectors */
            *out_row = 0;
            return r->sources[row];
        }
        *out_row = row % n_rows;
        return r->sources[row / n_rows];
    case RECIPE_HALVE:
        *out_row = row / n_rows * n_rows * (uint64_t)r->n_parts + (uint64_t)r->part * n_rows +
                   row % n_rows;
        return r->source;
    case RECIPE_COPY:
    case RECIPE_COLUMNS:
        *out_row = row;
        return r->source;
    case RECIPE_HEADS: { /* part 1: rows of v, behind those of k */
        uint64_t k = (uint64_t)p->config->latent.nope_dim;
        *out_row = row / n_rows * (k + n_rows) + k + row % n_rows;
        return r->source;
    }
    case RECIPE_ROWS:
        *out_row = (uint64_t)r->rows->source(p->config, r->layer, (int64_t)row);
        return r->source;
    default:
        *out_row = permuted_row(p, row);
        return r->source;
    }
}

/* Columns of a row that lie together in the source. */
static void copy_columns(const piece *p, const tensor *source, uint64_t row, uint64_t col,
                         uint64_t n, uint8_t *out)
{
    const hf_packed *packed = hf_packed_of(source);
    if (packed) {
        hf_packed_make(packed, (int64_t)row, (int64_t)col, (int64_t)n, out);
        return;
    }
    int64_t length = p->r->kind == RECIPE_COLUMNS ? source->shape.dims[0] : row_length(p);
    uint64_t stride = bytes_of(p->t->type, (uint64_t)length);
    memcpy(out, source->data + row * stride + bytes_of(p->t->type, col), bytes_of(p->t->type, n));
}

static uint64_t source_column(const piece *p, uint64_t col)
{
    return (uint64_t)p->r->rows->source(p->config, p->r->layer, (int64_t)col);
}

static void make_part_of_row(const piece *p, uint64_t row, uint64_t col, uint64_t n, uint8_t *out)
{
    uint64_t from;
    const tensor *source = source_row(p, row, &from);
    if (p->r->kind != RECIPE_COLUMNS) {
        copy_columns(p, source, from, col, n, out);
        return;
    }
    for (uint64_t i = 0, run; i < n; i += run) {
        uint64_t first = source_column(p, col + i);
        for (run = 1; i + run < n && source_column(p, col + i + run) == first + run; run++)
            ;
        copy_columns(p, source, from, first, run, out + bytes_of(p->t->type, i));
    }
}

/*
 * Rows [first, first + n), a few columns of a few rows at a time: in some packed matrices the words
 * of neighbouring rows lie side by side and those of neighbouring columns far apart.
 */
static void make_tiles(const piece *p, uint64_t first, uint64_t n, uint8_t *out)
{
    enum { ROWS = 16, COLS = 256 };
    uint64_t length = (uint64_t)row_length(p), stride = bytes_of(p->t->type, length);
    for (uint64_t row = 0; row < n; row += ROWS)
        for (uint64_t col = 0; col < length; col += COLS)
            for (uint64_t i = row; i < n && i < row + ROWS; i++)
                make_part_of_row(p, first + i, col, length - col < COLS ? length - col : COLS,
                                 out + i * stride + bytes_of(p->t->type, col));
}

static void make_rows(const piece *p)
{
    uint64_t length = (uint64_t)row_length(p);
    uint8_t *out = p->out;
    for (uint64_t at = p->first, end = p->first + p->n; at < end;) {
        uint64_t in_row = at % length, n;
        if (in_row == 0 && end - at >= length) {
            n = (end - at) / length * length;
            make_tiles(p, at / length, n / length, out);
        } else {
            n = length - in_row < end - at ? length - in_row : end - at;
            make_part_of_row(p, at / length, in_row, n, out);
        }
        out += bytes_of(p->t->type, n);
        at += n;
    }
}

/* ---- Values that move ------------------------------------------------------------------------ */

static void copy_value(uint8_t *out, const uint8_t *in, size_t n_bytes)
{
    /* Constant sizes become single moves. */
    switch (n_bytes) {
    case 2:
        memcpy(out, in, 2);
        break;
    case 4:
        memcpy(out, in, 4);
        break;
    default:
        memcpy(out, in, n_bytes);
        break;
    }
}

static void make_strided(const piece *p)
{
    size_t size = (size_t)dtype_describe(p->t->type)->block_bytes;
    const uint8_t *in = p->r->source->data;
    uint64_t n_parts = (uint64_t)p->r->n_parts;
    for (uint64_t i = 0; i < p->n; i++)
        copy_value(p->out + i * size, in + ((p->first + i) * n_parts + (uint64_t)p->r->part) * size,
                   size);
}

/* In: [expert, column, row * n_parts + part], or parts in one piece. Out: [expert, row, column]. */
static void make_transposed(const piece *p)
{
    size_t size = (size_t)dtype_describe(p->t->type)->block_bytes;
    uint64_t n_cols = (uint64_t)p->t->shape.dims[0], n_rows = (uint64_t)p->t->shape.dims[1];
    uint64_t n_parts = (uint64_t)p->r->n_parts, in_row = n_rows * n_parts;
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t at = p->first + i;
        uint64_t col = at % n_cols, row = at / n_cols % n_rows, expert = at / n_cols / n_rows;
        uint64_t in_part = p->r->kind == RECIPE_TRANSPOSE ? row * n_parts + (uint64_t)p->r->part
                                                          : (uint64_t)p->r->part * n_rows + row;
        uint64_t from = (expert * n_cols + col) * in_row + in_part;
        copy_value(p->out + i * size, p->r->source->data + from * size, size);
    }
}

/* In: [head, column or a row of v, row]. Out: [head, row, column]. */
static void make_swapped(const piece *p)
{
    size_t size = (size_t)dtype_describe(p->t->type)->block_bytes;
    const hf_packed *packed = hf_packed_of(p->r->source);
    uint64_t n_cols = (uint64_t)p->t->shape.dims[0], n_rows = (uint64_t)p->t->shape.dims[1];
    uint64_t n_all = n_cols + (uint64_t)p->config->latent.value_dim;
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t at = p->first + i, row = at / n_cols % n_rows;
        uint64_t from = at / n_cols / n_rows * n_all + at % n_cols;
        if (packed)
            hf_packed_make(packed, (int64_t)from, (int64_t)row, 1, p->out + i * size);
        else
            copy_value(p->out + i * size, p->r->source->data + (from * n_rows + row) * size, size);
    }
}

/* ---- Values that change ---------------------------------------------------------------------- */

static void make_values(const piece *p)
{
    const tensor *source = p->r->source;
    enum { N = 256 };
    float values[N];
    uint64_t most = p->r->rows ? 1 : N; /* that lie together */
    for (uint64_t i = 0; i < p->n; i += most) {
        uint64_t n = p->n - i < most ? p->n - i : most, at = p->first + i;
        at = p->r->rows ? source_column(p, at) : at;
        unpack_row(source->type, source->data + bytes_of(source->type, at), (int64_t)n, values);
        for (uint64_t k = 0; k < n; k++)
            values[k] = p->r->value_of(values[k]);
        memcpy(p->out + i * sizeof(float), values, n * sizeof(float));
    }
}

/* Values of one row at a time, each with the row's factor. */
static void make_scaled(const piece *p)
{
    const tensor *source = p->r->source;
    enum { N = 256 };
    float values[N];
    uint64_t length = (uint64_t)row_length(p), n;
    for (uint64_t i = 0; i < p->n; i += n) {
        uint64_t at = p->first + i, left = length - at % length;
        float factor = (float)p->r->factor_of(p->config, (int64_t)(at / length));
        n = p->n - i < left ? p->n - i : left;
        n = n < N ? n : N;
        unpack_row(source->type, source->data + bytes_of(source->type, at), (int64_t)n, values);
        for (uint64_t k = 0; k < n; k++)
            values[k] *= factor;
        pack_row(p->t->type, values, (int64_t)n, p->out + bytes_of(p->t->type, i));
    }
}

/*
 * In the files, byte i of a block holds the quants 2 i and 2 i + 1. In GGUF, it holds i and i + 16,
 * behind the scale.
 */
static void make_mxfp4(const piece *p)
{
    uint64_t n_blocks = (uint64_t)p->t->shape.dims[0] / 32, n_rows = (uint64_t)p->t->shape.dims[1];
    uint64_t n_parts = (uint64_t)p->r->n_parts;
    uint8_t *out = p->out;
    for (uint64_t i = p->first / 32; i < (p->first + p->n) / 32; i++, out += 17) {
        uint64_t row = i / n_blocks;
        uint64_t whole = row / n_rows * n_rows * n_parts + row % n_rows * n_parts;
        uint64_t from = (whole + (uint64_t)p->r->part) * n_blocks + i % n_blocks;
        const uint8_t *in = p->r->source->data + 16 * from;
        out[0] = p->r->scales->data[from];
        for (int k = 0; k < 16; k++) {
            int low = in[k / 2] >> 4 * (k % 2) & 15;
            int high = in[8 + k / 2] >> 4 * (k % 2) & 15;
            out[1 + k] = (uint8_t)(low | high << 4);
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */

void hf_tensors_make(const hf_tensors *h, size_t i, uint64_t first, uint64_t n, void *out)
{
    assert(i < h->count && first <= h->tensors[i].n_values && n <= h->tensors[i].n_values - first);
    piece p = {&h->config, &h->tensors[i], &h->recipes[i], first, n, out};
    switch (p.r->kind) {
    case RECIPE_COPY:
        if (hf_packed_of(p.r->source))
            make_rows(&p);
        else
            memcpy(out, p.t->data + bytes_of(p.t->type, first), bytes_of(p.t->type, n));
        break;
    case RECIPE_ADD_ONE:
    case RECIPE_VALUES:
        make_values(&p);
        break;
    case RECIPE_SCALE:
        make_scaled(&p);
        break;
    case RECIPE_HEADS:
        if (p.r->part == 0)
            make_swapped(&p);
        else
            make_rows(&p);
        break;
    case RECIPE_STRIDE:
        make_strided(&p);
        break;
    case RECIPE_TRANSPOSE:
    case RECIPE_TRANSPOSE_HALF:
        make_transposed(&p);
        break;
    case RECIPE_MXFP4:
        make_mxfp4(&p);
        break;
    default:
        make_rows(&p);
        break;
    }
}

/* ---- Running a directory --------------------------------------------------------------------- */

static lace_status make_whole(void *user, size_t index, uint8_t *out, lace_error *err)
{
    const hf_tensors *h = user;
    hf_tensors_make(h, index, 0, h->tensors[index].n_values, out);
    return LACE_OK;
}

static void free_list(void *user)
{
    hf_tensors_free(user);
}

static lace_status config_from_directory(weights *files, model_config *out, lace_error *err)
{
    hf_config config; /* 60 KB */
    hf_tensors *h;
    TRY(hf_config_read(weights_config(files), &config, err));
    TRY(hf_tensors_create(files, &config, HF_FOR_RUNNING, &h, err));
    weights_view view = {.tensors = h->tensors,
                         .n_tensors = h->count,
                         .make = make_whole,
                         .free = free_list,
                         .user = h};
    TRY(weights_set_view(files, &view, err));
    *out = config.model;
    out->n_predicting = hf_tensors_n_predicting(h);
    return LACE_OK;
}

lace_status config_from_weights(weights *files, model_config *out, lace_error *err)
{
    if (weights_gguf(files))
        return config_from_gguf(weights_gguf(files), out, err);
    return config_from_directory(files, out, err);
}
