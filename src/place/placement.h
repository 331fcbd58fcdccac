/*
 * A placement: on which device each layer of a model is, each layer's routed experts, and what
 * stands behind the layers. Device 0 is the host's, whatever its name; embeddings are always there.
 */
#ifndef LACE_PLACE_PLACEMENT_H
#define LACE_PLACE_PLACEMENT_H

#include "base/status.h"

enum { PLACE_MAX_DEVICES = 8, PLACE_MAX_LAYERS = 512, PLACE_NAME_BYTES = 32 };

typedef struct placement {
    int32_t n_devices;
    char devices[PLACE_MAX_DEVICES][PLACE_NAME_BYTES]; /* as device_open takes them */
    int32_t n_layers;
    uint8_t layers[PLACE_MAX_LAYERS];
    uint8_t experts[PLACE_MAX_LAYERS];
    uint8_t output;        /* the last norm and the output matrix */
    int32_t stream_tokens; /* mixed_options; 0: never, below 0: by itself */
} placement;

/* The host and `cards`, names with commas between them; everything is on the host. */
lace_status placement_init(placement *p, const char *cards, int32_t n_layers, lace_error *err);

/*
 * The last n layers on the cards, each with a share of them in proportion to `shares`
 * ([n_devices - 1]; NULL: alike), the last one with the last; more than there are: the output, too.
 */
void placement_last_layers(placement *p, int32_t n, const double *shares);

/* The routed experts of the first n layers on the host. */
void placement_host_experts(placement *p, int32_t n);

/* Whether anything is on a card, and whether anything but embeddings is on the host. */
bool placement_uses_cards(const placement *p);
bool placement_uses_host(const placement *p);

#endif
