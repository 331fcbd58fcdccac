/* The search of backend/host_trellis.h for each CPU level (trellis_search_tmpl.c). */
#ifndef LACE_BACKEND_CPU_TRELLIS_SEARCH_H
#define LACE_BACKEND_CPU_TRELLIS_SEARCH_H

#include "backend/host_trellis.h"

typedef void trellis_search_fn(const trellis_task *t, trellis_scratch *s,
                               uint8_t codes[TRELLIS_VALUES], int8_t levels[TRELLIS_VALUES]);
trellis_search_fn trellis_search_plain;
#if defined(__x86_64__)
trellis_search_fn trellis_search_avx2, trellis_search_avx512;
#endif

#endif
