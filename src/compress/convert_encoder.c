/* The metadata that converted encoders have beside that of other models. */
#include <stdio.h>

#include "base/mem.h"
#include "compress/convert_meta.h"
#include "model/model.h"

bool convert_is_encoder(const model_config *c)
{
    const arch *a = arch_find(c->architecture);
    return a && (a->takes & ARCH_ENCODER);
}

static const char *key_of(const model_config *c, const char *name, char out[160])
{
    snprintf(out, 160, "%s.%s", c->architecture, name);
    return out;
}

static void put_pooling(const model_config *c, gguf_writer *w)
{
    static const int numbers[] = {[LACE_POOLING_NONE] = 0,
                                  [LACE_POOLING_MEAN] = 1,
                                  [LACE_POOLING_CLS] = 2,
                                  [LACE_POOLING_LAST] = 3,
                                  [LACE_POOLING_RANK] = 4};
    char key[160];
    if (c->pooling != LACE_POOLING_MODEL)
        gguf_writer_add_int(w, key_of(c, "pooling_type", key), GGUF_U32, numbers[c->pooling], NULL);
}

/* Readers take the number of classes from the number of names. */
static lace_status put_labels(const model_config *c, gguf_writer *w, lace_error *err)
{
    char key[160];
    size_t n = (size_t)c->encoder.n_classes;
    if (n == 0)
        return LACE_OK;
    text *labels = mem_calloc(n, sizeof *labels);
    char(*names)[32] = mem_calloc(n, sizeof *names);
    lace_status status = labels && names ? LACE_OK : error_nomem(err, "labels");
    for (size_t i = 0; status == LACE_OK && i < n; i++) {
        snprintf(names[i], sizeof names[i], "LABEL_%zu", i);
        labels[i] = text_of(names[i]);
    }
    if (status == LACE_OK)
        status =
            gguf_writer_add_texts(w, key_of(c, "classifier.output_labels", key), labels, n, err);
    mem_free_all(labels, names);
    return status;
}

/* Each n-th layer sees everything, or a list says which do not. */
static void put_pattern(const model_config *c, gguf_writer *w)
{
    char key[160];
    uint8_t is_local[CONFIG_MAX_LAYERS];
    int32_t n = 1;
    for (int32_t i = 0; i < c->n_layers; i++)
        is_local[i] = c->layers[i].is_local;
    for (; n <= c->n_layers; n++) {
        int32_t i = 0;
        while (i < c->n_layers && is_local[i] == (i % n != 0))
            i++;
        if (i == c->n_layers)
            break;
    }
    key_of(c, "attention.sliding_window_pattern", key);
    if (n <= c->n_layers)
        gguf_writer_add_int(w, key, GGUF_U32, n, NULL);
    else
        gguf_writer_add_array(w, key, GGUF_BOOL, is_local, (uint64_t)c->n_layers, NULL);
}

lace_status convert_add_encoder(const model_config *c, gguf_writer *w, lace_error *err)
{
    char key[160];
    gguf_writer_add_bool(w, key_of(c, "attention.causal", key), false, NULL);
    put_pooling(c, w);
    if (c->encoder.n_segments > 0)
        gguf_writer_add_int(w, "tokenizer.ggml.token_type_count", GGUF_U32, c->encoder.n_segments,
                            NULL);
    if (c->window > 0) {
        put_pattern(c, w);
        gguf_writer_add_text(w, key_of(c, "hidden_activation", key),
                             text_of(c->encoder.has_swiglu ? "silu" : "gelu"), NULL);
    }
    return put_labels(c, w, err);
}
