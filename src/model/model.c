/* A model: opened, bound, and its matrices packed. */
#include "model/model.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/adapters.h"
#include "model/mistral_window.h"
#include "model/transformer.h"
#include "hf/hf_names.h"

/* What lace cannot run need not have the metadata that lace expects: that it is said first. */
static lace_status check_runnable(const weights *files, lace_error *err)
{
    char architecture[64];
    if (!weights_gguf(files))
        return LACE_OK; /* reading config.json says it */
    if (adapter_is(files))
        return error_set(err, LACE_E_META,
                         "is an adapter, no model: open the model that it is for, with --lora");
    TRY(config_architecture(weights_gguf(files), architecture, err));
    if (!arch_find(architecture))
        return error_set(err, LACE_E_META,
                         "is a model of the architecture \"%s\", which lace does not run "
                         "(docs/models.md has those that it does)",
                         architecture);
    if (weights_count(files) == 0)
        return error_set(err, LACE_E_META,
                         "has a vocabulary and no weights: only lace tokenize can use it");
    return LACE_OK;
}

lace_status model_create_shell(weights *files, const char *device_name, const device_options *o,
                               model **out, lace_error *err)
{
    *out = NULL;
    model *m = mem_calloc(1, sizeof *m);
    if (!m)
        return error_nomem(err, "a model");
    lace_status status = device_open(device_name, o, &m->device, err);
    if (status != LACE_OK) {
        mem_free(m);
        return status;
    }
    m->files = files;
    arena_init(&m->memory, SIZE_MAX / 2);
    *out = m;
    return LACE_OK;
}

lace_status model_bind(model *m, lace_error *err)
{
    m->layers = arena_alloc(&m->memory, (size_t)m->config.n_layers + 1, sizeof *m->layers);
    if (!m->layers)
        return error_nomem(err, "the layers");
    return m->arch->bind ? m->arch->bind(m, err) : bind_decoder(m, m->arch->form, err);
}

lace_status model_create(weights *files, const char *device_name, const device_options *o,
                         model **out, lace_error *err)
{
    model *m;
    *out = NULL;
    lace_status status = model_create_shell(files, device_name, o, &m, err);
    if (status != LACE_OK) {
        weights_close(files);
        return status;
    }
    TRY_GOTO(status, fail, check_runnable(files, err));
    TRY_GOTO(status, fail, config_from_weights(files, &m->config, err));
    m->arch = arch_find(m->config.architecture);
    assert(m->arch);
    int64_t version = 0;
    if (weights_gguf(files))
        TRY_GOTO(status, fail,
                 gguf_get_int(weights_gguf(files), "lace.format.version", 0, DTYPE_OWN_VERSION,
                              &version, NULL, err));
    if (weights_gguf(files))
        mistral_window_find(weights_name(files), &m->config);
    if (m->arch->configure)
        TRY_GOTO(status, fail, m->arch->configure(&m->config, err));
    if (weights_gguf(files))
        TRY_GOTO(status, fail, arch_check_keys(m->arch, weights_gguf(files), &m->config, err));
    TRY_GOTO(status, fail, model_bind(m, err));
    *out = m;
    return LACE_OK;

fail:
    error_prefix(err, status, weights_name(files));
    model_free(m);
    return status;
}

void model_free(model *m)
{
    if (!m)
        return;
    device_close(m->device);
    mem_free(m->matrices);
    for (int32_t i = 0; i < m->n_adapters; i++)
        mem_free(m->adapters[i].path);
    mem_free(m->adapters);
    arena_deinit(&m->memory);
    weights_close(m->files);
    mem_free(m);
}

uint64_t model_weight_bytes(const model *m)
{
    return m->device->weight_bytes + m->memory.used;
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* Its pages of the file are not needed any more, unless another matrix or the table reads them. */
static void release_source(model *m, int32_t i)
{
    const tensor *source = m->matrices[i].source;
    bool is_last = i + 1 == m->n_matrices || m->matrices[i + 1].source != source;
    if (is_last && source != m->embedding)
        weights_release(m->files, source);
}

static bool lies_in_place(const model_matrix *matrix)
{
    return matrix->target->data == matrix->rows.blocks;
}

void model_pack_more(model *m, pool *workers)
{
    uint64_t done = 0;
    if (!m->is_loaded || m->n_ready == m->n_matrices)
        return;
    uint64_t begin = clock_ns();
    for (; m->n_ready < m->n_matrices && done < m->device->weight_bytes / 8; m->n_ready++) {
        const model_matrix *matrix = &m->matrices[m->n_ready];
        if (!device_pack(m->device, &matrix->rows, matrix->target, workers))
            continue;
        done += matrix->target->n_bytes;
        release_source(m, m->n_ready);
    }
    m->packing_ns += done ? clock_ns() - begin : 0;
}

/* Whether a matrix is used in place for now and will be packed later. */
static bool waits_for_packing(const model_matrix *matrix)
{
    return lies_in_place(matrix) && matrix->target->offset != WEIGHT_IN_PLACE;
}

static lace_status load_matrices(model *m, pool *workers, lace_progress_fn on_progress, void *user,
                                 lace_error *err)
{
    uint64_t done = 0, all = 0;
    for (int32_t i = 0; i < m->n_matrices; i++)
        all += m->matrices[i].target->n_bytes;
    for (int32_t i = 0; i < m->n_matrices; i++) {
        const model_matrix *matrix = &m->matrices[i];
        TRY(weights_prepare(m->files, matrix->source, err));
        TRY(device_load(m->device, &matrix->rows, matrix->target, workers, err));
        done += matrix->target->n_bytes;
        if (lies_in_place(matrix))
            continue; /* for ever or at first */
        release_source(m, i);
        if (on_progress && !on_progress(user, "loading", (double)done / (double)all))
            return error_set(err, LACE_E_CANCELLED, "loading was cancelled");
    }
    if (!m->embedding) /* a vision tower */
        return LACE_OK;
    TRY(weights_prepare(m->files, m->embedding, err));
    return device_load(m->device, &m->table_rows, &m->table, workers, err);
}

lace_status model_renew(model *m, lace_error *err)
{
    bool is_new;
    TRY(device_renew(m->device, &is_new, err));
    m->is_loaded = m->is_loaded && !is_new;
    return LACE_OK;
}

lace_status model_load(model *m, pool *workers, lace_progress_fn on_progress, void *user,
                       lace_error *err)
{
    if (m->is_loaded)
        return LACE_OK;
    TRY(device_begin_load(m->device, err));
    lace_status status = load_matrices(m, workers, on_progress, user, err);
    /* Also behind a failure: what loading took beside the weights is given back. */
    lace_status ended = device_end_load(m->device, status == LACE_OK ? err : NULL);
    TRY(status);
    TRY(ended);
    if (m->embedding && m->table.data != m->table_rows.blocks)
        weights_release(m->files, m->embedding);
    /* Sessions of other threads may run soon: who has nothing to pack must not look again. */
    m->n_ready = m->n_matrices;
    for (int32_t i = m->n_matrices - 1; i >= 0; i--)
        if (waits_for_packing(&m->matrices[i]))
            m->n_ready = 0;
    m->is_loaded = true;
    return LACE_OK;
}
