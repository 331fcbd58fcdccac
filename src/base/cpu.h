/*
 * What this CPU can do, as levels that the kernel table climbs. Each level includes those below it.
 * The environment variable LACE_CPU (a level's name) limits the level, for tests and comparisons.
 */
#ifndef LACE_BASE_CPU_H
#define LACE_BASE_CPU_H

#include <stdbool.h>

typedef enum cpu_level {
    CPU_PLAIN,       /* "plain": portable C only */
    CPU_AVX2,        /* "avx2": AVX2, FMA, F16C */
    CPU_AVX2_VNNI,   /* "avx2vnni": and AVX-VNNI (256-bit vpdpbusd without AVX-512) */
    CPU_AVX512,      /* "avx512": AVX-512 F, BW, DQ, VL */
    CPU_AVX512_VNNI, /* "avx512vnni": and VNNI, as Cascade Lake has */
    CPU_AVX512_VBMI, /* "avx512vbmi": and VBMI, as Ice Lake and Zen 4 have */
    CPU_NEON,        /* "neon": aarch64 Advanced SIMD */
    CPU_NEON_DOT,    /* "dotprod": and sdot */
    CPU_NEON_I8MM,   /* "i8mm": and smmla */
    CPU_N_LEVELS
} cpu_level;

cpu_level cpu_level_detect(void);    /* the highest one, limited by LACE_CPU */
bool cpu_limit_is_known(void);       /* LACE_CPU is not set, or a level's name */
bool cpu_has_level(cpu_level level); /* whether it can run that level's code; ignores LACE_CPU */
bool cpu_has_vbmi2(void);            /* vpexpandb, which not every AVX-512 VNNI has */
const char *cpu_level_name(cpu_level level);
int cpu_count(void); /* cores that this process may use, at least 1 */

#endif
