/*
 * Columns: a second layout of matrices, for single tokens of which many activations are 0
 * (activation sparsity). The weights that meet an input lie together, so those of inputs that are
 * 0 are not read.
 *
 * Rows are cut into strips, so that a column of a strip has about COLUMNS_RUN bytes: memory is
 * fetched well in long runs only (runs of 64 bytes with half of them left out take as long as all
 * of it; of 2 KB, two thirds: 2 threads of Zen 4). A strip goes group by group, 32 columns each:
 *
 *     strip 0:  | group 0: scales[strip_rows] column 0 | column 1 | ... | column 31 | group 1: ...
 *     strip 1:  | ...
 *
 *     F16     no scales; the values of a column
 *     Q8_0    a scale (f16) for each row; bytes with 128 added, 64 rows to 64 bytes
 *     Q4_0    a scale (f16) for each row; nibbles, 128 rows to 64 bytes: the low ones are the first
 *     Q4_K    a byte for each row, its scale, then another, its min; nibbles
 *     Q6_K    a byte for each row, its scale in columns 0-15, then another, in 16-31; bytes
 *
 * Scales of K types are multiples of a number (f16) for 256 columns of a row. Those stand in front
 * of a strip's groups: for each 256 columns units[strip_rows], and in Q4_K min_units[strip_rows].
 *
 * In 64 bytes the rows lie so that four columns, woven by unpack instructions (bytes, then pairs),
 * give words of 4 columns in the order of the rows: row 16 k + 4 l + e is byte 16 l + 4 k + e. That
 * holds for vectors of 16, 32 and 64 bytes. Rows are filled up to whole strips with zeros.
 *
 * Workers share a product by strips and by parts of the columns: a piece leaves the sums of a part,
 * and the step behind (MATMUL_JOIN) adds the parts up. Parts depend on the shape alone, so results
 * do not depend on the number of workers.
 */
#ifndef LACE_BACKEND_CPU_COLUMNS_H
#define LACE_BACKEND_CPU_COLUMNS_H

#include "backend/cpu/kernels.h"

enum {
    COLUMNS_GROUP = 32,
    COLUMNS_GROUPS = 8, /* that share a unit */
    COLUMNS_ROWS = 128, /* strips have a multiple of this */
    COLUMNS_RUN = 4096, /* bytes of a column in a strip, at most */
    COLUMNS_PARTS = 8   /* of a strip, at most */
};

typedef struct columns_shape {
    int64_t n_strips, strip_rows;
    int64_t n_groups, n_parts;
    uint64_t unit_bytes;   /* of COLUMNS_GROUPS groups */
    uint64_t groups_at;    /* where they begin in a strip */
    uint64_t scale_bytes;  /* of a group */
    uint64_t column_bytes; /* in a strip */
    uint64_t group_bytes, strip_bytes;
} columns_shape;

/* n_cols is a multiple of 32 (K types: of 256); type one of those above. */
columns_shape columns_shape_of(dtype type, int64_t n_rows, int64_t n_cols);

/* Group number g of a strip, and its units. */
static inline const uint8_t *columns_group(const columns_shape *s, const uint8_t *strip, int64_t g)
{
    return strip + s->groups_at + (uint64_t)g * s->group_bytes;
}
static inline const uint8_t *columns_units(const columns_shape *s, const uint8_t *strip, int64_t g)
{
    return strip + (uint64_t)(g / COLUMNS_GROUPS) * s->unit_bytes;
}

/* Whether there is such a layout. */
bool columns_has(dtype type, int64_t n_cols);

uint64_t columns_bytes(dtype type, int64_t n_rows, int64_t n_cols);

/* Groups [group_begin, group_end) of all rows, from the file's blocks. Called in parallel. */
void columns_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                  int64_t group_begin, int64_t group_end, uint8_t *out);

/* ---- Products -------------------------------------------------------------------------------- */

/* What a kernel multiplies: some groups of a strip with the activations of a token. */
typedef struct columns_part {
    const columns_shape *shape;
    const uint8_t *strip;
    const void *x; /* a row of activations, n_cols of them */
    int64_t n_cols;
    int64_t group_begin, group_end;
    float *sums; /* [strip_rows] what is added to */
} columns_part;

struct columns_impl {
    const char *name;
    act_format act;
    void (*add_part)(const columns_part *p);
};

/* The activations of a group that are not 0, filled up to a multiple of 4. */
typedef struct columns_live {
    int n;
    int n_first; /* with columns_find_halves: those of columns 0-15, filled up for themselves */
    uint8_t at[COLUMNS_GROUP];
    int8_t q[COLUMNS_GROUP]; /* ACT_Q8 */
    float x[COLUMNS_GROUP];  /* ACT_F32 */
} columns_live;

/* Of columns `from` up to `to`, behind the n that were found before; filled up to fours. */
static inline int columns_find_some(const int8_t *q, int from, int to, int n, columns_live *live)
{
    for (int i = from; i < to; i++) { /* without branches: half of them are taken */
        live->at[n] = (uint8_t)i;
        live->q[n] = q[i];
        n += q[i] != 0;
    }
    for (live->n = n; n % 4; n++) {
        live->at[n] = live->at[n - 1];
        live->q[n] = 0;
    }
    return n;
}

static inline void columns_find_q8(const int8_t *q, columns_live *live)
{
    columns_find_some(q, 0, COLUMNS_GROUP, 0, live);
}

/* For types with a scale for 16 columns. */
static inline void columns_find_halves(const int8_t *q, columns_live *live)
{
    live->n_first = columns_find_some(q, 0, 16, 0, live);
    columns_find_some(q, 16, COLUMNS_GROUP, live->n_first, live);
}

static inline void columns_find_f32(const float *x, columns_live *live)
{
    int n = 0;
    for (int i = 0; i < COLUMNS_GROUP; i++) {
        live->at[n] = (uint8_t)i;
        live->x[n] = x[i];
        n += x[i] != 0;
    }
    for (live->n = n; n % 4; n++)
        live->at[n] = live->at[n - 1];
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Whether all weights of a matrix step have columns. */
bool columns_can(const step *s);

/* Whether it uses them for this batch. */
static inline bool columns_use(const step *s, const batch *b)
{
    return s->a.matmul.sums && b->n_tokens == 1 && step_rows(s, b) == 1;
}

int64_t columns_n_pieces(const step *s);
uint64_t columns_sums_bytes(const step *s);

/* A worker's pieces of the products, in place of a matrix step's own. matmul_join_ref follows it. */
void columns_step(const step *s, const worker *w);

/* The kernels of a level: declared, and into the table. */
#define COLUMNS_TYPES(X, level)                                                                    \
    X(F16, f16, level)                                                                             \
    X(Q8_0, q8_0, level) X(Q4_0, q4_0, level) X(Q4_K, q4_k, level) X(Q6_K, q6_k, level)
#define COLUMNS_DECLARE(id, type, level) extern const columns_impl columns_##type##_##level;
COLUMNS_TYPES(COLUMNS_DECLARE, ref)
#if defined(__x86_64__)
COLUMNS_TYPES(COLUMNS_DECLARE, avx2)
COLUMNS_TYPES(COLUMNS_DECLARE, avx512vnni)
#elif defined(__aarch64__)
COLUMNS_TYPES(COLUMNS_DECLARE, neon)
COLUMNS_TYPES(COLUMNS_DECLARE, dotprod)
#endif
#define COLUMNS_USE_ONE(id, type, level) table->columns[DTYPE_##id] = &columns_##type##_##level;
#define COLUMNS_USE(level)               COLUMNS_TYPES(COLUMNS_USE_ONE, level) /* of `table` */

#endif
