/* Products of many rows with a triangular matrix. */
#include "compress/triangle.h"

#include <assert.h>

#include "backend/host_matrix.h"
#include "base/mem.h"
#include "base/numbers.h"

static host_matrix block_at(const triangle *t, int64_t at)
{
    int64_t end = min_i64(at + TRIANGLE_BLOCK, t->n);
    return (host_matrix){.n_rows = end - at, .n_cols = t->is_transposed ? end : t->n - at};
}

static uint64_t block_bytes(const triangle *t, int64_t at)
{
    host_matrix a = block_at(t, at);
    return round_up(host_matrix_bytes(a.n_rows, a.n_cols), 64);
}

static uint64_t offset_of(const triangle *t, int64_t at)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < at; i += TRIANGLE_BLOCK)
        sum += block_bytes(t, i);
    return sum;
}

typedef struct packing {
    const triangle *t;
    const float *m;
    float *rows; /* [workers][TRIANGLE_BLOCK, n] */
    handout pieces;
} packing;

/* Rows of the matrix from its diagonal on. */
static void copy_rows(const float *m, int64_t n, int64_t at, const host_matrix *a, float *out)
{
    for (int64_t r = 0; r < a->n_rows; r++)
        for (int64_t c = 0; c < a->n_cols; c++)
            out[r * a->n_cols + c] = c >= r ? m[(at + r) * n + at + c] : 0;
}

/* Its columns down to the diagonal. */
static void copy_columns(const float *m, int64_t n, int64_t at, const host_matrix *a, float *out)
{
    for (int64_t c = 0; c < a->n_cols; c++)
        for (int64_t r = 0; r < a->n_rows; r++)
            out[r * a->n_cols + c] = c <= at + r ? m[c * n + at + r] : 0;
}

static void pack_blocks(void *arg, int me, int n_workers)
{
    packing *p = arg;
    const triangle *t = p->t;
    int64_t n = t->n;
    float *rows = p->rows + (int64_t)me * TRIANGLE_BLOCK * n;
    uint32_t n_pieces = (uint32_t)((n + TRIANGLE_BLOCK - 1) / TRIANGLE_BLOCK), piece;
    while (handout_claim(&p->pieces, n_pieces, &piece)) {
        int64_t at = (int64_t)piece * TRIANGLE_BLOCK;
        host_matrix a = block_at(t, at);
        uint8_t *out = t->data + offset_of(t, at);
        if (t->is_transposed)
            copy_columns(p->m, n, at, &a, rows);
        else
            copy_rows(p->m, n, at, &a, rows);
        host_matrix_pack(rows, a.n_rows, a.n_cols, 0, a.n_rows, out);
    }
}

lace_status triangle_init(triangle *t, const float *m, int64_t n, bool is_transposed, pool *workers,
                          lace_error *err)
{
    *t = (triangle){.n = n, .is_transposed = is_transposed};
    packing p = {.t = t, .m = m};
    t->n_bytes = offset_of(t, n);
    t->data = mem_map(t->n_bytes);
    p.rows = mem_alloc((size_t)pool_size(workers) * TRIANGLE_BLOCK * (size_t)n * sizeof *p.rows);
    lace_status status = t->data && p.rows ? LACE_OK : error_nomem(err, "a triangular matrix");
    if (status == LACE_OK)
        pool_run(workers, pack_blocks, &p);
    else
        triangle_deinit(t);
    mem_free(p.rows);
    return status;
}

void triangle_deinit(triangle *t)
{
    mem_unmap(t->data, t->n_bytes);
    *t = (triangle){0};
}

void triangle_multiply(const triangle *t, int64_t at, const float *x, int64_t n_rows, float *out,
                       uint8_t *scratch)
{
    host_matrix a = block_at(t, at);
    assert(at % TRIANGLE_BLOCK == 0 && n_rows <= TRIANGLE_MAX_ROWS);
    a.data = t->data + offset_of(t, at);
    host_matrix_multiply(&a, a.n_rows, t->is_transposed ? x : x + at, t->n, n_rows, out,
                         TRIANGLE_BLOCK, scratch);
}

uint64_t triangle_scratch_bytes(int64_t n)
{
    return round_up(host_matrix_scratch_bytes(n, TRIANGLE_MAX_ROWS), 64);
}
