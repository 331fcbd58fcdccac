/* Hessians: the sums. */
#include "compress/hessian.h"

#include <assert.h>
#include <string.h>

#include "backend/host_matrix.h"
#include "base/mem.h"
#include "base/numbers.h"

enum {
    BLOCK = 96, /* rows of the result that a worker takes: what the kernels like */
    STRIP = 64, /* inputs that are transposed together */
};

/*
 * The products are those of a matrix kernel: its weights are the inputs transposed, in tiles, and
 * so are its activations. Scratch: x transposed, y transposed, tiles, and for each worker a block
 * of products and what the kernel wants.
 */
typedef struct layout {
    uint64_t xt, yt; /* [n, max_held] */
    uint64_t tiles;
    uint64_t out; /* [workers][BLOCK, n] */
    uint64_t out_bytes;
    uint64_t kernel; /* [workers] */
    uint64_t kernel_bytes;
    uint64_t end;
} layout;

static layout layout_of(const hessian *s, bool has_other)
{
    uint64_t plain = round_up(4 * (uint64_t)(s->n * s->max_held), 64);
    uint64_t tiles = host_matrix_bytes(s->n, s->max_held);
    layout l = {.out_bytes = round_up(4 * BLOCK * (uint64_t)s->n, 64),
                .kernel_bytes = round_up(host_matrix_scratch_bytes(s->max_held, BLOCK), 64)};
    l.yt = l.xt + plain;
    l.tiles = l.yt + (has_other ? plain : 0);
    l.out = l.tiles + round_up(tiles, 64);
    l.kernel = l.out + (uint64_t)s->n_workers * l.out_bytes;
    l.end = l.kernel + (uint64_t)s->n_workers * l.kernel_bytes;
    return l;
}

static float *floats_at(const hessian *s, uint64_t offset)
{
    return (float *)(s->scratch + offset);
}

lace_status hessian_init(hessian *s, int64_t n, int64_t n_at_once, bool has_other,
                         const pool *workers, lace_error *err)
{
    *s = (hessian){.n = n, .max_held = n_at_once, .n_workers = pool_size(workers)};
    s->n_bytes = layout_of(s, has_other).end;
    s->h = mem_calloc((size_t)(n * n), sizeof *s->h);
    s->c = has_other ? mem_calloc((size_t)(n * n), sizeof *s->c) : NULL;
    s->scratch = mem_map(s->n_bytes);
    if (s->h && s->scratch && (s->c || !has_other))
        return LACE_OK;
    hessian_deinit(s);
    return error_nomem(err, "a Hessian");
}

void hessian_deinit(hessian *s)
{
    mem_free_all(s->h, s->c);
    mem_unmap(s->scratch, s->n_bytes);
    *s = (hessian){0};
}

