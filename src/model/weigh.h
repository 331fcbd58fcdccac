/* What the parts of a model weigh on a host and on a card, and the time that they take there. */
#ifndef LACE_MODEL_WEIGH_H
#define LACE_MODEL_WEIGH_H

#include "model/model.h"
#include "place/forms.h"

/* How fast a place computes with matrices of a type. */
typedef struct type_speed {
    double bytes_s;    /* read for one token */
    double products_s; /* with the tokens of a prompt */
    /* On the card: how fast rows of the host come there and into the form of its kernels; 0: they do not */
    double bring_bytes_s;
} type_speed;

typedef struct model_speeds {
    type_speed of[N_PLACES][DTYPE_COUNT];
    type_speed
        experts[N_PLACES]; /* of all types, where a token uses a few of many; zeros: as others */
    double attend_s[N_PLACES]; /* of a layer's attention, for a token of a prompt */
} model_speeds;

/* Speeds that are the same for all types. */
model_speeds model_speeds_alike(const type_speed *host, const type_speed *card);

/*
 * The layers, the output and what stays on the host. Nothing is loaded; `card` counts what is placed on
 * it. Room is left for the states of n_tokens.
 */
lace_status model_weigh(model *m, device *card, const model_speeds *speeds, int32_t n_tokens,
                        place_facts *out, lace_error *err);

#endif
