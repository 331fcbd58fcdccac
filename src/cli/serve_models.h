/* lace serve --models: several models, each in a process of its own. */
#ifndef LACE_CLI_SERVE_MODELS_H
#define LACE_CLI_SERVE_MODELS_H

#include "cli/args.h"
#include "server/server.h"

typedef struct serve_models_args {
    const char *models;     /* a folder or a file; NULL: one model */
    uint64_t memory;        /* of all; 0: by the file, or three quarters of the machine's */
    const char *keep_alive; /* NULL: by the file, or 5 minutes */
    int32_t load_timeout_s;
} serve_models_args;

/*
 * argv[0..argc) is what the verb was given; what of it speaks of a model is handed on to the
 * processes of all models.
 */
lace_status serve_models(const verb *v, const serve_models_args *a, const server_options *o,
                         int argc, char **argv, lace_error *err);

/* In the process of a model: say what memory it will need, and wait for leave to load it. Elsewhere:
 * nothing. */
lace_status serve_wait_for_leave(uint64_t n_bytes, lace_error *err);

#endif
