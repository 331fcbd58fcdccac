/* What the two text routes of OpenAI's API share. */
#ifndef LACE_SERVER_OPENAI_H
#define LACE_SERVER_OPENAI_H

#include "server/generate.h"

/* {"id":...,"object":...,"created":...,"model":...: the beginning of every object. */
void openai_write_head(const call *c, json_out *out, const char *id_prefix, const char *object);

/* Counts of all choices together. */
typedef struct openai_usage {
    int64_t n_prompt, n_cached, n_generated;
    lace_generation_stats total; /* the same for timings: times are the longest of all choices */
    int n_choices;               /* in it */
} openai_usage;

void openai_add_usage(openai_usage *u, const gen_event *e); /* of a last event */

/* "usage":{..},"timings":{..} of a whole answer */
void openai_write_usage(json_out *out, const openai_usage *u);

/* ,"timings":{..} as llama.cpp has them, of n choices that were generated side by side. */
void openai_write_timings(json_out *out, const lace_generation_stats *s, int n_choices);
/* ,"prompt_progress":{..} of an event with is_prompt */
void openai_write_progress(json_out *out, const lace_generation_stats *s);

const char *openai_finish(lace_finish finish); /* "stop", "length" */

/* An object of a stream that is sent as an event: `data: ` before it, and its end. */
void openai_begin_chunk(call *c, json_out *out);
void openai_end_chunk(call *c, json_out *out);

/* Adds an event's token, with the best others, to a list, if log-probabilities are wanted. */
void openai_add_logprob(const call *c, json_out *list, const gen_event *e);

/* A whole answer: head, choices by `write`, which gets the state and a number, usage and timings. */
typedef void (*openai_write_fn)(const call *c, json_out *out, void *state, int choice);
void openai_reply(call *c, json_out *out, const char *id_prefix, const char *object,
                  const openai_usage *u, int n_choices, openai_write_fn write, void *state);

/* The last chunk of a stream, with the counts if they were asked for, and data: [DONE]. */
void openai_end_stream(call *c, json_out *out, const char *id_prefix, const char *object,
                       const openai_usage *u);

#endif
