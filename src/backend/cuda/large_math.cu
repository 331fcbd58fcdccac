/* Sums of products and triangular factors of large matrices, for calibrated quantizing. */
#include "backend/cuda/math_params.h"

enum { SUM_K = 16, EACH = 8, STEP = 16, UPDATE_EACH = 4 };

/* A block has 128 x 128 sums, a thread 8 x 8 of them: in floats over these rows, then in doubles. */
extern "C" __global__ void __launch_bounds__(MATH_THREADS) math_sum_rows(const math_sum p)
{
    __shared__ float ys[SUM_K][MATH_SUM_TILE], xs[SUM_K][MATH_SUM_TILE];
    const int first_i = blockIdx.y * MATH_SUM_TILE, first_k = blockIdx.x * MATH_SUM_TILE;
    if (p.is_lower && first_k > first_i)
        return;
    const int ti = threadIdx.x / 16, tk = threadIdx.x % 16;
    float sums[EACH][EACH] = {};
    for (int row = 0; row < p.n_rows; row += SUM_K) {
        for (int at = threadIdx.x; at < SUM_K * MATH_SUM_TILE; at += MATH_THREADS) {
            const int r = at / MATH_SUM_TILE, c = at % MATH_SUM_TILE;
            const bool is_row = row + r < p.n_rows;
            const int64_t from = (int64_t)(row + r) * p.n;
            ys[r][c] = is_row && first_i + c < p.n ? p.y[from + first_i + c] : 0;
            xs[r][c] = is_row && first_k + c < p.n ? p.x[from + first_k + c] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < SUM_K; r++) {
            float y[EACH], x[EACH];
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                y[e] = ys[r][ti + 16 * e];
                x[e] = xs[r][tk + 16 * e];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int k = 0; k < EACH; k++)
                    sums[i][k] += y[i] * x[k];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int64_t row = first_i + ti + 16 * i, column = first_k + tk + 16 * k;
            if (row < p.n && column < p.n)
                p.out[row * p.n + column] += (double)sums[i][k];
        }
}

