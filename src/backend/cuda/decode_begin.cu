/*
 * One token: which it is, its embedding, and what the first product reads.
 */
#include "backend/cuda/decode_common.cuh"

enum { BEGIN_THREADS = 1024 };

/* Choose the token if asked to, look it up, and prepare what the first product reads. */
extern "C" __global__ void __launch_bounds__(BEGIN_THREADS)
    decode_begin_kernel(const __grid_constant__ decode_begin p)
{
    __shared__ int token, position, turn;
    __shared__ float parts[BEGIN_THREADS / 32];
    const int tid = threadIdx.x, lane = tid & 31;
    wait_for_last();
    let_next_begin();
    if (tid == 32)
        turn = p.state->turn;
    if (tid < 32) {
        if (p.best) {
            float value = -INFINITY, v[DECODE_MAX_BLOCKS / 32];
            int row = 0x7fffffff, at[DECODE_MAX_BLOCKS / 32];
#pragma unroll
            for (int i = 0; i < DECODE_MAX_BLOCKS / 32; i++) {
                bool is_in = 32 * i + lane < p.n_best;
                v[i] = is_in ? __ldcg(&p.best[32 * i + lane].value) : -INFINITY;
                at[i] = is_in ? __ldcg(&p.best[32 * i + lane].row) : 0x7fffffff;
            }
#pragma unroll
            for (int i = 0; i < DECODE_MAX_BLOCKS / 32; i++)
                if (is_better(v[i], at[i], value, row)) {
                    value = v[i];
                    row = at[i];
                }
#pragma unroll
            for (int o = 16; o; o >>= 1) {
                float other = __shfl_xor_sync(~0u, value, o);
                int other_row = __shfl_xor_sync(~0u, row, o);
                if (is_better(other, other_row, value, row)) {
                    value = other;
                    row = other_row;
                }
            }
            if (lane == 0) {
                if (row == 0x7fffffff)
                    row = 0; /* all of them NaN: the host's check of logits speaks of it */
                token = row;
                position = p.state->position + 1;
                int n = p.state->n_chosen;
                p.state->token = row;
                p.state->position = position;
                p.state->n_chosen = n + 1;
                /* The host reads nothing but this word. */
                if (p.ring)
                    asm volatile(
                        "st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p.ring + n % DECODE_RING),
                        "r"(row + 1)
                        : "memory");
            }
        } else if (lane == 0) {
            token = p.state->token;
            position = p.state->position;
        }
    }
    __syncthreads();
    for (int n = 0; n < 2; n++)
        for (int i = tid; p.angles[n] && i < p.n_dims[n] / 2; i += BEGIN_THREADS) {
            float angle = __fmul_rn((float)(position + turn), p.frequencies[n][i]), s, c;
            sincosf(angle, &s, &c);
            p.angles[n][2 * i] = c * p.magnitudes[n];
            p.angles[n][2 * i + 1] = s * p.magnitudes[n];
        }
    const uint8_t *row = p.table + (uint64_t)token * p.row_bytes;
    float squares = 0;
    for (int i0 = 4 * (tid & ~31); i0 < p.width; i0 += 4 * BEGIN_THREADS) {
        int i = i0 + 4 * lane; /* the width is a multiple of 16 */
        float v[4] = {0, 0, 0, 0}, w[4] = {0, 0, 0, 0};
        bool is_in = i < p.width;
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (is_in) {
                v[n] = p.scale * block_value(p.type, row, i + n);
                w[n] = p.next_norm ? p.next_norm[i + n] : 1.0f;
            }
        if (is_in)
            *(float4 *)(p.residual + i) = make_float4(v[0], v[1], v[2], v[3]);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            squares += v[n] * v[n];
            v[n] *= w[n];
        }
        if (p.next.planes)
            act_put((gpu_act)p.next.act, make_float4(v[0], v[1], v[2], v[3]), i, p.next.planes,
                    p.next.k, is_in);
    }
    squares = warp_sum(squares);
    if (lane == 0)
        parts[tid >> 5] = squares;
    __syncthreads();
    if (tid == 0) {
        squares = 0;
        for (int w = 0; w < BEGIN_THREADS / 32; w++)
            squares += parts[w];
        p.next_squares[0] = squares;
    }
}