void hessian_use(hessian *s, large_math *math)
{
    s->math = math;
    if (math)
        s->status = large_math_begin_sums(math, s->n, s->c != NULL, &s->err);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

typedef struct taking {
    hessian *s;
    layout l;
    const float *x, *y;
    int64_t stride, n_tokens;
    handout pieces;
} taking;

/* Some columns of x, behind those that are held. */
static void transpose(const taking *k, const float *x, int64_t begin, int64_t end, float *out)
{
    const hessian *s = k->s;
    for (int64_t t = 0; t < k->n_tokens; t++)
        for (int64_t i = begin; i < end; i++)
            out[i * s->max_held + s->n_held + t] = x[t * k->stride + i];
}

static void take_strips(void *arg, int me, int n_workers)
{
    taking *k = arg;
    int64_t n = k->s->n;
    uint32_t n_pieces = (uint32_t)((n + STRIP - 1) / STRIP), piece;
    while (handout_claim(&k->pieces, n_pieces, &piece)) {
        int64_t begin = (int64_t)piece * STRIP, end = begin + STRIP < n ? begin + STRIP : n;
        transpose(k, k->x, begin, end, floats_at(k->s, k->l.xt));
        if (k->s->c)
            transpose(k, k->y, begin, end, floats_at(k->s, k->l.yt));
    }
}

void hessian_add(hessian *s, const float *x, const float *y, int64_t stride, int64_t n_tokens,
                 pool *workers)
{
    if (s->math) {
        if (s->status == LACE_OK)
            s->status = large_math_add(s->math, x, y, stride, n_tokens, &s->err);
        s->n_rows += n_tokens;
        return;
    }
    while (n_tokens > 0) {
        int64_t room = s->max_held - s->n_held, n = n_tokens < room ? n_tokens : room;
        taking k = {.s = s,
                    .l = layout_of(s, s->c != NULL),
                    .x = x,
                    .y = y,
                    .stride = stride,
                    .n_tokens = n};
        pool_run(workers, take_strips, &k);
        s->n_held += n;
        s->n_rows += n;
        if (s->n_held == s->max_held)
            hessian_finish(s, workers);
        x += n * stride;
        y = y ? y + n * stride : NULL;
        n_tokens -= n;
    }
}

/* ---- Products -------------------------------------------------------------------------------- */

typedef struct adding {
    hessian *s;
    layout l;
    handout strips, pieces;
} adding;

static void pack_strips(void *arg, int me, int n_workers)
{
    adding *a = arg;
    hessian *s = a->s;
    int64_t n = s->n, n_tokens = s->max_held;
    uint32_t n_pieces = (uint32_t)((n + STRIP - 1) / STRIP), piece;
    while (handout_claim(&a->strips, n_pieces, &piece)) {
        int64_t begin = (int64_t)piece * STRIP, end = begin + STRIP < n ? begin + STRIP : n;
        float *xt = floats_at(s, a->l.xt), *yt = floats_at(s, a->l.yt);
        uint8_t *tiles = s->scratch + a->l.tiles;
        size_t n_free = (size_t)(n_tokens - s->n_held) * sizeof(float);
        for (int64_t i = begin; i < end && n_free; i++) {
            memset(xt + i * n_tokens + s->n_held, 0, n_free);
            if (s->c)
                memset(yt + i * n_tokens + s->n_held, 0, n_free);
        }
        host_matrix_pack(xt, n, n_tokens, begin, end, tiles);
    }
}

static void add_block(const adding *a, int64_t begin, int64_t end, const float *rows,
                      int64_t n_cols, int me, double *to)
{
    hessian *s = a->s;
    float *out = floats_at(s, a->l.out + (uint64_t)me * a->l.out_bytes);
    host_matrix x = {s->n, s->max_held, s->scratch + a->l.tiles};
    host_matrix_multiply(&x, n_cols, rows + begin * s->max_held, s->max_held, end - begin, out,
                         s->n, s->scratch + a->l.kernel + (uint64_t)me * a->l.kernel_bytes);
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = 0; k < n_cols; k++)
            to[i * s->n + k] += out[(i - begin) * s->n + k];
}

static void add_pieces(void *arg, int me, int n_workers)
{
    adding *a = arg;
    int64_t n = a->s->n;
    uint32_t n_pieces = (uint32_t)((n + BLOCK - 1) / BLOCK), piece;
    while (handout_claim(&a->pieces, n_pieces, &piece)) {
        /* The widest first, so that no worker has a long one left at the end. */
        int64_t begin = (int64_t)(n_pieces - 1 - piece) * BLOCK;
        int64_t end = begin + BLOCK < n ? begin + BLOCK : n;
        /* Of the symmetric one only the lower half is summed up. */
        add_block(a, begin, end, floats_at(a->s, a->l.xt), end, me, a->s->h);
        if (a->s->c)
            add_block(a, begin, end, floats_at(a->s, a->l.yt), n, me, a->s->c);
    }
}

void hessian_finish(hessian *s, pool *workers)
{
    adding a = {.s = s, .l = layout_of(s, s->c != NULL)};
    assert(pool_size(workers) <= s->n_workers);
    if (s->math && s->status == LACE_OK)
        s->status = large_math_take_sums(s->math, s->h, s->c, &s->err);
    if (s->n_held == 0)
        return;
    pool_run(workers, pack_strips, &a);
    pool_run(workers, add_pieces, &a);
    s->n_held = 0;
}
