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

/* Whether a step stands in front of all layers. */
bool outline_is_in_front(const plan *p, int32_t at);

/*
 * The device of what step `at` uses. Tables stay on the host, matrices in front of the layers are with
 * the first one; what no step uses (-1) is of the layer that predicts further tokens, which stands with
 * the output.
 */
int32_t outline_device_of(const plan *p, int32_t at, bool is_table, const placement *where);

/* The type of a matrix on a device, which keeps all of a stack as one: its kernels go from one to the
 * next. */
dtype matrix_kept_as(device *d, const model_matrix *matrix);

#endif
