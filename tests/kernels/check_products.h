/* Products with matrices and experts on a device, for checks of any backend. */
#ifndef LACE_TESTS_CHECK_PRODUCTS_H
#define LACE_TESTS_CHECK_PRODUCTS_H

#include "checkkernels.h"

/* Who computes: fn runs a whole step, whose weights hold a file's blocks, and brings its results. */
typedef struct product_check {
    const kernel_table *ref;
    kernel_fn fn;
    double max_nmse; /* of plain products with usual activations */
    bool repeats;    /* experts: a second run must give the same bits */
} product_check;

/* One shape: a matrix operation, n tokens, matrices of n_rows x n_cols. */
void check_product(const product_check *c, op o, dtype type, int n, int n_rows, int n_cols,
                   check_fill kind);

/* MOE_GLU or MOE_DOWN; has_gate, weighs: as in moe_params. */
void check_expert_product(const product_check *c, bool is_down, dtype type, int n, int n_experts,
                          int n_used, bool has_gate, bool weighs);

/* n matrices of random blocks, one behind the other. */
weight check_random_weight(const kernel_table *ref, dtype type, int64_t n_rows, int64_t n_cols,
                           int n);

/* An operand as plans have them: rows are padded to 64 bytes. */
operand check_strided(int64_t width, int64_t n);

#endif
