/*
 * Walking a model over a text, with a look at what goes into each of its matrices.
 *
 * The text is cut into windows of n_context tokens, each beginning with BOS where the model wants
 * one, as `lace perplexity` cuts it. A window is one batch. Its steps can be run in parts; before a
 * matrix step, what the matrix is about to be multiplied with lies in memory. What is alive between
 * two steps can be saved and restored, so that many windows can be taken through a model together,
 * a few steps at a time, while its weights change.
 *
 *     walk_begin(w, window);
 *     for (int32_t at = 0, i; (i = walk_next_matrix(w, at + 1)) < walk_end(w); at = i) {
 *         walk_run(w, at, i);
 *         walk_matrices_view(w, i, &x);
 *         ... walk_input_row(&x, row, values) ...
 *     }
 */
#ifndef LACE_COMPRESS_WALK_H
#define LACE_COMPRESS_WALK_H

#include "runner/runner.h"
#include "tokenizer/tokenizer.h"

typedef struct walk {
    model *m;
    tokenizer *tokenizer;
    runner *runner;
    pool *workers; /* the runner's */
    plan *p;       /* the steps that its program runs */
    int32_t n_context;
    bool uses_int8;
    lace_token bos;   /* in place of the first token of each window; -1: none */
    lace_item *items; /* [n_context] */
    bool *is_saved;   /* [n_values] scratch of walk_save */
} walk;

typedef struct walk_options {
    int32_t n_context; /* tokens of a window; default 512 */
    int32_t n_threads; /* 0 (default): one per core */
    bool use_int8;     /* as `lace run` computes: int8 activations for types that are quantized,
                          fixed point for f16 and bf16; faster; default false */
    bool
        uses_sparsity; /* every input has a threshold (model/sparsity.h), 0 at first; default false */
    lace_progress_fn on_progress; /* while weights are packed; may be NULL */
    void *progress_user;
} walk_options;

walk_options walk_options_default(void);

/* Open the model of `files`, which it takes, also on failure. It must have a vocabulary. */
lace_status walk_open(weights *files, const walk_options *options, walk **out, lace_error *err);
void walk_close(walk *w);

/* The tokens of a text, whole windows of it. LACE_E_ARG if there is not one. */
lace_status walk_tokenize(const walk *w, const char *text, size_t n_bytes, token_list *out,
                          lace_error *err);

/* Start a window, [n_context] tokens. */
lace_status walk_begin(walk *w, const lace_token *window, lace_error *err);

/* Run the steps [begin, end). */
void walk_run(walk *w, int32_t begin, int32_t end);

/* Logits behind token `row` of the window, when all steps have run. */
const float *walk_logits(const walk *w, int32_t row);

/* Whether it computes with int8 activations. */
bool walk_uses_int8(const walk *w);

int32_t walk_end(const walk *w);                       /* number of steps */
int32_t walk_next_matrix(const walk *w, int32_t from); /* or walk_end */

/* The matrices of a step, and the rows that they are multiplied with. */
enum { WALK_MAX_MATRICES = 3 };

typedef struct walk_matrices {
    const step *s;
    int n;
    weight *weights[WALK_MAX_MATRICES];             /* of experts: the first of them */
    const model_matrix *sources[WALK_MAX_MATRICES]; /* which tensor they are rows of */
    int32_t n_experts;                              /* 0: not a mixture */
    int64_t n_rows;                                 /* of inputs */
    int64_t n_parts; /* of each, which are inputs by themselves: 1, or heads */
    int64_t width;
} walk_matrices;

void walk_matrices_view(const walk *w, int32_t step_index, walk_matrices *out);

/*
 * Rows [n_rows, n_cols] as a weight that the walk can multiply with in place of one of type `like`,
 * which is F32, F16 or BF16: the plan's scratch memory is enough for it. LACE_E_NOMEM.
 */
lace_status walk_weight_make(walk *w, const float *rows, int64_t n_rows, int64_t n_cols, dtype like,
                             weight *out, lace_error *err);
void walk_weight_free(walk *w, weight *x); /* {0} is fine, and then no walk */

/* Input `row` of the n_rows * n_parts as floats, [width]. */
void walk_input_row(const walk_matrices *x, int64_t row, float *out);

/* Which experts of a mixture read that row, into out[n_used]. Returns how many. */
int walk_row_experts(const walk_matrices *x, int64_t row, int32_t *out);

/*
 * What is alive before a step, for one window: values, and keys and values that are still attended
 * to. Recurrent layers before the step must be done with; those behind it start anew, so a window is
 * begun before it is restored.
 */
uint64_t walk_state_bytes(const walk *w, int32_t step_index);
void walk_save(const walk *w, int32_t step_index, uint8_t *out);
void walk_restore(walk *w, int32_t step_index, const uint8_t *state);

#endif
