/* How fast machines would be that one does not have: the formulas of docs/scale.md. */
#ifndef LACE_PLACE_WHAT_IF_H
#define LACE_PLACE_WHAT_IF_H

#include "place/forms.h"

/*
 * "4x60GB/s,10GbE": machines that read so many bytes a second, with a link between them.
 * "60GB/s,card:24GB,1000GB/s,pcie:25GB/s": one machine with a card, what that has room for and reads, and the
 * link between both.
 */
typedef struct what_if_machines {
    int32_t n;
    double read_bytes_s;
    double link_bytes_s, exchange_s;               /* of each machine; 0: there is one machine */
    double card_bytes, card_bytes_s, pcie_bytes_s; /* 0: there is no card */
} what_if_machines;

/* What of a model the formulas need. */
typedef struct what_if_model {
    double token_bytes; /* of weights, read for a token */
    int32_t n_layers;
    double n_embd, n_heads_values,
        n_ff_values; /* widths of residual, all heads, feed-forward part */
} what_if_model;

lace_status what_if_parse(const char *said, what_if_machines *out, lace_error *err);

/* What forms need to know of a machine with a card, besides the weights. */
void what_if_facts(const what_if_machines *m, place_facts *out);

/* Seconds for a token of one text, on one machine and on all; and the tokens of prompts that the link
 * lets through in a second (0: no limit). */
double what_if_one(const what_if_machines *m, const what_if_model *of);
double what_if_all(const what_if_machines *m, const what_if_model *of);
double what_if_prompts(const what_if_machines *m, const what_if_model *of);

#endif
