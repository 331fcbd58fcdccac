/*
 * What a verb writes: never over one of its inputs, over another file only if told to, and only
 * what can be read again, or run.
 *
 *     output made;
 *     const char *inputs[] = {model, a.calibrate};     may be NULL, or "-"
 *     TRY(output_begin(&made, path, a.force, inputs, 2, err));
 *     output_must_run(&made, true);
 *     file_write_whole(made.path, &made.rules, ...);
 */
#ifndef LACE_CLI_OUTPUT_H
#define LACE_CLI_OUTPUT_H

#include "base/file_write.h"
#include "cli/args.h"

/* The option of a verb whose arguments have a field `bool force`. */
#define OUTPUT_FORCE_OPTION(args)                                                                  \
    {                                                                                              \
        "force", 'y', ARG_FLAG, offsetof(args, force),                                             \
            .help = "replace OUT if it exists (an input is never replaced)"                        \
    }

typedef struct output {
    const char *path;
    file_rules rules; /* for who writes it */
    bool has_vocab;   /* of a model: its vocabulary is read too */
} output;

/*
 * Before the work begins: refuse a path that is one of the inputs under whatever name (a link to
 * it, a part of a model in several files, a file of a directory), and one that exists unless
 * is_forced.
 */
lace_status output_begin(output *out, const char *path, bool is_forced, const char *const *inputs,
                         size_t n_inputs, lace_error *err);

/* Whether two paths, at which there may be nothing yet, are one: the same name in the same folder. */
bool output_is_same(const char *a, const char *b);

/* From now on the file must be a model that evaluates a token before it gets its name. */
void output_must_run(output *out, bool has_vocab);

/* Evaluate one token of a model, and see that all its logits are numbers. */
lace_status output_run_once(lace_model *model, const char *name, lace_error *err);

#endif
