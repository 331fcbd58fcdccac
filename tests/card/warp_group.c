/*
 * wgmma: products of 64 rows by four warps, of which each has 16 and computes on its own. Operands are
 * read when a product is issued; its sums are shown when it has been waited for, and what it read in
 * shared memory must be the same then.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "matrix_sums.h"
#include "warp_matrix.h"

enum {
    CHUNK = 16,      /* bytes that stay together in shared memory */
    DEEP_CHUNKS = 2, /* in K, of a product */
    MATRIX_MOST_COLS = 256,
    MOST_SUMS = 128,       /* registers */
    MOST_PENDING = 8,      /* products with different sums */
    ADDRESS_MASK = 0x3ffff /* of shared memory, in descriptors */
};

/* Sums that nobody may see yet. */
typedef struct hidden_sums {
    int n; /* registers; 0: a free place */
    uint32_t *d[MOST_SUMS];
    uint32_t bits[MOST_SUMS][WARP_LANES];
    long group; /* the last one with a product that adds to them */
} hidden_sums;

/* A matrix in shared memory. */
typedef struct place {
    uint32_t start, leading, stride;
    uint32_t width; /* bytes between rows: CHUNK without a swizzle, or 32, 64, 128 */
    bool is_turned; /* K far apart */
} place;

/* What a product has read. */
typedef struct operand {
    struct operand *next;
    place at;
    int row0, n_rows;
    shared_view memory;
    long group;
    _Alignas(CHUNK) uint8_t bytes[]; /* n_rows * DEEP_CHUNKS * CHUNK */
} operand;

struct wgmma_state {
    hidden_sums pending[MOST_PENDING];
    operand *operands;
    long group; /* the next one to be committed */
    bool has_fence;
    bool has_products; /* in this group */
};

wgmma_state *wgmma_create(void)
{
    return calloc(1, sizeof(wgmma_state));
}

static void drop_operands(wgmma_state *s, long before)
{
    for (operand **at = &s->operands; *at;) {
        operand *o = *at;
        if (o->group < before) {
            *at = o->next;
            free(o);
        } else {
            at = &o->next;
        }
    }
}

void wgmma_free(wgmma_state *s)
{
    if (!s)
        return;
    drop_operands(s, s->group + 1);
    free(s);
}

/* ---- Shared memory --------------------------------------------------------------------------- */

static const char *read_descriptor(uint64_t bits, bool is_turned, place *out)
{
    static const uint32_t widths[4] = {CHUNK, 128, 64, 32};
    out->start = (uint32_t)(bits & 0x3fff) << 4;
    out->leading = (uint32_t)(bits >> 16 & 0x3fff) << 4;
    out->stride = (uint32_t)(bits >> 32 & 0x3fff) << 4;
    out->width = widths[bits >> 62];
    out->is_turned = is_turned;
    if (bits >> 49 & 7)
        return "a matrix descriptor with a base offset, which is not supported";
    return NULL;
}

/*
 * The address of 16 bytes. Rows of the matrix (columns of the product, for b) are r, chunks in K are c.
 * Eight rows are a unit of 8 * width bytes, with `stride` from one to the next:
 *
 *     rows beside each other in K: (r / 8) stride + (r % 8) width + 16 c; without a swizzle chunks are
 *     `leading` apart
 *
 * If turned, K numbers rows, and r numbers values in them, 8 to a chunk:
 *
 *     (k / 8) stride + (k % 8) width + 16 (chunk in width) + (chunk / chunks in width) leading; without
 *     a swizzle the two strides change places
 *
 * Swizzled: the bits from 16 on are exclusive-ored with those from 128 on, as many as width has chunks.
 */
static uint32_t chunk_address(const place *p, int row, int chunk)
{
    const uint32_t r = (uint32_t)row, c = (uint32_t)chunk, chunks = p->width / CHUNK;
    uint32_t at = p->start + r % 8 * p->width;
    if (p->width == CHUNK)
        at +=
            p->is_turned ? r / 8 * p->leading + c * p->stride : r / 8 * p->stride + c * p->leading;
    else
        at += r / 8 * p->stride + c % chunks * CHUNK + c / chunks * p->leading;
    return (at ^ (at >> 7 & (chunks - 1)) << 4) & ADDRESS_MASK;
}

/* Rows row0 to row0 + n_rows - 1 of a matrix: [row][32 bytes], or [16][n_rows] values if turned. */
static const char *read_place(const place *p, int row0, int n_rows, const shared_view *m,
                              uint8_t *out)
{
    const int lines = p->is_turned ? 16 : n_rows;
    const int chunks = p->is_turned ? n_rows / 8 : DEEP_CHUNKS;
    for (int line = 0; line < lines; line++)
        for (int c = 0; c < chunks; c++) {
            const uint32_t at = p->is_turned ? chunk_address(p, line, row0 / 8 + c)
                                             : chunk_address(p, row0 + line, c);
            if (at < m->base || at - m->base + CHUNK > m->n_bytes)
                return "wgmma reads beyond the shared memory of its block";
            memcpy(out + CHUNK * (line * chunks + c), m->data + (at - m->base), CHUNK);
        }
    return NULL;
}

