/*
 * Types for a file of a given size: each matrix is quantized alone, the KL divergence of the
 * model's predictions is measured, and bytes go where they lower the sum most (type_choice.h).
 */
#ifndef LACE_COMPRESS_SIZE_TYPES_H
#define LACE_COMPRESS_SIZE_TYPES_H

#include "compress/quantize.h"
#include "compress/walk.h"

enum { SIZE_TYPES_WINDOWS = 4 }; /* of the text, for each measurement */

/*
 * Set the types of the tensors of `list` so that the file has at most `size` bytes: trellis types
 * if the main type of `m` is one, otherwise S2 to S6. Rows that are not whole blocks of those keep
 * their type, and tensors that are not in the list get those of `m`. `report` is told how far it is
 * and may stop it. The walk is as before afterwards. LACE_E_ARG if no types are small enough.
 */
lace_status size_types_choose(walk *w, const lace_token *tokens, size_t n_tokens, const mix *m,
                              uint64_t size, quantize_made *list,
                              bool (*report)(void *user, double done), void *user, lace_error *err);

#endif
