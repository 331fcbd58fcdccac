/* What the files of fitting share. */
#ifndef LACE_COMPRESS_FIT_IMPL_H
#define LACE_COMPRESS_FIT_IMPL_H

#include "compress/fit.h"

/* Microseconds of all matrices of a tensor in a type, measured once for each shape. */
lace_status fit_time(fit *f, const tensor *t, dtype type, double *out, lace_error *err);

/* The mix of matrices that are not chosen for: experts. */
const mix *fit_rest_mix(const fit *f);

/* The type of such a matrix. */
dtype fit_rest_type(const fit *f, const tensor *t);

/* Report progress; LACE_E_CANCELLED when it is to stop. */
lace_status fit_advance(const fit *f, const char *what, double done, lace_error *err);

#endif
