/* What attention of many rows shares: matrices from shared memory, and the softmax of 16 rows. */
#ifndef LACE_KERNELS_CUDA_ATTEND_ROWS_CUH
#define LACE_KERNELS_CUDA_ATTEND_ROWS_CUH

#include "backend/cuda/attend_batch.cuh"

/* Positions at a time: 1.3x over 64, because four blocks of threads fit a processor (H200). */
enum { KEYS = 32 };

static __device__ __forceinline__ void load_matrix(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

static __device__ __forceinline__ void load_matrix_turned(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

/* 16 bytes into shared memory, while others are worked on; the end of some; waiting for all. */
static __device__ __forceinline__ void copy_16(uint8_t *to, const uint8_t *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_u32(to)), "l"(from)
                 : "memory");
}

static __device__ __forceinline__ void copies_end(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

static __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/* For all but those that ended last. */
static __device__ __forceinline__ void copies_wait_first(void)
{
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

/* The shares of 16 positions times 8 values of each. */
static __device__ __forceinline__ void multiply_shares(float (&out)[4], const uint32_t (*share)[2],
                                                       uint32_t b0, uint32_t b1)
{
    mma_f16(out, share[0][0], share[0][1], share[1][0], share[1][1], b0, b1);
}

/* The softmax, kept online: shares of these positions, and how what was before fades. */
template <bool EXACT>
static __device__ __forceinline__ void
share_scores(float (&s)[KEYS / 8][4], float (&now)[2], float (&most)[2], float (&sum)[2],
             float (&fade)[2], uint32_t (&share)[KEYS / 8][2], uint32_t (&share_rest)[KEYS / 8][2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 1));
        now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 2));
        fade[i] = now[i] == -INFINITY ? 1.0f : power_of_2(most[i] - now[i]);
        sum[i] *= fade[i];
        most[i] = now[i];
    }
    float base[2] = {most[0] == -INFINITY ? 0.0f : most[0], most[1] == -INFINITY ? 0.0f : most[1]};
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[i][e] = power_of_2(s[i][e] - base[e >> 1]);
            sum[e >> 1] += s[i][e];
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            share[i][e] = pack_shares(s[i][2 * e], s[i][2 * e + 1]);
            float2 back = __half22float2(*(__half2 *)&share[i][e]);
            if (EXACT)
                share_rest[i][e] = pack_shares(s[i][2 * e] - back.x, s[i][2 * e + 1] - back.y);
        }
    }
}

#endif
