/* What the verbs share: opening a model, asking to stop, and writing to standard output. */
#ifndef LACE_CLI_CLI_H
#define LACE_CLI_CLI_H

#include "base/buf.h"
#include "cli/args.h"

/* The verbs, one file each. */
#define X(id) extern const verb verb_##id;
#include "cli/verbs.def"
#undef X

/*
 * A verb, with its table `options` and its function id_verb; least and most: how many arguments are
 * no options. Description and examples follow.
 */
#define VERB(id, name_, usage_, summary_, least, most, ...)                                        \
    BARE_VERB(id, name_, usage_, summary_, least, most, .options = options,                        \
              .n_options = sizeof options / sizeof *options, __VA_ARGS__)

/* One without options. */
#define BARE_VERB(id, name_, usage_, summary_, least, most, ...)                                   \
    const verb verb_##id = {.name = name_,                                                         \
                            .usage = usage_,                                                       \
                            .summary = summary_,                                                   \
                            .min_positional = least,                                               \
                            .max_positional = most,                                                \
                            .run = id##_verb,                                                      \
                            __VA_ARGS__};

/* Words of --kv-type and --v-type, in the order of lace_kv_type. */
#define CLI_KV_TYPES "f32|f16|q8_0|q5_0|iq4_nl"
#define CLI_V_TYPE_HELP                                                                            \
    "type of the values in the KV cache, where it is another than that of the keys"
extern const char *const cli_kv_names[];

/* The option --device of a verb whose arguments have a field `const char *device`. */
#define CLI_DEVICES "auto|cpu|cuda[:N]|vulkan[:N]|ref"
#define CLI_DEVICE_HELP                                                                            \
    "where it runs (default auto: a GPU with room for the model, or the CPU; ref: the plain "      \
    "kernels that all others are compared with, slow)"
#define CLI_DEVICE_OPTION(args)                                                                    \
    {                                                                                              \
        "device", 0, ARG_TEXT, offsetof(args, device), .value = CLI_DEVICES,                       \
                                                       .help = CLI_DEVICE_HELP                     \
    }

/* LoRA adapters: the options of a verb whose arguments have `cli_loras loras`; at: where it is. */
typedef struct cli_loras {
    arg_texts files;  /* each with scale 1; of serve also NAME=FILE */
    arg_texts scaled; /* a file and its scale, in turn */
} cli_loras;

#define CLI_LORA_OPTIONS(at)                                                                       \
    {"lora",                                                                                       \
     0,                                                                                            \
     ARG_TEXTS,                                                                                    \
     (at) + offsetof(cli_loras, files),                                                            \
     .value = "FILE",                                                                              \
     .help = "change the model by a LoRA adapter, a GGUF file or a directory of PEFT; may be "     \
             "given several times"},                                                               \
    {                                                                                              \
        "lora-scaled", 0, ARG_SCALED, (at) + offsetof(cli_loras, scaled),                          \
            .value = "FILE SCALE", .help = "the same, with this much of it: 0.5 is half"           \
    }

/* Add them to a model, before its first session. */
lace_status cli_add_loras(lace_model *model, const cli_loras *l, lace_error *err);

/*
 * The same for a server. names: [2 * ARGS_MAX_TEXTS] those of NAME=FILE, which only requests that
 * name them use; NULL for others. They point into `room`, [n_room], which is used up.
 */
lace_status cli_add_named_loras(lace_model *model, const cli_loras *l, const char **names,
                                char *room, size_t n_room, lace_error *err);

/* What a program ends with that may work when it is started again: EX_TEMPFAIL of sysexits.h. */
enum { CLI_TRY_AGAIN = 75 };

/* How a model is divided among ranks: the options of a verb whose arguments have `cli_ranks ranks`. */
typedef struct cli_ranks {
    const char *parts; /* "2", "3,1" */
    const char *net;   /* of ranks on several machines */
    int32_t timeout_s; /* how long one may be silent; 0: as usual */
    char text[1024];   /* that lace_model_options gets */
} cli_ranks;

