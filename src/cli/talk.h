/*
 * lace chat: a conversation in the terminal.
 *
 *     talk.c          the verb: commands, and what is printed
 *     talk_answer.c   from messages to an answer: template, session, sampler
 *     talk_input.c    lines from a keyboard or a pipe
 */
#ifndef LACE_CLI_TALK_H
#define LACE_CLI_TALK_H

#include <jansson.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "lace.h"

/* ---- Answers --------------------------------------------------------------------------------- */

typedef enum talk_mode {
    TALK_AUTO, /* chat if the model has a template, else text */
    TALK_CHAT, /* by the model's template, or ChatML if it has none */
    TALK_TEXT, /* what was written so far is one text, and the answer goes on with it */
} talk_mode;

typedef struct talk_options {
    const char *model;  /* NULL: the built-in one */
    const char *device; /* lace_model_options */
    talk_mode mode;
    lace_sampler_options sampler; /* each answer adds one to the seed */
    int32_t max_tokens;           /* of an answer; -1: as many as the context takes; 0
                                     (default): -1 in a chat, 300 where a text is continued */
    int32_t n_context, n_threads;
    lace_kv_type kv_type;
    uint64_t memory_bytes;
    const char *activation_sparsity; /* thresholds, or NULL */
    bool use_mmap, keeps_reasoning;  /* the latter: do not split it off the answer */
} talk_options;

typedef struct talk talk;

lace_status talk_create(const talk_options *options, talk **out, lace_error *err);
void talk_free(talk *t);

bool talk_is_chat(const talk *t);
void talk_describe(const talk *t, lace_model_info *info, int32_t *n_context);

/* What an answer took. */
typedef struct talk_stats {
    size_t n_prompt, n_reused, n_generated; /* tokens; those reused were in the cache */
    uint64_t prompt_ns, generate_ns;
    const char *end; /* why it ended, if not by itself: "stopped", "context full", "cut"; or NULL */
} talk_stats;

/* A piece of the answer, or of the reasoning before it. */
typedef lace_status (*talk_sink)(void *user, bool is_reasoning, text piece, lace_error *err);

/*
 * Answer messages in OpenAI's form, the last of them the user's. What is in the KV cache from the
 * answer before is used again. Ends early, with LACE_OK, when *stop becomes nonzero. LACE_E_CONTEXT
 * if the conversation has become too long.
 */
lace_status talk_answer(talk *t, const json_t *messages, talk_sink sink, void *user,
                        const volatile int *stop, talk_stats *stats, lace_error *err);

/* ---- Input ----------------------------------------------------------------------------------- */

typedef struct talk_input talk_input;

lace_status talk_input_create(talk_input **out, lace_error *err);
void talk_input_free(talk_input *in);

/*
 * The next message: a line; or several, each but the last ended by a backslash; or those between
 * two lines of """. False at the end. *is_interrupted: Ctrl-C, and no message.
 */
bool talk_input_read(talk_input *in, buf *out, bool *is_interrupted);

#endif
