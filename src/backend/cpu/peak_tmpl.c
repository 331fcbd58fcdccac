/*
 * The limits of a core (peak.h). Compiled once per CPU level (level.h).
 *
 * For the products of bytes each level has here
 *
 *     words         a vector of int32
 *     INT8_SUMS     how many of them are summed up at once: enough to hide the latency
 *     INT8_MACS     products in a dot()
 *     dot(sum, x, y)
 *     fill(word)    the same word everywhere
 */
#include "backend/cpu/level.h"

#include "backend/cpu/peak.h"

/* ---- Bytes ----------------------------------------------------------------------------------- */

#if defined(__x86_64__)
typedef int32_t words __attribute__((vector_size(LEVEL_BYTES)));
typedef long long wide __attribute__((vector_size(LEVEL_BYTES))); /* __m256i, __m512i */
#define fill(word) ((words)MM(set1_epi32)(word))
#else
typedef int32x4_t words;
#define fill(word) vdupq_n_s32(word)
#endif

#if LEVEL_IS(avx2) || LEVEL_IS(avx512)
/*
 * Without VNNI, products take three instructions: to int16 pairs, to int32, and the sum. The first
 * factor is the sum, or the products would be computed once, before the loop.
 */
enum { INT8_SUMS = 12, INT8_MACS = LEVEL_BYTES };
static inline words dot(words sum, words x, words y)
{
    wide pairs = MM(maddubs_epi16)((wide)sum, (wide)y);
    return (words)MM(add_epi32)((wide)sum, MM(madd_epi16)(pairs, MM(set1_epi16)(1)));
}
#elif LEVEL_IS(avx2vnni)
enum { INT8_SUMS = 12, INT8_MACS = LEVEL_BYTES };
static inline words dot(words sum, words x, words y)
{
    return (words)_mm256_dpbusd_avx_epi32((wide)sum, (wide)x, (wide)y);
}
#elif LEVEL_IS(avx512vnni)
enum { INT8_SUMS = 16, INT8_MACS = LEVEL_BYTES };
static inline words dot(words sum, words x, words y)
{
    return (words)_mm512_dpbusd_epi32((wide)sum, (wide)x, (wide)y);
}
#elif LEVEL_IS(neon)
/* Without sdot: 8 products to int16, added up in pairs. The first factor is the sum, as above. */
enum { INT8_SUMS = 8, INT8_MACS = 8 };
static inline words dot(words sum, words x, words y)
{
    int8x8_t first = vreinterpret_s8_s32(vget_low_s32(sum));
    return vpadalq_s16(sum, vmull_s8(first, vreinterpret_s8_s32(vget_low_s32(veorq_s32(x, y)))));
}
#elif LEVEL_IS(dotprod)
enum { INT8_SUMS = 16, INT8_MACS = 16 };
static inline words dot(words sum, words x, words y)
{
    return vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y));
}
#elif LEVEL_IS(i8mm)
enum { INT8_SUMS = 16, INT8_MACS = 32 };
static inline words dot(words sum, words x, words y)
{
    return vmmlaq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y));
}
#endif

PEAK_LOOP(FN(peak_int8), words, INT8_SUMS, fill(0), fill(0x03030303), fill(0x05050505),
          dot(acc, x, y), INT8_MACS, acc[0])

/* ---- Floats ---------------------------------------------------------------------------------- */

enum { FP32_SUMS = VW == 16 ? 16 : 12 };

static inline float first_of(vf x)
{
    float values[VW];
    v_store(values, x);
    return values[0];
}

PEAK_LOOP(FN(peak_fp32), vf, FP32_SUMS, v_set(0), v_set(0.5f), v_set(1.0f), v_fma(x, y, acc), VW,
          first_of(acc))

/* ---- Memory ---------------------------------------------------------------------------------- */

typedef uint64_t line_part __attribute__((vector_size(LEVEL_BYTES), aligned(1), may_alias));

uint64_t FN(peak_read)(const uint8_t *data, size_t n_bytes)
{
    enum { AT_ONCE = 128 }; /* bytes of a stream */
    size_t n = n_bytes / PEAK_STREAMS;
    line_part a = {0}, b = {0};
    for (size_t i = 0; i < n; i += AT_ONCE)
        for (int s = 0; s < PEAK_STREAMS; s++) {
            const uint8_t *at = data + (size_t)s * n + i;
            __builtin_prefetch(at + PEAK_PREFETCH);
            __builtin_prefetch(at + PEAK_PREFETCH + 64);
            UNROLL
            for (int k = 0; k < AT_ONCE; k += 2 * LEVEL_BYTES) {
                a ^= *(const line_part *)(at + k);
                b ^= *(const line_part *)(at + k + LEVEL_BYTES);
            }
        }
    a ^= b;
    uint64_t all = 0;
    for (int k = 0; k < LEVEL_BYTES / 8; k++)
        all ^= a[k];
    return all;
}