/* at: where the cli_ranks is. */
#define CLI_RANKS_OPTIONS(at)                                                                      \
    {"ranks",                                                                                      \
     0,                                                                                            \
     ARG_TEXT,                                                                                     \
     (at) + offsetof(cli_ranks, parts),                                                            \
     .value = "N|A,B,...",                                                                         \
     .help =                                                                                       \
         "divide every matrix among N groups of threads, or of --device cuda among N GPUs, or "    \
         "in these shares, with the same text; --threads are those of each"},                      \
        {"rank-net",                                                                               \
         0,                                                                                        \
         ARG_TEXT,                                                                                 \
         (at) + offsetof(cli_ranks, net),                                                          \
         .value = "NET",                                                                           \
         .help = "under mpirun or srun on several machines: the network that ranks talk over, as " \
                 "in 10.8.0.0/24"},                                                                \
    {                                                                                              \
        "rank-timeout", 0, ARG_INT, (at) + offsetof(cli_ranks, timeout_s),                         \
            .low = 1, .high = 3600, .value = "SECONDS",                                            \
            .help = "a rank that is silent for so long counts as lost (default 5)"                 \
    }

/* at: where the bool is. */
#define CLI_FAST_PROMPTS_OPTION(at)                                                                \
    {                                                                                              \
        "fast-prompts", 0, ARG_FLAG, (at),                                                         \
            .help = "on a CUDA GPU: multiply prompts in int8, not f16: faster, and a little less " \
                    "exact (docs/performance.md); single tokens stay as they are"                  \
    }

/* On which devices a model lies: the options of a verb whose arguments have `cli_place place`. */
typedef struct cli_place {
    const char *layers, *split, *split_mode, *file;
    bool host_experts; /* of all layers */
    bool fast_prompts;
    int32_t n_host_experts;
    uint64_t card_bytes;
    char text[2048]; /* that lace_model_options gets */
} cli_place;

/* at: where the cli_place is. */
#define CLI_PLACE_OPTIONS(at)                                                                      \
    {"gpu-layers",                                                                                 \
     0,                                                                                            \
     ARG_TEXT,                                                                                     \
     (at) + offsetof(cli_place, layers),                                                           \
     .value = "N|all",                                                                             \
     .help = "the last N layers on the GPU, the others on the CPU; more than there are: the "      \
             "output too (default: as many as fit)"},                                              \
        {"cpu-moe", 0, ARG_FLAG, (at) + offsetof(cli_place, host_experts),                         \
         .help = "of a mixture: routed experts in RAM, the rest on the GPU"},                      \
        {"n-cpu-moe",  0,                                                                          \
         ARG_INT,      (at) + offsetof(cli_place, n_host_experts),                                 \
         .low = 0,     .high = 10000,                                                              \
         .value = "N", .help = "the same with the experts of the first N layers alone"},           \
        {"gpu-memory",                                                                             \
         0,                                                                                        \
         ARG_BYTES,                                                                                \
         (at) + offsetof(cli_place, card_bytes),                                                   \
         .value = "BYTES",                                                                         \
         .help = "as if the GPU had so much memory free: what does not fit stays on the CPU"},     \
        {"tensor-split",                                                                           \
         0,                                                                                        \
         ARG_TEXT,                                                                                 \
         (at) + offsetof(cli_place, split),                                                        \
         .value = "A,B,...",                                                                       \
         .help = "with --device cuda:0,cuda:1: how the layers, or rows, are divided among them"},  \
        {"split-mode",                                                                             \
         0,                                                                                        \
         ARG_TEXT,                                                                                 \
         (at) + offsetof(cli_place, split_mode),                                                   \
         .value = "layer|row",                                                                     \
         .help = "with several devices: each has some layers (default), or some rows of every "    \
                 "matrix, so that all work on every token"},                                       \
        CLI_FAST_PROMPTS_OPTION((at) + offsetof(cli_place, fast_prompts)),                         \
    {                                                                                              \
        "place", 0, ARG_TEXT, (at) + offsetof(cli_place, file),                                    \
            .value = "FILE", .help = "put everything where lace place -o FILE says"                \
    }

/* Let a model lie as the options say, with room for a context (0: as usual); behind cli_use_ranks. */
lace_status cli_use_place(cli_place *p, int32_t n_context, lace_model_options *o, lace_error *err);

/* Let a model be divided as the options say, and by mpirun if that has started this program. */
void cli_use_ranks(cli_ranks *r, lace_model_options *o);

/* The same for thresholds, const char *activation_sparsity. */
#define CLI_SPARSITY_HELP                                                                          \
    "single tokens skip weights whose inputs are below these thresholds (lace sparsify)"
#define CLI_SPARSITY_OPTION(args)                                                                  \
    {                                                                                              \
        "activation-sparsity", 0, ARG_TEXT, offsetof(args, activation_sparsity),                   \
            .value = "FILE", .help = CLI_SPARSITY_HELP                                             \
    }

/*
 * Options that several verbs have, each for a field of the verb's arguments: n_threads, kv_type
 * and v_type, mmap, exact, n_context (of a window), n_windows.
 */
