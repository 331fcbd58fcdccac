/*
 * The parameters of the kernels at both ends of a token's part (border_copies.cu); read by C and by
 * CUDA. `host`: memory of the host, as the card names it.
 */
#ifndef LACE_BACKEND_CUDA_BORDER_PARAMS_H
#define LACE_BACKEND_CUDA_BORDER_PARAMS_H

#include "backend/cuda/decode_params.h"

enum {
    BORDER_VALUES = 8,        /* that cross by these kernels, at most */
    BORDER_LARGEST = 1 << 16, /* bytes of one: larger ones are copied by the card's engine */
    BORDER_THREADS = 512
};

typedef struct border_copy {
    const uint8_t *from;
    uint8_t *to;
    int32_t n; /* in units of 16 bytes */
} border_copy;

typedef struct border_copies {
    border_copy values[BORDER_VALUES];
    int32_t n_values;
    /* Enter: the token that the host says goes into the state. Leave: its n_chosen, the number of the
     * run, goes to where the host waits for it. NULL: it does not. */
    const decode_state *said;
    decode_state *state;
    int32_t *done;
} border_copies;

#endif
