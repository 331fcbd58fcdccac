/* The verb `lora`: what is done with adapters beside using them. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "compress/merge.h"

typedef struct lora_args {
    const char *output, *type;
    float scale;
    bool force;
} lora_args;

/* clang-format off */
static const arg_option options[] = {
    {"output", 'o', ARG_TEXT, offsetof(lora_args, output), .value = "OUT",
     .help = "the GGUF file to write", .is_needed = true},
    {"scale", 0, ARG_FLOAT, offsetof(lora_args, scale), .low = -1e6, .high = 1e6, .value = "X",
     .help = "how much of the adapter: 0.5 is half (default 1)"},
    {"type", 0, ARG_TEXT, offsetof(lora_args, type), .value = "TYPE",
     .help = "type of the matrices that change, as f16 or q8_0 (default: as they are in the model)"},
    OUTPUT_FORCE_OPTION(lora_args),
};
/* clang-format on */

static lace_status lora_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    lora_args a = {.scale = 1};
    positional words;
    if (argc == 0 || (argv[0][0] != '-' && strcmp(argv[0], "merge") != 0))
        return args_error(v, err, "use lace lora merge MODEL ADAPTER -o OUT");
    merge_options o = merge_options_default();
    merge_result made;
    output file;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (strcmp(words.at[0], "merge") != 0)
        return args_error(v, err, "lace lora %.40s: expected merge", words.at[0]);
    o.scale = a.scale;
    o.has_type = a.type != NULL;
    if (a.type && !dtype_from_name(a.type, &o.type))
        return args_error(v, err, "--type \"%.40s\": there is no such type", a.type);
    const char *const inputs[] = {words.at[1], words.at[2]};
    TRY(output_begin(&file, a.output, a.force, inputs, 2, err));
    output_must_run(&file, false);
    cli_catch_stop();
    progress bar;
    progress_init(&bar, &cli_stop);
    o.rules = &file.rules;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    lace_status status = merge_adapter(words.at[1], words.at[2], a.output, &o, &made, err);
    progress_end(&bar);
    TRY(status);
    char line[512];
    int n = snprintf(line, sizeof line, "%.300s: %zu of %zu tensors merged, rank %d\n", a.output,
                     made.n_merged, made.n_tensors, made.rank);
    return cli_write(line, (size_t)n, err);
}

VERB(lora, "lora", "merge MODEL ADAPTER -o OUT [options]", "merge a LoRA adapter into a model", 3,
     3,
     .description =
         "Writes a GGUF file with the weights of the model and what the adapter adds to them, for\n"
         "programs without adapters. MODEL and ADAPTER are GGUF files or directories. To use an\n"
         "adapter beside a model: --lora of run, chat, serve, perplexity and logits.\n",
     .examples = "  lace lora merge model.gguf adapter.gguf -o merged.gguf\n"
                 "  lace lora merge Qwen3-0.6B/ my-peft/ -o merged.gguf --scale 0.5 --type q8_0\n")