#define CLI_THREADS_OPTION(args)                                                                   \
    {                                                                                              \
        "threads", 't', ARG_INT, offsetof(args, n_threads),                                        \
            .low = 1, .high = CLI_MAX_THREADS, .value = "N",                                       \
            .help = "threads (default: one per core)"                                              \
    }
#define CLI_KV_TYPE_OPTION(args, usual)                                                            \
    {"kv-type",                                                                                    \
     0,                                                                                            \
     ARG_CHOICE,                                                                                   \
     offsetof(args, kv_type),                                                                      \
     .value = CLI_KV_TYPES,                                                                        \
     .help = "type of the numbers in the KV cache (default " usual ")"},                           \
    {                                                                                              \
        "v-type", 0, ARG_CHOICE, offsetof(args, v_type), .value = CLI_KV_TYPES,                    \
                                                         .help = CLI_V_TYPE_HELP                   \
    }
#define CLI_MMAP_OPTION(args)                                                                      \
    {                                                                                              \
        "mmap", 0, ARG_FLAG, offsetof(args, mmap),                                                 \
            .help = "use the weights as they are in the file: less memory, slower"                 \
    }
#define CLI_EXACT_OPTION(args)                                                                     \
    {                                                                                              \
        "exact", 0, ARG_FLAG, offsetof(args, exact),                                               \
            .help = "f32 activations for quantized weights too; slow"                              \
    }
#define CLI_WINDOW_OPTION(args)                                                                    \
    {                                                                                              \
        "ctx-size", 'c', ARG_INT, offsetof(args, n_context),                                       \
            .low = 4, .high = CLI_MAX_CONTEXT, .value = "N",                                       \
            .help = "tokens of a window (default 512)"                                             \
    }
#define CLI_WINDOWS_OPTION(args, what)                                                             \
    {                                                                                              \
        "windows", 0, ARG_INT, offsetof(args, n_windows), .low = 1, .high = INT32_MAX,             \
                                                          .value = "N", .help = what               \
    }

enum {
    CLI_MAX_TEXT = 256 << 20, /* bytes of a text that is read whole */
    CLI_MAX_THREADS = 1024,
    CLI_MAX_CONTEXT = 1 << 27,
    CLI_MAX_BATCH = 1 << 16,
    CLI_CARD_BATCH = 2048,
};

/* Says on standard error that a context is longer than the model was made for, if it is. */
void cli_note_long_context(const lace_model *model, int32_t n_context);

/* Open the model at a path, or the built-in one if path is NULL. */
lace_status cli_open_model(const char *path, const lace_model_options *options, lace_model **out,
                           lace_error *err);

/*
 * Open a model's tower. path: as lace_tower_open has it. Unless max_tokens says something else, an image whose
 * size may be chosen takes half of a context of n_context tokens at most, so that its text has
 * room; 0: a context that is large.
 */
lace_status cli_open_tower(const lace_model *model, const char *path, lace_tower_options options,
                           int32_t n_context, lace_tower **out, lace_error *err);

/* Tokens of a prompt to hand over at once: as many as a session computes together, unless told
 * otherwise. It can be stopped between two such pieces. */
int32_t cli_batch(const lace_model *model);

/* The tokens of a text; *out is to be freed with mem_free. */
lace_status cli_tokenize(const lace_model *model, const char *text, size_t n_bytes, unsigned flags,
                         lace_token **out, size_t *n_out, lace_error *err);
/* And with contents in which no control token is found (lace_tokenize_contents). */
lace_status cli_tokenize_contents(const lace_model *model, const char *text, size_t n_bytes,
                                  const lace_range *contents, size_t n_contents, unsigned flags,
                                  lace_token **out, size_t *n_out, lace_error *err);

/*
 * From now on the first Ctrl-C (SIGINT) or SIGTERM sets *cli_stop, so that work ends in good order;
 * the second one ends the program at once. A verb that stopped returns LACE_E_CANCELLED.
 */
void cli_catch_stop(void);
extern volatile int cli_stop;

/* Write to standard output, now. A full disk is an error here, not a surprise later. */
lace_status cli_write(const void *data, size_t n_bytes, lace_error *err);

/* Append a text that may come from a file to a line for people: control characters become '?'. */
lace_status cli_append_clean(buf *out, const char *data, size_t n_bytes);

/* "8.5 MB", into out. Returns out. */
const char *cli_format_bytes(uint64_t n_bytes, char out[32]);

#endif
