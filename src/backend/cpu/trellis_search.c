/* The search for trellis codes: which of those in trellis_search_tmpl.c this CPU runs. */
#include "backend/cpu/trellis_paths.h"

#include "base/cpu.h"

uint64_t trellis_scratch_bytes(void)
{
    return sizeof(trellis_scratch);
}

void trellis_search(const trellis_task *t, trellis_scratch *s, uint8_t codes[TRELLIS_VALUES],
                    int8_t levels[TRELLIS_VALUES])
{
#if defined(__x86_64__)
    cpu_level level = cpu_level_detect();
    trellis_search_fn *search = level >= CPU_AVX512 ? trellis_search_avx512
                                : level >= CPU_AVX2 ? trellis_search_avx2
                                                    : trellis_search_plain;
    search(t, s, codes, levels);
#else
    trellis_search_plain(t, s, codes, levels);
#endif
}
