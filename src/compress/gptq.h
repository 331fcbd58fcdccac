/*
 * Quantizing a matrix with feedback (GPTQ, Frantar et al. 2022): columns are rounded one after the
 * other, and the error of each is made good, as far as the inputs are correlated, by the columns
 * that follow. Then single values are changed where that lowers the error of the whole row
 * (coordinate descent), with the scales as they are.
 */
#ifndef LACE_COMPRESS_GPTQ_H
#define LACE_COMPRESS_GPTQ_H

#include "compress/codec.h"
#include "compress/hessian.h"

/*
 * rows: [n_rows, n] weights, n whole blocks; they are overwritten. The factor is rotated if the
 * codec is. blocks: the rows in the codec's type. LACE_E_NOMEM.
 */
lace_status gptq_quantize(const codec *c, hessian_factor *f, float *rows, int64_t n_rows,
                          uint8_t *blocks, pool *workers, lace_error *err);

#endif
