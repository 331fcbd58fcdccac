/*
 * Fuzzing thresholds for activation sparsity: whatever the text is, it is refused with one line, or
 * every threshold is a number that activations can be compared with.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/sparsity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_LAYERS = 2, N_EMBD = 4 };

/* A device that takes every matrix: nothing is loaded. */
static bool takes_all(device *d, weight *w)
{
    return d && w;
}

/* As much of a model as thresholds are set in: two layers, the second without a gate. */
static void make_model(model *m, model_layer layers[N_LAYERS])
{
    static const backend with_columns = {.place_columns = takes_all};
    static device made_up = {.backend = &with_columns};
    static const float norm[N_EMBD] = {1, 2, 3, 4};
    strcpy(m->config.architecture, "llama");
    m->config.n_layers = N_LAYERS;
    m->config.n_embd = N_EMBD;
    m->layers = layers;
    m->output_norm = norm;
    m->device = &made_up;
    for (int i = 0; i < N_LAYERS; i++) {
        layers[i].wq.n_rows = layers[i].wk.n_rows = layers[i].wv.n_rows = 1;
        layers[i].wo.n_rows = layers[i].down.n_rows = 1;
    }
    layers[0].gate.n_rows = layers[0].up.n_rows = 1;
    arena_init(&m->memory, 1 << 20);
    if (model_use_sparsity(m, false, NULL) != LACE_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static model m;
    static model_layer layers[N_LAYERS];
    lace_error err = {0};
    if (!m.sparsities)
        make_model(&m, layers);
    lace_status status = sparsity_read(&m, (span){data, size}, &err);
    if (status != LACE_OK) {
        if (err.status != status || !err.text[0] || strchr(err.text, '\n'))
            abort();
        return 0;
    }
    for (int i = 0; i < N_LAYERS * SPARSITY_INPUTS; i++)
        if (!(m.sparsities[i].threshold >= 0 && m.sparsities[i].threshold <= 1e30f))
            abort();
    return 0;
}
