/*
 * What a user says of where a model is to run, as one text: names of devices, and rules behind
 * semicolons.
 *
 *     auto                        a card with room, or as much of the model as fits on it, or the CPU
 *     cuda:0,cuda:1               layers over both
 *     cuda;layers=20              the last 20 layers on the card, the others on the CPU
 *     cuda;host-experts=all       routed experts in the host's memory, the rest on the card
 *     cuda:0,cuda:1;split=3,1     three times as many layers on the first
 *     cuda:0,cuda:1;rows          rows of every matrix over both; split= divides the rows then
 *     place=FILE                  as `lace place -o FILE` wrote it; no rules beside it
 *     auto;tokens=32768           leave room for so many tokens in the KV cache
 *     cuda;layers=20;stream=256   batches of 256 tokens or more all on the card; 0: none
 *     cuda;memory=8G              as if the card had so many bytes free (K, M, G of 1,024)
 */
#ifndef LACE_PLACE_RULES_H
#define LACE_PLACE_RULES_H

#include "place/placement.h"

enum { PLACE_ALL = INT32_MAX };

typedef struct place_rules {
    char devices[PLACE_MAX_DEVICES * PLACE_NAME_BYTES];
    char file[1024];      /* "": none */
    int32_t layers;       /* on cards; -1: it was not said */
    int32_t host_experts; /* of how many layers; -1: it was not said */
    double shares[PLACE_MAX_DEVICES];
    int32_t n_shares;      /* 0: they were not said */
    int32_t n_tokens;      /* 0: as usual */
    uint64_t card_bytes;   /* 0: what is free */
    int32_t stream_tokens; /* -1: it was not said */
    bool by_rows;          /* each device is a rank (rank/rank.h) */
} place_rules;

lace_status place_rules_parse(const char *text, place_rules *out, lace_error *err);

/* Whether they name one device and nothing else: the model is there as a whole. */
bool place_rules_are_plain(const place_rules *r);

/* The placement that they ask for, of a model of so many layers. The devices are known by name. */
lace_status place_rules_apply(const place_rules *r, int32_t n_layers, placement *out,
                              lace_error *err);

#endif
