/*
 * lace inspect: what a model file holds and what running it will take. The tensors come from the
 * file's directory, so that a file is described even if lace cannot run it; then it says why.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/builtin_model.h"
#include "cli/cli.h"
#include "formats/weights.h"

typedef struct inspect_args {
    bool tensors;
    int32_t output; /* 0: table, 1: JSON */
    int32_t n_context, kv_type, v_type;
    const char *device;
} inspect_args;

/* clang-format off */
static const arg_option options[] = {
    {"tensors", 0, ARG_FLAG, offsetof(inspect_args, tensors), .help = "list every tensor"},
    {"output", 'o', ARG_CHOICE, offsetof(inspect_args, output), .value = "table|json",
     .help = "for people or for programs (default table)"},
    {"ctx-size", 'c', ARG_INT, offsetof(inspect_args, n_context), .low = 0,
     .high = CLI_MAX_CONTEXT, .value = "N",
     .help = "memory for this context; 0 (default): the model's own, at most 4096"},
    {"kv-type", 0, ARG_CHOICE, offsetof(inspect_args, kv_type), .value = CLI_KV_TYPES,
     .help = "memory with this KV cache (default f16)"},
    {"v-type", 0, ARG_CHOICE, offsetof(inspect_args, v_type), .value = CLI_KV_TYPES,
     .help = CLI_V_TYPE_HELP},
    {"device", 0, ARG_TEXT, offsetof(inspect_args, device), .value = CLI_DEVICES,
     .help = "memory on this device (default cpu)"},
};
/* clang-format on */

/* Everything that is known of a model before it is printed. */
typedef struct findings {
    const weights *files;
    uint64_t n_tensors[DTYPE_COUNT];
    uint64_t n_bytes[DTYPE_COUNT];
    uint64_t total_bytes;
    dtype by_size[DTYPE_COUNT]; /* the types that occur, largest share first */
    int n_types;
    bool is_runnable;
    bool has_vocab;       /* not runnable, but its vocabulary can be read */
    lace_model_info info; /* if runnable; of the vocabulary, if it has one */
    lace_memory memory;   /* if runnable */
    int32_t n_context;    /* that memory was computed for */
    const char *kv_type;
    lace_error why_not; /* if not runnable */
} findings;

static void count_types(findings *f)
{
    for (size_t i = 0; i < weights_count(f->files); i++) {
        const tensor *t = weights_at(f->files, i);
        f->n_tensors[t->type]++;
        f->n_bytes[t->type] += t->n_bytes;
        f->total_bytes += t->n_bytes;
    }
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (f->n_tensors[type] == 0)
            continue;
        int at = f->n_types++;
        for (; at > 0 && f->n_bytes[f->by_size[at - 1]] < f->n_bytes[type]; at--)
            f->by_size[at] = f->by_size[at - 1];
        f->by_size[at] = (dtype)type;
    }
}

static double share(const findings *f, dtype type)
{
    return f->total_bytes ? 100.0 * (double)f->n_bytes[type] / (double)f->total_bytes : 0;
}

