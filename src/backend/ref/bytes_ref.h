/* int8 products as a GPU computes those of prompts (bytes_ref.c). */
#ifndef LACE_BACKEND_REF_BYTES_REF_H
#define LACE_BACKEND_REF_BYTES_REF_H

#include "backend/ref/ref.h"

/* Of fewer rows products are exact, as single tokens are. GPUs ask for more before it pays; here a
 * short text shall show what it costs. */
enum { BYTES_REF_TOKENS = 2 };

bool bytes_ref_has(dtype type);
bool bytes_ref_is_rotated(dtype type);

extern const matmul_impl matmul_bytes_ref;

#endif
