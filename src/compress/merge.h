/*
 * Merging a LoRA adapter into a model: a GGUF file whose weights are W + scale * factor * b a, so that
 * programs without adapters can use it.
 */
#ifndef LACE_COMPRESS_MERGE_H
#define LACE_COMPRESS_MERGE_H

#include "base/file_write.h"
#include "tensor/dtype.h"

typedef struct merge_options {
    float scale;   /* how much of the adapter; default 1 */
    bool has_type; /* matrices that change are written as `type`; default false: as they were */
    dtype type;
    const file_rules *rules; /* of the file that is written; may be NULL */
    lace_progress_fn on_progress;
    void *progress_user;
} merge_options;

merge_options merge_options_default(void);

typedef struct merge_result {
    size_t n_tensors, n_merged;
    int32_t rank; /* the adapter's largest */
} merge_result;

/* `model` and `adapter`: GGUF files or directories. LACE_E_UNSUPPORTED names a type that cannot be
 * written. out may be NULL. */
lace_status merge_adapter(const char *model, const char *adapter, const char *path,
                          const merge_options *options, merge_result *out, lace_error *err);

#endif