/* What the engine says of the model, or why it cannot run it. */
static void ask_engine(findings *f, const lace_model *model, const inspect_args *a)
{
    lace_model_describe(model, &f->info);
    lace_session_options o = lace_session_options_default();
    f->n_context = a->n_context;
    if (f->n_context == 0)
        f->n_context = f->info.n_context < 4096 ? f->info.n_context : 4096;
    o.n_context = f->n_context;
    o.kv_type = (lace_kv_type)a->kv_type;
    o.v_type = (lace_kv_type)a->v_type;
    o.wants_hidden = f->info.is_encoder;
    f->kv_type = cli_kv_names[a->kv_type];
    f->is_runnable = lace_session_memory(model, &o, &f->memory, &f->why_not) == LACE_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static lace_status row_text(buf *out, const char *label, const char *value)
{
    if (!value[0])
        return LACE_OK;
    TRY(buf_printf(out, "%-14s", label));
    TRY(cli_append_clean(out, value, strlen(value)));
    return buf_append(out, "\n", 1);
}

static lace_status append_vocab(buf *out, const lace_model_info *i)
{
    TRY(buf_printf(out, "%-14s%s, %d tokens", "tokenizer", i->tokenizer[0] ? i->tokenizer : "none",
                   i->n_vocab));
    if (i->bos >= 0)
        TRY(buf_printf(out, ", BOS %d", i->bos));
    if (i->eos >= 0)
        TRY(buf_printf(out, ", EOS %d", i->eos));
    return buf_printf(out, "\n%-14s%s\n", "chat template", i->chat_template[0] ? "yes" : "no");
}

static lace_status append_model(buf *out, const findings *f)
{
    const lace_model_info *i = &f->info;
    TRY(row_text(out, "name", i->name));
    TRY(row_text(out, "architecture", i->architecture));
    TRY(buf_printf(out, "%-14s%llu (%.3g %s)\n", "parameters", (unsigned long long)i->n_parameters,
                   (double)i->n_parameters / (i->n_parameters < 1000000000 ? 1e6 : 1e9),
                   i->n_parameters < 1000000000 ? "million" : "billion"));
    TRY(buf_printf(out, "%-14s%d layers, width %d, FFN %d\n", "shape", i->n_layers, i->n_embd,
                   i->n_ff));
    if (i->n_predicting > 0)
        TRY(buf_printf(out, "%-14s%d %s behind the others, for further tokens (--mtp)\n",
                       "predicting", i->n_predicting, i->n_predicting == 1 ? "layer" : "layers"));
    if (i->n_experts > 0)
        TRY(buf_printf(out, "%-14s%d of width %d, %d of them for a token\n", "experts",
                       i->n_experts, i->n_ff_expert, i->n_experts_used));
    TRY(buf_printf(out, "%-14s%d heads of %d, %d KV heads\n", "attention", i->n_heads, i->head_dim,
                   i->n_kv_heads));
    TRY(buf_printf(out, "%-14s%d tokens\n", "context", i->n_context));
    return append_vocab(out, i);
}

static lace_status append_memory(buf *out, const findings *f)
{
    const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {
        {"weights", f->memory.weights},      {"KV cache", f->memory.kv},
        {"scratch", f->memory.scratch},      {"total", f->memory.total},
        {"free there", f->memory.available},
    };
    TRY(buf_printf(out, "\nmemory of a run on %s, context %d, KV cache in %s\n", f->info.device,
                   f->n_context, f->kv_type));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] - (f->memory.available == 0); i++) {
        char size[32];
        TRY(buf_printf(out, "  %-12s%14llu  %s\n", rows[i].name, (unsigned long long)rows[i].bytes,
                       cli_format_bytes(rows[i].bytes, size)));
    }
    TRY(buf_printf(out, "  of the KV cache %llu bytes a token",
                   (unsigned long long)f->memory.token_bytes));
    if (f->memory.sequence_bytes)
        TRY(buf_printf(out, ", and %llu a sequence, whatever its length",
                       (unsigned long long)f->memory.sequence_bytes));
    return buf_append(out, "\n", 1);
}

static lace_status append_tensors(buf *out, const weights *files)
{
    TRY(buf_printf(out, "\n%-10s%-24s%14s  %s\n", "type", "shape", "bytes", "tensor"));
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor *t = weights_at(files, i);
        char dims[96];
        TRY(buf_printf(out, "%-10s%-24s%14llu  ", dtype_describe(t->type)->name,
                       shape_format(&t->shape, dims), (unsigned long long)t->n_bytes));
        TRY(cli_append_clean(out, t->name.data, t->name.size));
        TRY(buf_append(out, "\n", 1));
    }
    return LACE_OK;
}

