/*
 * The plan of a model as it is bound, for the smallest batches: which step uses which matrix says
 * where the matrix belongs, before anything is loaded.
 */
#ifndef LACE_MODEL_OUTLINE_H
#define LACE_MODEL_OUTLINE_H

#include "model/model.h"

lace_status outline_create(const model *m, plan **out, lace_error *err);

/* The step that multiplies with a matrix, or looks rows of it up; -1: none. */
int32_t outline_find_step(const plan *p, const weight *w);

/* The type of a matrix on a device, which keeps all of a stack as one: its kernels go from one to the
 * next. */
dtype matrix_kept_as(device *d, const model_matrix *matrix);

#endif
