/* Sparse matrices: checking, reading and writing their blobs. */
#include "tensor/sparse.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tensor/half.h"
#include "tensor/rotate.h"

static const char magic[4] = {'L', 'S', 'P', 'R'};

const int8_t SPARSE_LEVELS[16] = {-127, -96, -75, -58, -44, -31, -18, -6,
                                  6,    18,  31,  44,  58,  75,  96,  127};

static const dtype types[] = {
    [SPARSE_M4] = DTYPE_M4,   [SPARSE_M8] = DTYPE_M8,   [SPARSE_N24] = DTYPE_N24,
    [SPARSE_CSR] = DTYPE_CSR, [SPARSE_M4R] = DTYPE_M4R,
};

dtype sparse_dtype(sparse_kind kind)
{
    return types[kind];
}

sparse_kind sparse_kind_of(dtype type)
{
    for (int kind = SPARSE_M4; kind <= SPARSE_LAST; kind++)
        if (types[kind] == type)
            return (sparse_kind)kind;
    return 0;
}

bool dtype_is_sparse(dtype type)
{
    return sparse_kind_of(type) != 0;
}

static int64_t count_panels(int64_t n_rows)
{
    return n_rows / SPARSE_PANEL + (n_rows % SPARSE_PANEL != 0);
}

const uint8_t *sparse_panel(const uint8_t *where, int64_t i)
{
    const uint8_t *entry = where + 8 * i;
    return entry + load_u64(entry);
}

/* How many values the masks of a tile have: the first four, and the others. */
static void count_values(const uint8_t *masks, uint64_t n[2])
{
    n[0] = n[1] = 0;
    for (int i = 0; i < 8; i++)
        n[i / 4] += (uint64_t)__builtin_popcountll(load_u64(masks + 8 * i));
}

/* Bytes of the values of a tile. */
static uint64_t value_bytes(sparse_kind kind, const uint64_t n[2])
{
    return kind == SPARSE_M8 ? n[0] + n[1] : n[0] > n[1] ? n[0] : n[1];
}

/* ---- Checking -------------------------------------------------------------------------------- */

/* In each four neighbouring bits exactly two are set. */
static bool is_two_of_four(uint64_t mask)
{
    uint64_t pairs = mask - (mask >> 1 & 0x5555555555555555u);
    uint64_t fours = (pairs & 0x3333333333333333u) + (pairs >> 2 & 0x3333333333333333u);
    return fours == 0x2222222222222222u;
}

/* Walk a masked panel: its masks say how long it must be. Rows from n_rows on must be empty. */
static lace_status check_masked(sparse_kind kind, cursor *c, int64_t n_cols, int64_t n_rows,
                                uint64_t *n_nonzeros, lace_error *err)
{
    uint64_t may = n_rows >= SPARSE_PANEL ? UINT64_MAX : ((uint64_t)1 << 4 * n_rows) - 1;
    for (int64_t col = 0; col < n_cols; col += SPARSE_TILE) {
        span masks, skipped;
        if (col % SPARSE_GROUP == 0)
            TRY(cursor_take(c, SPARSE_PANEL, &skipped, "scales", err));
        TRY(cursor_take(c, 8 * 8, &masks, "masks", err));
        for (int i = 0; i < 8; i++) {
            uint64_t mask = load_u64(masks.data + 8 * i);
            if (mask & ~may)
                return error_at(err, LACE_E_SHAPE, c->at, "a mask has rows that do not exist");
            if (kind == SPARSE_N24 && !is_two_of_four(mask | (~may & 0x3333333333333333u)))
                return error_at(err, LACE_E_SHAPE, c->at,
                                "a mask of N24 does not have two of each four bits");
        }
        uint64_t n[2];
        count_values(masks.data, n);
        *n_nonzeros += n[0] + n[1];
        TRY(cursor_take(c, value_bytes(kind, n), &skipped, "values", err));
    }
    return LACE_OK;
}