static lace_status append_table(buf *out, const findings *f, const inspect_args *a)
{
    char size[32];
    TRY(row_text(out, "file", weights_name(f->files)));
    TRY(buf_printf(out, "%-14s%llu bytes (%s)\n", "size",
                   (unsigned long long)weights_file_bytes(f->files),
                   cli_format_bytes(weights_file_bytes(f->files), size)));
    if (f->is_runnable)
        TRY(append_model(out, f));
    else
        TRY(row_text(out, "cannot run", f->why_not.text));
    if (f->has_vocab) {
        TRY(row_text(out, "name", f->info.name));
        TRY(append_vocab(out, &f->info));
    }
    if (f->n_types > 0)
        TRY(buf_printf(out, "\n%-10s%8s%16s%9s\n", "type", "tensors", "bytes", "share"));
    else
        TRY(row_text(out, "tensors", "none"));
    for (int i = 0; i < f->n_types; i++) {
        dtype type = f->by_size[i];
        TRY(buf_printf(out, "%-10s%8llu%16llu%8.1f%%\n", dtype_describe(type)->name,
                       (unsigned long long)f->n_tensors[type], (unsigned long long)f->n_bytes[type],
                       share(f, type)));
    }
    if (f->is_runnable)
        TRY(append_memory(out, f));
    if (a->tensors)
        TRY(append_tensors(out, f->files));
    return LACE_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/*
 * Set a member or append an item, taking over the value. Without memory the container is dropped
 * and becomes NULL, which jansson lets later calls pass on: one check at the end is enough.
 */
static void put(json_t **object, const char *key, json_t *value)
{
    if (json_object_set_new(*object, key, value) != 0) {
        json_decref(*object);
        *object = NULL;
    }
}

static void add(json_t **array, json_t *value)
{
    if (json_array_append_new(*array, value) != 0) {
        json_decref(*array);
        *array = NULL;
    }
}

static json_t *json_number(uint64_t n)
{
    return json_integer((json_int_t)n); /* sizes of files: they fit */
}

/* A JSON string of bytes that may not be UTF-8. */
static json_t *json_text(const char *data, size_t n)
{
    json_t *plain = json_stringn(data, n);
    if (plain)
        return plain;
    buf clean;
    buf_init(&clean, 4 * n + 4);
    json_t *repaired = NULL;
    if (cli_append_clean(&clean, data, n) == LACE_OK)
        repaired = json_stringn(clean.data ? clean.data : "", clean.size);
    buf_deinit(&clean);
    return repaired;
}

static json_t *json_model(const lace_model_info *i)
{
    json_t *o = json_object();
    put(&o, "name", json_text(i->name, strlen(i->name)));
    put(&o, "architecture", json_text(i->architecture, strlen(i->architecture)));
    put(&o, "type", json_text(i->type, strlen(i->type)));
    put(&o, "tokenizer", json_text(i->tokenizer, strlen(i->tokenizer)));
    put(&o, "has_chat_template", json_boolean(i->chat_template[0] != 0));
    put(&o, "n_parameters", json_number(i->n_parameters));
    put(&o, "weight_bytes", json_number(i->weight_bytes));
    put(&o, "n_layers", json_integer(i->n_layers));
    put(&o, "n_embd", json_integer(i->n_embd));
    put(&o, "n_heads", json_integer(i->n_heads));
    put(&o, "n_kv_heads", json_integer(i->n_kv_heads));
    put(&o, "head_dim", json_integer(i->head_dim));
    put(&o, "n_ff", json_integer(i->n_ff));
    put(&o, "n_predicting", json_integer(i->n_predicting));
    put(&o, "n_experts", json_integer(i->n_experts));
    put(&o, "n_experts_used", json_integer(i->n_experts_used));
    put(&o, "n_ff_expert", json_integer(i->n_ff_expert));
    put(&o, "n_vocab", json_integer(i->n_vocab));
    put(&o, "n_context", json_integer(i->n_context));
    put(&o, "bos", json_integer(i->bos));
    put(&o, "eos", json_integer(i->eos));
    return o;
}

static json_t *json_vocab(const lace_model_info *i)
{
    json_t *o = json_object();
    put(&o, "tokenizer", json_text(i->tokenizer, strlen(i->tokenizer)));
    put(&o, "has_chat_template", json_boolean(i->chat_template[0] != 0));
    put(&o, "n_vocab", json_integer(i->n_vocab));
    put(&o, "bos", json_integer(i->bos));
    put(&o, "eos", json_integer(i->eos));
    return o;
}

static json_t *json_memory(const findings *f)
{
    json_t *o = json_object();
    put(&o, "n_context", json_integer(f->n_context));
    put(&o, "kv_type", json_string(f->kv_type));
    put(&o, "weights", json_number(f->memory.weights));
    put(&o, "kv", json_number(f->memory.kv));
    put(&o, "token_bytes", json_number(f->memory.token_bytes));
    put(&o, "sequence_bytes", json_number(f->memory.sequence_bytes));
    put(&o, "scratch", json_number(f->memory.scratch));
    put(&o, "total", json_number(f->memory.total));
    put(&o, "device", json_text(f->info.device, strlen(f->info.device)));
    if (f->memory.available)
        put(&o, "available", json_number(f->memory.available));
    return o;
}

static json_t *json_types(const findings *f)
{
    json_t *types = json_array();
    for (int i = 0; i < f->n_types; i++) {
        dtype type = f->by_size[i];
        json_t *o = json_object();
        put(&o, "type", json_string(dtype_describe(type)->name));
        put(&o, "tensors", json_number(f->n_tensors[type]));
        put(&o, "bytes", json_number(f->n_bytes[type]));
        put(&o, "share_percent", json_real(share(f, type)));
        add(&types, o);
    }
    return types;
}

static json_t *json_tensors(const weights *files)
{
    json_t *tensors = json_array();
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor *t = weights_at(files, i);
        json_t *dims = json_array();
        for (int d = 0; d < t->shape.n_dims; d++)
            add(&dims, json_integer((json_int_t)t->shape.dims[d]));
        json_t *o = json_object();
        put(&o, "name", json_text(t->name.data, t->name.size));
        put(&o, "type", json_string(dtype_describe(t->type)->name));
        put(&o, "shape", dims);
        put(&o, "bytes", json_number(t->n_bytes));
        add(&tensors, o);
    }
    return tensors;
}

