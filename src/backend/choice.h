/*
 * Choosing tokens on a device: the rule that it is told, and the word that it answers with. Read by
 * C and by kernels.
 *
 * A device does what sampler/sampler.c does for the same logits, with the same numbers in the same
 * order, and steps the same random generator: the text of a seed is the same on all devices, but for
 * draws within rounding (1e-15) of the border between two tokens. What it cannot do it refuses, and
 * the host chooses.
 */
#ifndef LACE_BACKEND_CHOICE_H
#define LACE_BACKEND_CHOICE_H

#include <stdint.h>

enum { CHOICE_MAX_TOP_K = 1024, CHOICE_MAX_EDITS = 32 };

/* What a choice is told as, in a word that is never 0. */
enum {
    CHOICE_TOKEN = (1 << 30) - 1, /* these bits: the token + 1 */
    CHOICE_DREW = 1 << 30,        /* a random number was used */
    CHOICE_REFUSED = CHOICE_TOKEN /* the host must choose */
};

/* What is added to a token's logit before anything else; -INFINITY bans it. */
typedef struct choice_edit {
    int32_t token;
    float bias;
} choice_edit;

/* How a row of logits is chosen from; the fields as in lace_sampler_options. */
typedef struct choice_rule {
    uint64_t random[4]; /* xoshiro256**; the device steps it */
    float temperature;  /* 0: the best, without anything else; below 0: refuse */
    float top_p, min_p;
    int32_t top_k;   /* 0 (all) to CHOICE_MAX_TOP_K */
    int32_t goes_on; /* 1: in place of `random`, what the sequence's last choice left of it */
    int32_t n_edits;
    choice_edit edits[CHOICE_MAX_EDITS]; /* in this order; a token may have several */
} choice_rule;

#endif