static lace_status check_csr(cursor *c, int64_t n_cols, int64_t n_rows, uint64_t *n_nonzeros,
                             lace_error *err)
{
    span begins, columns, values;
    TRY(cursor_take(c, 4 * (SPARSE_PANEL + 1), &begins, "begins of rows", err));
    uint32_t n = load_u32(begins.data + 4 * SPARSE_PANEL);
    TRY(cursor_take(c, 2 * (uint64_t)n, &columns, "columns", err));
    TRY(cursor_take(c, 2 * (uint64_t)n, &values, "values", err));
    for (int r = 0; r < SPARSE_PANEL; r++) {
        uint32_t begin = load_u32(begins.data + 4 * r), end = load_u32(begins.data + 4 * r + 4);
        if ((r == 0 && begin != 0) || begin > end || end > n || (r >= n_rows && begin != end))
            return error_at(err, LACE_E_OFFSET, c->at, "row %d claims non-zeros %u to %u of %u", r,
                            begin, end, n);
        int64_t before = -1;
        for (uint32_t i = begin; i < end; i++) {
            int64_t col = load_u16(columns.data + 2 * (uint64_t)i);
            if (col <= before || col >= n_cols)
                return error_at(err, LACE_E_OFFSET, c->at,
                                "row %d: column %" PRId64 " of %" PRId64 " follows column %" PRId64
                                ", expected ascending columns inside the row",
                                r, col, n_cols, before);
            if (!isfinite(f16_to_f32(load_u16(values.data + 2 * (uint64_t)i))))
                return error_at(err, LACE_E_META, c->at, "row %d: a value is not finite", r);
            before = col;
        }
    }
    *n_nonzeros += n;
    return LACE_OK;
}

/* The panels lie one after the other and each is as long as its contents say. */
static lace_status check_panels(const sparse *s, span blob, lace_error *err)
{
    cursor c = {.bytes = blob, .at = SPARSE_HEADER + 8 * ((size_t)s->n_panels + 1)};
    uint64_t n_nonzeros = 0;
    for (int64_t i = 0; i <= s->n_panels; i++) {
        uint64_t entry = SPARSE_HEADER + 8 * (uint64_t)i;
        if (load_u64(blob.data + entry) != c.at - entry)
            return error_at(err, LACE_E_OFFSET, entry,
                            "panel %" PRId64
                            " does not begin at byte %zu, where the one before it ends",
                            i, c.at);
        if (i == s->n_panels)
            break;
        int64_t n_rows = s->n_rows - i * SPARSE_PANEL;
        TRY(s->kind == SPARSE_CSR ? check_csr(&c, s->n_cols, n_rows, &n_nonzeros, err)
                                  : check_masked(s->kind, &c, s->n_cols, n_rows, &n_nonzeros, err));
    }
    if (c.at != blob.size)
        return error_at(err, LACE_E_TAIL, c.at, "bytes follow the last panel");
    if (n_nonzeros != s->n_nonzeros)
        return error_at(err, LACE_E_COUNT, 24,
                        "n_nonzeros is %" PRIu64 ", the panels have %" PRIu64, s->n_nonzeros,
                        n_nonzeros);
    return LACE_OK;
}

/* What the columns must be a multiple of. */
static int columns_of(sparse_kind kind)
{
    return kind == SPARSE_M4R ? ROTATE_VALUES : SPARSE_TILE;
}

