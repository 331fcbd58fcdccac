/* Packing of sparse matrices: the panels of the file as they are, together. */
#include "backend/cpu/cpu.h"
#include "tensor/sparse.h"

static int64_t count_panels(int64_t n_rows)
{
    return (n_rows + SPARSE_PANEL - 1) / SPARSE_PANEL;
}

uint64_t matmul_sparse_packed_bytes(const uint8_t *blocks, int64_t n_rows)
{
    return sparse_packed_bytes(blocks, count_panels(n_rows));
}

void matmul_sparse_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                        int64_t row_begin, int64_t row_end, uint8_t *out)
{
    sparse_pack(blocks, count_panels(n_rows), row_begin / SPARSE_PANEL, count_panels(row_end), out);
}
