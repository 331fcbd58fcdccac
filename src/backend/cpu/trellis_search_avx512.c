/* The search for trellis codes, AVX-512. */
#define TRELLIS_SEARCH trellis_search_avx512
#include "backend/cpu/trellis_search_tmpl.c"
