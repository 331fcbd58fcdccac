/* Functions that are always inlined, and loops that are always unrolled, by either compiler. */
#ifndef LACE_BACKEND_CPU_UNROLL_H
#define LACE_BACKEND_CPU_UNROLL_H

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
