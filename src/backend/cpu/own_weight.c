/* Matrices of floats that stand in place of a model's, packed as its weights are. */
#include <string.h>

#include "backend/cpu/cpu_device.h"
#include "base/mem.h"
#include "tensor/codec/pack.h"

typedef struct packing {
    const float *rows;
    weight *out;
    uint8_t *data;
    uint8_t *halves; /* [n_rows, n_cols] F16, if that is the type */
    handout pieces;
} packing;

enum { PACK_ROWS = 4 * MATMUL_TILE_ROWS };

static void pack_pieces(void *arg, int me, int n_workers)
{
    packing *p = arg;
    const weight *w = p->out;
    uint32_t n_pieces = (uint32_t)((w->n_rows + PACK_ROWS - 1) / PACK_ROWS), piece;
    while (handout_claim(&p->pieces, n_pieces, &piece)) {
        int64_t begin = (int64_t)piece * PACK_ROWS;
        int64_t end = begin + PACK_ROWS < w->n_rows ? begin + PACK_ROWS : w->n_rows;
        int64_t first = begin * w->n_cols, n = (end - begin) * w->n_cols;
        const uint8_t *plain = (const uint8_t *)p->rows;
        if (p->halves) {
            pack_row(DTYPE_F16, p->rows + first, n, p->halves + 2 * first);
            plain = p->halves;
        }
        uint64_t stride = row_bytes(w->type, w->n_cols);
        if (w->impl->pack)
            w->impl->pack(w->type, plain, w->n_rows, w->n_cols, begin, end, p->data);
        else
            memcpy(p->data + (uint64_t)begin * stride, plain + (uint64_t)begin * stride,
                   (uint64_t)(end - begin) * stride);
    }
}

static uint64_t own_bytes(const weight *x)
{
    return x->impl->packed_bytes ? x->impl->packed_bytes(x->type, x->n_rows, x->n_cols)
                                 : (uint64_t)x->n_rows * row_bytes(x->type, x->n_cols);
}

lace_status cpu_weight_make(device *d, const float *rows, int64_t n_rows, int64_t n_cols,
                            bool is_half, pool *workers, weight *out, lace_error *err)
{
    const kernel_table *k = cpu_device_kernels(d);
    is_half = is_half && k->packed[DTYPE_F16];
    *out = (weight){.type = is_half ? DTYPE_F16 : DTYPE_F32,
                    .n_rows = n_rows,
                    .n_cols = n_cols,
                    .impl = is_half ? k->packed[DTYPE_F16] : k->exact[DTYPE_F32]};
    packing p = {.rows = rows, .out = out};
    p.halves = is_half ? mem_alloc((size_t)(n_rows * n_cols) * 2) : NULL;
    p.data = mem_map(own_bytes(out));
    if (!p.data || (is_half && !p.halves)) {
        mem_free(p.halves);
        mem_unmap(p.data, own_bytes(out));
        *out = (weight){0};
        return error_nomem(err, "a matrix");
    }
    pool_run(workers, pack_pieces, &p);
    mem_free(p.halves);
    out->data = p.data;
    return LACE_OK;
}

void cpu_weight_free(device *d, weight *x)
{
    if (x->data)
        mem_unmap((uint8_t *)x->data, own_bytes(x));
    *x = (weight){0};
}
