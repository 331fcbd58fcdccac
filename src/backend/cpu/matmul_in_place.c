/* Products with weights in place: pack some rows, multiply, go on. */
#include "backend/cpu/matmul_in_place.h"

/* Stays in half of an L2 cache until it is multiplied. */
enum { PACKED_BYTES = 256 * 1024 };

/* Rows to pack at once: whole panels, in fours if possible, which kernels walk together. */
static int64_t rows_at_once(const matmul_impl *panels, dtype type, int64_t n_cols)
{
    uint64_t one = panels->packed_bytes(type, MATMUL_TILE_ROWS, n_cols);
    int64_t n = one ? (int64_t)(PACKED_BYTES / one) : 1;
    n = n > 4 ? n & ~(int64_t)3 : n > 1 ? n : 1;
    return n * MATMUL_TILE_ROWS;
}

uint64_t matmul_in_place_bytes(const matmul_impl *panels, dtype type, int64_t n_cols)
{
    uint64_t n = panels->packed_bytes(type, rows_at_once(panels, type, n_cols), n_cols);
    return (n + 63) & ~(uint64_t)63;
}

void matmul_in_place_rows(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x,
                          uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                          uint8_t *scratch)
{
    const matmul_impl *panels = w->impl->panels;
    uint64_t stride = row_bytes(w->type, w->n_cols);
    int64_t most = rows_at_once(panels, w->type, w->n_cols);
    bool is_same_size =
        panels->packed_bytes(w->type, MATMUL_TILE_ROWS, w->n_cols) == MATMUL_TILE_ROWS * stride;
    uint8_t *rest = scratch + matmul_in_place_bytes(panels, w->type, w->n_cols);
    for (int64_t row = row_begin; row < row_end; row += most) {
        int64_t n = row_end - row < most ? row_end - row : most;
        weight part = {
            .type = w->type, .n_rows = n, .n_cols = w->n_cols, .data = scratch, .impl = panels};
        const uint8_t *from = w->data + (uint64_t)row * stride;
        panels->pack(w->type, from, n, w->n_cols, 0, n, scratch);
        if (is_same_size && row + n < row_end)
            part.next = (int64_t)((uintptr_t)from + (uint64_t)n * stride - (uintptr_t)scratch);
        panels->rows(&part, 0, n, x, x_stride, n_tokens, out + (row - row_begin), out_stride, rest);
    }
}
