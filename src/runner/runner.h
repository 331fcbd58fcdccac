/*
 * A runner: a model, what its sequences remember, and its plan as a program on the model's device.
 * Sessions (engine/session.c) and walks over texts (compress/walk.c) stand on it.
 *
 * It is made in two steps, so that what it costs is known before anything is taken: runner_outline
 * lays everything out, runner_prepare takes the memory and loads the weights. Running allocates
 * nothing: all arrays have their largest size from the start. Used by one thread at a time.
 */
#ifndef LACE_RUNNER_RUNNER_H
#define LACE_RUNNER_RUNNER_H

#include "model/model.h"
#include "state/states.h"

typedef struct runner_options {
    int32_t n_sequences, n_context;
    int32_t n_batch, n_outputs; /* tokens and results of a batch, at most */
    int32_t n_threads;
    dtype kv_type, v_type;
    int32_t kv_tokens;    /* that all sequences hold together; 0: all may be full */
    uint64_t kv_bytes;    /* of all pages; 0: enough for every sequence to be full */
    bool stops_at_hidden; /* results are what the output matrix would be applied to */
    bool wants_scores;    /* with stops_at_hidden: what the model's head makes of it */
    bool gives_hidden;    /* of all tokens: for a predictor (predictor.h) */
    int64_t row_width;    /* of images' rows that sequences may have (model/tower.h); 0: none */
    int32_t n_deep;       /* how many more embeddings a row has behind the first */
    bool sees_both_ways;  /* rows of an image see each other */
} runner_options;

/* Items with tokens below this are rows of images: which ones, their place in the sequence says. */
enum { IMAGE_TOKENS = -1 };

/* An image in a sequence. */
typedef struct image_span {
    int32_t start, n;       /* positions that it takes */
    int32_t n_rows, n_cols; /* of its grid: n places */
    const float *rows;      /* [n, row_width]; NULL: they have been computed */
} image_span;

typedef struct image_list {
    const image_span *spans; /* in their order */
    int32_t n;
} image_list;

/* The image that a position belongs to, or NULL. */
const image_span *image_at(const image_list *list, int32_t position);

typedef struct runner {
    model *m;
    runner_options options;
    queue *queue;
    states *states;
    program *program;
    pool *workers;
    bool has_run;          /* a batch has been computed */
    struct leader *leader; /* of rank 0, if there are several (leader.h); else NULL */

    batch b; /* the one being computed; its arrays are these, of n_batch: */
    int32_t *tokens, *positions, *outputs, *sequences, *slots;
    int32_t *seen, *segments;     /* of encoders; seen also of images */
    int32_t *axes;                /* [3, n_batch] where images are */
    float *given;                 /* [n_batch, row_width] rows of images */
    image_list *images;           /* [n_sequences] the callers'; none at first */
    const int32_t *item_segments; /* [items] of the next batch, the caller's; NULL: all 0 */
    const int32_t **pages[STATES_MAX_GROUPS]; /* [group][token] */
    int32_t *new_lengths;                     /* [n_sequences] once it is computed */
    int32_t n_adapters;                       /* the model's, when it was outlined */
    float *adapter_scales;                    /* [n_sequences, n_adapters] see batch; 0 at first */
} runner;

/* The model must outlive it. */
lace_status runner_outline(model *m, const runner_options *o, runner **out, lace_error *err);

/* Takes the memory of a runner that was outlined, and loads the model's weights if nobody has. */
lace_status runner_prepare(runner *r, lace_progress_fn on_progress, void *user, lace_error *err);
void runner_free(runner *r); /* NULL is fine */

/* The same on this rank alone; runner_prepare lets others do it too, if they are there. */
lace_status runner_prepare_alone(runner *r, lace_progress_fn on_progress, void *user,
                                 lace_error *err);

/* For other programs on the same states: made of a plan, and told where everything is. */
typedef void runner_build(const model *m, plan *p, const layer_memory *memory);
lace_status runner_compile(const runner *r, const plan_limits *limits, runner_build *build,
                           program **out, lace_error *err);
lace_status runner_prepare_program(const runner *r, program *p, lace_error *err);

/* Memory that it will take on the model's device, beside the weights and the states. */
uint64_t runner_bytes(const runner *r);

/* Values in a row of results. */
int64_t runner_width(const runner *r);

/*
 * Put up to n_batch items behind what their sequences hold. Returns how many. Of an encoder, all
 * tokens of a sequence are in one batch: it holds none before.
 */
size_t runner_fill(runner *r, const lace_item *items, size_t n_items);

/* How much of each adapter a sequence wants, [n_adapters]: to be read, and changed while the sequence
 * is empty. */
float *runner_adapter_scales(const runner *r, int32_t sequence);

/* What a device needs to know to work ahead from a token of text at this position on. */
ahead_start runner_ahead_start(const runner *r, int32_t token, int32_t position, int32_t sequence);

/* Make room for the batch. LACE_E_CONTEXT: there is none; some sequences may have pages already,
 * which states_set_length gives back. */
lace_status runner_reserve(runner *r, lace_error *err);

/* Compute the batch; its sequences are longer then. rules and is_traced: see program_run. */
lace_status runner_run(runner *r, const choice_rule *rules, bool is_traced, lace_error *err);

/* Queue the batch (program_submit); its sequences are longer at once. */
lace_status runner_submit(runner *r, const choice_rule *rules, lace_error *err);

/* Wait for the oldest batch that was queued (program_collect). */
lace_status runner_collect(runner *r, lace_error *err);

#endif