static json_t *json_findings(const findings *f, const inspect_args *a)
{
    const char *name = weights_name(f->files);
    json_t *o = json_object();
    put(&o, "file", json_text(name, strlen(name)));
    put(&o, "file_bytes", json_number(weights_file_bytes(f->files)));
    put(&o, "runnable", json_boolean(f->is_runnable));
    if (f->is_runnable) {
        put(&o, "model", json_model(&f->info));
        put(&o, "memory", json_memory(f));
    } else {
        put(&o, "why_not", json_text(f->why_not.text, strlen(f->why_not.text)));
        if (f->has_vocab)
            put(&o, "vocabulary", json_vocab(&f->info));
    }
    put(&o, "types", json_types(f));
    if (a->tensors)
        put(&o, "tensors", json_tensors(f->files));
    return o;
}

static lace_status append_json(buf *out, const findings *f, const inspect_args *a)
{
    json_t *root = json_findings(f, a);
    char *dump = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    lace_status status = dump ? buf_append_text(out, dump) : LACE_E_NOMEM;
    if (status == LACE_OK)
        status = buf_append(out, "\n", 1);
    free(dump); /* jansson's, not ours */
    json_decref(root);
    return status;
}

/* ---- The verb -------------------------------------------------------------------------------- */

static lace_status print_findings(const findings *f, const inspect_args *a, lace_error *err)
{
    buf out;
    buf_init(&out, SIZE_MAX / 2);
    lace_status status = a->output == 0 ? append_table(&out, f, a) : append_json(&out, f, a);
    if (status == LACE_OK)
        status = cli_write(out.data, out.size, err);
    else
        error_nomem(err, "the description");
    buf_deinit(&out);
    return status;
}

static lace_status inspect_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    inspect_args a = {.kv_type = LACE_KV_F16, .v_type = LACE_KV_SAME};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    const char *path = words.at[0];
    span builtin = {cli_builtin_model, (size_t)(cli_builtin_model_end - cli_builtin_model)};
    weights *files;
    bool is_peft = false;
    lace_status status = path ? weights_open(path, &files, err)
                              : weights_open_memory(builtin, CLI_BUILTIN_NAME, &files, err);
    if (status != LACE_OK && path) { /* it may be an adapter: a directory without config.json */
        lace_error fault;
        lace_status as_adapter = weights_open_adapter(path, &files, &fault);
        is_peft = as_adapter == LACE_OK;
        if (!is_peft && as_adapter != LACE_E_IO) { /* and a broken one */
            *err = fault;
            return as_adapter;
        }
    }
    if (status != LACE_OK && !is_peft)
        return status;

    findings f = {.files = files};
    count_types(&f);
    lace_model_options model_options = lace_model_options_default();
    model_options.device = a.device;
    lace_model *model;
    status = cli_open_model(path, &model_options, &model, &f.why_not);
    if (is_peft) {
        error_set(
            &f.why_not, LACE_E_META,
            "is a LoRA adapter, no model: use it with --lora beside the model that it is for");
    } else if (status == LACE_OK) {
        ask_engine(&f, model, &a);
    } else {
        model_options.vocab_only = true;
        f.has_vocab = cli_open_model(path, &model_options, &model, NULL) == LACE_OK;
        if (f.has_vocab)
            lace_model_describe(model, &f.info);
    }
    /* A model that cannot run can be described; on a device that is not there, nothing is asked. */
    bool is_asked = status == LACE_E_DEVICE || (status == LACE_E_ARG && a.device);
    status = is_asked ? error_set(err, status, "%s", f.why_not.text) : print_findings(&f, &a, err);
    lace_model_close(model);
    weights_close(files);
    return status;
}

VERB(inspect, "inspect", "[MODEL] [options]", "describe a model and the memory it needs", 0, 1,
     .description =
         "MODEL is a GGUF file or a Hugging Face directory; without it, the built-in model is\n"
         "described.\n",
     .examples = "  lace inspect model.gguf\n"
                 "  lace inspect model.gguf -c 32768 --kv-type q8_0\n"
                 "  lace inspect model.gguf --tensors -o json | jq '.tensors[].name'\n")
