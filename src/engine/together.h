/*
 * Several ranks of one model: threads of this process that follow the first, each with a model of
 * its own, of which it has its rows; or processes that mpirun has started, of which this is one.
 */
#ifndef LACE_ENGINE_TOGETHER_H
#define LACE_ENGINE_TOGETHER_H

#include "formats/weights.h"
#include "model/model.h"

typedef struct together together;

/* Where a model comes from: a path, or bytes that have a name. */
typedef struct model_source {
    const char *path; /* NULL: */
    span bytes;
    const char *name;
} model_source;

lace_status model_source_open(const model_source *s, weights **out, lace_error *err);

/* As in lace_model_options. */
typedef struct together_options {
    const char *ranks, *net;
    int32_t timeout_ms;
    const char
        *where; /* a device for all, or one for each with commas between them; NULL: the CPU */
    device_options device;
} together_options;

/* Start the others, or find them. */
lace_status together_start(const together_options *o, const model_source *source, together **out,
                           lace_error *err);

/* This rank's model, once all have opened theirs. Takes `files`, also on failure. note: see
 * device_join. */
lace_status together_open(together *t, weights *files, model **out, char note[DEVICE_NOTE_BYTES],
                          lace_error *err);

/* Whether this process follows another; then together_follow does so to the end. */
bool together_follows(const together *t);
lace_status together_follow(together *t, model *m, lace_error *err);

int32_t together_count(const together *t); /* ranks of this machine; 1 for NULL */
void together_hurry(together *t);          /* lace_model_hurry; NULL is fine */

void together_end(together *t);  /* the others leave; before the model is freed. NULL is fine */
void together_free(together *t); /* after it */

#endif
