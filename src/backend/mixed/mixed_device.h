/* What mixed_device.c and mixed_program.c share. */
#ifndef LACE_BACKEND_MIXED_MIXED_DEVICE_H
#define LACE_BACKEND_MIXED_MIXED_DEVICE_H

#include "backend/mixed.h"

/* A weight of the host, and the rows that it was made of. */
typedef struct host_rows {
    const weight *w;
    weight_rows rows;
} host_rows;

typedef struct mixed_device {
    device base;
    device *parts[DEVICES_MAX];
    int32_t n_parts;
    uint8_t *layers; /* [n_layers] */
    int32_t n_layers, output;
    int32_t stream_tokens; /* mixed_options */
    int32_t streamer;      /* the device that weights are brought to; 0: none */
    host_rows *host;       /* [n_host] in the order of placing, where there is one */
    int32_t n_host, host_capacity;
} mixed_device;

/* ---- Streamed weights: mixed_stream.c -------------------------------------------------------- */

/* Weights of a plan's steps that are brought to a device. */
typedef struct stream_twins {
    weight **lists; /* each of a step's operands */
    int32_t n_lists, capacity;
    uint64_t n_bytes, n_products; /* of all: what is brought, and multiplied with for each token */
} stream_twins;

/* Whether a step whose weights are the host's can be computed on another device. */
enum { STREAM_LEAST = 32 };
bool stream_can(const mixed_device *d, const step *s);

/* Let its weights be such that are brought there. */
lace_status stream_step(const mixed_device *d, step *s, stream_twins *twins, lace_error *err);
void stream_twins_free(stream_twins *t);

/* Remember what a weight of the host was made of. */
lace_status stream_note(mixed_device *d, const weight *w, const weight_rows *rows, lace_error *err);

/* From how many tokens on it is worth it: a power of two. link_bytes_s: to the device. */
int32_t stream_worth(const stream_twins *t, double link_bytes_s, int32_t n_workers);
lace_status stream_time_link(queue *q, double *bytes_s, lace_error *err);

extern const backend backend_mixed;

lace_status mixed_program_compile(device *d, const plan *p, const program_options *o, program **out,
                                  lace_error *err);
lace_status mixed_program_prepare(program *p, const program_memory *m, lace_error *err);
void mixed_program_free(program *p);
lace_status mixed_program_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                              lace_error *err);
lace_status mixed_program_warm_up(program *p, lace_error *err);
const float *mixed_program_logits(const program *p, int32_t row);
const float *mixed_program_hidden(const program *p, int32_t row);
int32_t mixed_program_n_steps(const program *p);
program_step mixed_program_step_at(const program *p, int32_t i, const batch *b);

#endif
