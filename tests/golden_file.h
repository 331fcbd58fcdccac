/* Recorded results of the reference implementation: tokens, their logits, and what follows
 * greedily. */
#ifndef LACE_TESTS_GOLDEN_FILE_H
#define LACE_TESTS_GOLDEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The models of the shared folder golden/, one of each architecture and of its variants. */
enum { GOLDEN_MODELS = 18 };
extern char *const golden_models[GOLDEN_MODELS];

typedef struct golden {
    int32_t n_tokens, n_vocab, n_greedy;
    int32_t *tokens; /* [n_tokens] */
    float *logits;   /* [n_tokens, n_vocab] */
    int32_t *greedy; /* [n_greedy] after the tokens; NULL if not recorded */
} golden;

/* Read a golden.safetensors. False, with a note, if that fails. */
bool golden_read(const char *path, golden *out);
void golden_free(golden *g);

/* Sum of squared differences over sum of squares: 0 is equal. NaN if a value is not finite. */
double nmse(const float *found, const float *expected, size_t n);

#endif
