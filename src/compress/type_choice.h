/*
 * Choosing a type for each tensor within a budget, for `quantize --size` and `fit`.
 *
 * Every tensor of a list may have one of several types. A choice has a price in bytes and in
 * microseconds, and a loss: the divergence from the original that it is predicted to cause. The
 * types are bought where a byte, or a microsecond, lowers the sum of losses most (allocate.h).
 */
#ifndef LACE_COMPRESS_TYPE_CHOICE_H
#define LACE_COMPRESS_TYPE_CHOICE_H

#include "compress/allocate.h"
#include "compress/mix.h"
#include "compress/quantize.h"
#include "model/model.h"

typedef struct type_choice {
    dtype type;
    uint64_t n_bytes;
    double us;  /* of one token */
    double kld; /* predicted, of this tensor alone */
} type_choice;

/* A tensor and the types that it may have. */
typedef struct tensor_choices {
    const tensor *t;
    int n;
    type_choice choices[ALLOCATE_CHOICES];
    int chosen;
} tensor_choices;

typedef struct choice_list {
    tensor_choices *tensors; /* [n], each tensor once */
    size_t n;
    uint64_t rest_bytes;  /* of the file: all but the tensors above */
    double rest_us;       /* of matrices that are not among them */
    allocate_item *items; /* [n] scratch */
} choice_list;

/* An empty list with room for n_most tensors. LACE_E_NOMEM: nothing is to be freed. */
lace_status choices_init(choice_list *l, size_t n_most, lace_error *err);
void choices_deinit(choice_list *l); /* {0} is fine */

tensor_choices *choices_find(const choice_list *l, const tensor *t); /* NULL: not in the list */

/* Adds a type to those that a tensor may have; its loss and its microseconds are 0. */
type_choice *choices_add_type(tensor_choices *t, dtype type);

/* The type that is chosen now. */
const type_choice *choices_chosen(const tensor_choices *t);

/* How many values each type is given now. */
void choices_count_values(const choice_list *l, uint64_t n_values[DTYPE_COUNT]);

/* What the rules of mixes look at, for a model that was calibrated. */
mix_context choices_context(const model *m);

/*
 * Sets rest_bytes: what the new file has besides the list. That is metadata, small tensors as F32,
 * and matrices that are not in the list, in the types of `rest`.
 */
void choices_count_rest(choice_list *l, const model *m, const mix *rest);

/* Where a whole model is. */
typedef struct choice_point {
    uint64_t n_bytes; /* of the file */
    double us;        /* of one token in matrices */
    double kld;       /* the sum of the tensors' */
} choice_point;

/* What is chosen now, as predicted. */
choice_point choices_now(const choice_list *l);

/* What is bought with: bytes of the file, or microseconds of a token in matrices. */
typedef enum choice_unit { CHOICE_BYTES, CHOICE_TIME } choice_unit;

/* The price in whole numbers: bytes, or nanoseconds. */
uint64_t choice_price(const type_choice *c, choice_unit unit);

/* The least and the most that the choices can take. */
void choices_range(const choice_list *l, choice_unit unit, double *least, double *most);

/* Choose the types with the least divergence within a budget; false if the least does not fit. */
bool choices_allocate(choice_list *l, choice_unit unit, double budget);

/* Choose the fewest bytes with a predicted divergence of at most `kld`; false if none is enough. */
bool choices_allocate_loss(choice_list *l, double kld);

#endif
