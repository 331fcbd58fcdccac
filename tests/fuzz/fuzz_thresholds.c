/*
 * Fuzzing thresholds for activation sparsity: whatever the text is, it is refused with one line, or
 * every threshold is a number that activations can be compared with.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/thinning.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_LAYERS = 2, N_EMBD = 4 };

/* As much of a model as thresholds are set in: two layers, the second without a gate. */
static void make_model(model *m, model_layer layers[N_LAYERS])
{
    static const matmul_impl impl;
    static const float norm[N_EMBD] = {1, 2, 3, 4};
    strcpy(m->config.architecture, "llama");
    m->config.n_layers = N_LAYERS;
    m->config.n_embd = N_EMBD;
    m->layers = layers;
    m->output_norm = norm;
    for (int i = 0; i < N_LAYERS; i++) {
        layers[i].wq.impl = layers[i].wk.impl = layers[i].wv.impl = &impl;
        layers[i].wo.impl = layers[i].down.impl = &impl;
    }
    layers[0].gate.impl = layers[0].up.impl = &impl;
    arena_init(&m->memory, 1 << 20);
    if (model_thin(m, false, NULL) != LACE_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static model m;
    static model_layer layers[N_LAYERS];
    lace_error err = {0};
    if (!m.thinnings)
        make_model(&m, layers);
    lace_status status = thin_read(&m, (span){data, size}, &err);
    if (status != LACE_OK) {
        if (err.status != status || !err.text[0] || strchr(err.text, '\n'))
            abort();
        return 0;
    }
    for (int i = 0; i < N_LAYERS * THIN_KINDS; i++)
        if (!(m.thinnings[i].threshold >= 0 && m.thinnings[i].threshold <= 1e30f))
            abort();
    return 0;
}
