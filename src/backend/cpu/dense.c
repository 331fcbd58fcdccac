/* Loops over plain numbers: which of those in dense_tmpl.c this CPU runs. */
#include "backend/cpu/dense.h"

#include <stdatomic.h>

#include "base/cpu.h"

static const dense_ops *choose_ops(void)
{
#if defined(__x86_64__)
    cpu_level level = cpu_level_detect();
    return level >= CPU_AVX512 ? &dense_ops_avx512
           : level >= CPU_AVX2 ? &dense_ops_avx2
                               : &dense_ops_plain;
#else
    return &dense_ops_plain;
#endif
}

const dense_ops *dense_ops_detect(void)
{
    static const dense_ops *_Atomic chosen; /* the same whoever is first */
    const dense_ops *ops = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!ops) {
        ops = choose_ops();
        atomic_store_explicit(&chosen, ops, memory_order_relaxed);
    }
    return ops;
}
