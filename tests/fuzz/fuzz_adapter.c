/*
 * Fuzzing LoRA adapters. Bytes that begin as GGUF are an adapter for a small model: opening says no,
 * or every matrix that it names can be read. Others are an adapter_config.json of PEFT, and the name
 * of a module.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "model/adapter_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(lace_status status, const lace_error *err)
{
    /* One line, of the same status, that says something. */
    if (err->status != status || err->text[0] == 0 || strchr(err->text, '\n'))
        abort();
}

enum { WIDTH = 8, N_VOCAB = 16 };

static const shape *find(const void *user, const char *name)
{
    static const shape square = {2, {WIDTH, WIDTH, 1, 1}}, table = {2, {WIDTH, N_VOCAB, 1, 1}},
                       experts = {3, {WIDTH, WIDTH, 2, 1}};
    static const struct {
        const char *name;
        const shape *s;
    } tensors[] = {{"blk.0.attn_q.weight", &square},
                   {"blk.0.attn_k.weight", &square},
                   {"blk.1.ffn_down.weight", &square},
                   {"blk.1.ffn_up_exps.weight", &experts},
                   {"token_embd.weight", &table}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return tensors[i].s;
    return NULL;
}

static void read_all(const adapter_file *f)
{
    for (size_t i = 0; i < f->n_parts; i++) {
        const adapter_part *p = &f->parts[i];
        float *a = malloc((size_t)(p->rank * p->n_in) * sizeof *a);
        float *b = malloc((size_t)(p->rank * p->n_out) * sizeof *b);
        lace_error err = {0};
        lace_status status = adapter_read(f, p, a, b, &err);
        if (status != LACE_OK)
            check_error(status, &err);
        free(a);
        free(b);
    }
}

static void run_gguf(span bytes, const adapter_base *base)
{
    weights *files = NULL;
    adapter_file *f = NULL;
    lace_error err = {0};
    lace_status status = weights_open_memory(bytes, "fuzz", &files, &err);
    if (status == LACE_OK)
        status = adapter_open_files(files, base, &f, &err);
    if (status != LACE_OK)
        check_error(status, &err);
    else
        read_all(f);
    adapter_close(f);
}

static void run_peft(span bytes, const peft_base *base)
{
    char module[256] = "";
    peft_target targets[PEFT_MOST_TARGETS];
    peft_config config;
    json_t *json = NULL;
    lace_error err = {0};
    int n = 0;
    memcpy(module, bytes.data, bytes.size < 255 ? bytes.size : 255);
    lace_status status = peft_find(base, module, targets, &n, &err);
    if (status != LACE_OK && err.text[0] == 0)
        abort();
    if (json_read(bytes, 0, &json, NULL) == LACE_OK && json_is_object(json)) {
        status = peft_config_read(json, &config, &err);
        if (status != LACE_OK)
            check_error(status, &err);
        else
            peft_factor(&config, "model.layers.0.self_attn.q_proj", 4);
    }
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static model_config config;
    config = config_default();
    strcpy(config.architecture, "llama");
    config.n_layers = 2;
    config.n_embd = WIDTH;
    config.n_heads = config.n_kv_heads = 2;
    config.head_dim = WIDTH / 2;
    config.n_vocab = N_VOCAB;
    for (int layout = 0; layout < 2; layout++) {
        adapter_base base = {
            .names = {.config = &config, .layout = layout ? HF_AS_GGUF : HF_FOR_RUNNING},
            .find = find};
        if (size >= 4 && memcmp(data, "GGUF", 4) == 0)
            run_gguf((span){data, size}, &base);
        else if (size > 0)
            run_peft((span){data, size}, &base.names);
    }
    return 0;
}
