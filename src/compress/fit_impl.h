/* What the files of fitting share. */
#ifndef LACE_COMPRESS_FIT_IMPL_H
#define LACE_COMPRESS_FIT_IMPL_H

#include "compress/fit.h"

/* What the rules of mixes look at. */
mix_context fit_context(const model *m);

/* Microseconds of all matrices of a tensor in a type, measured once for each shape. */
lace_status fit_time(fit *f, const tensor *t, dtype type, double *out, lace_error *err);

/* The type of a matrix that is not chosen for: experts. */
dtype fit_rest_type(const fit *f, const tensor *t);

/* Report progress; LACE_E_CANCELLED when it is to stop. */
lace_status fit_advance(const fit *f, const char *what, double done, lace_error *err);

#endif
