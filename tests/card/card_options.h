/*
 * What the software card pretends to be: the environment's LACE_CARD, words `name=number` with commas
 * between them.
 */
#ifndef TESTS_CARD_CARD_OPTIONS_H
#define TESTS_CARD_CARD_OPTIONS_H

#include <stdint.h>

typedef struct card_options {
    uint32_t major, minor; /* compute capability: 8.0 */
    uint32_t processors;   /* multiprocessors: 4; kernels cut their work by this number */
    uint32_t shared;       /* bytes that a block may ask for: what such a card has */
    uint64_t memory;       /* bytes of each card: 4G; K, M and G may stand behind a number */
    uint32_t cards;        /* 1 */
    uint32_t threads;      /* of the host, that compute: its processors */
    uint32_t turns;  /* warps take turns of any length and in any order, which follow from this
                              number; 0: long ones, one after the other */
    uint32_t races;  /* 1: what warps do in shared memory without a barrier between; ptx_races.h */
    uint32_t early;  /* 1: launches that may begin before the one in front of them has ended do what
                        they can before it begins */
    uint32_t report; /* 1: which kernels ran, and how many instructions, at the end */
} card_options;

/* A word that is not known is said on stderr, and ends the program: a test must not run on another
 * card than it names. */
const card_options *card_options_get(void);

#endif
