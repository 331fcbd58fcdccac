/* Texts of a command line: arguments, or the lines of a file. What lace embed and rerank share. */
#ifndef LACE_CLI_TEXTS_H
#define LACE_CLI_TEXTS_H

#include "cli/cli.h"

/* Starts as {0}. */
typedef struct text_list {
    buf lines;         /* the file */
    const char **data; /* [n] */
    size_t *sizes;     /* [n] */
    size_t n;
} text_list;

/*
 * The arguments from words->at[first] on; or each line of the file that is not empty ("-" is
 * standard input, and so is NULL if there are no arguments). LACE_E_ARG if there are none, or both.
 */
lace_status texts_read(const verb *v, const positional *words, int first, const char *file,
                       text_list *out, lace_error *err);
void texts_free(text_list *list);

/* Options of verbs with an embedder; a verb's arguments begin with these. */
typedef struct embedder_args {
    const char *file;
    int32_t n_context, n_batch, n_threads;
    int32_t kv_type, v_type;
    bool exact, mmap;
    const char *device;
} embedder_args;

#define EMBEDDER_ARGS_DEFAULT                                                                      \
    {                                                                                              \
        .kv_type = LACE_KV_F16, .v_type = LACE_KV_SAME, .device = "auto"                           \
    }

/* clang-format off */
#define EMBEDDER_OPTIONS(args)                                                                     \
    {"ctx-size", 'c', ARG_INT, offsetof(args, common.n_context), .low = 1, .high = CLI_MAX_CONTEXT,\
     .value = "N", .help = "tokens that a text may have (default: what the model was made for, at most 8192)"}, \
    {"batch", 'b', ARG_INT, offsetof(args, common.n_batch), .low = 1, .high = CLI_MAX_BATCH,       \
     .value = "N", .help = "tokens computed together (default: those of the longest text)"},       \
    {"threads", 't', ARG_INT, offsetof(args, common.n_threads), .low = 1, .high = CLI_MAX_THREADS, \
     .value = "N", .help = "threads (default: one per core)"},                                     \
    {"kv-type", 0, ARG_CHOICE, offsetof(args, common.kv_type), .value = CLI_KV_TYPES,              \
     .help = "type of the numbers that attention reads (default f16)"},                            \
    {"v-type", 0, ARG_CHOICE, offsetof(args, common.v_type), .value = CLI_KV_TYPES,                \
     .help = CLI_V_TYPE_HELP},                                                                     \
    {"exact", 0, ARG_FLAG, offsetof(args, common.exact),                                           \
     .help = "f32 activations for quantized weights too; slow"},                                   \
    {"device", 0, ARG_TEXT, offsetof(args, common.device), .value = CLI_DEVICES,       \
     .help = CLI_DEVICE_HELP},                                                                     \
    {"mmap", 0, ARG_FLAG, offsetof(args, common.mmap),                                             \
     .help = "use the weights as they are in the file: less memory, slower"}
/* clang-format on */

/* The model at `path`, and an embedder for it; both are NULL on failure. */
lace_status embedder_open(const char *path, const embedder_args *a, bool use_vocab,
                          lace_model **model, lace_embedder **out, lace_error *err);

#endif
