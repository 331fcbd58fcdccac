/* Opening a model, and what it says of itself. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/placed.h"
#include "engine/together.h"
#include "grammar/grammar_vocab.h"
#include "formats/store.h"
#include "model/sparsity.h"
#include "place/rules.h"
#include "rank/rank_mpi.h"
#include "vocab/vocab_gguf.h"
#include "vocab/vocab_hf.h"

lace_model_options lace_model_options_default(void)
{
    return (lace_model_options){.use_vocab = true};
}

/* What a file may say: a template as long as one of a directory. */
enum { MAX_NAME_BYTES = 64 << 10, MAX_TEMPLATE_BYTES = 4 << 20 };

static lace_status copy_text(const gguf *g, const char *key, size_t max_bytes, char **out,
                             lace_error *err)
{
    text t = {"", 0};
    TRY(gguf_get_text(g, key, &t, NULL, err));
    if (t.size > max_bytes)
        return error_set(err, LACE_E_LIMIT, "%s: has %zu bytes, expected at most %zu", key, t.size,
                         max_bytes);
    *out = mem_strndup(t.data, t.size);
    return *out ? LACE_OK : error_nomem(err, key);
}

/* What the model is called, and the chat template of a file. */
static lace_status copy_texts(lace_model *lm, lace_error *err)
{
    const gguf *g = weights_gguf(lm->files);
    if (g) {
        TRY(copy_text(g, "general.name", MAX_NAME_BYTES, &lm->name, err));
        return copy_text(g, "tokenizer.chat_template", MAX_TEMPLATE_BYTES, &lm->chat_template, err);
    }
    /* A directory's own name, without slashes behind it. */
    const char *path = weights_name(lm->files);
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    lm->name = mem_strndup(path + begin, end - begin);
    return lm->name ? LACE_OK : error_nomem(err, "the name of a model");
}

/* The tokenizer of a directory and its chat template; a directory may have neither. */
static lace_status open_hf_tokenizer(lace_model *lm, bool use_vocab, lace_error *err)
{
    const weights *files = lm->files;
    hf_tokenizer *t = NULL;
    lace_status status = LACE_OK;
    text template = {"", 0};
    if (use_vocab)
        TRY(hf_tokenizer_open(weights_name(files), weights_config(files), &t, err));
    if (t) {
        const hf_vocab *h = hf_tokenizer_vocab(t);
        template = h->chat_template;
        status = tokenizer_create(&h->v, &lm->tokens, err);
    }
    if (status == LACE_OK) {
        lm->chat_template = mem_strndup(template.data, template.size);
        if (!lm->chat_template)
            status = error_nomem(err, "the chat template");
    }
    hf_tokenizer_close(t);
    return status;
}

/* Counts parameters and bytes, and finds the type that most bytes have. */
static void survey(lace_model *lm)
{
    uint64_t by_type[DTYPE_COUNT] = {0};
    const weights *w = lm->files;
    for (size_t i = 0; i < weights_count(w); i++) {
        const tensor *t = weights_at(w, i);
        lm->n_parameters += t->n_values;
        lm->tensor_bytes += t->n_bytes;
        by_type[t->type] += t->n_bytes;
    }
    dtype most = DTYPE_F32;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (by_type[i] > by_type[most])
            most = (dtype)i;
    lm->main_type = dtype_describe(most)->name;
}

static uint64_t file_bytes(const weights *files)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < weights_count(files); i++)
        bytes += weights_at(files, i)->n_bytes;
    return bytes;
}

