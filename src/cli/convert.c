/* lace convert: a GGUF file from a Hugging Face directory. */
#include "compress/convert.h"
#include "compress/quantize.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/output.h"
#include "cli/progress.h"

typedef struct convert_args {
    const char *output;
    int32_t type;
    bool no_vocab, force;
} convert_args;

#define TYPE_WORDS "auto|f32|f16|bf16|q8_0|q6_k|q4_k_m|q4_0|s8|s6|s5|s4|s3|s2|t5|t4|t3|t2"
static const dtype types[] = {DTYPE_F16, DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0};
/* What follows is quantized, with searched scales. */
static const char *const mixes[] = {"q6_k", "q4_k_m", "q4_0", "s8", "s6", "s5", "s4",
                                    "s3",   "s2",     "t5",   "t4", "t3", "t2"};
enum { N_PLAIN = sizeof types / sizeof *types };

/* clang-format off */
static const arg_option options[] = {
    {"output", 'o', ARG_TEXT, offsetof(convert_args, output), .value = "OUT",
     .help = "the file to write; it appears when complete", .is_needed = true},
    {"type", 0, ARG_CHOICE, offsetof(convert_args, type), .value = TYPE_WORDS,
     .help = "type of the matrices; auto (default): the type of most of them; the rest stays f32"},
    {"no-vocab", 0, ARG_FLAG, offsetof(convert_args, no_vocab),
     .help = "leave the tokenizer out"},
    OUTPUT_FORCE_OPTION(convert_args),
};
/* clang-format on */

static lace_status report_quantized(const char *path, const char *type, const quantize_result *r,
                                    lace_error *err)
{
    buf line;
    buf_init(&line, 8192);
    lace_status status = buf_printf(&line, "%s: %.1f million parameters in %zu tensors, %s\n", path,
                                    (double)r->n_parameters * 1e-6, r->n_tensors, type);
    if (status == LACE_OK)
        status = cli_write(line.data, line.size, err);
    buf_deinit(&line);
    return status;
}

static lace_status report(const char *path, const convert_result *r, lace_error *err)
{
    buf line;
    buf_init(&line, 8192);
    lace_status status = buf_printf(&line, "%s: %s, %.1f million parameters in %zu tensors, %s\n",
                                    path, r->architecture, (double)r->n_parameters * 1e-6,
                                    r->n_tensors, dtype_describe(r->type)->name);
    if (status == LACE_OK)
        status = cli_write(line.data, line.size, err);
    buf_deinit(&line);
    return status;
}

static lace_status convert_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    convert_args a = {0};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (a.type >= N_PLAIN && a.no_vocab)
        return args_error(v, err, "--no-vocab is for f32, f16, bf16 and q8_0");
    output made;
    const char *const inputs[] = {words.at[0]};
    TRY(output_begin(&made, a.output, a.force, inputs, 1, err));
    output_must_run(&made, !a.no_vocab);
    cli_catch_stop();
    progress bar;
    progress_init(&bar, &cli_stop);
    if (a.type >= N_PLAIN) {
        quantize_options q = quantize_options_default();
        q.rules = &made.rules;
        q.mix = mix_find(mixes[a.type - N_PLAIN]);
        q.on_progress = progress_report;
        q.progress_user = &bar;
        quantize_result result;
        lace_status status = quantize_model(words.at[0], a.output, &q, &result, err);
        progress_end(&bar);
        return status == LACE_OK ? report_quantized(a.output, q.mix->name, &result, err) : status;
    }
    convert_options o = convert_options_default();
    o.has_type = a.type != 0;
    o.type = types[a.type];
    o.no_vocab = a.no_vocab;
    o.rules = &made.rules;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    convert_result result;
    lace_status status = convert_directory(words.at[0], a.output, &o, &result, err);
    progress_end(&bar);
    return status == LACE_OK ? report(a.output, &result, err) : status;
}

VERB(convert, "convert", "DIR -o OUT [options]", "make a GGUF file of a Hugging Face directory", 1,
     1,
     .description = "DIR has config.json and model.safetensors, in one piece or with an index.\n",
     .examples = "  lace convert models/smollm2 -o smollm2.gguf\n"
                 "  lace convert models/smollm2 -o smollm2-q8.gguf --type q8_0\n")
