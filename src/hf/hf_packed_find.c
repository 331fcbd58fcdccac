/* Finding the parts of a quantized matrix and checking that they fit each other. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/codec/unpack.h"
#include "hf/hf_packed.h"
#include "tensor/half.h"

enum { NAME_BYTES = 320 };

/* A matrix while it is put together. */
typedef struct finder {
    const hf_packed_search *s;
    char stem[NAME_BYTES]; /* the name without ".weight" */
    hf_packed *p;
} finder;

/* ---- Parts ----------------------------------------------------------------------------------- */

static const tensor *part(const finder *f, const char *suffix)
{
    char name[NAME_BYTES + 32];
    snprintf(name, sizeof name, "%s.%s", f->stem, suffix);
    size_t i = weights_index(f->s->files, name);
    const tensor *t = weights_at(f->s->files, i);
    if (t)
        f->s->is_used[i] = true;
    return t;
}

static lace_status need(const finder *f, const char *suffix, const tensor **out)
{
    *out = part(f, suffix);
    if (*out)
        return LACE_OK;
    return error_set(f->s->err, LACE_E_META, "tensor %.100s.%s is missing", f->stem, suffix);
}

static lace_status wrong(const finder *f, const tensor *t, const char *expected)
{
    char dims[96];
    return error_set(f->s->err, LACE_E_SHAPE, "tensor %.*s: %s of shape %s, expected %s",
                     text_width(t->name), t->name.data, dtype_describe(t->type)->name,
                     shape_format(&t->shape, dims), expected);
}

/* Rows and columns, the fastest last as people write them. */
static lace_status check_shape(const finder *f, const tensor *t, dtype type, int64_t rows,
                               int64_t cols)
{
    char expected[96];
    if (t->type == type && t->shape.n_dims == 2 && t->shape.dims[1] == rows &&
        t->shape.dims[0] == cols)
        return LACE_OK;
    snprintf(expected, sizeof expected, "%s of %" PRId64 "x%" PRId64, dtype_describe(type)->name,
             cols, rows);
    return wrong(f, t, expected);
}

