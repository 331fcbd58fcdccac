/* Loops over plain numbers, AVX-512. */
#define DENSE_OPS   dense_ops_avx512
#define DENSE_BYTES 64
#define DENSE_ROWS  8
#include "backend/cpu/dense_tmpl.c"
