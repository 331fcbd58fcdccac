/*
 * The adapters of a model: LoRA matrices beside its own, as the steps of a plan use them
 * (ops/lora.h). They are added before the first plan is made, and stay.
 */
#ifndef LACE_MODEL_ADAPTERS_H
#define LACE_MODEL_ADAPTERS_H

#include "model/adapter_file.h"
#include "model/model.h"

enum { MODEL_MAX_ADAPTERS = 256 };

/* One that was added; the model owns it. */
typedef struct model_adapter {
    char name[128];
    char *path;
    int32_t rank;   /* the largest of its matrices */
    double alpha;   /* as its file says */
    size_t n_parts; /* matrices of the model that it changes */
    uint64_t n_bytes;
    digest digest; /* of all that it says */
} model_adapter;

/* Its number is m->n_adapters before. On failure the model is as before. */
lace_status model_add_adapter(model *m, const char *path, lace_error *err);

/* The same of files that are open. Takes `files`, also on failure. */
lace_status model_add_adapter_files(model *m, weights *files, lace_error *err);

#endif
