/*
 * The words in which an architecture says what weights it has. Each looks a tensor up by a
 * formatted name and checks its shape; the message of a failure names the tensor, what it has and
 * what was expected.
 */
#ifndef LACE_MODEL_BIND_H
#define LACE_MODEL_BIND_H

#include "model/model.h"

/* A matrix of n_rows x n_cols for products. */
__attribute__((format(printf, 6, 7))) lace_status bind_matrix(model *m, weight *out, int64_t n_rows,
                                                              int64_t n_cols, lace_error *err,
                                                              const char *name, ...);

/* Rows [begin, begin + n_rows) of a matrix that holds several, n_total rows in all. */
__attribute__((format(printf, 8, 9))) lace_status bind_rows(model *m, weight *out, int64_t n_total,
                                                            int64_t begin, int64_t n_rows,
                                                            int64_t n_cols, lace_error *err,
                                                            const char *name, ...);

/* One matrix for each expert, from a tensor of three dimensions. */
__attribute__((format(printf, 6, 7))) lace_status bind_experts(model *m, weight **out,
                                                               int64_t n_rows, int64_t n_cols,
                                                               lace_error *err, const char *name,
                                                               ...);

/* Of each expert's matrix, which holds several, rows [begin, begin + n_rows) of n_total. */
__attribute__((format(printf, 8, 9))) lace_status
bind_expert_rows(model *m, weight **out, int64_t n_total, int64_t begin, int64_t n_rows,
                 int64_t n_cols, lace_error *err, const char *name, ...);

/* One matrix for each head, from a tensor of three dimensions. */
__attribute__((format(printf, 7, 8))) lace_status bind_heads(model *m, weight **out,
                                                             int32_t n_heads, int64_t n_rows,
                                                             int64_t n_cols, lace_error *err,
                                                             const char *name, ...);

/*
 * The same from one matrix of `rank` columns that has for each head k_dim rows, which become the
 * columns of k, [rank, k_dim], and v_dim rows, which are v.
 */
__attribute__((format(printf, 9, 10))) lace_status
bind_split_heads(model *m, weight **k, weight **v, int32_t n_heads, int64_t k_dim, int64_t v_dim,
                 int64_t rank, lace_error *err, const char *name, ...);

/* Matrices [begin, begin + n) of n_total that lie one below the other, as one. */
__attribute__((format(printf, 9, 10))) lace_status
bind_stack(model *m, weight *out, int64_t n_total, int64_t begin, int64_t n, int64_t n_rows,
           int64_t n_cols, lace_error *err, const char *name, ...);

/* A vector of n floats, unpacked. */
__attribute__((format(printf, 5, 6))) lace_status
bind_vector(model *m, const float **out, int64_t n, lace_error *err, const char *name, ...);

/* The same; *out is NULL if the model has no such tensor. */
__attribute__((format(printf, 5, 6))) lace_status
bind_optional(model *m, const float **out, int64_t n, lace_error *err, const char *name, ...);

/* A table of n_rows x n_cols whose rows are looked up (plan_lookup). */
__attribute__((format(printf, 6, 7))) lace_status bind_table(model *m, weight *out, int64_t n_rows,
                                                             int64_t n_cols, lace_error *err,
                                                             const char *name, ...);

/* n ones, for a norm that multiplies by nothing. */
lace_status bind_ones(model *m, const float **out, int64_t n, lace_error *err);

/* The embedding table, used where it lies; and the output matrix, which may be the same tensor. */
lace_status bind_embedding(model *m, lace_error *err);

/* The embedding table alone, of models without logits. */
lace_status bind_input(model *m, lace_error *err);

__attribute__((format(printf, 2, 3))) bool bind_has(const model *m, const char *name, ...);

/* How many rows a matrix has that no key says the size of; 0: it is missing. */
__attribute__((format(printf, 2, 3))) int64_t bind_n_rows(const model *m, const char *name, ...);

#endif
