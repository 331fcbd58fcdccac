/*
 * From logits to the next token: sampler, form of the text, guesses ahead. What the verbs that
 * generate share.
 *
 *     TRY(chooser_init(&c, &options, model, session, &model_options, &session_options, err));
 *     ... evaluate a prompt; its last token wants logits ...
 *     TRY(chooser_begin(&c, seed, prompt, n_prompt, err));
 *     for (;;) {
 *         TRY(chooser_next(&c, &token, err));
 *         TRY(chooser_accept(&c, token, &is_complete, err));
 *         TRY(chooser_push(&c, token, err));
 *     }
 */
#ifndef LACE_CLI_CHOOSE_H
#define LACE_CLI_CHOOSE_H

#include "cli/constraint.h"
#include "lace.h"

typedef struct choose_options {
    lace_sampler_options sampler;
    constraint_args constraint;
    bool ignore_eos;
    const char *draft; /* a smaller model that guesses, or NULL */
    bool lookup;
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
    {"n-draft", 0, ARG_INT, (at) + offsetof(choose_options, n_draft), .low = 1, .high = 32,         \
     .value = "N", .help = "the most tokens to guess at once (default 8)"}
/* clang-format on */

typedef struct chooser {
    const choose_options *options;
    lace_model *model;     /* borrowed, as is */
    lace_session *session; /* whose sequence 0 holds the text */
    int32_t n_vocab;
    lace_sampler *sampler; /* of the text under way; what follows is NULL where it is not needed */
    constraint form;
    lace_model *draft_model;
    lace_session *draft;
    lace_speculator *speculator;
    float *logits;    /* [n_vocab] a copy to mask, with ignore_eos or a form */
    lace_token *ends; /* [n_ends] what ends a text, with ignore_eos */
    size_t n_ends;
} chooser;

/* The rows of logits that a session must have for these options. */
int32_t choose_n_outputs(const choose_options *options);

/*
 * For a session and its model, and the options that they were opened with: a draft is opened in the
 * same way. `options` must live as long. After a failure, too, deinit is to be called.
 */
lace_status chooser_init(chooser *c, const choose_options *options, lace_model *model,
                         lace_session *session, const lace_model_options *model_options,
                         const lace_session_options *session_options, lace_error *err);
void chooser_deinit(chooser *c);

/* A new text begins: the session holds exactly these tokens, the last of them with logits. */
lace_status chooser_begin(chooser *c, uint64_t seed, const lace_token *tokens, size_t n_tokens,
                          lace_error *err);

/* The same text goes on in a session that was filled anew with these tokens. */
lace_status chooser_resume(chooser *c, const lace_token *tokens, size_t n_tokens, lace_error *err);

/* Whether lace_session_continue may choose by itself, with c->sampler. */
bool chooser_is_plain(const chooser *c);

lace_status chooser_next(chooser *c, lace_token *token, lace_error *err);

/* A token, which does not end the text, becomes part of it. *is_complete: its form is, too. */
lace_status chooser_accept(chooser *c, lace_token token, bool *is_complete, lace_error *err);

/* Evaluate it, so that the next one can be chosen. */
lace_status chooser_push(chooser *c, lace_token token, lace_error *err);

/* Append " | 4 of 9 guesses right ..." to a line of statistics; nothing without guesses. */
void chooser_append_counts(const chooser *c, char *line, size_t size);

#endif
