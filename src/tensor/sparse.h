/*
 * Sparse matrices as files hold them: without the zeros.
 *
 * GGUF knows the size of a tensor from its shape, and the size of a sparse one is not known from
 * it. So the matrix NAME lies in the file as a tensor of bytes (I8) called NAME.sparse, a blob that
 * says itself what it is. Everything is little-endian.
 *
 *     at   0   u32    "LSPR"
 *          4   u32    kind: 1 M4, 2 M8, 3 N24, 4 CSR, 5 M4R
 *          8   u64    n_rows
 *         16   u64    n_cols, a multiple of 32
 *         24   u64    n_nonzeros
 *         32   u64    n_bytes of the whole blob
 *         40   24 zero bytes
 *         64   u64    where[n_panels + 1]: the distance in bytes from this entry to its panel; the
 *                     last one leads to the end of the blob
 *              panels, one after the other
 *
 * A panel is 16 rows (the last one may have rows that do not exist: they are empty). Because the
 * table counts from its own entries, the table of some of the panels is a part of the table.
 *
 * Panel of M4, N24 and M8:
 *
 *     for each 128 columns:
 *         u8[16]                 scales of the rows
 *         for each 32 columns:
 *             u64[8]             masks: mask i is for columns 4i ... 4i + 3;
 *                                bit 4r + c of it is row r, column 4i + c
 *             values             of the set bits, mask after mask, lowest bit first
 *
 * Values of M8 are bytes. Those of M4 and N24 are nibbles: the values of masks 0-3 are the low
 * nibbles of the bytes, those of masks 4-7 the high nibbles, and there are as many bytes as the
 * longer of the two needs; what is left over is 0. So a kernel gets 64 nibbles with one load and at
 * most a shift.
 *
 * A scale is a float without a sign: 2^(scale / 8 - 28) * (1 + scale % 8 / 8), by integer division.
 * A nibble k stands for SPARSE_LEVELS[k], a byte for itself, with sign; times the scale. N24 is M4
 * in which each row has exactly two of each four columns. M4R is M4 of rotated values (rotate.h),
 * in rows of a multiple of 128: what S4 holds, so that S4 can be written as it without any change.
 *
 * Panel of CSR:
 *
 *     u32[17]                    begin: row r has the non-zeros begin[r] to begin[r + 1] - 1
 *     u16[n]                     their columns, rising in a row; n_cols is at most 65,536
 *     f16[n]                     their values
 */
#ifndef LACE_TENSOR_SPARSE_H
#define LACE_TENSOR_SPARSE_H

#include "base/buf.h"
#include "base/bytes.h"
#include "tensor/dtype.h"

typedef enum sparse_kind {
    SPARSE_M4 = 1,
    SPARSE_M8 = 2,
    SPARSE_N24 = 3,
    SPARSE_CSR = 4,
    SPARSE_M4R = 5,
    SPARSE_LAST = SPARSE_M4R
} sparse_kind;

enum {
    SPARSE_PANEL = 16,  /* rows */
    SPARSE_GROUP = 128, /* columns with a scale of their own */
    SPARSE_TILE = 32,   /* columns whose masks lie together */
    SPARSE_HEADER = 64, /* bytes */
    SPARSE_SLACK = 64,  /* bytes that kernels may read beyond a packed matrix */
    SPARSE_CSR_COLS = 65536,
};

#define SPARSE_SUFFIX ".sparse"

/* What a nibble stands for: the best 16 levels for normally distributed weights. */
extern const int8_t SPARSE_LEVELS[16];

/* A blob that was checked. */
typedef struct sparse {
    sparse_kind kind;
    int64_t n_rows, n_cols, n_panels;
    uint64_t n_nonzeros;
    const uint8_t *where; /* the table of panels */
} sparse;

/* Check the first SPARSE_HEADER bytes of a blob of blob_bytes; out->where stays NULL. */
lace_status sparse_parse_header(span header, size_t blob_bytes, sparse *out, lace_error *err);

/* Check every count, offset and mask of a blob, which must not change after it. */
lace_status sparse_parse(span blob, sparse *out, lace_error *err);

/* Panel i of a table. */
const uint8_t *sparse_panel(const uint8_t *where, int64_t i);

/* Bytes of n panels of a table, with a table of their own and slack: what packing them takes. */
uint64_t sparse_packed_bytes(const uint8_t *where, int64_t n_panels);

/* Copy panels [begin, end) of n to the packed matrix at `out`, and their entries of its table. */
void sparse_pack(const uint8_t *where, int64_t n_panels, int64_t begin, int64_t end, uint8_t *out);

/* The number that a scale stands for. */
float sparse_scale(uint8_t scale);

/* The values of one row of a panel, zeros included: out[n_cols]. */
void sparse_unpack_row(sparse_kind kind, const uint8_t *panel, int64_t n_cols, int row, float *out);

/* The scales of a row, one for each 128 columns; not of CSR, which has none. */
void sparse_row_scales(sparse_kind kind, const uint8_t *panel, int64_t n_cols, int row, float *out);

/* ---- Writing --------------------------------------------------------------------------------- */

/* A matrix to be written. For CSR only `values` counts; what is 0 there is left out. */
typedef struct sparse_source {
    int64_t n_rows, n_cols;
    const uint8_t *keeps;  /* [n_rows, n_cols]: 1: is stored, 0: is zero */
    const uint8_t *codes;  /* [n_rows, n_cols]: nibbles, or bytes */
    const uint8_t *scales; /* [n_rows, groups of 128] */
    const float *values;   /* [n_rows, n_cols] */
} sparse_source;

/* Append the blob. LACE_E_ARG if the matrix has not the form that the kind needs. */
lace_status sparse_write(sparse_kind kind, const sparse_source *source, buf *out, lace_error *err);

/* M4, M8, N24, CSR, M4R are the types of the tensors that blobs stand for. */
bool dtype_is_sparse(dtype type);
dtype sparse_dtype(sparse_kind kind);
sparse_kind sparse_kind_of(dtype type);

#endif
