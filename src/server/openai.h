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

void openai_add_usage(openai_usage *u, const gen_event *e);    /* of a last event */
void openai_write_usage(json_out *out, const openai_usage *u); /* the object alone */

/* llama.cpp's "timings", the object alone, of n choices that were generated side by side. */
void openai_write_timings(json_out *out, const lace_generation_stats *s, int n_choices);
/* ,"prompt_progress":{..} of an event with is_prompt */
void openai_write_progress(json_out *out, const lace_generation_stats *s);

const char *openai_finish(lace_finish finish); /* "stop", "length" */

/* A token's log-probability with the best others, as chat has it. */
void openai_write_logprob(const call *c, json_out *out, const gen_event *e);

/* The last chunk of a stream, with the counts if they were asked for, and data: [DONE]. */
void openai_end_stream(call *c, json_out *out, const char *id_prefix, const char *object,
                       const openai_usage *u);
void openai_ping(call *c); /* a comment in a stream */

#endif
