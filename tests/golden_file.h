/* Recorded results of the reference implementation: tokens, their logits, and what follows
 * greedily. */
#ifndef LACE_TESTS_GOLDEN_FILE_H
#define LACE_TESTS_GOLDEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The path of a file of a model in golden/ or golden2/, "" for its directory; NULL if it is not there. For the caller to
 * free().
 */
char *golden_path(const char *model, const char *file);

/* A case of each model in golden/, with its name as the argument; `title` has one %s for it. */
void golden_each(const char *title, void (*fn)(void *));

/* A case that fails if these are fewer models than a clone has. golden_each ends with it. */
void golden_enough(int n);

typedef struct golden {
    int32_t n_tokens, n_vocab, n_greedy;
    int32_t *tokens; /* [n_tokens] */
    float *logits;   /* [n_tokens, n_vocab] */
    int32_t *greedy; /* [n_greedy] after the tokens; NULL if not recorded */
} golden;

/* Read a golden.safetensors. False, with a note, if that fails. */
bool golden_read(const char *path, golden *out);
void golden_free(golden *g);

/* Whether the file is of a model that has logits; an encoder has none. */
bool golden_has_logits(const char *path);

/* The same of an encoder. */
typedef struct golden_encoder {
    int32_t n_tokens, n_embd;
    int32_t *tokens; /* [n_tokens] */
    float *hidden;   /* [n_tokens, n_embd] after the last layer */
    float *pooled;   /* [n_embd], not normalized */
    float *score;    /* [1] of a reranker, or NULL */
} golden_encoder;

/* False if it is none of an encoder. */
bool golden_encoder_read(const char *path, golden_encoder *out);
void golden_encoder_free(golden_encoder *g);

/* One tensor of such a file, as it lies there; for the caller to free(). NULL: there is none. */
typedef struct golden_tensor {
    void *data;
    int n_dims;
    int32_t dims[4]; /* the slowest first */
    size_t n_values;
} golden_tensor;

golden_tensor golden_tensor_read(const char *path, const char *name);

/* Sum of squared differences over sum of squares: 0 is equal. NaN if a value is not finite. */
double nmse(const float *found, const float *expected, size_t n);

#endif