/* Reads a matrix, and keeps what was read until its product is done. */
static const char *read_operand(wgmma_state *s, uint64_t descriptor, bool is_turned, int row0,
                                int n_rows, const shared_view *memory, const uint8_t **out)
{
    operand *o = malloc(sizeof *o + (size_t)n_rows * DEEP_CHUNKS * CHUNK);
    if (!o)
        return "no memory for the operand of a wgmma";
    o->row0 = row0;
    o->n_rows = n_rows;
    o->memory = *memory;
    o->group = s->group;
    const char *wrong = read_descriptor(descriptor, is_turned, &o->at);
    if (!wrong)
        wrong = read_place(&o->at, row0, n_rows, memory, o->bytes);
    if (wrong) {
        free(o);
        return wrong;
    }
    o->next = s->operands;
    s->operands = o;
    *out = o->bytes;
    return NULL;
}

static bool is_unchanged(const operand *o)
{
    uint8_t now[MATRIX_MOST_COLS * DEEP_CHUNKS * CHUNK];
    return read_place(&o->at, o->row0, o->n_rows, &o->memory, now) == NULL &&
           !memcmp(now, o->bytes, (size_t)o->n_rows * DEEP_CHUNKS * CHUNK);
}

/* ---- Products -------------------------------------------------------------------------------- */

/* The bytes of `a` from registers, as if they had been read from rows in memory. */
static void rows_of_registers(uint32_t *const *a, uint8_t *out)
{
    for (int i = 0; i < 4; i++)
        for (int row = 0; row < 8; row++)
            memcpy(out + 32 * (row + 8 * (i % 2)) + 16 * (i / 2), a[i] + 4 * row, 16);
}

/* Sums of 8 columns after the other: tile number t has registers 4 t to 4 t + 3. */
static void tile_of(hidden_sums *h, int t, uint32_t **out)
{
    for (int i = 0; i < 4; i++)
        out[i] = h->bits[4 * t + i];
}

static void add_floats(const wgmma_product *p, const uint16_t *a, const uint16_t *b, hidden_sums *h,
                       bool adds)
{
    enum { DEEP = 16 };
    double rows[MATRIX_ROWS * DEEP], turned[MATRIX_ROWS * DEEP], tile[DEEP * MATRIX_COLS];
    double all[MATRIX_MOST_COLS * DEEP];
    uint32_t *sums[4];
    matrix_floats(p->a_type, MATRIX_ROWS * DEEP, a, rows);
    if (!p->a && p->a_turned)
        for (int i = 0; i < MATRIX_ROWS; i++)
            for (int k = 0; k < DEEP; k++)
                turned[i * DEEP + k] = rows[k * MATRIX_ROWS + i];
    else
        memcpy(turned, rows, sizeof turned);
    for (int i = 0; p->a_sign * p->b_sign < 0 && i < MATRIX_ROWS * DEEP; i++)
        turned[i] = -turned[i];
    matrix_floats(p->b_type, p->n * DEEP, b, all);
    for (int t = 0; t < p->n / MATRIX_COLS; t++) {
        if (p->b_turned)
            for (int k = 0; k < DEEP; k++)
                memcpy(tile + MATRIX_COLS * k, all + k * p->n + MATRIX_COLS * t,
                       MATRIX_COLS * sizeof *tile);
        else
            matrix_turn_floats(DEEP, all + DEEP * MATRIX_COLS * t, tile);
        tile_of(h, t, sums);
        matrix_tile_floats(DEEP, turned, tile, adds ? sums : NULL, sums);
    }
}

static void add_wholes(const wgmma_product *p, const uint8_t *a, const uint8_t *b, hidden_sums *h,
                       bool adds)
{
    enum { DEEP = 32 };
    uint32_t rows[MATRIX_ROWS * DEEP], all[MATRIX_MOST_COLS * DEEP], tile[DEEP * MATRIX_COLS];
    uint32_t *sums[4];
    matrix_wholes(p->a_type, MATRIX_ROWS * DEEP, a, rows);
    matrix_wholes(p->b_type, p->n * DEEP, b, all);
    for (int t = 0; t < p->n / MATRIX_COLS; t++) {
        matrix_turn_wholes(DEEP, all + DEEP * MATRIX_COLS * t, tile);
        tile_of(h, t, sums);
        matrix_tile_wholes(DEEP, rows, tile, adds ? sums : NULL, sums);
    }
}

/* ---- Sums ------------------------------------------------------------------------------------ */

static bool has_register(const hidden_sums *h, const uint32_t *d)
{
    for (int i = 0; i < h->n; i++)
        if (h->d[i] == d)
            return true;
    return false;
}

