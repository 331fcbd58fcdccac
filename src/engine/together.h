/*
 * Several ranks of one model in this process: those behind the first are threads that follow it, each
 * with a model of its own, of which it has its rows.
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

/*
 * Start as many ranks as `who` says (rank_shares_parse). They open the model while this one does;
 * together_join hands in how that went here and waits for them.
 */
lace_status together_start(const char *who, const model_source *source, const char *where,
                           const device_options *o, together **out, lace_error *err);
lace_status together_join(together *t, lace_status status, lace_error *err);

/* This process's end, for model_cut. */
ranks *together_ranks(const together *t);
int32_t together_count(const together *t); /* 1 for NULL */

void together_end(together *t);  /* the others leave; before the model is freed. NULL is fine */
void together_free(together *t); /* after it */

#endif
