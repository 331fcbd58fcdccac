/*
 * Writing the trellis types T2 to T5 (tensor/trellis.h). They have no points that single values
 * could be rounded to: a block's stream is searched for as a whole (backend/host_trellis.h).
 */
#ifndef LACE_COMPRESS_TRELLIS_H
#define LACE_COMPRESS_TRELLIS_H

#include "compress/hessian.h"
#include "tensor/dtype.h"

/* The bits of a value; 0 for all other types. */
int trellis_bits_of(dtype type);

/* Whole blocks of values, rotated here, each for itself. LACE_E_NOMEM. */
lace_status trellis_encode(dtype type, const float *x, int64_t n_values, uint8_t *blocks,
                           lace_error *err);

/* The same with feedback, as gptq_quantize. The factor is rotated. */
lace_status trellis_quantize(dtype type, const hessian_factor *f, float *rows, int64_t n_rows,
                             uint8_t *blocks, pool *workers, lace_error *err);

#endif
