/*
 * Made-up architectures: a few small layers of attention and convolution, written in the words of
 * plan/build.h, on a device and with states of their own. For what no model in the tree does yet.
 */
#ifndef LACE_TESTS_MADE_UP_H
#define LACE_TESTS_MADE_UP_H

#include "backend/backend.h"
#include "plan/build.h"
#include "state/states.h"

enum {
    MADE_WIDTH = 64,
    MADE_VOCAB = 40,
    MADE_K_DIM = 32,
    MADE_CHANNELS = 192, /* of convolutions */
    MADE_TAPS = 4,
    MADE_LAYERS = 3, /* at most, as all below */
    MADE_TOKENS = 48,
    MADE_CONTEXT = 64,
    MADE_SEQUENCES = 3
};
enum { MADE_WQ, MADE_WK, MADE_WV, MADE_WO, MADE_CONV_IN, MADE_CONV_OUT, MADE_MATRICES };

#define MADE_EMBED_SCALE  1.5f
#define MADE_ATTEND_SCALE 0.2f
#define MADE_EPS          1e-6f

/*
 * ATTENDS has pages of its own, SHARES uses those of an earlier layer, COPIES writes keys and values
 * of an earlier layer into pages of its own. CONVOLVES has recurrent state.
 */
typedef enum made_layer { ATTENDS, SHARES, COPIES, CONVOLVES } made_layer;

typedef struct architecture {
    int32_t n_layers;
    made_layer layers[MADE_LAYERS];
    int32_t of; /* the earlier layer of SHARES and COPIES */
    int32_t n_heads, n_kv_heads, v_dim;
    bool is_rotated;
    int32_t sections[ROPE_MAX_AXES]; /* as in rope_params */
} architecture;

/* The weights of all of them. */
typedef struct made_numbers {
    float table[MADE_VOCAB][MADE_WIDTH], head[MADE_VOCAB * MADE_WIDTH], norm[MADE_WIDTH];
    float frequencies[MADE_K_DIM / 2];
    float matrices[MADE_LAYERS][MADE_MATRICES][MADE_CHANNELS * MADE_WIDTH];
    float taps[MADE_LAYERS][MADE_CHANNELS * MADE_TAPS], biases[MADE_LAYERS][MADE_CHANNELS];
} made_numbers;

const made_numbers *made_up_numbers(void);

/* An architecture on a device. */
typedef struct made {
    const architecture *a;
    device *d;
    states *s;
    program *program;
    pool *workers;
    weight table, head, matrices[MADE_LAYERS][MADE_MATRICES];
} made;

/* By the device's name; failures are reported by CHECK. The architecture must outlive it. */
made *made_up_create(const char *name, int n_workers, const architecture *a);
void made_up_free(made *m);

/* The plan that it was compiled from, anew. */
plan *made_up_plan(const made *m, int n_workers);

typedef float made_row[MADE_VOCAB]; /* logits of a token */

/* Tokens, and what batch says of them. */
typedef struct made_input {
    int32_t n;
    const int32_t *tokens;
    const int32_t *sequences; /* NULL: all are of sequence 0 */
    const float *embeddings;
    const int32_t *seen, *axes;
    int32_t n_axes;
} made_input;

/* Append the tokens to their sequences, as one batch. out: [n] */
void made_up_run(made *m, const made_input *in, made_row *out);

#endif
