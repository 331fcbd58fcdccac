/* Loops over plain numbers, AVX2. */
#define DENSE_OPS   dense_ops_avx2
#define DENSE_BYTES 32
#define DENSE_ROWS  4
#include "backend/cpu/dense_tmpl.c"
