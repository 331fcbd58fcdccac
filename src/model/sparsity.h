/*
 * Activation sparsity of a model: a threshold for each input of its matrices, below which an
 * activation is taken as 0. A layer has four inputs: what q, k and v read, what the attention's
 * output matrix reads, what gate and up read, and what down reads. Routers, experts and the output
 * matrix of the model are left alone.
 *
 * Thresholds come from a text (docs/formats.md), which `lace sparsify` writes:
 *
 *     {"lace.activation_sparsity": 1, "architecture": "llama", "fingerprint": "89abcdef01234567",
 *      "layers": [{"qkv": 0.31, "o": 0.012, "gate_up": 0.27, "down": 0.008}, ...]}
 *
 * The fingerprint is one of the last norm's values, which quantizing a model does not change: the
 * same thresholds serve a model in all its types, and no other.
 */
#ifndef LACE_MODEL_SPARSITY_H
#define LACE_MODEL_SPARSITY_H

#include "base/buf.h"
#include "model/model.h"

/* What matrices read, in the order in which a layer computes it. */
typedef enum sparsity_input {
    SPARSITY_QKV,
    SPARSITY_O,
    SPARSITY_GATE_UP,
    SPARSITY_DOWN,
    SPARSITY_INPUTS
} sparsity_input;

enum { SPARSITY_MAX_WEIGHTS = 3 };

/* The matrices that read an input; returns how many there are: 0 if the layer has none. */
int sparsity_weights(model *m, int32_t layer, sparsity_input kind,
                     weight *out[SPARSITY_MAX_WEIGHTS]);

/* The sparsity_rule of an input, after model_use_sparsity. */
sparsity_rule *sparsity_of(const model *m, int32_t layer, sparsity_input kind);

/*
 * Give every input a sparsity_rule, with a threshold of 0. Before any plan is built. in_batches: for all
 * tokens, to measure what it costs; otherwise for single tokens only. LACE_E_UNSUPPORTED for a
 * model on a device that has no kernels for it.
 */
lace_status model_use_sparsity(model *m, bool in_batches, lace_error *err);

/*
 * Set thresholds from a text; inputs that it does not name are not dropped. LACE_E_META if the text
 * is another model's, or says what cannot be.
 */
lace_status sparsity_read(model *m, span json, lace_error *err);

/*
 * Lay all matrices whose inputs are dropped in columns as well (backend/cpu/columns.h), so that single
 * tokens skip what their thresholds leave out. Before loading. LACE_E_UNSUPPORTED names a tensor of
 * a type without such a kernel.
 */
lace_status model_use_columns(model *m, lace_error *err);

/* What a text of thresholds says beside them. Shares and divergences below 0 are left out. */
typedef struct sparsity_note {
    double sparsity; /* share of the weights in question that are not read */
    double kld;      /* and what that costs */
} sparsity_note;

/* The model's thresholds as such a text. */
lace_status sparsity_write(const model *m, const sparsity_note *note, buf *out, lace_error *err);

#endif
