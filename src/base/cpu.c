/* What this CPU can do. */
#define _GNU_SOURCE
#include "base/cpu.h"

#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/system.h"

static const char *const names[CPU_N_LEVELS] = {
    [CPU_PLAIN] = "plain",
    [CPU_AVX2] = "avx2",
    [CPU_AVX2_VNNI] = "avx2vnni",
    [CPU_AVX512] = "avx512",
    [CPU_AVX512_VNNI] = "avx512vnni",
    [CPU_AVX512_VBMI] = "avx512vbmi",
    [CPU_NEON] = "neon",
    [CPU_NEON_DOT] = "dotprod",
    [CPU_NEON_I8MM] = "i8mm",
};

const char *cpu_level_name(cpu_level level)
{
    return names[level];
}

#if defined(__x86_64__)
/* Leaf 7, subleaf 1, EAX bit 4. Processors with AVX-512 may lack it. */
static bool has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

static cpu_level detect(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return CPU_PLAIN;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return CPU_PLAIN;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return !__builtin_cpu_supports("avx512vnni")   ? CPU_AVX512
               : !__builtin_cpu_supports("avx512vbmi") ? CPU_AVX512_VNNI
                                                       : CPU_AVX512_VBMI;
    return has_avx_vnni() ? CPU_AVX2_VNNI : CPU_AVX2;
}

bool cpu_has_vbmi2(void)
{
    return __builtin_cpu_supports("avx512vbmi2");
}

bool cpu_has_level(cpu_level level)
{
    if (level == CPU_AVX2_VNNI && !has_avx_vnni())
        return false;
    return level <= detect() && level < CPU_NEON;
}
#elif defined(__aarch64__)
static cpu_level detect(void)
{
    /* Bits of the kernel's HWCAP words (asm/hwcap.h), spelled out for old headers. */
    if (getauxval(AT_HWCAP2) & 1ul << 13)
        return CPU_NEON_I8MM;
    if (getauxval(AT_HWCAP) & 1ul << 20)
        return CPU_NEON_DOT;
    return CPU_NEON;
}

bool cpu_has_vbmi2(void)
{
    return false;
}

bool cpu_has_level(cpu_level level)
{
    return level == CPU_PLAIN || (level >= CPU_NEON && level <= detect());
}
#else
static cpu_level detect(void)
{
    return CPU_PLAIN;
}

bool cpu_has_vbmi2(void)
{
    return false;
}

bool cpu_has_level(cpu_level level)
{
    return level == CPU_PLAIN;
}
#endif

cpu_level cpu_level_detect(void)
{
    cpu_level level = detect();
    const char *limit = getenv("LACE_CPU");
    for (int i = 0; limit && i < CPU_N_LEVELS; i++)
        if (strcmp(limit, names[i]) == 0 && i < (int)level)
            level = (cpu_level)i;
    return level;
}

bool cpu_limit_is_known(void)
{
    const char *limit = getenv("LACE_CPU");
    for (int i = 0; limit && i < CPU_N_LEVELS; i++)
        if (strcmp(limit, names[i]) == 0)
            return true;
    return !limit || !*limit;
}

int cpu_count(void)
{
    return system_cpu_count();
}
