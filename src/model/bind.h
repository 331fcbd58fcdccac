/*
 * The words in which an architecture says what weights it has. Each looks a tensor up by a formatted
 * name and checks its shape; the message of a failure names the tensor, what it has and what was
 * expected.
 */
#ifndef LACE_MODEL_BIND_H
#define LACE_MODEL_BIND_H

#include "model/model.h"

/* A matrix of n_rows x n_cols for products. */
__attribute__((format(printf, 6, 7)))
lace_status bind_matrix(model *m, weight *out, int64_t n_rows, int64_t n_cols, lace_error *err,
                        const char *name, ...);

/* A vector of n floats, unpacked. */
__attribute__((format(printf, 5, 6)))
lace_status bind_vector(model *m, const float **out, int64_t n, lace_error *err, const char *name,
                        ...);

/* The same; *out is NULL if the model has no such tensor. */
__attribute__((format(printf, 5, 6)))
lace_status bind_optional(model *m, const float **out, int64_t n, lace_error *err, const char *name,
                          ...);

/* The embedding table, used where it lies; and the output matrix, which may be the same tensor. */
lace_status bind_embedding(model *m, lace_error *err);

bool bind_has(const model *m, const char *name);

#endif
