/* Products with triangular matrices against sums one by one. */
#include "compress/triangle.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "random_blocks.h"
#include "status_check.h"
#include "tap.h"

enum { ROWS = 20 };

/* y of one value: its row of the matrix, or its column. */
static double product(const float *m, int64_t n, bool is_transposed, const float *x, int64_t i)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        if (is_transposed ? k <= i : k >= i)
            sum += (double)(is_transposed ? m[k * n + i] : m[i * n + k]) * x[k];
    return sum;
}

static void blocks_multiply_as_the_whole_matrix(void)
{
    static const int64_t sizes[] = {96, 256, 600};
    pool *workers;
    lace_error err;
    CHECK(is_ok(pool_create(2, &workers, &err), &err));
    for (int i = 0; i < 6; i++) {
        int64_t n = sizes[i / 2];
        bool is_transposed = i % 2;
        float *m = malloc((size_t)(n * n) * sizeof *m), *x = malloc(ROWS * (size_t)n * sizeof *x);
        random_floats(1, n * n, m);
        random_floats(2, ROWS * n, x);
        triangle t;
        CHECK(is_ok(triangle_init(&t, m, n, is_transposed, workers, &err), &err));
        uint8_t *scratch = mem_map(triangle_scratch_bytes(n)); /* aligned to 64 bytes */
        double most = 0;
        for (int64_t at = 0; at < n; at += TRIANGLE_BLOCK) {
            float out[ROWS * TRIANGLE_BLOCK];
            triangle_multiply(&t, at, x, ROWS, out, scratch);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t k = at; k < n && k < at + TRIANGLE_BLOCK; k++)
                    most = fmax(most, fabs(out[r * TRIANGLE_BLOCK + k - at] -
                                           product(m, n, is_transposed, x + r * n, k)));
        }
        if (!CHECK(most < 1e-3)) /* sums of 600 floats about 1 */
            tap_note("%d, transposed %d: %g", (int)n, is_transposed, most);
        triangle_deinit(&t);
        mem_unmap(scratch, triangle_scratch_bytes(n));
        free(m);
        free(x);
    }
    pool_free(workers);
}

int main(void)
{
    CASE(blocks_multiply_as_the_whole_matrix);
    return tap_end();
}
