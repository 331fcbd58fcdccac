/* lace quantize: a smaller file of a model. */
#include "compress/calibrate.h"
#include "compress/type_rules.h"

#include <string.h>

#include "base/file.h"
#include "cli/as_gguf.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/progress.h"

typedef struct quantize_args {
    const char *type, *imatrix, *calibrate;
    uint64_t size;
    int32_t n_windows;
    bool requantize, pure;
    const char *output_type, *embedding_type;
    arg_texts tensor_types;
    int32_t n_threads;
    const char *device;
    bool force;
} quantize_args;

/* clang-format off */
static const arg_option options[] = {
    {"type", 0, ARG_TEXT, offsetof(quantize_args, type), .value = "TYPE",
     .help = "of most matrices: q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 "
             "q4_0 iq4_nl iq4_xs mxfp4 q3_k_l q3_k_m q3_k_s q2_k q2_k_s; lace's own: s8 s6 s5 s4 s3 s2 t5 t4 t3 t2"},
    {"imatrix", 0, ARG_TEXT, offsetof(quantize_args, imatrix), .value = "FILE",
     .help = "which inputs matter: a file of lace imatrix or llama-imatrix, also an old imatrix.dat"},
    {"calibrate", 0, ARG_TEXT, offsetof(quantize_args, calibrate), .value = "TEXT",
     .help = "round so that predictions on this text change least; slow, but much better"},
    {"size", 0, ARG_BYTES, offsetof(quantize_args, size), .value = "BYTES",
     .help = "with --calibrate and one of lace's own types: the size of the file; each matrix gets the "
             "type, s2 to s6 or (of t...) t2 to t5, that its share of the predictions is worth"},
    CLI_WINDOWS_OPTION(quantize_args, "with --calibrate: windows of 512 tokens to read (default 128; 32 for large models)"),
    {"device", 0, ARG_TEXT, offsetof(quantize_args, device), .value = "cpu|auto|cuda[:N]|ref",
     .help = "with --calibrate: where inputs are summed up and the sums factorized (default cpu)"},
    {"tensor-type", 0, ARG_TEXTS, offsetof(quantize_args, tensor_types), .value = "PATTERN=TYPE",
     .help = "the type of tensors in whose names the regular expression is found, as in "
             "attn_v=q8_0; several times: the first that matches"},
    {"output-tensor-type", 0, ARG_TEXT, offsetof(quantize_args, output_type), .value = "TYPE",
     .help = "type of output.weight"},
    {"token-embedding-type", 0, ARG_TEXT, offsetof(quantize_args, embedding_type), .value = "TYPE",
     .help = "type of token_embd.weight"},
    {"pure", 0, ARG_FLAG, offsetof(quantize_args, pure),
     .help = "use the type for all matrices, without better types for those that matter more"},
    {"requantize", 0, ARG_FLAG, offsetof(quantize_args, requantize),
     .help = "accept a model that is already quantized"},
    CLI_THREADS_OPTION(quantize_args),
    OUTPUT_FORCE_OPTION(quantize_args),
};
/* clang-format on */

static lace_status report(const char *path, const quantize_args *a, const quantize_result *r,
                          lace_error *err)
{
    char before[32], after[32];
    buf line;
    buf_init(&line, 8192);
    double bits = 8 * (double)r->bytes_after / (double)r->n_parameters;
    lace_status status = buf_printf(
        &line, "%s: %s to %s in tensors, %.2f bits a weight, %zu of %zu tensors quantized\n", path,
        cli_format_bytes(r->bytes_before, before), cli_format_bytes(r->bytes_after, after), bits,
        r->n_quantized, r->n_tensors);
    if (status == LACE_OK && r->n_without_importance > 0)
        status = buf_printf(&line, "%s does not know %zu of them\n", a->imatrix,
                            r->n_without_importance);
    if (status == LACE_OK)
        status = cli_write(line.data, line.size, err);
    buf_deinit(&line);
    return status;
}

static lace_status calibrate(const quantize_args *a, const char *input, const quantize_options *q,
                             quantize_made **out, lace_error *err)
{
    calibrate_options o = calibrate_options_default();
    buf source;
    buf_init(&source, CLI_MAX_TEXT);
    lace_status status = file_read(a->calibrate, &source, err);
    o.mix = q->mix;
    o.types = q->made;
    o.size = a->size;
    o.text = source.data ? source.data : "";
    o.n_bytes = source.size;
    o.n_threads = a->n_threads;
    o.device = a->device;
    if (a->n_windows)
        o.n_windows = a->n_windows;
    o.on_progress = q->on_progress;
    o.progress_user = q->progress_user;
    if (status == LACE_OK)
        status = calibrate_model(input, &o, out, err);
    buf_deinit(&source);
    return status;
}