lace_status sparse_parse_header(span header, size_t blob_bytes, sparse *out, lace_error *err)
{
    cursor c = {.bytes = header};
    span found, zeros;
    uint32_t kind;
    uint64_t n_rows, n_cols, n_nonzeros, n_bytes;
    *out = (sparse){0};
    c.bytes.size = blob_bytes < header.size ? blob_bytes : header.size;
    TRY(cursor_take(&c, sizeof magic, &found, "magic", err));
    if (memcmp(found.data, magic, sizeof magic) != 0)
        return error_at(err, LACE_E_MAGIC, 0, "not a sparse matrix: expected LSPR");
    TRY(cursor_u32(&c, &kind, "kind", err));
    TRY(cursor_u64(&c, &n_rows, "n_rows", err));
    TRY(cursor_u64(&c, &n_cols, "n_cols", err));
    TRY(cursor_u64(&c, &n_nonzeros, "n_nonzeros", err));
    TRY(cursor_u64(&c, &n_bytes, "n_bytes", err));
    TRY(cursor_take(&c, SPARSE_HEADER - c.at, &zeros, "reserved bytes", err));
    if (kind < SPARSE_M4 || kind > SPARSE_LAST)
        return error_at(err, LACE_E_TYPE, 4, "kind %u, expected 1 to %d", kind, SPARSE_LAST);
    for (size_t i = 0; i < zeros.size; i++)
        if (zeros.data[i])
            return error_at(err, LACE_E_VERSION, 40 + i, "a reserved byte is %u, expected 0",
                            zeros.data[i]);
    if (n_bytes != blob_bytes)
        return error_at(err, LACE_E_TRUNC, 32, "n_bytes is %" PRIu64 ", the blob has %zu", n_bytes,
                        blob_bytes);
    /* Every panel has an entry in the table: that bounds the rows by the bytes. */
    if (n_rows == 0 || n_rows / SPARSE_PANEL > blob_bytes / 8)
        return error_at(err, LACE_E_COUNT, 8, "n_rows is %" PRIu64, n_rows);
    uint64_t most = kind == SPARSE_CSR ? SPARSE_CSR_COLS : INT32_MAX;
    int whole = columns_of(kind);
    if (n_cols == 0 || n_cols > most || n_cols % (uint64_t)whole != 0)
        return error_at(err, LACE_E_DIMS, 16, "n_cols is %" PRIu64 ", expected a multiple of %d",
                        n_cols, whole);
    *out = (sparse){.kind = (sparse_kind)kind,
                    .n_rows = (int64_t)n_rows,
                    .n_cols = (int64_t)n_cols,
                    .n_panels = count_panels((int64_t)n_rows),
                    .n_nonzeros = n_nonzeros};
    return LACE_OK;
}

