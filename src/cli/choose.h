/* How tokens are chosen and guessed: the options that lace run and lace chat share. */
#ifndef LACE_CLI_CHOOSE_H
#define LACE_CLI_CHOOSE_H

#include "cli/constraint.h"
#include "lace.h"

typedef struct choose_options {
    lace_sampler_options sampler;
    constraint_args constraint;
    bool ignore_eos;
    const char *draft; /* a smaller model that guesses, or NULL */
    bool lookup, mtp;
    int32_t n_draft; /* the most tokens to guess at once */
} choose_options;

choose_options choose_options_default(void); /* with a random seed */

/* Rows of a verb's table of options, for a choose_options at `at` of its struct. */
/* clang-format off */
#define CHOOSE_SAMPLER(at, field)                                                                   \
    (at) + offsetof(choose_options, sampler) + offsetof(lace_sampler_options, field)
#define CHOOSE_OPTIONS(at)                                                                          \
    {.kind = ARG_HEADING, .help = "Choice of tokens, in this order"},                               \
    {"repeat-penalty", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, repeat_penalty), .low = 0,                  \
     .high = INFINITY, .is_low_open = true, .value = "R",                                           \
     .help = "divide the logits of recent tokens by this; 1: off (default)"},                                  \
    {"presence-penalty", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, presence_penalty), .low = -INFINITY,      \
     .high = INFINITY, .value = "X", .help = "subtract this once from the logits of recent tokens (default 0)"},     \
    {"frequency-penalty", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, frequency_penalty), .low = -INFINITY,    \
     .high = INFINITY, .value = "X", .help = "subtract this for each time a recent token occurred (default 0)"},         \
    {"repeat-last-n", 0, ARG_INT, CHOOSE_SAMPLER(at, penalty_last_n), .low = 0, .high = 1 << 20,    \
     .value = "N", .help = "how many tokens are recent (default 64)"},                              \
    {"top-k", 0, ARG_INT, CHOOSE_SAMPLER(at, top_k), .low = 0, .high = INT32_MAX, .value = "K",     \
     .help = "keep the K best tokens; 0: all (default 40)"},                                               \
    {"typical", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, typical_p), .low = 0, .high = 1,                   \
     .is_low_open = true, .value = "P",                                                             \
     .help = "locally typical sampling: keep tokens whose surprise is near the average; 1: off (default)"},               \
    {"top-p", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, top_p), .low = 0, .high = 1,                         \
     .value = "P", .help = "keep the best tokens whose probabilities add up to P; 1: off (default 0.95)"},                \
    {"min-p", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, min_p), .low = 0, .high = 1, .value = "M",           \
     .help = "keep tokens with at least this share of the best token's probability (default 0.05)"},       \
    {"dry-multiplier", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, dry_multiplier), .low = 0,                  \
     .high = INFINITY, .value = "X",                                                                \
     .help = "DRY: penalty for continuing a repetition, growing with its length; 0: off (default)"},  \
    {"dry-base", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, dry_base), .low = 1, .high = INFINITY,            \
     .value = "X", .help = "DRY: factor for each further token of the repetition (default 1.75)"},                          \
    {"dry-allowed-length", 0, ARG_INT, CHOOSE_SAMPLER(at, dry_allowed_length), .low = 0,            \
     .high = 1 << 20, .value = "N", .help = "DRY: repetitions shorter than this have no penalty (default 2)"},  \
    {"dry-penalty-last-n", 0, ARG_INT, CHOOSE_SAMPLER(at, dry_last_n), .low = 1, .high = 1 << 20,   \
     .value = "N", .help = "DRY: how many tokens back repetitions are looked for (default 1024)"},                             \
    {"xtc-probability", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, xtc_probability), .low = 0, .high = 1,     \
     .value = "P", .help = "XTC: how often the most probable tokens are left out; 0: never (default)"},  \
    {"xtc-threshold", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, xtc_threshold), .low = 0, .high = 1,         \
     .value = "P", .help = "XTC: tokens above this probability are left out, all but the least probable of them (default 0.1)"},  \
    {"mirostat", 0, ARG_INT, CHOOSE_SAMPLER(at, mirostat), .low = 0, .high = 2, .value = "V",       \
     .help = "Mirostat 1 or 2: keep the surprise of tokens constant, in place of top-k, top-p and so on; 0: off (default)"},          \
    {"mirostat-ent", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, mirostat_tau), .low = 0, .high = INFINITY,    \
     .value = "T", .help = "Mirostat: the surprise to keep, in bits (default 5)"},                            \
    {"mirostat-lr", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, mirostat_eta), .low = 0, .high = INFINITY,     \
     .value = "E", .help = "Mirostat: how quickly it adapts (default 0.1)"},                               \
    {"temp", 0, ARG_FLOAT, CHOOSE_SAMPLER(at, temperature), .low = 0, .high = INFINITY,             \
     .value = "T",                                                                                  \
     .help = "temperature: higher is more daring; 0: always the best token (default 0.8)"},         \
    {"seed", 's', ARG_SEED, CHOOSE_SAMPLER(at, seed), .value = "S",                                 \
     .help = "the same seed gives the same text (default: random)"},                                \
    {"ignore-eos", 0, ARG_FLAG, (at) + offsetof(choose_options, ignore_eos),                        \
     .help = "never choose a token that ends the text"},                                            \
    CONSTRAINT_OPTIONS((at) + offsetof(choose_options, constraint)),                                \
    {.kind = ARG_HEADING, .help = "Speed by guessing ahead; the text stays the same"},              \
    {"draft", 0, ARG_TEXT, (at) + offsetof(choose_options, draft), .value = "MODEL",                \
     .help = "a smaller model with the same vocabulary guesses tokens, this one checks them "       \
             "together"},                                                                           \
    {"lookup", 0, ARG_FLAG, (at) + offsetof(choose_options, lookup),                                \
     .help = "guess that the text continues as it did after an earlier occurrence of its last words"},            \
    {"mtp", 0, ARG_FLAG, (at) + offsetof(choose_options, mtp),                                      \
     .help = "guess by the model's own prediction layer, where it has one (MTP, NextN)"}, \
    {"n-draft", 0, ARG_INT, (at) + offsetof(choose_options, n_draft), .low = 1, .high = 32,         \
     .value = "N", .help = "the most tokens to guess at once (default 8)"}
/* clang-format on */

#endif