/* Types by name, and blocks by a text; then all is written. */
static lace_status quantize(const quantize_args *a, const char *input, const output *to,
                            quantize_options *o, quantize_result *result, lace_error *err)
{
    quantize_made *types = NULL, *blocks = NULL;
    type_rules rules = {.is_pure = a->pure,
                        .output = a->output_type,
                        .embedding = a->embedding_type,
                        .tensors = a->tensor_types.at,
                        .n_tensors = a->tensor_types.n};
    lace_status status = LACE_OK;
    if (type_rules_are_any(&rules))
        status = type_rules_apply(input, o->mix, &rules, a->imatrix || a->calibrate, &types, err);
    o->made = types;
    if (status == LACE_OK && a->calibrate)
        status = calibrate(a, input, o, &blocks, err);
    if (types && blocks)
        quantize_made_take_blocks(types, blocks);
    o->made = types ? types : blocks;
    if (status == LACE_OK)
        status = quantize_model(input, to->path, o, result, err);
    quantize_made_free(types);
    quantize_made_free(blocks);
    return status;
}

/* What the table of options cannot know; *m is the mix that is meant. */
static lace_status check_args(const verb *v, quantize_args *a, const positional *words,
                              const mix **m, lace_error *err)
{
    if (a->type && words->count == 3)
        return args_error(v, err, "--type and the argument \"%.40s\" exclude each other",
                          words->at[2]);
    if (!a->type)
        a->type = words->at[2];
    if (!a->type)
        return args_error(v, err, "TYPE is missing");
    if (a->size && !a->calibrate)
        return args_error(v, err, "--size needs --calibrate TEXT");
    if (a->calibrate && a->imatrix)
        return args_error(v, err, "--calibrate and --imatrix exclude each other");
    *m = mix_find(a->type);
    if (!*m) {
        lace_error why;
        mix_refuse(a->type, &why);
        return args_error(v, err, "%s", why.text);
    }
    if (a->size && !mix_is_own(*m))
        return args_error(v, err,
                          "--size chooses among lace's own types, and %s is not one of them; lace "
                          "fit --types gguf --size chooses among GGUF's types",
                          (*m)->name);
    if (a->size && (a->tensor_types.n || a->output_type || a->embedding_type || a->pure))
        return args_error(v, err,
                          "--size chooses the types: it excludes --tensor-type, "
                          "--output-tensor-type, --token-embedding-type and --pure");
    return LACE_OK;
}

static lace_status quantize_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    quantize_args a = {0};
    positional words;
    quantize_options o = quantize_options_default();
    output to;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    TRY(check_args(v, &a, &words, &o.mix, err));
    const char *const inputs[] = {words.at[0], a.imatrix, a.calibrate};
    TRY(output_begin(&to, words.at[1], a.force, inputs, 3, err));
    output_must_run(&to, false);
    imatrix *importance = NULL;
    if (a.imatrix)
        TRY(imatrix_read(a.imatrix, &importance, err));
    cli_catch_stop();
    progress bar;
    progress_init(&bar, &cli_stop);
    o.importance = importance;
    o.importance_path = a.imatrix;
    o.allow_requantize = a.requantize;
    o.n_threads = a.n_threads;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    o.rules = &to.rules;
    quantize_result result;
    lace_status status = LACE_OK;
    as_gguf source = {.fd = -1};
    const char *input = words.at[0];
    if (a.calibrate) {
        status = as_gguf_open(input, words.at[1], &bar, &source, err);
        input = source.path;
    }
    if (status == LACE_OK)
        status = quantize(&a, input, &to, &o, &result, err);
    progress_end(&bar);
    as_gguf_close(&source);
    imatrix_free(importance);
    return status == LACE_OK ? report(words.at[1], &a, &result, err) : status;
}

VERB(quantize, "quantize", "IN OUT TYPE [options]",
     "make a model smaller: fewer bits for each weight", 2, 3,
     .description =
         "IN is a GGUF file or a Hugging Face directory. OUT appears when it is complete.\n"
         "TYPE, in small or capital letters, may also stand behind --type.\n"
         "lace perplexity OUT -f TEXT --against IN says what it has cost.\n"
         "OUT is run once before it gets its name.\n",
     .examples =
         "  lace quantize model-f16.gguf model-q4.gguf --type q4_k_m\n"
         "  lace quantize models/smollm2 smollm2.gguf --type q6_k --imatrix smollm2.imatrix\n"
         "  lace quantize model-f16.gguf model-q4.gguf q4_k_m --tensor-type attn_v=q8_0\n")
