/*
 * The tensors of a Hugging Face directory under the names and in the layouts of GGUF: a list of
 * tensors, each with the recipe that makes it from those in the files.
 *
 *     copy        the same bytes, used where they lie
 *     add one     norms that are stored as the difference from 1
 *     permute     rows of Q and K, so that the pairs of the rotary embedding lie side by side
 *     stack       the matrices of all experts in one tensor
 *     stride      every n-th value of a row: gate and up alternate
 *     transpose   rows and columns of each expert swapped, and of the rows every n-th
 *     halve       half of the rows of each expert
 *     mxfp4       quants and scales, apart in the files, joined to blocks
 *     heads       of latent attention: rows of k, turned into columns, and rows of v of each head
 *     rows        rows in another order, or some of them
 *     values      each value changed by itself: A = -exp(A_log)
 *     scale       rows times factors that GGUF files have in the weights
 *
 * Both who runs a directory and who converts it use this list; the one leaves Q and K, and rows that
 * would be scaled, as they are.
 */
#ifndef LACE_HF_HF_NAMES_H
#define LACE_HF_HF_NAMES_H

#include "formats/weights.h"
#include "hf/config_hf.h"

typedef struct hf_tensors hf_tensors;

typedef enum hf_layout {
    HF_FOR_RUNNING, /* Q and K as they are, with config.rope.is_neox */
    HF_AS_GGUF,     /* everything as in a GGUF file */
} hf_layout;

/*
 * List the tensors of `files`, which must outlive the result. A tensor of the files that is in no
 * table is LACE_E_UNSUPPORTED; one whose shape does not fit its recipe is LACE_E_SHAPE. What is
 * missing is for the architecture to say.
 */
lace_status hf_tensors_create(const weights *files, const hf_config *config, hf_layout layout,
                              hf_tensors **out, lace_error *err);
void hf_tensors_free(hf_tensors *h);

/* Layers among them that predict further tokens: those behind the config's layers. */
int32_t hf_tensors_n_predicting(const hf_tensors *h);

/* In the order of layers. Their data is NULL unless the bytes can be used where they lie. */
size_t hf_tensors_count(const hf_tensors *h);
tensor *hf_tensors_at(hf_tensors *h, size_t i); /* valid as long as the list */

/*
 * Make values [first, first + n) of tensor i in its own type. Of types with blocks, both must be
 * whole blocks. Never fails: all was checked when the list was made.
 */
void hf_tensors_make(const hf_tensors *h, size_t i, uint64_t first, uint64_t n, void *out);

/*
 * The config of a model, from either format. Of a directory the tensors get the names of GGUF, by
 * a view in front of `files`.
 */
lace_status config_from_weights(weights *files, model_config *out, lace_error *err);

#endif