/* A block has 128 rows by 128 columns of the result. */
extern "C" __global__ void __launch_bounds__(MATH_THREADS) math_multiply_rows(const math_product p)
{
    __shared__ float xs[SUM_K][MATH_SUM_TILE + 1], bs[SUM_K][MATH_SUM_TILE + 1];
    const int first_row = blockIdx.y * MATH_SUM_TILE, first_i = blockIdx.x * MATH_SUM_TILE;
    const int tr = threadIdx.x / 16, ti = threadIdx.x % 16;
    float sums[EACH][EACH] = {};
    for (int k = 0; k < p.n; k += SUM_K) {
        for (int at = threadIdx.x; at < SUM_K * MATH_SUM_TILE; at += MATH_THREADS) {
            const int along = at % SUM_K, across = at / SUM_K;
            const int row = first_row + across, i = first_i + across;
            const bool is_k = k + along < p.n;
            xs[along][across] = is_k && row < p.n_rows ? p.x[(int64_t)row * p.n + k + along] : 0;
            if (!p.is_transposed)
                bs[along][across] = is_k && i < p.n ? p.by[(int64_t)i * p.n + k + along] : 0;
        }
        for (int at = threadIdx.x; at < SUM_K * MATH_SUM_TILE && p.is_transposed;
             at += MATH_THREADS) {
            const int along = at / MATH_SUM_TILE, across = at % MATH_SUM_TILE;
            const bool is_there = k + along < p.n && first_i + across < p.n;
            bs[along][across] = is_there ? p.by[(int64_t)(k + along) * p.n + first_i + across] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < SUM_K; s++) {
            float x[EACH], b[EACH];
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                x[e] = xs[s][tr + 16 * e];
                b[e] = bs[s][ti + 16 * e];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sums[i][j] += x[i] * b[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int row = first_row + tr + 16 * i, column = first_i + ti + 16 * j;
            if (row >= p.n_rows || column >= p.n)
                continue;
            float *to = p.out + (int64_t)row * p.n + column;
            *to = p.adds ? *to + sums[i][j] : sums[i][j];
        }
}

/* c may be a: all of it has been read when the results are written. */
extern "C" __global__ void __launch_bounds__(MATH_THREADS) math_update_tiles(const math_update p)
{
    __shared__ double as[STEP][MATH_TILE + 1], bs[STEP][MATH_TILE + 1];
    const double *a = p.a + blockIdx.x * p.a_step, *b = p.b + blockIdx.x * p.b_step;
    double *c = p.c + blockIdx.x * p.c_step;
    const int ti = threadIdx.x / 16, tk = threadIdx.x % 16;
    double sums[UPDATE_EACH][UPDATE_EACH] = {};
    for (int k = 0; k < p.k; k += STEP) {
        for (int at = threadIdx.x; at < STEP * MATH_TILE; at += MATH_THREADS) {
            const int along = at % STEP, across = at / STEP;
            as[along][across] = a[across * p.a_stride + k + along];
            if (p.is_transposed)
                bs[along][across] = b[across * p.b_stride + k + along];
            else
                bs[at / MATH_TILE][at % MATH_TILE] =
                    b[(int64_t)(k + at / MATH_TILE) * p.b_stride + at % MATH_TILE];
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < STEP; s++) {
            double x[UPDATE_EACH], y[UPDATE_EACH];
#pragma unroll
            for (int e = 0; e < UPDATE_EACH; e++) {
                x[e] = as[s][ti + 16 * e];
                y[e] = bs[s][tk + 16 * e];
            }
#pragma unroll
            for (int i = 0; i < UPDATE_EACH; i++)
#pragma unroll
                for (int j = 0; j < UPDATE_EACH; j++)
                    sums[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < UPDATE_EACH; i++)
#pragma unroll
        for (int j = 0; j < UPDATE_EACH; j++) {
            double *to = c + (ti + 16 * i) * p.c_stride + tk + 16 * j;
            *to = p.use == MATH_SUBTRACT ? *to - sums[i][j]
                  : p.use == MATH_SET    ? sums[i][j]
                                         : -sums[i][j];
        }
}

/* One block of 64 threads: a thread for each row of R, then for each column of its inverse. */
extern "C" __global__ void __launch_bounds__(MATH_TILE) math_factor_tile(const math_tile p)
{
    __shared__ double r[MATH_TILE][MATH_TILE + 1];
    const int me = threadIdx.x;
    for (int i = 0; i < MATH_TILE; i++)
        r[i][me] = p.a[i * p.stride + me];
    __syncthreads();
    for (int j = MATH_TILE - 1; j >= 0; j--) {
        double sum = me <= j ? r[me][j] : 0;
        for (int k = j + 1; k < MATH_TILE && me <= j; k++)
            sum -= r[me][k] * r[j][k];
        __syncthreads();
        if (me == j) {
            if (!(sum > 0) || isinf(sum))
                *p.is_bad = 1;
            r[j][j] = sqrt(sum);
        }
        __syncthreads();
        if (me < j)
            r[me][j] = sum / r[j][j];
        __syncthreads();
    }
    for (int i = 0; i < MATH_TILE; i++) {
        p.a[i * p.stride + me] = me >= i ? r[i][me] : 0;
        p.inverse[i * MATH_TILE + me] = 0;
    }
    double *u = p.inverse + me; /* this column: no other thread has it */
    u[me * MATH_TILE] = 1 / r[me][me];
    for (int i = me - 1; i >= 0; i--) {
        double sum = 0;
        for (int k = i + 1; k <= me; k++)
            sum += r[i][k] * u[k * MATH_TILE];
        u[i * MATH_TILE] = -sum / r[i][i];
    }
}

extern "C" __global__ void __launch_bounds__(MATH_THREADS) math_upper_floats(const math_upper p)
{
    const int64_t row = blockIdx.x;
    for (int k = threadIdx.x; k < p.n; k += MATH_THREADS)
        p.to[row * p.n + k] = k >= row ? (float)p.from[row * p.stride + k] : 0;
}