/* Thresholds from a file, or from the text itself. */
static lace_status use_sparsity(model *m, const lace_model_options *o, lace_error *err)
{
    enum { MAX_BYTES = 16 << 20 };
    const char *given = o->activation_sparsity;
    bool is_text = given[0] == '{';
    buf bytes;
    buf_init(&bytes, MAX_BYTES);
    lace_status status = is_text ? buf_append_text(&bytes, given) : file_read(given, &bytes, err);
    if (status == LACE_OK)
        status = model_use_sparsity(m, o->sparse_in_batches, err);
    if (status == LACE_OK) {
        status = sparsity_read(m, (span){(const uint8_t *)bytes.data, bytes.size}, err);
        if (!is_text && status != LACE_OK)
            error_prefix(err, status, given);
    }
    buf_deinit(&bytes);
    return status == LACE_OK && !o->sparse_in_batches ? model_use_columns(m, err) : status;
}

static weight_mode mode_of(const lace_model_options *o)
{
    return o->use_exact     ? WEIGHTS_EXACT
           : o->use_mmap    ? WEIGHTS_IN_PLACE
           : o->packs_later ? WEIGHTS_PACKED_LATER
                            : WEIGHTS_PACKED;
}

/* Several ranks compute all of a model that they can divide. */
static lace_status check_ranks(const lace_model_options *o, const place_rules *rules,
                               lace_error *err)
{
    if (o->activation_sparsity)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "activation sparsity works on one rank, not on several");
    if (o->use_mtp)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "a prediction layer works on one rank, not on several");
    if (rules->file[0] || rules->layers >= 0 || rules->host_experts >= 0 || rules->card_bytes)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "several ranks divide every layer: layers and experts cannot be placed");
    if (rules->n_shares > 0 && o->ranks)
        return error_set(err, LACE_E_ARG, "ranks have their shares already (\"%s\"): no split",
                         o->ranks);
    return LACE_OK;
}

enum { SHARE_UNITS = 1000, SHARES_BYTES = 16 * PLACE_MAX_DEVICES };

/* Devices that divide rows are a rank each: "3,1", or as many as there are names. */
static lace_status write_shares(const place_rules *rules, char out[SHARES_BYTES], lace_error *err)
{
    int32_t n_devices = 1;
    for (const char *c = rules->devices; *c; c++)
        n_devices += *c == ',';
    snprintf(out, SHARES_BYTES, "%d", n_devices);
    if (rules->n_shares == 0)
        return LACE_OK;
    if (rules->n_shares != n_devices)
        return error_set(err, LACE_E_ARG, "a split of %d shares for %d devices", rules->n_shares,
                         n_devices);
    size_t n = 0;
    for (int32_t i = 0; i < n_devices; i++) {
        double share = rules->shares[i] * SHARE_UNITS;
        if (share < 1 || share > RANK_SHARE_MAX)
            return error_set(err, LACE_E_ARG, "rows are split in shares from 0.001 to %d, not %g",
                             RANK_SHARE_MAX / SHARE_UNITS, rules->shares[i]);
        n += (size_t)snprintf(out + n, SHARES_BYTES - n, i ? ",%d" : "%d", (int)share);
    }
    return LACE_OK;
}

/* The model of this rank, beside those of the others; in a process that follows, to the end. */
static lace_status create_together(lace_model *lm, weights *files, const model_source *source,
                                   const lace_model_options *o, const place_rules *rules,
                                   const device_options *d, lace_error *err)
{
    char shares[SHARES_BYTES];
    bool is_auto = strcmp(rules->devices, "auto") == 0;
    together_options options = {.ranks = o->ranks ? o->ranks : shares,
                                .net = o->rank_net,
                                .timeout_ms = o->rank_timeout_ms,
                                .where = is_auto ? NULL : rules->devices,
                                .device = *d};
    lace_status status = check_ranks(o, rules, err);
    if (status == LACE_OK && !o->ranks)
        status = write_shares(rules, shares, err);
    if (status == LACE_OK)
        status = together_start(&options, source, &lm->others, err);
    if (status != LACE_OK) {
        weights_close(files);
        return status;
    }
    TRY(together_open(lm->others, files, &lm->m, lm->note, err));
    return together_follows(lm->others) ? together_follow(lm->others, lm->m, err) : LACE_OK;
}

