/*
 * Forms: the ways in which a model can lie on a host and a card, with what each would need and how
 * fast it would be. Numbers in, numbers out: nothing here knows a device.
 *
 * A token is generated in the time in which its weights are read, a prompt's token in the time in which
 * they are multiplied with, and each way from one device to the other costs a switch. What is taken onto
 * the card is taken by the time that it saves for each byte.
 */
#ifndef LACE_PLACE_FORMS_H
#define LACE_PLACE_FORMS_H

#include "place/placement.h"

enum { ON_HOST, ON_CARD, N_PLACES };

/* Matrices that go together. */
typedef struct place_item {
    uint64_t bytes[N_PLACES];
    double token_s[N_PLACES];  /* for a token that is generated */
    double prompt_s[N_PLACES]; /* for a token of a prompt */
    double bring_s;            /* from the host to the card, all of it; 0: by the link's speed */
} place_item;

typedef struct place_layer {
    place_item rest, experts; /* routed experts apart; no bytes: there are none */
    uint64_t state_bytes;     /* KV cache and recurrent state of the tokens that room is left for */
    double attend_s;          /* of attention on the host, for a token of a prompt */
    uint64_t attend_bytes; /* that cross for it where the layer's weights are brought to the card */
} place_layer;

typedef struct place_facts {
    int32_t n_layers;
    place_layer layers[PLACE_MAX_LAYERS];
    place_item output;
    uint64_t host_bytes;       /* always there: embeddings, vectors */
    uint64_t card_free;        /* for weights and states: what is free without what is kept back */
    uint64_t host_free;        /* 0: it is not asked */
    double step_s[N_PLACES];   /* of a step beside its weights: launches, workers that meet */
    double switch_s;           /* from one device to the other */
    double link_bytes_s;       /* between them; 0: it is not asked */
    uint64_t border_bytes;     /* that go along, for each token */
    bool streams;              /* weights of the host are brought to the card for prompts */
    int32_t n_prompt, n_write; /* the task: tokens in and out */
} place_facts;

typedef enum place_goal {
    PLACE_LATENCY,   /* the time of one task */
    PLACE_THROUGHPUT /* tokens of many tasks: prompts and batches count most */
} place_goal;

typedef struct place_form {
    const char *name;       /* "all on the CPU", ... */
    int32_t layers_on_card; /* the last ones */
    int32_t host_experts;   /* of how many layers, the first ones, experts are on the host */
    bool has_output_on_card;
    bool uses_card;
    bool fits;
    uint64_t card_bytes, host_bytes; /* weights and states */
    double token_s, prompt_s;        /* for each token */
    double task_s;                   /* what the goal counts */
} place_form;

enum { PLACE_MAX_FORMS = 5 };

typedef struct place_forms {
    place_form forms[PLACE_MAX_FORMS];
    int32_t n_forms, chosen;
} place_forms;

/* Every form, and which one is the best of those that fit. All on the CPU always counts as fitting. */
void place_forms_find(const place_facts *f, place_goal goal, place_forms *out);

/* As a placement, of which the devices are known. */
void place_form_apply(const place_form *form, placement *out);

#endif
