/*
 * Several devices as one, for a model that is too large for a card, or for any. Device 0 is the
 * host's; weights and states say on which one they lie (weight.device, kv_layer.device), and a step
 * runs where its weights or its states are, others where their layer is. Programs are cut into parts
 * by that (plan/parts.h), which run one after the other; what goes from one to the next passes
 * through the host's memory. Large batches may have parts of their own (stream_tokens).
 *
 * One of several ranks whose card cannot exchange columns by itself is made of the host and that card:
 * COLLECT is a part on the host.
 *
 * Such a program does not choose tokens and does not work ahead: the host does it from the logits.
 */
#ifndef LACE_BACKEND_MIXED_H
#define LACE_BACKEND_MIXED_H

#include "backend/backend.h"

enum { DEVICE_NAME_BYTES = 32 };

/*
 * The name of the card that "auto" takes, or of the first that LACE_DEVICES lists ("cpu:8M,cpu": 8 MiB
 * of the host's memory in the manner of a card); false: there is none. *has_all: with room for
 * o->weight_bytes and something beside them.
 */
bool device_find_card(const device_options *o, char out[DEVICE_NAME_BYTES], bool *has_all);

typedef struct mixed_options {
    device
        *devices[DEVICES_MAX]; /* taken, also on failure; the first computes in the host's memory */
    int32_t n_devices;
    const uint8_t *layers; /* [n_layers] on which device each is */
    int32_t n_layers;
    int32_t output; /* and what stands behind them */
    /*
     * Batches of so many tokens or more are computed on a card also where weights are the host's, which
     * are brought there one step after the other; 0: never; below 0: by what either takes. Only where
     * rows of the file stay readable.
     */
    int32_t stream_tokens;
} mixed_options;

lace_status device_mix(const mixed_options *o, device **out, lace_error *err);

/* The devices that one consists of; a plain one of itself. */
int32_t device_n_parts(const device *d);
device *device_part(device *d, int32_t i);

/* Memory of a program on one of them; together they are program->n_bytes. */
uint64_t program_bytes_on(const program *p, int32_t i);

#endif
