/*
 * An importance matrix: for each matrix of a model the sum of the squares of each input, over a
 * text. Where inputs are large, errors of the weights cost more.
 *
 * Files are llama.cpp's, in its GGUF form: two F32 tensors for each matrix,
 *
 *     NAME.in_sum2   [n_cols, n_experts]   sums of squares
 *     NAME.counts    [1, n_experts]        tokens that each expert has seen
 *
 * and "general.type" = "imatrix", imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size. Its
 * older form, imatrix.dat, is read too (imatrix_dat.c).
 */
#ifndef LACE_COMPRESS_IMATRIX_H
#define LACE_COMPRESS_IMATRIX_H

#include "base/bytes.h"
#include "base/file_write.h"
#include "base/status.h"

typedef struct imatrix_entry {
    text name; /* of the matrix */
    int64_t n_cols, n_experts;
    float *sums;   /* [n_experts, n_cols] */
    float *counts; /* [n_experts] */
    bool is_flat;  /* of an older file: how many experts share the columns is not said */
} imatrix_entry;

typedef struct imatrix imatrix;

lace_status imatrix_create(imatrix **out, lace_error *err);
void imatrix_free(imatrix *m);

size_t imatrix_count(const imatrix *m);
imatrix_entry *imatrix_at(const imatrix *m, size_t i);
imatrix_entry *imatrix_find(const imatrix *m, text name); /* NULL if absent */

/*
 * True if an entry is of a matrix of n_experts with n_cols each. A flat one becomes that, if it has
 * as many values.
 */
bool imatrix_fits(imatrix_entry *e, int64_t n_cols, int64_t n_experts);

/* An entry of zeros; LACE_E_DUP if there is one of that name. *out is valid as long as m. */
lace_status imatrix_add(imatrix *m, text name, int64_t n_cols, int64_t n_experts,
                        imatrix_entry **out, lace_error *err);

/* The same for experts of whom the number is not known: columns and counts of them all. */
lace_status imatrix_add_flat(imatrix *m, text name, int64_t n_values, imatrix_entry **out,
                             lace_error *err);

/*
 * The mean squares of the inputs of one expert, [n_cols], into out. Experts that saw no token get
 * ones.
 */
void imatrix_means(const imatrix_entry *e, int64_t expert, float *out);

/* From the bytes of a file of either form, which may come from anywhere. */
lace_status imatrix_parse(span bytes, imatrix **out, lace_error *err);

/* The older form alone, into an empty matrix. */
lace_status imatrix_parse_dat(span bytes, imatrix *m, lace_error *err);

/* LACE_E_NUMERIC, with the entry's name, for a value that is no number of 0 or more, or a mean that
 * is none. */
lace_status imatrix_check_entry(const imatrix_entry *e, lace_error *err);
lace_status imatrix_read(const char *path, imatrix **out, lace_error *err);

/*
 * Atomically, by rules (NULL: none). `dataset` names the text; its windows had n_context tokens.
 */
lace_status imatrix_write(const imatrix *m, const char *path, const file_rules *rules,
                          const char *dataset, int64_t n_windows, int64_t n_context,
                          lace_error *err);

#endif
