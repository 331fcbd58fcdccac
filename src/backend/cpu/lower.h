/*
 * Lowering for the CPU: a plan of plain operations on floats becomes the list of steps that its
 * workers walk. Inputs of matrices are brought into the form that their kernels read (int8, rotated,
 * without what activation sparsity leaves out), steps are fused, and products of matrices in columns
 * get the step that joins their parts.
 */
#ifndef LACE_BACKEND_CPU_LOWER_H
#define LACE_BACKEND_CPU_LOWER_H

#include "backend/cpu/kernels.h"
#include "plan/plan.h"

/* Changes the plan, which is a copy; places its values. On failure plan->status says why. */
void cpu_lower(plan *p, const kernel_table *table);

/* Whether a step multiplies with matrices in columns (columns.h), or joins what such a step left. */
bool step_uses_sums(const step *s);

#endif
