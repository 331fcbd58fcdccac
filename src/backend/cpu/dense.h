/* The loops of backend/host_loops.h for each CPU level (dense_tmpl.c). */
#ifndef LACE_BACKEND_CPU_DENSE_H
#define LACE_BACKEND_CPU_DENSE_H

#include "backend/host_loops.h"

extern const dense_ops dense_ops_plain;
#if defined(__x86_64__)
extern const dense_ops dense_ops_avx2, dense_ops_avx512;
#endif

#endif
