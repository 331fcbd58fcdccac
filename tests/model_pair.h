/*
 * The same model opened twice, in two ways that must compute the same: on one device and on several, on
 * one rank and on several. What they are given alike must come out alike.
 */
#ifndef LACE_TESTS_MODEL_PAIR_H
#define LACE_TESTS_MODEL_PAIR_H

#include "golden_file.h"
#include "lace.h"

typedef struct model_pair {
    lace_model *one, *many;
    golden g;    /* of which tokens are read, and continued */
    double most; /* NMSE of the logits; 0: equal bits */
} model_pair;

/* Closes both, and frees what is known of them; zeros are fine. */
void model_pair_free(model_pair *p);

/* Without a vocabulary; a failure fails the case, and the result is NULL. */
lace_model *model_pair_open(const char *path, lace_model_options *o);

/* A prompt in two batches, two sequences after a fork, a cut and a new end, tokens one by one. */
void model_pair_check_sessions(const model_pair *p, lace_kv_type kv_type, int32_t n_threads);

/* Two texts in a pool that has not room for both, then one that begins like them. */
void model_pair_check_batcher(const model_pair *p);

/*
 * The golden model's pair, or false, with a failed case: `open` opens its file both ways into p, whose golden
 * results are there.
 */
bool model_pair_read(const char *model, model_pair *p,
                     bool (*open)(model_pair *p, const char *path, void *user), void *user);

/* Calls fn for each golden model of both sets that has logits and reads no images. */
void model_pair_each(void (*fn)(const char *model, size_t i, void *user), void *user);

#endif
