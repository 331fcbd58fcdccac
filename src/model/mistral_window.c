/* The window of a Mistral model from a config.json beside its GGUF file. */
#include "model/mistral_window.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "hf/config_hf.h"

enum { MAX_PATH = 4096, MAX_BYTES = 4 << 20 };

/* The same numbers wherever a converter copies them. */
static bool is_same_model(const model_config *a, const model_config *b)
{
    return strcmp(a->architecture, b->architecture) == 0 && a->n_layers == b->n_layers &&
           a->n_embd == b->n_embd && a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads &&
           a->head_dim == b->head_dim && a->n_ff == b->n_ff && a->n_vocab == b->n_vocab &&
           a->n_context == b->n_context && a->rope.base == b->rope.base;
}

void mistral_window_find(const char *path, model_config *c)
{
    if (strcmp(c->architecture, "llama") != 0 || c->window > 0)
        return;
    char beside[MAX_PATH];
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    int n = snprintf(beside, sizeof beside, "%.*sconfig.json", folder, path);
    if (n < 0 || n >= MAX_PATH)
        return;
    buf bytes;
    json_t *json = NULL;
    buf_init(&bytes, MAX_BYTES);
    hf_config *found = mem_alloc(sizeof *found); /* too large for the stack */
    if (found && file_read_regular(beside, &bytes, NULL) == LACE_OK && bytes.size > 0 &&
        json_read((span){(const uint8_t *)bytes.data, bytes.size}, 0, &json, NULL) == LACE_OK &&
        json_is_object(json) && hf_config_read(json, found, NULL) == LACE_OK &&
        is_same_model(&found->model, c))
        c->window = found->model.window;
    json_decref(json);
    mem_free(found);
    buf_deinit(&bytes);
}