static bool is_float(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

/* The group of each column; the trivial order is none. */
static lace_status take_order(const finder *f, const tensor *t, int64_t n_groups)
{
    hf_packed *p = f->p;
    bool is_trivial = true;
    if (!t)
        return LACE_OK;
    if (t->type != DTYPE_I32 || t->shape.n_dims != 1 || t->shape.dims[0] != p->cols)
        return wrong(f, t, "one i32 for each column");
    for (int64_t c = 0; c < p->cols; c++) {
        uint32_t group = load_u32(t->data + 4 * c);
        if (group >= (uint64_t)n_groups)
            return error_set(f->s->err, LACE_E_META,
                             "tensor %.*s: column %" PRId64 " is in group %" PRIu32
                             ", expected 0 to %" PRId64,
                             text_width(t->name), t->name.data, c, group, n_groups - 1);
        is_trivial = is_trivial && (int64_t)group == c / p->group_cols;
    }
    p->order = is_trivial ? NULL : t;
    p->n_groups = (uint32_t)n_groups;
    return LACE_OK;
}

static lace_status set_size(const finder *f, const tensor *t, int64_t rows, int64_t cols)
{
    if (rows < 1 || cols < 1 || rows > INT32_MAX || cols > INT32_MAX)
        return wrong(f, t, "rows and columns from 1 to 2147483647");
    f->p->rows = rows;
    f->p->cols = cols;
    f->p->group_rows = 1;
    return LACE_OK;
}

/* ---- The kinds ------------------------------------------------------------------------------- */

static int64_t set_groups(const finder *f)
{
    hf_packed *p = f->p;
    int32_t size = f->s->quant->group_size;
    p->group_cols = size < 0 || size > p->cols ? p->cols : size;
    p->step_row = 1;
    p->step_col = p->rows;
    return (p->cols + p->group_cols - 1) / p->group_cols;
}

static lace_status find_gptq(const finder *f, const tensor *codes)
{
    hf_packed *p = f->p;
    const hf_quant *q = f->s->quant;
    p->kind = PACKED_GPTQ;
    p->bits = q->bits;
    if (codes->type != DTYPE_I32 || codes->shape.n_dims != 2 ||
        codes->shape.dims[1] > INT32_MAX / 32 || codes->shape.dims[1] * 32 % p->bits != 0)
        return wrong(f, codes, "a matrix of i32 that holds whole codes");
    TRY(set_size(f, codes, codes->shape.dims[0], codes->shape.dims[1] * 32 / p->bits));
    int64_t n_groups = set_groups(f);
    TRY(need(f, "scales", &p->scales));
    TRY(need(f, "qzeros", &p->zeros));
    if (p->rows * p->bits % 32 != 0)
        return wrong(f, codes, "as many rows as fill whole words of qzeros");
    TRY(check_shape(f, p->scales, is_float(p->scales->type) ? p->scales->type : DTYPE_F16, n_groups,
                    p->rows));
    TRY(check_shape(f, p->zeros, DTYPE_I32, n_groups, p->rows * p->bits / 32));
    p->zero = q->stores_zero_minus_one;
    return take_order(f, part(f, "g_idx"), n_groups);
}

static lace_status find_awq(const finder *f, const tensor *codes)
{
    hf_packed *p = f->p;
    p->kind = PACKED_AWQ;
    p->bits = 4;
    if (codes->type != DTYPE_I32 || codes->shape.n_dims != 2 ||
        codes->shape.dims[0] > INT32_MAX / 8)
        return wrong(f, codes, "a matrix of i32");
    TRY(set_size(f, codes, codes->shape.dims[0] * 8, codes->shape.dims[1]));
    int64_t n_groups = set_groups(f);
    TRY(need(f, "scales", &p->scales));
    p->zeros = part(f, "qzeros");
    p->zero = 8; /* where there are none */
    TRY(check_shape(f, p->scales, is_float(p->scales->type) ? p->scales->type : DTYPE_F16, n_groups,
                    p->rows));
    return p->zeros ? check_shape(f, p->zeros, DTYPE_I32, n_groups, p->rows / 8) : LACE_OK;
}

/*
 * Scales of compressed-tensors and of FP8, [rows / a, columns / b]: one for all, one a row, one for
 * some columns of a row, one a block. Dimensions that are missing are 1.
 */
static lace_status take_scales(const finder *f, const tensor *t)
{
    hf_packed *p = f->p;
    const hf_quant *q = f->s->quant;
    int64_t cols = t->shape.n_dims == 2 ? t->shape.dims[0] : 1;
    int64_t rows = t->shape.n_dims == 2 ? t->shape.dims[1] : t->shape.dims[0];
    p->scales = t;
    if (!is_float(t->type) || t->shape.n_dims > 2)
        return wrong(f, t, "a matrix of floats");
    if (q->block_rows > 0 && rows == (p->rows + q->block_rows - 1) / q->block_rows &&
        cols == (p->cols + q->block_cols - 1) / q->block_cols) {
        p->group_rows = q->block_rows;
        p->group_cols = q->block_cols;
    } else if (rows == 1 && cols == 1) {
        p->group_rows = p->rows;
        p->group_cols = p->cols;
    } else if (q->block_rows == 0 && p->rows % rows == 0 && p->cols % cols == 0) {
        p->group_rows = p->rows / rows;
        p->group_cols = p->cols / cols;
    } else {
        return wrong(f, t, "one scale for the tensor, or for each row, group or block");
    }
    p->step_row = cols;
    p->step_col = 1;
    return LACE_OK;
}

/* The two numbers of NAME.weight_shape or NAME.shape. */
static lace_status read_shape(const finder *f, const char *suffix, int64_t *rows, int64_t *cols)
{
    const tensor *t;
    TRY(need(f, suffix, &t));
    if ((t->type != DTYPE_I64 && t->type != DTYPE_I32) || t->n_values != 2)
        return wrong(f, t, "two integers");
    bool is_wide = t->type == DTYPE_I64;
    *rows = is_wide ? (int64_t)load_u64(t->data) : (int32_t)load_u32(t->data);
    *cols = is_wide ? (int64_t)load_u64(t->data + 8) : (int32_t)load_u32(t->data + 4);
    if (*rows < 1 || *cols < 1 || *rows > INT32_MAX || *cols > INT32_MAX)
        return error_set(f->s->err, LACE_E_SHAPE,
                         "tensor %.*s: is %" PRId64 ", %" PRId64
                         ", expected the numbers of rows and columns",
                         text_width(t->name), t->name.data, *rows, *cols);
    return LACE_OK;
}

/* Of the widths that the config names, the one that gives this many words a row; 0: none. */
static int find_bits(const hf_quant *q, int64_t cols, int64_t words)
{
    for (int32_t i = 0; i < q->n_groups; i++) {
        int64_t per_word = 32 / q->group_bits[i];
        if ((cols + per_word - 1) / per_word == words)
            return q->group_bits[i];
    }
    return 0;
}

static lace_status find_words(const finder *f, const tensor *codes)
{
    hf_packed *p = f->p;
    int64_t rows = 0, cols = 0;
    const tensor *scales;
    p->kind = PACKED_WORDS;
    TRY(read_shape(f, "weight_shape", &rows, &cols));
    TRY(set_size(f, codes, rows, cols));
    if (codes->type != DTYPE_I32 || codes->shape.n_dims != 2 || codes->shape.dims[1] != rows)
        return wrong(f, codes, "as many rows of i32 as weight_shape says");
    p->bits = find_bits(f->s->quant, cols, codes->shape.dims[0]);
    if (p->bits == 0)
        return wrong(f, codes, "as many words in a row as config_groups and weight_shape say");
    p->zero = 1 << (p->bits - 1);
    TRY(need(f, "weight_scale", &scales));
    TRY(take_scales(f, scales));
    p->zeros = part(f, "weight_zero_point");
    int64_t per_word = 32 / p->bits, n_groups = p->cols / p->group_cols;
    if (p->group_rows != 1 && p->zeros)
        return wrong(f, p->zeros, "no zero points, because rows share their scales");
    if (p->zeros)
        TRY(check_shape(f, p->zeros, DTYPE_I32, (rows + per_word - 1) / per_word, n_groups));
    return take_order(f, part(f, "weight_g_idx"), n_groups);
}

/* NAME.weight in 8 bits, with its scales. */
static lace_status find_bytes(const finder *f, const tensor *codes)
{
    hf_packed *p = f->p;
    p->kind = codes->type == DTYPE_I8 ? PACKED_BYTES : PACKED_FLOAT;
    p->bits = 8;
    if (codes->shape.n_dims != 2)
        return wrong(f, codes, "a matrix");
    TRY(set_size(f, codes, codes->shape.dims[1], codes->shape.dims[0]));
    const tensor *scales = part(f, "weight_scale_inv");
    if (!scales)
        TRY(need(f, "weight_scale", &scales));
    TRY(take_scales(f, scales));
    p->zeros = p->kind == PACKED_BYTES ? part(f, "weight_zero_point") : NULL;
    if (p->zeros && (p->zeros->type != DTYPE_I8 || p->zeros->n_values != scales->n_values ||
                     p->group_rows != 1))
        return wrong(f, p->zeros, "one i8 for each scale");
    return LACE_OK;
}

static lace_status check_mask(const finder *f)
{
    const hf_packed *p = f->p;
    int64_t width = p->mask->shape.dims[0], total = 0;
    for (int64_t row = 0; row < p->rows; row++) {
        const uint8_t *mask = p->mask->data + row * width;
        int64_t n = 0;
        for (int64_t i = 0; i < width; i++)
            n += __builtin_popcount(mask[i]);
        if (p->cols % 8 != 0 && mask[width - 1] >> p->cols % 8 != 0)
            return wrong(f, p->mask, "no bits set after the last column");
        int64_t begin = p->offsets ? (int64_t)load_u64(p->offsets->data + 8 * row) : total;
        if (begin != total || (!p->offsets && n != p->cols / 2))
            return error_set(f->s->err, LACE_E_META,
                             "tensor %.*s: row %" PRId64 " has %" PRId64
                             " bits that begin at value %" PRId64
                             ", which does not fit the rows before it",
                             text_width(p->mask->name), p->mask->name.data, row, n, begin);
        total += n;
    }
    if ((uint64_t)total != p->codes->n_values)
        return wrong(f, p->codes, "one value for each bit of the mask");
    return LACE_OK;
}

static lace_status find_masked(const finder *f, const tensor *codes)
{
    hf_packed *p = f->p;
    int64_t rows = 0, cols = 0;
    p->kind = PACKED_MASK;
    TRY(read_shape(f, "shape", &rows, &cols));
    TRY(set_size(f, codes, rows, cols));
    p->group_rows = rows;
    p->group_cols = cols;
    TRY(need(f, "bitmask", &p->mask));
    TRY(check_shape(f, p->mask, DTYPE_U8, rows, (cols + 7) / 8));
    if (!unpack_ref[codes->type] && codes->type != DTYPE_I8)
        return wrong(f, codes, "numbers");
    if (dtype_describe(codes->type)->block_values != 1)
        return wrong(f, codes, "a type that does not pack values into blocks");
    p->offsets = part(f, "row_offsets");
    if (p->offsets && (p->offsets->type != DTYPE_I64 || p->offsets->n_values != (uint64_t)rows))
        return wrong(f, p->offsets, "one i64 for each row");
    if (!p->offsets && cols % 4 != 0)
        return wrong(f, codes, "a multiple of 4 columns");
    TRY(check_mask(f));
    const tensor *scales = part(f, "weight_scale");
    if (scales)
        return take_scales(f, scales);
    return is_float(codes->type) ? LACE_OK : need(f, "weight_scale", &scales);
}

/* ---- The type that it is shown as ------------------------------------------------------------ */

/* The largest scale, and whether all of them survive as f16 with 10 bits. */
static lace_status survey_scales(const finder *f, float *most, bool *fit_f16)
{
    const tensor *t = f->p->scales;
    *most = 1;
    *fit_f16 = true;
    for (uint64_t i = 0; t && i < t->n_values; i++) {
        float x;
        unpack_row(t->type, t->data + row_bytes(t->type, (int64_t)i), 1, &x);
        if (!isfinite(x))
            return error_set(f->s->err, LACE_E_NUMERIC,
                             "tensor %.*s: scale %" PRIu64 " is not finite", text_width(t->name),
                             t->name.data, i);
        float rounded = f16_to_f32(f16_from_f32(x));
        *fit_f16 = *fit_f16 && fabsf(rounded - x) <= fabsf(x) * 0x1p-10f;
        *most = i == 0 || fabsf(x) > *most ? fabsf(x) : *most;
    }
    return LACE_OK;
}

/* Whether all zeros are in the middle; of gptq only asked where the config says so. */
static bool has_middle_zeros(const finder *f)
{
    const hf_packed *p = f->p;
    if (!p->zeros)
        return p->kind != PACKED_BYTES || p->zero == 0;
    if (p->kind != PACKED_GPTQ || !f->s->quant->is_symmetric)
        return false;
    uint32_t word = 0; /* all words of a symmetric one are the same */
    int stored = (1 << (p->bits - 1)) - p->zero;
    for (int i = 0; i < 32; i += p->bits)
        word |= (uint32_t)stored << i;
    for (uint64_t i = 0; i < p->zeros->n_values; i++)
        if (load_u32(p->zeros->data + 4 * i) != word)
            return false;
    return true;
}

static dtype integer_type(const finder *f, bool fit_f16)
{
    const hf_packed *p = f->p;
    if (!fit_f16)
        return DTYPE_F32;
    if (p->order || p->group_cols % 32 != 0 || p->cols % 32 != 0)
        return DTYPE_F16;
    /* Up to 3 bits, a code less any zero fits into 4; of 4 bits, into 8. */
    if (p->bits <= 3)
        return DTYPE_Q4_0;
    if (has_middle_zeros(f))
        return p->bits == 4 ? DTYPE_Q4_0 : DTYPE_Q8_0;
    return p->bits <= 7 ? DTYPE_Q8_0 : DTYPE_F16;
}

static lace_status set_type(const finder *f, const char *name)
{
    hf_packed *p = f->p;
    float most;
    bool fit_f16;
    TRY(survey_scales(f, &most, &fit_f16));
    dtype type = p->codes->type;
    /* The largest of e5m2; of e4m3, which is above all codes. */
    float largest = type == DTYPE_F8_E5M2 ? 57344 : 448;
    if (p->kind < PACKED_FLOAT)
        type = integer_type(f, fit_f16);
    else if (p->scales)
        type = is_float(type) ? DTYPE_F32 : DTYPE_F16;
    if (type == DTYPE_F16 && p->scales && most * largest > 65504)
        type = DTYPE_F32;
    char *copy = arena_strndup(f->s->memory, name, strlen(name));
    if (!copy)
        return error_nomem(f->s->err, "the names of tensors");
    p->shown =
        (tensor){.name = text_of(copy), .type = type, .shape = {2, {p->cols, p->rows, 1, 1}}};
    lace_status status =
        tensor_bytes(type, &p->shown.shape, &p->shown.n_values, &p->shown.n_bytes, f->s->err);
    return status == LACE_OK ? status : error_prefix(f->s->err, status, name);
}

/* ---------------------------------------------------------------------------------------------- */

typedef lace_status (*find_fn)(const finder *f, const tensor *codes);

/* What a matrix of this stem is made of, by the method of the config. */
static find_fn choose(const finder *f, const tensor **codes)
{
    const hf_quant_method method = f->s->quant->method;
    if (method == HF_QUANT_GPTQ || method == HF_QUANT_AWQ) {
        *codes = part(f, "qweight");
        return *codes ? method == HF_QUANT_GPTQ ? find_gptq : find_awq : NULL;
    }
    if (method == HF_QUANT_COMPRESSED) {
        if ((*codes = part(f, "weight_packed")))
            return find_words;
        if ((*codes = part(f, "compressed")))
            return find_masked;
    }
    *codes = part(f, "weight");
    if (*codes && ((*codes)->type == DTYPE_F8_E4M3 || (*codes)->type == DTYPE_I8))
        return find_bytes;
    return NULL;
}

lace_status hf_packed_find(const hf_packed_search *s, const char *name, const tensor **out)
{
    static const char *const ignored[] = {"input_scale", "input_zero_point", "output_scale"};
    *out = NULL;
    size_t n = strlen(name), end = strlen(".weight");
    hf_quant_method method = s->quant->method;
    if (method == HF_QUANT_NONE || method == HF_QUANT_MXFP4 || n <= end || n >= NAME_BYTES ||
        strcmp(name + n - end, ".weight") != 0)
        return LACE_OK;
    finder f = {.s = s};
    snprintf(f.stem, sizeof f.stem, "%.*s", (int)(n - end), name);
    const tensor *codes;
    find_fn find = choose(&f, &codes);
    if (!find)
        return LACE_OK;
    f.p = arena_alloc(s->memory, 1, sizeof *f.p);
    if (!f.p)
        return error_nomem(s->err, "the list of tensors");
    *f.p = (hf_packed){.codes = codes};
    TRY(find(&f, codes));
    /* Scales for activations in 8 bits: lace has its own. */
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        part(&f, ignored[i]);
    TRY(set_type(&f, name));
    *out = &f.p->shown;
    return LACE_OK;
}