/* Names the architecture, binds the weights. Takes `files`, also on failure. */
static lace_status bind_model(lace_model *lm, weights *files, const model_source *source,
                              const lace_model_options *o, lace_error *err)
{
    device_options options = {.level = cpu_level_detect(),
                              .mode = mode_of(o),
                              .weight_bytes = file_bytes(files),
                              .has_columns = o->activation_sparsity != NULL,
                              .fast_prompts = o->fast_prompts};
    placing where = {0};
    place_rules rules;
    lace_status status = place_rules_parse(o->device ? o->device : "cpu", &rules, err);
    bool is_divided = o->ranks || (status == LACE_OK && rules.by_rows);
    if (status == LACE_OK && !is_divided)
        status = placing_begin(&where, o->device, &options, err);
    if (status != LACE_OK) {
        weights_close(files);
        return status;
    }
    if (is_divided)
        TRY(create_together(lm, files, source, o, &rules, &options, err));
    else
        TRY(model_create(files, where.name, &options, &lm->m, err));
    lm->files = files;
    lm->n_vocab = lm->m->config.n_vocab;
    if (o->use_mtp)
        TRY(model_bind_predicting(lm->m, err));
    if (where.where.n_devices != 0 && o->activation_sparsity)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "activation sparsity works on one device, not on several");
    if (!is_divided) {
        TRY(placing_end(&where, lm->m, &options, err));
        memcpy(lm->note, where.note, sizeof lm->note);
    }
    device_info info;
    TRY(device_describe(lm->m->device, &info, err));
    memcpy(lm->device_name, info.name, sizeof lm->device_name);
    if (o->fast_prompts && !info.has_fast_prompts)
        return error_set(
            err, LACE_E_UNSUPPORTED,
            "fast prompts (--fast-prompts): %s has no kernels for them; a CUDA GPU has",
            info.name[0] ? info.name : "the CPU");
    return o->activation_sparsity ? use_sparsity(lm->m, o, err) : LACE_OK;
}

static lace_status open_tokenizer(lace_model *lm, bool use_vocab, lace_error *err)
{
    const gguf *g = weights_gguf(lm->files);
    if (!g)
        return open_hf_tokenizer(lm, use_vocab, err);
    return use_vocab && gguf_find(g, "tokenizer.ggml.model") ? vocab_gguf_open(g, &lm->tokens, err)
                                                             : LACE_OK;
}

/* The texts of a model and its vocabulary, which must fit what it computes. */
static lace_status read_words(lace_model *lm, bool use_vocab, lace_error *err)
{
    TRY(copy_texts(lm, err));
    TRY(open_tokenizer(lm, use_vocab, err));
    if (!lm->m && !lm->tokens)
        return error_set(err, LACE_E_VOCAB, "it has no vocabulary");
    size_t n = lm->tokens ? tokenizer_n_tokens(lm->tokens) : 0;
    if (!lm->m)
        lm->n_vocab = (int32_t)n;
    if (n > (size_t)lm->n_vocab)
        return error_set(err, LACE_E_VOCAB, "%zu tokens, but the model computes %d", n,
                         lm->n_vocab);
    return LACE_OK;
}

static lace_status open_source(const model_source *source, const lace_model_options *options,
                               lace_model **out, lace_error *err)
{
    weights *files;
    *out = NULL;
    TRY(model_source_open(source, &files, err));
    lace_model_options o = options ? *options : lace_model_options_default();
    lace_model *lm = mem_calloc(1, sizeof *lm);
    if (!lm) {
        weights_close(files);
        return error_nomem(err, "a model");
    }
    pthread_mutex_init(&lm->load_lock, NULL);
    lace_status status = LACE_OK;
    if (o.vocab_only)
        lm->files = files;
    else
        status = bind_model(lm, files, source, &o, err);
    if (status == LACE_OK) {
        status = read_words(lm, o.use_vocab || o.vocab_only, err);
        if (status != LACE_OK)
            error_prefix(err, status, weights_name(files));
    }
    if (status != LACE_OK) {
        lace_model_close(lm);
        return status;
    }
    survey(lm);
    *out = lm;
    return LACE_OK;
}

