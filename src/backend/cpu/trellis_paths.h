/* What the search of trellis_search.h keeps: its paths, and how they came about. */
#ifndef LACE_BACKEND_CPU_TRELLIS_PATHS_H
#define LACE_BACKEND_CPU_TRELLIS_PATHS_H

#include "backend/cpu/trellis_search.h"

enum { GENERATION = 16, MAX_CLASSES = 1 << (TRELLIS_MOST_MERGE - TRELLIS_MIN_BITS) };

/* All paths, by class. */
typedef struct paths {
    float cost[MAX_CLASSES];
    uint16_t older[MAX_CLASSES];  /* the bits of the next window before its newest code */
    uint16_t origin[MAX_CLASSES]; /* their class at the end of the generation before */
    /* By how much their errors move the values of this generation and of the next. */
    float wish[MAX_CLASSES][2 * GENERATION];
} paths;

struct trellis_scratch {
    int n_bits;                       /* of the table; 0: there is none */
    float table[1 << TRELLIS_WINDOW]; /* [older bits][code] levels */
    paths paths[2];
    uint8_t back[TRELLIS_VALUES][MAX_CLASSES]; /* the oldest code of each class's parent */
};

#endif