/* The hidden sums of these registers, which become hidden if they are not. */
static const char *hide_sums(wgmma_state *s, const wgmma_product *p, hidden_sums **out)
{
    const int n = p->n / 2;
    hidden_sums *room = NULL;
    for (int i = 0; i < MOST_PENDING; i++) {
        hidden_sums *h = &s->pending[i];
        if (h->n == n && !memcmp(h->d, p->d, (size_t)n * sizeof *p->d)) {
            *out = h;
            return NULL;
        }
        if (h->n == 0)
            room = h;
        else if (has_register(h, p->d[0]) || has_register(h, p->d[n - 1]))
            return "wgmma with other sums than one under way, but with registers of it";
    }
    if (!room)
        return "more products of wgmma under way than are supported";
    room->n = n;
    for (int i = 0; i < n; i++) {
        room->d[i] = p->d[i];
        memcpy(room->bits[i], p->d[i], sizeof room->bits[i]);
        for (int lane = 0; lane < WARP_LANES; lane++)
            p->d[i][lane] = WGMMA_POISON;
    }
    *out = room;
    return NULL;
}

/* ---- The instructions ------------------------------------------------------------------------ */

void wgmma_fence(wgmma_state *s)
{
    s->has_fence = true;
}

static const char *check_product(const wgmma_state *s, const wgmma_product *p)
{
    const bool is_bytes = matrix_is_bytes(p->a_type);
    if (is_bytes != matrix_is_bytes(p->b_type) || (!is_bytes && p->a_type != p->b_type))
        return "wgmma of two types that have no product";
    if (p->n < 8 || p->n > MATRIX_MOST_COLS || p->n % 8)
        return "wgmma with a number of columns that there is not";
    if (is_bytes && (p->a_turned || p->b_turned || p->a_sign != 1 || p->b_sign != 1))
        return "wgmma of bytes with what only floats have";
    if (p->a && p->a_turned)
        return "wgmma that turns a matrix in registers";
    if (!s->has_fence)
        return "wgmma without a wgmma.fence in its group";
    return NULL;
}

const char *wgmma_issue(wgmma_state *s, const wgmma_product *p, const shared_view *memory)
{
    hidden_sums *h;
    const uint8_t *a, *b;
    _Alignas(CHUNK) uint8_t rows[MATRIX_ROWS * DEEP_CHUNKS * CHUNK];
    const char *wrong = check_product(s, p);
    if (wrong)
        return wrong;
    if (p->a) {
        rows_of_registers(p->a, rows);
        a = rows;
    } else {
        wrong = read_operand(s, p->a_place, p->a_turned, MATRIX_ROWS * p->warp, MATRIX_ROWS, memory,
                             &a);
        if (wrong)
            return wrong;
    }
    wrong = read_operand(s, p->b_place, p->b_turned, 0, p->n, memory, &b);
    if (!wrong)
        wrong = hide_sums(s, p, &h);
    if (wrong)
        return wrong;
    h->group = s->group;
    s->has_products = true;
    if (matrix_is_bytes(p->a_type))
        add_wholes(p, a, b, h, p->adds);
    else
        add_floats(p, (const uint16_t *)(const void *)a, (const uint16_t *)(const void *)b, h,
                   p->adds);
    return NULL;
}

void wgmma_commit(wgmma_state *s)
{
    s->group++;
    s->has_fence = s->has_products = false;
}

/* Sums are where they belong. */
static const char *show_sums(hidden_sums *h)
{
    const char *wrong = NULL;
    for (int i = 0; i < h->n; i++) {
        for (int lane = 0; lane < WARP_LANES; lane++)
            if (h->d[i][lane] != WGMMA_POISON)
                wrong = "sums of a wgmma were written before they were waited for";
        memcpy(h->d[i], h->bits[i], sizeof h->bits[i]);
    }
    h->n = 0;
    return wrong;
}

const char *wgmma_wait(wgmma_state *s, int n_left)
{
    const long before = s->group - n_left; /* groups that are done */
    const char *wrong = NULL;
    for (const operand *o = s->operands; o; o = o->next)
        if (o->group < before && !is_unchanged(o))
            wrong = "shared memory that a wgmma reads was written before it was waited for";
    drop_operands(s, before);
    for (int i = 0; i < MOST_PENDING; i++)
        if (s->pending[i].n && s->pending[i].group < before) {
            const char *also = show_sums(&s->pending[i]);
            wrong = wrong ? wrong : also;
        }
    return wrong;
}

const char *wgmma_end(wgmma_state *s)
{
    if (s->has_products)
        return "a warp ends with products of wgmma that were never committed";
    for (int i = 0; i < MOST_PENDING; i++)
        if (s->pending[i].n)
            return "a warp ends before its products of wgmma";
    s->has_fence = false;
    return NULL;
}