lace_status sparse_parse(span blob, sparse *out, lace_error *err)
{
    cursor c = {.bytes = blob, .at = SPARSE_HEADER};
    span table;
    sparse s;
    *out = (sparse){0};
    TRY(sparse_parse_header(blob, blob.size, &s, err));
    TRY(cursor_take(&c, 8 * ((uint64_t)s.n_panels + 1), &table, "the table of panels", err));
    s.where = table.data;
    TRY(check_panels(&s, blob, err));
    *out = s;
    return LACE_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

uint64_t sparse_packed_bytes(const uint8_t *where, int64_t n_panels)
{
    uint64_t panels = (uint64_t)(sparse_panel(where, n_panels) - sparse_panel(where, 0));
    return 8 * ((uint64_t)n_panels + 1) + panels + SPARSE_SLACK;
}

static void store_u64(uint8_t *p, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

void sparse_pack(const uint8_t *where, int64_t n_panels, int64_t begin, int64_t end, uint8_t *out)
{
    const uint8_t *first = sparse_panel(where, 0);
    uint64_t table = 8 * ((uint64_t)n_panels + 1);
    for (int64_t i = begin; i <= end && (i < end || end == n_panels); i++) {
        uint64_t at = table + (uint64_t)(sparse_panel(where, i) - first);
        store_u64(out + 8 * i, at - 8 * (uint64_t)i);
    }
    const uint8_t *from = sparse_panel(where, begin), *to = sparse_panel(where, end);
    if (to > from)
        memcpy(out + table + (from - first), from, (size_t)(to - from));
}

float sparse_scale(uint8_t scale)
{
    return f32_from_bits(((uint32_t)scale + ((127 - 28) << 3)) << 20);
}

static void unpack_csr(const uint8_t *panel, int row, float *out)
{
    uint32_t n = load_u32(panel + 4 * SPARSE_PANEL);
    const uint8_t *columns = panel + 4 * (SPARSE_PANEL + 1), *values = columns + 2 * (uint64_t)n;
    for (uint32_t i = load_u32(panel + 4 * row); i < load_u32(panel + 4 * row + 4); i++)
        out[load_u16(columns + 2 * (uint64_t)i)] = f16_to_f32(load_u16(values + 2 * (uint64_t)i));
}

void sparse_unpack_row(sparse_kind kind, const uint8_t *panel, int64_t n_cols, int row, float *out)
{
    memset(out, 0, (size_t)n_cols * sizeof *out);
    if (kind == SPARSE_CSR) {
        unpack_csr(panel, row, out);
        return;
    }
    const uint8_t *at = panel;
    float scale = 0;
    for (int64_t col = 0; col < n_cols; col += SPARSE_TILE) {
        if (col % SPARSE_GROUP == 0) {
            scale = sparse_scale(at[row]);
            at += SPARSE_PANEL;
        }
        const uint8_t *masks = at, *values = at + 8 * 8;
        uint64_t n[2], before = 0; /* values of this half, or of all, that come before a mask's */
        count_values(masks, n);
        for (int i = 0; i < 8; i++) {
            uint64_t mask = load_u64(masks + 8 * i);
            if (i == 4 && kind != SPARSE_M8)
                before = 0;
            for (int c = 0; c < 4; c++) {
                int bit = 4 * row + c;
                if (!(mask >> bit & 1))
                    continue;
                uint64_t below = mask & (((uint64_t)1 << bit) - 1);
                uint8_t code = values[before + (uint64_t)__builtin_popcountll(below)];
                int level =
                    kind == SPARSE_M8 ? (int8_t)code : SPARSE_LEVELS[code >> 4 * (i / 4) & 15];
                out[col + 4 * i + c] = (float)level * scale;
            }
            before += (uint64_t)__builtin_popcountll(mask);
        }
        at = values + value_bytes(kind, n);
    }
    for (int64_t col = 0; col < n_cols && kind == SPARSE_M4R; col += ROTATE_VALUES)
        unrotate_128(out + col, out + col);
}

void sparse_row_scales(sparse_kind kind, const uint8_t *panel, int64_t n_cols, int row, float *out)
{
    const uint8_t *at = panel;
    for (int64_t col = 0; col < n_cols; col += SPARSE_TILE) {
        if (col % SPARSE_GROUP == 0) {
            *out++ = sparse_scale(at[row]);
            at += SPARSE_PANEL;
        }
        uint64_t n[2];
        count_values(at, n);
        at += 8 * 8 + value_bytes(kind, n);
    }
}

/* ---- Writing --------------------------------------------------------------------------------- */

static lace_status put(buf *out, const void *data, size_t n_bytes, lace_error *err)
{
    lace_status status = buf_append(out, data, n_bytes);
    return status == LACE_OK ? LACE_OK : error_set(err, status, "no room for a sparse matrix");
}

static lace_status put_u16(buf *out, uint16_t x, lace_error *err)
{
    uint8_t bytes[2] = {(uint8_t)x, (uint8_t)(x >> 8)};
    return put(out, bytes, sizeof bytes, err);
}

static lace_status put_u32(buf *out, uint32_t x, lace_error *err)
{
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(x >> 8 * i);
    return put(out, bytes, sizeof bytes, err);
}

static lace_status put_u64(buf *out, uint64_t x, lace_error *err)
{
    uint8_t bytes[8];
    store_u64(bytes, x);
    return put(out, bytes, sizeof bytes, err);
}

/* The mask of 16 rows and 4 columns. Appends the values of its bits to values[*n ...]. */
static uint64_t make_mask(const sparse_source *s, int64_t row, int64_t col, uint8_t *values, int *n)
{
    uint64_t mask = 0;
    for (int r = 0; r < SPARSE_PANEL && row + r < s->n_rows; r++)
        for (int c = 0; c < 4; c++) {
            int64_t at = (row + r) * s->n_cols + col + c;
            if (!s->keeps[at])
                continue;
            mask |= (uint64_t)1 << (4 * r + c);
            values[(*n)++] = s->codes[at];
        }
    return mask;
}

/* 16 rows and 32 columns. */
static lace_status write_tile(sparse_kind kind, const sparse_source *s, int64_t row, int64_t col,
                              buf *out, uint64_t *n_nonzeros, lace_error *err)
{
    uint8_t values[2][256] = {{0}}, bytes[512] = {0};
    int n[2] = {0, 0};
    for (int i = 0; i < 8; i++)
        TRY(put_u64(out, make_mask(s, row, col + 4 * i, values[i / 4], &n[i / 4]), err));
    *n_nonzeros += (uint64_t)(n[0] + n[1]);
    if (kind == SPARSE_M8) {
        memcpy(bytes, values[0], (size_t)n[0]);
        memcpy(bytes + n[0], values[1], (size_t)n[1]);
    } else {
        for (int i = 0; i < 256; i++)
            bytes[i] = (uint8_t)((values[0][i] & 15) | (values[1][i] & 15) << 4);
    }
    uint64_t counts[2] = {(uint64_t)n[0], (uint64_t)n[1]};
    return put(out, bytes, value_bytes(kind, counts), err);
}

static lace_status write_masked(sparse_kind kind, const sparse_source *s, int64_t row, buf *out,
                                uint64_t *n_nonzeros, lace_error *err)
{
    int64_t n_groups = (s->n_cols + SPARSE_GROUP - 1) / SPARSE_GROUP;
    for (int64_t col = 0; col < s->n_cols; col += SPARSE_TILE) {
        for (int r = 0; r < SPARSE_PANEL && col % SPARSE_GROUP == 0; r++) {
            int64_t at = (row + r) * n_groups + col / SPARSE_GROUP;
            uint8_t scale = row + r < s->n_rows ? s->scales[at] : 0;
            TRY(put(out, &scale, 1, err));
        }
        TRY(write_tile(kind, s, row, col, out, n_nonzeros, err));
    }
    return LACE_OK;
}

static lace_status write_csr(const sparse_source *s, int64_t row, buf *out, uint64_t *n_nonzeros,
                             lace_error *err)
{
    uint32_t n = 0;
    for (int r = 0; r <= SPARSE_PANEL; r++) {
        TRY(put_u32(out, n, err));
        for (int64_t col = 0; r < SPARSE_PANEL && row + r < s->n_rows && col < s->n_cols; col++)
            n += s->values[(row + r) * s->n_cols + col] != 0;
    }
    for (int pass = 0; pass < 2; pass++) /* columns, then values */
        for (int64_t r = row; r < row + SPARSE_PANEL && r < s->n_rows; r++)
            for (int64_t col = 0; col < s->n_cols; col++) {
                float x = s->values[r * s->n_cols + col];
                if (x != 0)
                    TRY(put_u16(out, pass ? f16_from_f32(x) : (uint16_t)col, err));
            }
    *n_nonzeros += n;
    return LACE_OK;
}

lace_status sparse_write(sparse_kind kind, const sparse_source *s, buf *out, lace_error *err)
{
    if (s->n_cols % columns_of(kind) != 0 || (kind == SPARSE_CSR && s->n_cols > SPARSE_CSR_COLS))
        return error_set(err, LACE_E_ARG, "rows of %" PRId64 " values do not fit this sparse type",
                         s->n_cols);
    size_t begin = out->size;
    int64_t n_panels = count_panels(s->n_rows);
    uint64_t n_nonzeros = 0;
    static const uint8_t zeros[SPARSE_HEADER];
    TRY(put(out, zeros, SPARSE_HEADER, err));
    for (int64_t i = 0; i <= n_panels; i++)
        TRY(put_u64(out, 0, err));
    for (int64_t i = 0; i <= n_panels; i++) {
        size_t entry = begin + SPARSE_HEADER + 8 * (size_t)i;
        store_u64((uint8_t *)out->data + entry, out->size - entry);
        if (i < n_panels)
            TRY(kind == SPARSE_CSR
                    ? write_csr(s, i * SPARSE_PANEL, out, &n_nonzeros, err)
                    : write_masked(kind, s, i * SPARSE_PANEL, out, &n_nonzeros, err));
    }
    uint8_t *header = (uint8_t *)out->data + begin;
    memcpy(header, magic, sizeof magic);
    header[4] = (uint8_t)kind;
    store_u64(header + 8, (uint64_t)s->n_rows);
    store_u64(header + 16, (uint64_t)s->n_cols);
    store_u64(header + 24, n_nonzeros);
    store_u64(header + 32, out->size - begin);
    return LACE_OK;
}