lace_status lace_model_open(const char *path, const lace_model_options *options, lace_model **out,
                            lace_error *err)
{
    return open_source(&(model_source){.path = path}, options, out, err);
}

typedef struct list_call {
    bool (*fn)(void *user, const lace_model_entry *entry);
    void *user;
} list_call;

static bool pass_on(void *user, const store_entry *e)
{
    const list_call *call = user;
    lace_model_entry entry = {e->name, e->path, e->origin, e->n_bytes};
    return call->fn(call->user, &entry);
}

void lace_model_list(bool (*fn)(void *user, const lace_model_entry *entry), void *user)
{
    list_call call = {fn, user};
    store_list(pass_on, &call);
}

lace_status lace_model_open_memory(const void *data, size_t n_bytes, const char *name,
                                   const lace_model_options *options, lace_model **out,
                                   lace_error *err)
{
    model_source source = {.bytes = {data, n_bytes}, .name = name};
    return open_source(&source, options, out, err);
}

void lace_model_close(lace_model *lm)
{
    if (!lm)
        return;
    together_end(lm->others);
    tokenizer_free(lm->tokens);
    if (lm->m)
        model_free(lm->m); /* and its files */
    else
        weights_close(lm->files);
    together_free(lm->others);
    mem_free_all(lm->adapter_scales, lm->name);
    grammars_forget(lm);
    grammar_vocab_free(lm->grammar_tokens);
    mem_free(lm->chat_template);
    pthread_mutex_destroy(&lm->load_lock);
    mem_free(lm);
}

void lace_model_hurry(lace_model *lm)
{
    together_hurry(lm->others);
}

bool lace_ranks_are_started(void)
{
    return rank_mpi_is_started();
}

void lace_model_describe(const lace_model *lm, lace_model_info *out)
{
    *out = (lace_model_info){
        .name = lm->name,
        .architecture = "",
        .type = lm->main_type,
        .tokenizer = lm->tokens ? tokenizer_kind_name(lm->tokens) : "",
        .chat_template = lm->chat_template,
        .n_parameters = lm->n_parameters,
        .weight_bytes = lm->tensor_bytes,
        .device = "cpu",
        .backend = "",
        .n_vocab = lm->n_vocab,
        .bos = lm->tokens ? tokenizer_bos(lm->tokens) : -1,
        .eos = lm->tokens ? tokenizer_eos(lm->tokens) : -1,
        .pooling = LACE_POOLING_MEAN,
    };
    if (!lm->m)
        return;
    const model_config *c = &lm->m->config;
    out->architecture = c->architecture;
    out->packing_ns = lm->m->packing_ns;
    out->backend = lm->m->device->backend->name;
    if (lm->device_name[0])
        out->device = lm->device_name;
    out->n_layers = c->n_layers;
    out->n_embd = c->n_embd;
    out->n_heads = c->n_heads;
    out->n_kv_heads = c->n_kv_heads;
    out->head_dim = c->head_dim;
    out->n_ff = c->n_ff;
    out->n_experts = c->n_experts;
    out->n_experts_used = c->n_experts_used;
    out->n_ff_expert = c->n_ff_expert;
    out->n_context = c->n_context;
    out->is_encoder = c->encoder.is_on;
    out->n_classes = c->encoder.n_classes;
    out->n_predicting = c->n_predicting;
    out->pooling = c->pooling == LACE_POOLING_MODEL ? LACE_POOLING_MEAN : c->pooling;
}

const char *lace_model_placing_note(const lace_model *lm)
{
    return lm->note;
}

size_t lace_device_list(lace_device *devices, size_t capacity)
{
    return device_show_all(devices, capacity);
}
