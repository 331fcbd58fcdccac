/* The search for trellis codes, AVX2. */
#define TRELLIS_SEARCH trellis_search_avx2
#include "backend/cpu/trellis_search_tmpl.c"
