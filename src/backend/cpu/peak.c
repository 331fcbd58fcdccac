/* The limits of a core: which loops a level has, and plain ones for those that have none. */
#include "backend/cpu/peak.h"

_Thread_local volatile float peak_sink;

static uint64_t int8_plain(uint64_t n_rounds)
{
    enum { N = 64 };
    int32_t sums[N] = {0};
    volatile int8_t seed = 3;
    int16_t x = seed, y = (int16_t)(seed + 1);
    for (uint64_t r = 0; r < n_rounds; r++)
        for (int i = 0; i < N; i++)
            sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)((x + i) * y ^ sums[i]));
    float total = 0;
    for (int i = 0; i < N; i++)
        total += (float)sums[i];
    peak_sink = total;
    return n_rounds * N;
}

static uint64_t fp32_plain(uint64_t n_rounds)
{
    enum { N = 64 };
    float sums[N] = {0};
    volatile float seed = 0.5f;
    float x = seed, y = seed + 1;
    for (uint64_t r = 0; r < n_rounds; r++)
        for (int i = 0; i < N; i++)
            sums[i] = sums[i] * x + y;
    float total = 0;
    for (int i = 0; i < N; i++)
        total += sums[i];
    peak_sink = total;
    return n_rounds * N;
}

static uint64_t read_plain(const uint8_t *data, size_t n_bytes)
{
    const uint64_t *words = (const uint64_t *)data;
    size_t n = n_bytes / sizeof *words / PEAK_STREAMS;
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < n; i += 8)
        for (int s = 0; s < PEAK_STREAMS; s++) {
            const uint64_t *at = words + (size_t)s * n + i;
            __builtin_prefetch(at + PEAK_PREFETCH / sizeof *words);
            for (int k = 0; k < 8; k++)
                sums[k] ^= at[k];
        }
    return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

static uint64_t read_in_order(const uint8_t *data, size_t n_bytes)
{
    const uint64_t *a = (const uint64_t *)data, *b = a + n_bytes / sizeof *a / 2;
    size_t n = n_bytes / sizeof *a / 2;
    uint64_t sums[32] = {0};
    for (size_t i = 0; i < n; i += 16)
        for (int k = 0; k < 16; k++) {
            sums[k] ^= a[i + (size_t)k];
            sums[16 + k] ^= b[i + (size_t)k];
        }
    uint64_t all = 0;
    for (int k = 0; k < 32; k++)
        all ^= sums[k];
    return all;
}

#define LOOPS_OF(level)                                                                            \
    {                                                                                              \
        peak_int8_##level, peak_fp32_##level, peak_read_##level, read_in_order                     \
    }

void peak_loops_init(peak_loops *out, cpu_level level)
{
    static const peak_loops loops[CPU_N_LEVELS] = {
        [CPU_PLAIN] = {int8_plain, fp32_plain, read_plain, read_in_order},
#if defined(__x86_64__)
        [CPU_AVX2] = LOOPS_OF(avx2),
        [CPU_AVX2_VNNI] = LOOPS_OF(avx2vnni),
        [CPU_AVX512] = LOOPS_OF(avx512),
        [CPU_AVX512_VNNI] = LOOPS_OF(avx512vnni),
        [CPU_AVX512_VBMI] = LOOPS_OF(avx512vnni),
#elif defined(__aarch64__)
        [CPU_NEON] = LOOPS_OF(neon),
        [CPU_NEON_DOT] = LOOPS_OF(dotprod),
        [CPU_NEON_I8MM] = LOOPS_OF(i8mm),
#endif
    };
    *out = loops[level].read ? loops[level] : loops[CPU_PLAIN];
}
